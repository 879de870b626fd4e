/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Pick sticky: where the session was last, while that is no worse than the bound times the lowest cost; else, or
 * without a session, the lowest. What is gone or full was filtered out before.
 */
#include "sched/plugin.h"

uint32_t sched_pick_sticky(const struct sched_view *v,
                           const uint32_t *fit,
                           uint32_t n,
                           const struct sched_cost *costs,
                           struct sched_state *state,
                           uint64_t seed)
{
    uint32_t home = n;
    uint32_t low = 0;

    for (uint32_t i = 0; v->features->has_session && i < n; i++) {
        if (v->work[fit[i]].flags & WORK_SESSION)
            home = i;
        if (sched_cost_less(costs[i], costs[low]))
            low = i;
    }
    if (home < n) {
        uint32_t q16 = v->policy->bound_q16 < Q16_ONE ? Q16_ONE : v->policy->bound_q16;
        /* Costs are below 2^49 in num and 2^33 in den where this pick is used; the bound is below 2^27. */
        unsigned __int128 ours = ((unsigned __int128)costs[home].num * costs[low].den) << 16;
        unsigned __int128 most = (unsigned __int128)costs[low].num * costs[home].den * q16;
        if (ours <= most)
            return home;
    }
    return sched_pick_lowest(v, fit, n, costs, state, seed);
}
