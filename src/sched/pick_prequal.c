/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Pick prequal (Wydrowski and others, NSDI 2024): of 16 endpoints drawn at random, those with more requests in
 * flight than the 0.84 quantile of the 16 are hot. The cold one with the lowest response time, or when all are hot the
 * one with the fewest requests. Weir's reports and ledger stand for the probes.
 */
#include "base/bug.h"
#include "sched/plugin.h"

enum { POOL = 16, QUANTILE_PERCENT = 84 };

uint32_t sched_pick_prequal(const struct sched_view *v,
                            const uint32_t *fit,
                            uint32_t n,
                            const struct sched_cost *costs,
                            struct sched_state *state,
                            uint64_t seed)
{
    uint32_t drawn[POOL];
    uint32_t loads[POOL];
    struct prng r = {seed};
    uint32_t m = MIN(n, (uint32_t)POOL);

    (void)costs;
    (void)state;
    /* m of n without repetition (Floyd); the order is random enough, since the first of equals wins. */
    for (uint32_t k = 0; k < m; k++) {
        uint32_t t = (uint32_t)prng_below(&r, n - m + k + 1);
        for (uint32_t j = 0; j < k; j++)
            if (drawn[j] == t)
                t = n - m + k;
        uint32_t at = (uint32_t)prng_below(&r, k + 1);
        drawn[k] = drawn[at];
        drawn[at] = t;
    }
    for (uint32_t k = 0; k < m; k++) {
        uint32_t load = v->rows[fit[drawn[k]]].load;
        uint32_t j = k;
        for (; j > 0 && loads[j - 1] > load; j--)
            loads[j] = loads[j - 1];
        loads[j] = load;
    }
    uint32_t hot = loads[(m - 1) * QUANTILE_PERCENT / 100];
    uint32_t best = n;
    for (uint32_t k = 0; k < m; k++) {
        uint32_t i = drawn[k];
        if (v->rows[fit[i]].load > hot)
            continue;
        if (best == n ||
            v->work[fit[i]].speed.first_byte_us < v->work[fit[best]].speed.first_byte_us)
            best = i;
    }
    return best; /* the one at the quantile is cold, so there is one */
}
