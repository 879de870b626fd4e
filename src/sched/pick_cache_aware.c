/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Pick cache_aware, as the SGLang router (SMG) has it, with its published thresholds: the least loaded when loads
 * differ by more than 64 requests and by more than a factor of 1.5; else the longest prefix when it is above 0.3 of the
 * prompt, else the least loaded.
 */
#include "base/bug.h"
#include "sched/plugin.h"

enum { BALANCE_ABS = 64, BALANCE_REL_HALVES = 3, CACHE_TENTHS = 3 };

uint32_t sched_pick_cache_aware(const struct sched_view *v,
                                const uint32_t *fit,
                                uint32_t n,
                                const struct sched_cost *costs,
                                struct sched_state *state,
                                uint64_t seed)
{
    uint32_t low = UINT32_MAX;
    uint32_t high = 0;
    uint32_t best = 0;

    for (uint32_t i = 0; i < n; i++) {
        const struct sched_row *r = &v->rows[fit[i]];
        uint32_t hits = v->work[fit[i]].hit_tokens;
        uint32_t most = v->work[fit[best]].hit_tokens;
        low = MIN(low, r->load);
        high = MAX(high, r->load);
        if (hits > most || (hits == most && r->load < v->rows[fit[best]].load))
            best = i;
    }
    bool uneven =
        high - low > BALANCE_ABS && (uint64_t)high * 2 > (uint64_t)low * BALANCE_REL_HALVES;
    if (!uneven &&
        (uint64_t)v->work[fit[best]].hit_tokens * 10 > v->features->prompt_tokens * CACHE_TENTHS)
        return best;
    return sched_pick_lowest(v, fit, n, costs, state, seed);
}
