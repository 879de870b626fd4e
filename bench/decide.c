/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file How long one routing decision takes: rows filled from the cells, filters, costs, pick, reservation, release.
 *
 * usage: decide [decisions] [policy]
 * Endpoints have limits, loads, utilizations and KV memory that differ; a few hundred requests stay in flight, so that
 * costs change with every decision. Budget (docs/performance.md): 64 endpoints 5 us p99, 1,000 endpoints 10 us p99.
 */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "base/prng.h"
#include "fleet_rig.h"

enum { HELD = 256, WARM = 2000 };

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static void report(struct rig *r, struct prng *rnd, const struct rig_host *h)
{
    struct sample s = {
        .known = 1u << SAMPLE_GPU_UTIL | 1u << SAMPLE_KV_CAPACITY | 1u << SAMPLE_KV_USED |
                 1u << SAMPLE_RUNNING | 1u << SAMPLE_WAITING | 1u << SAMPLE_MEMORY_FREE |
                 1u << SAMPLE_MEMORY_TOTAL,
        .fresh_for_ns = 3600 * NS_PER_S,
        .gpu_util_bp = (uint32_t)prng_below(rnd, 10001),
        .kv_capacity_tokens = 500000,
        .kv_used_tokens = prng_below(rnd, 250000),
        .memory_free_bytes = (8 + prng_below(rnd, 32)) * GIB,
        .memory_total_bytes = 80 * GIB,
        .running = (uint32_t)prng_below(rnd, 3),
    };
    RIG_MUST(fleet_sample(r->fleet, 0, h->i.key, &s, r->now));
}

static void open_fleet(struct rig *r, const char *policy, uint32_t n)
{
    struct prng rnd = {7};

    rig_open(r, policy);
    for (uint32_t i = 0; i < n; i++) {
        struct rig_host h;
        rig_host(&h, i,
                 i % 3 ? "engine=vllm gpu_type=A100 max_concurrency=256"
                       : "engine=vllm gpu_type=T4 max_concurrency=64");
        h.i.weight = i % 3 ? 3000 : 1000;
        rig_put(r, &h);
        report(r, &rnd, &h);
    }
    rig_refresh(r);
}

static void measure(const char *policy,
                    uint32_t n,
                    const char *what,
                    const struct features *f,
                    uint64_t *times,
                    uint32_t count)
{
    static struct reservation held[HELD];
    struct rig r;
    struct prng rnd = {11};
    uint64_t sum = 0;

    open_fleet(&r, policy, n);
    r.f = *f;
    r.f.model = RIG_MODEL;
    for (uint32_t i = 0; i < WARM + count; i++) {
        struct reservation *q = &held[prng_below(&rnd, HELD)];
        r.f.session = i;
        uint64_t begun = now_ns();
        rig_end(q);
        int rc = rig_admit(&r, q);
        uint64_t took = now_ns() - begun;
        if (rc != 0)
            abort();
        if (i >= WARM) {
            times[i - WARM] = took;
            sum += took;
        }
    }
    for (uint32_t i = 0; i < HELD; i++)
        rig_end(&held[i]);
    rig_close(&r);
    qsort(times, count, sizeof(*times), by_value);
    printf("| %s | %s | %" PRIu32 " | %" PRIu64 " | %" PRIu64 " | %" PRIu64 " |\n", policy, what, n,
           sum / count, times[count / 2], times[(uint64_t)count * 99 / 100]);
}

int main(int argc, char **argv)
{
    static const uint32_t sizes[] = {8, 64, 512, 1000};
    struct features plain = {.priority = PRIORITY_DEFAULT};
    struct features needs = {.priority = PRIORITY_DEFAULT,
                             .prompt_tokens = 1000,
                             .output_tokens = 200,
                             .has_session = true};
    uint64_t count = 50000;
    const char *policy = argc > 2 ? argv[2] : "chain";

    if (argc > 1 && (num_u64(slice_str(argv[1]), &count) || count < 100 || count > 10000000)) {
        fprintf(stderr, "usage: decide [decisions 100..10000000] [policy]\n");
        return 2;
    }
    uint64_t *times = calloc(count, sizeof(*times));
    if (!times)
        return 1;
    printf("| policy | request | endpoints | mean ns | p50 ns | p99 ns "
           "|\n|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        measure(policy, sizes[i], "no need told", &plain, times, (uint32_t)count);
        measure(policy, sizes[i], "1,200 tokens, session", &needs, times, (uint32_t)count);
    }
    free(times);
    return 0;
}
