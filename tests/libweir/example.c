/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest user of libweir: two endpoints, one request that needs 8 GB, one answer. */
#include <stdio.h>
#include <stdlib.h>
#include <weir/weir.h>

static void *resize(void *ctx, void *p, size_t n)
{
    (void)ctx;
    if (n > 0)
        return realloc(p, n);
    free(p);
    return NULL;
}

static int add(struct fleet *f, const char *host, const char *free_gb, const char *requests)
{
    struct model_ref model = {.id = SLICE("llama-3-8b")};
    struct kv metadata[] = {{SLICE("remaining_memory"), slice_str(free_gb)},
                            {SLICE("current_requests"), slice_str(requests)}};
    struct instance i = {
        .key = slice_str(host),
        .host = slice_str(host),
        .port = 8000,
        .models = &model,
        .n_models = 1,
        .weight = WEIGHT_ONE,
        .enabled = true,
        .healthy = true,
        .vouched = true,
        .metadata = metadata,
        .n_metadata = 2,
    };
    return fleet_upsert(f, 0, &i, 1);
}

int main(void)
{
    struct mem mem = {.resize = resize};
    struct fleet_options fleet_options = {.mem = &mem, .n_sources = 1};
    struct route_queue queue = {.size = 16};
    struct policy policy;
    struct sched_pool_options pool_options = {.mem = &mem, .policy = &policy, .queue = &queue};
    struct features request = {.model = SLICE("llama-3-8b"), .required_bytes = UINT64_C(8) << 30};
    struct fleet *fleet = NULL;
    struct sched_pool *pool = NULL;
    const struct snapshot *snapshot;
    struct sched_scratch scratch = {0};
    struct reservation reservation = {0};
    struct member chosen;
    struct decision decision;

    if (sched_policy_named(SLICE("chain"), &policy) || fleet_new(&fleet_options, &fleet) ||
        add(fleet, "gpu1", "12", "5") || add(fleet, "gpu2", "6", "0") ||
        add(fleet, "gpu3", "9", "2") || fleet_build(fleet, 1, &snapshot) ||
        sched_pool_new(&pool_options, &pool) || sched_pool_refresh(pool, snapshot, request.model) ||
        sched_scratch_reserve(&scratch, &mem, 3))
        return 1;
    int rc =
        sched_pool_admit(pool, &request, NULL, 1, 42, &scratch, &reservation, &chosen, &decision);
    if (rc) {
        fprintf(stderr, "%s\n", err_text(rc));
        return 1;
    }
    printf("%.*s\n", SLICE_ARG(chosen.endpoint->authority));
    sched_cell_put(sched_release(&reservation));
    sched_pool_free(pool);
    fleet_free(fleet);
    sched_scratch_fini(&scratch, &mem);
    return 0;
}
