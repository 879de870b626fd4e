/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file A pool: one model on one route, with its members, rotation and queue. Pure and lock-free; in the gateway the
 * caller holds the pool's lock around every call, and does no I/O, logging or allocation inside it
 * (only sched_pool_refresh() allocates).
 *
 * Queue order: priority class, then the tenant with the smallest token counter, then earliest deadline, then arrival.
 * Ageing lifts a waiter one class per age_ns. Capacity belongs to endpoints, waiting to pools: when an endpoint gets
 * room, its pools with waiters are offered it in rotation (proxy/offer.h), one lock at a time.
 */
#ifndef WEIR_SCHED_POOL_H
#define WEIR_SCHED_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/heap.h"
#include "base/mem.h"
#include "model/decision_t.h"
#include "model/features_t.h"
#include "model/route_t.h"
#include "model/snapshot_t.h"
#include "sched/ledger.h"
#include "sched/pick.h"

struct sched_pool;

/** One waiting request; embed it. features, exclude and reservation must outlive the wait. */
struct sched_waiter {
    struct heap_node node; /**< in the queue while at != 0 */
    const struct features *features;
    const struct sched_exclude *exclude;
    struct reservation *reservation; /**< filled by the grant */
    uint64_t arrived_ns;
    uint64_t order;        /**< arrival number */
    uint64_t tenant_tokens; /**< the tenant's counter when it came */
    uint8_t class_now;     /**< after ageing */
    uint64_t rise_ns;      /**< when it rises next */
};

struct sched_pool_options {
    const struct mem *mem;
    const struct policy *policy;     /**< borrowed; replaced by sched_pool_reconfigure() */
    const struct route_queue *queue; /**< copied */
};

int sched_pool_new(const struct sched_pool_options *o, struct sched_pool **out) MUST_CHECK;
/** The queue must be empty. */
void sched_pool_free(struct sched_pool *p);

/** Take the members from a snapshot if it is newer than what the pool has. Holds references on their cells. */
int sched_pool_refresh(struct sched_pool *p, const struct snapshot *s, struct slice model) MUST_CHECK;

/** Is this endpoint generation a member? Cost: O(log n). */
bool sched_pool_has(const struct sched_pool *p, uint32_t slot, uint32_t generation);

/**
 * Pick and reserve for a new request. Never jumps the queue: while others wait, the answer is "wait".
 * @param d out: chosen endpoint's row is resolved to `chosen`; or the rejection.
 * @param chosen out: the endpoint and cell reserved. Valid until the next refresh; copy what is kept.
 * @return 0 = reserved; WEIR_E_AGAIN = all that fit are full (enqueue or refuse); WEIR_E_NOTFOUND = rejected, see d->rejection.
 */
int sched_pool_admit(struct sched_pool *p, const struct features *f, const struct sched_exclude *exclude, uint64_t now_ns,
                     uint64_t seed, struct sched_scratch *scratch, struct reservation *r, struct member *chosen,
                     struct decision *d) MUST_CHECK;

/** Queue a request that sched_pool_admit() told to wait. WEIR_E_FULL when the queue is at its size. No allocation. */
int sched_pool_enqueue(struct sched_pool *p, struct sched_waiter *w, uint64_t now_ns) MUST_CHECK;

/** Take a waiter out; harmless when it is not in the queue. */
void sched_pool_cancel(struct sched_pool *p, struct sched_waiter *w);

/**
 * Somebody may fit now: grant to the first waiter in order for whom a pick succeeds.
 * A waiter that fits nowhere at present does not block those behind it that fit (looks at most 64 deep).
 * @param chosen out, as in admit. @return the waiter, out of the queue with its reservation raised; NULL when none.
 */
struct sched_waiter *sched_pool_offer(struct sched_pool *p, uint64_t now_ns, uint64_t seed, struct sched_scratch *scratch,
                                      struct member *chosen);

uint32_t sched_pool_waiting(const struct sched_pool *p);
/** Members now, for metrics and /v1/models. */
uint32_t sched_pool_members(const struct sched_pool *p);

/** Same question without reserving, with reasons. @param why n rows as sched_pool_members(). */
void sched_pool_explain(struct sched_pool *p, const struct features *f, uint64_t now_ns, uint64_t seed,
                        struct sched_scratch *scratch, struct decision *d, struct explain_row *why);

#endif /* WEIR_SCHED_POOL_H */
