/* SPDX-License-Identifier: Apache-2.0 */
/** @file Pick lowest: the lowest cost; equal costs take turns by their shares. */
#include "sched/swrr.h"

uint32_t sched_pick_lowest(const struct sched_view *v,
                           const uint32_t *fit,
                           uint32_t n,
                           const struct sched_cost *costs,
                           struct sched_state *state,
                           uint64_t seed)
{
    struct sched_cost low = costs[0];
    uint32_t first = 0;
    uint32_t ties = 1;

    (void)v;
    (void)seed;
    for (uint32_t i = 1; i < n; i++) {
        unsigned __int128 ours = (unsigned __int128)costs[i].num * low.den;
        unsigned __int128 lowest = (unsigned __int128)low.num * costs[i].den;
        if (ours > lowest)
            continue;
        if (ours == lowest) {
            ties++;
            continue;
        }
        low = costs[i];
        first = i;
        ties = 1;
    }
    /* Alone at the top is no turn taken: the rotation among equals stays as it is. */
    if (ties == 1)
        return first;
    struct swrr turn = {.state = state};
    for (uint32_t i = first; i < n; i++)
        if (!sched_cost_less(low, costs[i]))
            swrr_add(&turn, i, fit[i], costs[i].den);
    return swrr_serve(&turn);
}
