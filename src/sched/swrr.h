/* SPDX-License-Identifier: Apache-2.0 */
/** @file Smooth weighted round robin over part of a pool (the method nginx made known), shared by two picks. */
#ifndef WEIR_SCHED_SWRR_H
#define WEIR_SCHED_SWRR_H

#include "sched/plugin.h"

/** One turn: every taker earns its share, the richest is served and pays for all. */
struct swrr {
    struct sched_state *state;
    int64_t total;
    int64_t most;
    uint32_t best; /**< index into fit */
    uint32_t best_row;
};

static inline void swrr_add(struct swrr *t, uint32_t at, uint32_t row, uint64_t share)
{
    int64_t earned = share > (uint64_t)SCHED_CREDIT_MAX ? SCHED_CREDIT_MAX : (int64_t)share;
    int64_t credit = t->state->credit[row] += earned;

    if (t->total == 0 || credit > t->most) {
        t->most = credit;
        t->best = at;
        t->best_row = row;
    }
    t->total += earned;
}

static inline uint32_t swrr_serve(struct swrr *t)
{
    t->state->credit[t->best_row] -= t->total;
    return t->best;
}

#endif /* WEIR_SCHED_SWRR_H */
