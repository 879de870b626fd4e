/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Policy queued_work over many endpoints: the same choice as sched_pick() makes over the same rows, without scoring
 * each of them exactly. Costs are told apart in steps of 3 %; a bound in floating point, four endpoints at a time, tells
 * the step of nearly all of them, and the few that lie at the edge of a step which may be the lowest are scored exactly.
 * Private to the room.
 */
#ifndef WEIR_SCHED_QUICK_H
#define WEIR_SCHED_QUICK_H

#include "sched/mirror.h"
#include "sched/pick.h"

/** Is it a policy that sched_quick_pick() can follow? */
bool sched_quick_policy(const struct policy *p);

/**
 * @param v rows and work are the mirror's, which has columns and is refreshed for now_ns; no row is young.
 * @return false: not a request for it, nothing happened. true: as sched_pick(); the work of the chosen row is filled.
 */
bool sched_quick_pick(struct sched_mirror *m,
                      struct sched_lore *l,
                      struct sched_view *v,
                      const struct sched_exclude *exclude,
                      uint64_t now_ns,
                      struct sched_state *state,
                      struct sched_scratch *scratch,
                      struct decision *out);

#endif /* WEIR_SCHED_QUICK_H */
