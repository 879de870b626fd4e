/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file So much a minute: an allowance that fills evenly and holds what a minute brings, at most. It is one moment, when it
 * will be full again: a minute from now it is empty, later than that it is overdrawn. Any thread, without a lock. Costs:
 * O(1).
 */
#ifndef WEIR_SCHED_ALLOWANCE_H
#define WEIR_SCHED_ALLOWANCE_H

#include <stdatomic.h>
#include <stdint.h>

/** Zeroed = full. */
struct sched_allowance {
    atomic_ullong full_ns; /**< monotonic */
};

/** @param per_minute units, 0 = no limit. @return how long until one is left; 0 = there is. */
uint64_t
sched_allowance_wait_ns(const struct sched_allowance *a, uint64_t per_minute, uint64_t now_ns);

/**
 * Take so many units if one is left; that may overdraw it, by what a day brings at most, so that a request larger
 * than a whole minute's is served too, and paid for after it. @return 0, or as sched_allowance_wait_ns(): nothing taken.
 */
uint64_t sched_allowance_take(struct sched_allowance *a,
                              uint64_t per_minute,
                              uint64_t units,
                              uint64_t now_ns);

/**
 * Set right what was taken for `taken` units when it was `used` in the end. What was taken too much counts now, also where
 * as much has come back since then: who paid for it has it to spend. The same per_minute as then, or a larger one that
 * sched_allowance_change() told.
 */
void sched_allowance_correct(
    struct sched_allowance *a, uint64_t per_minute, uint64_t taken, uint64_t used, uint64_t now_ns);

/**
 * It brings another number from now on: what was used is made up for at the new rate where that is the faster, so that who
 * is given more need not wait by what it had. @param was, is units, 0 = no limit.
 */
void sched_allowance_change(struct sched_allowance *a, uint64_t was, uint64_t is, uint64_t now_ns);

#endif /* WEIR_SCHED_ALLOWANCE_H */
