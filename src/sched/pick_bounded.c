/* SPDX-License-Identifier: Apache-2.0 */
/** @file Pick bounded: the lowest cost among those whose load is within the bound. Equal costs take turns. */
#include "sched/bound.h"
#include "sched/swrr.h"

uint32_t sched_pick_bounded(const struct sched_view *v,
                            const uint32_t *fit,
                            uint32_t n,
                            const struct sched_cost *costs,
                            struct sched_state *state,
                            uint64_t seed)
{
    struct sched_bound bound = sched_bound_of(v, fit, n);
    struct swrr turn = {.state = state};
    struct sched_cost low = {1, 0};
    uint32_t first = n;
    uint32_t ties = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (!sched_below_bound(&bound, v, fit[i]))
            continue;
        bool less = first == n || sched_cost_less(costs[i], low);
        if (!less && sched_cost_less(low, costs[i]))
            continue;
        ties = less ? 1 : ties + 1;
        if (less) {
            low = costs[i];
            first = i;
        }
    }
    if (first == n)
        return sched_pick_lowest(v, fit, n, costs, state, seed);
    if (ties == 1)
        return first;
    for (uint32_t i = first; i < n; i++)
        if (sched_below_bound(&bound, v, fit[i]) && !sched_cost_less(low, costs[i]))
            swrr_add(&turn, i, fit[i], v->candidates[fit[i]].weight);
    return swrr_serve(&turn);
}
