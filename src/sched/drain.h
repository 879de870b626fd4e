/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file How fast a queue is served: places given while somebody waited, over the time in which somebody waited. Pure; the
 * caller holds the lock of the queue. The last DRAIN_STEPS moments at which places were given count, however far apart
 * they are; what is given within DRAIN_STEP_NS is one moment, so that a batch that ends at once does not fill the window.
 */
#ifndef WEIR_SCHED_DRAIN_H
#define WEIR_SCHED_DRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/num.h"

enum {
    DRAIN_STEPS = 32,
    DRAIN_SURE = 8,         /**< places given before anybody is refused by the estimate */
    DRAIN_RETRY_MAX_S = 60, /**< more than clients honour is no use */
};
#define DRAIN_STEP_NS (10 * NS_PER_MS)
#define DRAIN_FORGET_NS                                                                            \
    (60 * NS_PER_S) /* an empty queue of that age tells nothing about the next */

/** Zero-initialise. */
struct sched_drain {
    bool waiting;     /**< somebody waits */
    uint64_t turn_ns; /**< when that became so, or ended */
    uint64_t busy_ns; /**< time with waiters before the present wait */
    uint64_t from_ns; /**< of that time, where the window begins */
    uint64_t served;  /**< in the window */
    uint32_t first, steps;
    struct sched_drain_step {
        uint64_t at_ns; /**< of the time with waiters */
        uint64_t n;
    } step[DRAIN_STEPS];
};

/** The first waiter came. */
void sched_drain_begin(struct sched_drain *d, uint64_t now_ns);
/** The last one left. Harmless when nobody waits. */
void sched_drain_end(struct sched_drain *d, uint64_t now_ns);
/** One waiter got a place; before sched_drain_end(). */
void sched_drain_served(struct sched_drain *d, uint64_t now_ns);
/** Others serve it from now on: what was measured does not count any more. */
void sched_drain_forget(struct sched_drain *d, uint64_t now_ns);

/**
 * Mean time from one place to the next, in ns, at least 1: the time of the window / places given in it. As long as none
 * was given, all of that time. 0 = nobody ever waited. At most an hour.
 */
uint64_t sched_drain_interval(const struct sched_drain *d, uint64_t now_ns);

/** How many places will come free within left_ns; UINT64_MAX before DRAIN_SURE were seen. */
uint64_t sched_drain_places(const struct sched_drain *d, uint64_t now_ns, uint64_t left_ns);

/** Seconds until a queue of that length is served: ceil(waiting x interval), within 1 .. DRAIN_RETRY_MAX_S. */
uint32_t sched_drain_retry_after_s(const struct sched_drain *d, uint64_t now_ns, uint32_t waiting);

#endif /* WEIR_SCHED_DRAIN_H */
