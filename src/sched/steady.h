/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The lowest of costs that change with their rows only, as those of chain and least_request: they are kept beside
 * the rows, and a pick compares one number of each endpoint. Private to the room.
 */
#ifndef WEIR_SCHED_STEADY_H
#define WEIR_SCHED_STEADY_H

#include "sched/mirror.h"

/** Is it a policy that sched_steady_pick() can follow? */
bool sched_steady_policy(const struct policy *p);

/**
 * As sched_pick(), with no explanation. @param m keeps costs and is refreshed. @param v its rows; none is young.
 * Cost: a few steps of each that fits; the score for those that changed.
 */
void sched_steady_pick(struct sched_mirror *m,
                       struct sched_view *v,
                       const struct sched_exclude *exclude,
                       struct sched_state *state,
                       uint64_t seed,
                       struct sched_scratch *scratch,
                       struct decision *out);

#endif /* WEIR_SCHED_STEADY_H */
