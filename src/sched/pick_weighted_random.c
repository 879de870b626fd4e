/* SPDX-License-Identifier: Apache-2.0 */
/** @file Pick weighted_random: chances by share, that is by what the policy's score divides the load by. */
#include "sched/plugin.h"

static uint64_t share_of(struct sched_cost c)
{
    return c.den > (uint64_t)SCHED_CREDIT_MAX ? (uint64_t)SCHED_CREDIT_MAX : c.den;
}

uint32_t sched_pick_weighted_random(const struct sched_view *v,
                                    const uint32_t *fit,
                                    uint32_t n,
                                    const struct sched_cost *costs,
                                    struct sched_state *state,
                                    uint64_t seed)
{
    struct prng r = {seed};
    uint64_t total = 0;

    (void)v;
    (void)fit;
    (void)state;
    for (uint32_t i = 0; i < n; i++)
        total += share_of(costs[i]);
    uint64_t at = prng_below(&r, total);
    uint32_t i = 0;
    while (i + 1 < n && at >= share_of(costs[i]))
        at -= share_of(costs[i++]);
    return i;
}
