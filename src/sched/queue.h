/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The order in which those who wait in a pool are served: priority class, then the tenant with the smallest token
 * counter, then earliest deadline, then arrival.
 *
 * Ageing. Of one tenant, or where tenants are not told apart, a waiter rises one class per age_ns; who has aged through
 * all of them (after class x age_ns) comes before all others, by arrival alone. Between tenants it is not the waiter
 * that ages but the line: one class for each age_ns in which nobody of it was served. So no tenant starves behind
 * another's better classes, and who floods gains nothing by how long its own backlog has waited.
 *
 * Places. A tenant may have at most QUEUE_SHARE times as many waiters as there are places free, so that one that floods
 * leaves room for others (dynamic thresholds, Choudhury and Hahne 1998).
 *
 * Each tenant has a line of its own, and the lines are ordered by their first waiter and by the tenant's counter as it is
 * now, so that a counter that moves costs one step however many wait. Pure; the caller holds the pool's lock. No
 * allocation but in sched_queue_reserve(). Costs: O(log n), taking one out amortised.
 */
#ifndef WEIR_SCHED_QUEUE_H
#define WEIR_SCHED_QUEUE_H

#include "model/error_t.h"
#include "sched/tenants.h"

enum { QUEUE_SHARE = 4 };

struct sched_exclude;
struct reservation;

/**
 * One waiting request; embed it, zeroed. The caller sets the first four before sched_pool_enqueue(); features, exclude
 * and reservation must outlive the wait. The rest belongs to the queue.
 */
struct sched_waiter {
    const struct features *features;
    const struct sched_exclude *exclude; /**< may be NULL */
    struct reservation *reservation;     /**< filled by the grant */
    uint64_t prefill_us;                 /**< decision.prefill_us of the admit; 0 = not known */
    enum rejection rejection;            /**< why it is not served after all; by the pool */
    uint64_t late_us;                    /**< decision.late_us of that */
    struct sched_tenant *tenant;         /**< whose it is */
    bool queued;
    struct pairing_node node; /**< in its tenant's line */
    struct list all;          /**< in the list of all, by arrival */
    struct heap_node rise;    /**< of those that rise; not in it once aged to the end */
    uint64_t arrived_ns;
    uint64_t order;    /**< arrival number */
    uint8_t class_now; /**< after ageing; 0 = aged to the end */
    uint64_t rise_ns;  /**< when it rises next */
};

struct sched_queue {
    struct sched_tenants tenants;
    struct heap lines;       /**< of tenants with waiters */
    struct heap risers;      /**< waiters, by rise_ns */
    struct heap line_risers; /**< lines, by rise_ns */
    struct list all;         /**< waiters, by arrival */
    uint32_t n;
    uint64_t arrivals;
    uint64_t age_ns; /**< 0 = nobody rises */
};

int sched_queue_init(struct sched_queue *q, const struct mem *mem) MUST_CHECK;
void sched_queue_fini(struct sched_queue *q);
/** Room for so many waiters, of one tenant or of many. WEIR_E_NOMEM: less room. */
int sched_queue_reserve(struct sched_queue *q, uint32_t size, bool tenants) MUST_CHECK;
/** Tell tenants apart, for which there must be room, or no longer: waiters change lines. Cost: O(log n) for each. */
void sched_queue_turn(struct sched_queue *q, bool tenants);

/** Name its tenant, class and arrival, before it is put in. */
void sched_queue_prepare(struct sched_queue *q, struct sched_waiter *w, uint64_t now_ns);
/** Has its tenant a place for it among size? */
bool sched_queue_has_place(const struct sched_queue *q,
                           const struct sched_waiter *w,
                           uint32_t size);
/** It must have been prepared. */
void sched_queue_put(struct sched_queue *q, struct sched_waiter *w);
/** @param served false: it left. */
void sched_queue_take(struct sched_queue *q, struct sched_waiter *w, bool served, uint64_t now_ns);

/** The first in order; NULL when empty. */
struct sched_waiter *sched_queue_first(const struct sched_queue *q);
/** Out of the order for the length of a look, and back; nothing else happens meanwhile. */
void sched_queue_aside(struct sched_queue *q, struct sched_waiter *w);
void sched_queue_back(struct sched_queue *q, struct sched_waiter *w);

/** Who is due rises. */
void sched_queue_age(struct sched_queue *q, uint64_t now_ns);
/**
 * Is x, in the queue, served before y, which is prepared, whatever tenants are charged meanwhile and whoever rises until
 * then? Of two tenants in one class nobody can tell.
 */
bool sched_queue_surely_before(const struct sched_queue *q,
                               const struct sched_waiter *x,
                               const struct sched_waiter *y,
                               uint64_t then_ns);

/** The counter of a tenant has changed. */
void sched_queue_moved(struct sched_queue *q, struct sched_tenant *who);

#endif /* WEIR_SCHED_QUEUE_H */
