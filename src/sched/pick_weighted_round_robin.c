/* SPDX-License-Identifier: Apache-2.0 */
/** @file Pick weighted_round_robin: smooth weighted round robin by weight, whatever the load. */
#include "sched/swrr.h"

uint32_t sched_pick_weighted_round_robin(const struct sched_view *v,
                                         const uint32_t *fit,
                                         uint32_t n,
                                         const struct sched_cost *costs,
                                         struct sched_state *state,
                                         uint64_t seed)
{
    struct swrr turn = {.state = state};

    (void)costs;
    (void)seed;
    for (uint32_t i = 0; i < n; i++)
        swrr_add(&turn, i, fit[i], sched_ramped(v->candidates[fit[i]].weight, &v->rows[fit[i]]));
    return swrr_serve(&turn);
}
