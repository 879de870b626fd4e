/* SPDX-License-Identifier: Apache-2.0 */
/** @file Pick round_robin: the next slot after the one chosen last, so that joins and leaves repeat or skip nobody. */
#include "sched/plugin.h"

uint32_t sched_pick_round_robin(const struct sched_view *v,
                                const uint32_t *fit,
                                uint32_t n,
                                const struct sched_cost *costs,
                                struct sched_state *state,
                                uint64_t seed)
{
    uint32_t next = 0;

    (void)costs;
    (void)seed;
    if (state->any_last)
        while (next < n && v->candidates[fit[next]].slot <= state->last_slot)
            next++;
    if (next == n)
        next = 0;
    state->last_slot = v->candidates[fit[next]].slot;
    state->any_last = true;
    return next;
}
