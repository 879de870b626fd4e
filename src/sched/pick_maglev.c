/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Pick maglev: the endpoint in the session's place of the table; from there on to the next that fits and whose load
 * is within the bound. Without a session the lowest cost.
 */
#include "sched/bound.h"
#include "sched/plugin.h"

uint32_t sched_pick_maglev(const struct sched_view *v,
                           const uint32_t *fit,
                           uint32_t n,
                           const struct sched_cost *costs,
                           struct sched_state *state,
                           uint64_t seed)
{
    if (!v->features->has_session || !state->table)
        return sched_pick_lowest(v, fit, n, costs, state, seed);
    struct sched_bound bound = sched_bound_of(v, fit, n);
    uint32_t place = (uint32_t)(v->features->session % state->table_size);
    for (uint32_t k = 0; k < state->table_size; k++) {
        uint32_t i = sched_fit_index(fit, n, state->table[(place + k) % state->table_size]);
        if (i < n && sched_below_bound(&bound, v, fit[i]))
            return i;
    }
    return sched_pick_lowest(v, fit, n, costs, state, seed);
}
