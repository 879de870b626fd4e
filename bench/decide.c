/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The decision alone: how long does sched_pool_admit() take, pick and reservation, with 8 to 1,000 endpoints?
 *
 * Endpoints differ in weight, free memory and utilization, all with fresh samples; four requests per endpoint are in
 * flight, the oldest ends before each new one. The clock around each call costs some 30 ns, which are not subtracted.
 * Policies that count work get prompts of 128 prefix blocks, a warm index and sessions as well; what noting the blocks
 * takes, which happens after the decision and outside the pool's lock, is shown beside it.
 * One thread: what a loop pays for its own requests.
 */
#include "hist.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/prng.h"
#include "loop/alloc.h"
#include "sched/ledger.h"
#include "sched/pick.h"
#include "sched/pool.h"
#include "sched/record.h"
#include "sched/work.h"

enum {
    ENDPOINTS_MAX = 4096,
    PER_ENDPOINT = 4,
    BLOCKS = 128,
    COMMON = 16,
    CHATS = 512,
    TENANTS = 64
};
#define INDEX_BYTES ((size_t)64 << 20)

/* One row of the table for each number of endpoints. */
struct subject {
    const char *name, *policy;
    bool tenants; /* each request is of one of 64, whose tokens are counted */
    bool young;   /* one endpoint is in its slow start all the time */
    bool logged;  /* each decision is captured for the log, which takes at most 100 a second */
};
static const struct subject SUBJECTS[] = {
    {"round_robin", "round_robin", false, false, false},
    {"least_request", "least_request", false, false, false},
    {"power_of_two", "power_of_two", false, false, false},
    {"consistent_hash", "consistent_hash", false, false, false},
    {"chain", "chain", false, false, false},
    {"chain, slow start", "chain", false, true, false},
    {"cache_aware", "cache_aware", false, false, false},
    {"queued_work", "queued_work", false, false, false},
    {"queued_work, tenants", "queued_work", true, false, false},
    {"queued_work, slow start", "queued_work", false, true, false},
    {"queued_work, logged", "queued_work", false, false, true},
};

/* Prompts of 64,000 tokens: 16 blocks that all share, and 112 of a chat that comes again and again. */
static uint64_t prompts[CHATS][BLOCKS];

static void make_prompts(void)
{
    for (uint64_t c = 0; c < CHATS; c++)
        for (uint64_t i = 0; i < BLOCKS; i++) {
            struct prng r = {i < COMMON ? i : (c + 1) << 32 | i};
            prompts[c][i] = prng_next(&r);
        }
}

static struct {
    struct endpoint endpoints[ENDPOINTS_MAX];
    struct cell cells[ENDPOINTS_MAX];
    struct address_count addresses[ENDPOINTS_MAX];
    struct member members[ENDPOINTS_MAX];
    uint32_t indexes[ENDPOINTS_MAX];
    char names[ENDPOINTS_MAX][24];
    struct reservation flying[ENDPOINTS_MAX * PER_ENDPOINT];
} fleet;

static const struct model_ref model_m = {.id = {"m", 1}};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

static void make_fleet(uint32_t n, struct snapshot_model *m, struct snapshot *s)
{
    memset(&fleet, 0, sizeof fleet);
    for (uint32_t i = 0; i < n; i++) {
        int len =
            snprintf(fleet.names[i], sizeof fleet.names[i], "10.0.%u.%u:8000", i / 250, i % 250);
        struct slice name = slice_of(fleet.names[i], (size_t)len);
        fleet.endpoints[i] = (struct endpoint){.slot = i,
                                               .generation = 1,
                                               .id = name,
                                               .authority = name,
                                               .host = name,
                                               .port = 8000,
                                               .models = &model_m,
                                               .n_models = 1,
                                               .weight = WEIGHT_ONE * (1 + i % 3),
                                               .enabled = true,
                                               .registry_healthy = true,
                                               .vouched = true,
                                               .engine = ENGINE_LLAMACPP,
                                               .max_concurrency = 256,
                                               .memory_total_bytes = 80ULL << 30};
        struct cell *c = &fleet.cells[i];
        c->address = &fleet.addresses[i];
        c->slot = i;
        c->generation = 1;
        atomic_init(&c->refs, 1);
        atomic_init(&c->fresh_until_ns, UINT64_MAX);
        atomic_init(&c->free_bytes, (60ULL + i % 20) << 30);
        atomic_init(&c->util_bp, (uint16_t)(i * 37 % 10000));
        atomic_init(&c->known, CELL_KNOWS_UTIL | CELL_KNOWS_BYTES);
        atomic_init(&c->health, HEALTH_UP);
        fleet.members[i] = (struct member){&fleet.endpoints[i], c};
        fleet.indexes[i] = i;
    }
    *m = (struct snapshot_model){.id = {"m", 1}, .members = fleet.indexes, .n_members = n};
    *s = (struct snapshot){.seq = 1,
                           .members = fleet.members,
                           .n_members = n,
                           .models = m,
                           .n_models = 1,
                           .n_live_models = 1,
                           .synced = true};
}

static void finish(struct sched_pool *pool, struct reservation *r)
{
    sched_first_byte(r);
    sched_pool_settle(pool, r, 1000, 100);
    struct cell *c = sched_release(r);
    if (c != NULL)
        sched_cell_put(c);
}

static struct slice tenant_of(uint32_t i)
{
    static char names[TENANTS][4];
    char *name = names[i % TENANTS];
    int len = snprintf(name, sizeof names[0], "t%02u", i % TENANTS);

    return slice_of(name, (size_t)len);
}

static int measure(const struct subject *s, uint32_t n, uint32_t decisions)
{
    static struct hist took;
    static struct hist noting;
    struct snapshot_model model;
    struct snapshot snapshot;
    struct policy policy = {0};
    struct route_queue queue = {.size = 1024,
                                .timeout_ns = 60000000000ULL,
                                .age_ns = 10000000000ULL,
                                .by_tenant = s->tenants};
    void *pages = loop_pages(INDEX_BYTES);
    struct sched_lore *lore = NULL;
    if (pages == NULL || sched_lore_new(loop_mem(), pages, INDEX_BYTES, &lore) != 0)
        return 1;
    struct sched_pool_options options = {
        .mem = loop_mem(), .policy = &policy, .queue = &queue, .lore = lore};
    struct sched_scratch scratch = {0};
    struct sched_record *record = NULL;
    struct sched_pool *pool = NULL;
    struct prng random = {n};
    uint32_t ring = n * PER_ENDPOINT, refused = 0;
    make_fleet(n, &model, &snapshot);
    memset(&took, 0, sizeof took);
    memset(&noting, 0, sizeof noting);
    if (s->young)
        atomic_store(&fleet.cells[0].gate, GATE_YOUNG);
    if (sched_policy_named(slice_str(s->policy), &policy) != 0 ||
        sched_pool_new(&options, &pool) != 0 ||
        sched_pool_refresh(pool, &snapshot, model.id) != 0 ||
        sched_scratch_reserve(&scratch, loop_mem(), n) != 0 ||
        (s->logged && sched_record_new(loop_mem(), n, &record) != 0)) {
        fprintf(stderr, "decide: cannot set up %s with %u endpoints\n", s->name, n);
        return 1;
    }
    scratch.record = record;
    policy.slow_start_ns = s->young ? 3600000000000ULL : 0;
    for (uint32_t i = 0; i < decisions + ring; i++) {
        struct reservation *r = &fleet.flying[i % ring];
        struct member chosen;
        struct decision d;
        struct features f = {.model = model.id,
                             .task = TASK_CHAT,
                             .prompt_complete = true,
                             .prompt_bytes = 2000,
                             .prompt_tokens = 500,
                             .output_tokens = 200,
                             .priority = PRIORITY_DEFAULT,
                             .required_bytes = i % 4 == 0 ? 20ULL << 30 : 0,
                             .has_session = true};
        f.session = prng_next(&random);
        if (sched_policy_reads_work(&policy)) {
            uint32_t chat = (uint32_t)prng_below(&random, CHATS);
            f.blocks = prompts[chat];
            f.n_blocks = BLOCKS;
            f.prompt_bytes = BLOCKS * 2048;
            f.session = chat;
            f.stream = true;
            sched_lore_prepare(lore, &f);
        }
        if (s->tenants)
            f.tenant = tenant_of((uint32_t)prng_below(&random, TENANTS));
        uint64_t seed = prng_next(&random);
        finish(pool, r);
        uint64_t before = now_ns();
        int rc = sched_pool_admit(pool, &f, NULL, before, seed, &scratch, r, &chosen, &d);
        uint64_t after = now_ns();
        if (rc == 0)
            sched_work_note(lore, r, &f);
        uint64_t noted = now_ns();
        refused += rc != 0;
        if (i >= ring) { /* the fleet is as full as it will stay */
            hist_add(&took, after - before);
            hist_add(&noting, noted - after);
        }
    }
    for (uint32_t i = 0; i < ring; i++)
        finish(pool, &fleet.flying[i]);
    printf("| %s | %u | %.2f | %.2f | %.2f | %.2f | %.2f | %u |\n", s->name, n,
           (double)took.sum / (double)took.n / 1e3, (double)hist_quantile(&took, 0.5) / 1e3,
           (double)hist_quantile(&took, 0.99) / 1e3, (double)hist_quantile(&took, 0.999) / 1e3,
           (double)hist_quantile(&noting, 0.5) / 1e3, refused);
    sched_pool_free(pool);
    sched_record_free(record);
    sched_scratch_fini(&scratch, loop_mem());
    sched_lore_free(lore);
    loop_pages_free(pages, INDEX_BYTES);
    return 0;
}

int main(int argc, char **argv)
{
    static const uint32_t sizes[] = {8, 64, 512, 1000};
    uint32_t decisions = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 200000;
    const char *only = argc > 2 ? argv[2] : NULL;
    uint32_t size = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
    if (argc > 4 || decisions == 0 || (argc > 3 && (size == 0))) {
        fputs("usage: decide [DECISIONS [ROW [ENDPOINTS]]]\nPrints a table of the time per "
              "decision, by policy and number of endpoints.\n",
              stderr);
        return 2;
    }
    puts("| policy | endpoints | mean us | p50 us | p99 us | p99.9 us | noting, p50 us | refused "
         "|\n|---|---|---|---|---|---|---|---|");
    make_prompts();
    int rc = 0;
    for (size_t p = 0; p < sizeof SUBJECTS / sizeof SUBJECTS[0]; p++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            if ((!only || strcmp(only, SUBJECTS[p].name) == 0) && (!size || sizes[i] == size))
                rc |= measure(&SUBJECTS[p], sizes[i], decisions);
    return rc;
}
