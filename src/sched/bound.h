/* SPDX-License-Identifier: Apache-2.0 */
/** @file Bounded load: how much an endpoint may hold of all there is. Shared by the picks that prefer somebody. */
#ifndef WEIR_SCHED_BOUND_H
#define WEIR_SCHED_BOUND_H

#include "sched/plugin.h"

struct sched_bound {
    uint64_t total, weights;
    uint32_t q16;
};

static inline struct sched_bound
sched_bound_of(const struct sched_view *v, const uint32_t *fit, uint32_t n)
{
    struct sched_bound b = {.q16 = v->policy->bound_q16 < Q16_ONE ? Q16_ONE : v->policy->bound_q16};

    for (uint32_t i = 0; i < n; i++) {
        b.total += v->rows[fit[i]].load;
        b.weights += v->candidates[fit[i]].weight;
    }
    return b;
}

/** May it take one more? Its share of (all load + this request), times the bound, rounded up, is what it may hold.
 * With a bound of at least 1 these allowances add up to at least the load, so somebody always may. */
static inline bool
sched_below_bound(const struct sched_bound *b, const struct sched_view *v, uint32_t row)
{
    unsigned __int128 allowed =
        (unsigned __int128)(b->total + 1) * b->q16 * v->candidates[row].weight;
    unsigned __int128 per = (unsigned __int128)b->weights << 16;

    return (unsigned __int128)v->rows[row].load * per < allowed;
}

#endif /* WEIR_SCHED_BOUND_H */
