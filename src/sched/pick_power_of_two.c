/* SPDX-License-Identifier: Apache-2.0 */
/** @file Pick power_of_two: the cheaper of two different ones drawn at random; of equals the one drawn first. */
#include "sched/plugin.h"

uint32_t sched_pick_power_of_two(const struct sched_view *v,
                                 const uint32_t *fit,
                                 uint32_t n,
                                 const struct sched_cost *costs,
                                 struct sched_state *state,
                                 uint64_t seed)
{
    struct prng r = {seed};

    (void)v;
    (void)fit;
    (void)state;
    if (n == 1)
        return 0;
    uint32_t a = (uint32_t)prng_below(&r, n);
    uint32_t b = (uint32_t)prng_below(&r, n - 1);
    b += b >= a;
    return sched_cost_less(costs[b], costs[a]) ? b : a;
}
