/* SPDX-License-Identifier: Apache-2.0 */
/** @file Pick random: any of them, with equal chances. */
#include "sched/plugin.h"

uint32_t sched_pick_random(const struct sched_view *v,
                           const uint32_t *fit,
                           uint32_t n,
                           const struct sched_cost *costs,
                           struct sched_state *state,
                           uint64_t seed)
{
    struct prng r = {seed};

    (void)v;
    (void)fit;
    (void)costs;
    (void)state;
    return (uint32_t)prng_below(&r, n);
}
