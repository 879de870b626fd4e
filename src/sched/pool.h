/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file A pool: one model on one route, with its members, rotation and queue. Pure and lock-free; in the gateway the
 * caller holds the pool's lock around every call, and does no I/O, logging or allocation inside it
 * (only sched_pool_refresh() allocates).
 *
 * Queue order: sched/queue.h. Capacity belongs to endpoints, waiting to pools: when an endpoint gets room, its pools with
 * waiters are offered it in rotation (proxy/offer.c), one lock at a time.
 */
#ifndef WEIR_SCHED_POOL_H
#define WEIR_SCHED_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"
#include "model/decision_t.h"
#include "model/features_t.h"
#include "model/route_t.h"
#include "model/snapshot_t.h"
#include "sched/ledger.h"
#include "sched/pick.h"
#include "sched/queue.h"

struct sched_pool;

struct sched_pool_options {
    const struct mem *mem;
    const struct policy *policy;     /**< borrowed; replaced by sched_pool_reconfigure() */
    const struct route_queue *queue; /**< copied */
    const struct kv *labels; /**< members must have all of them; borrowed for the pool's life */
    uint32_t n_labels;
    struct sched_lore *lore; /**< shared, borrowed; NULL: nothing is learned, priors count */
};

int sched_pool_new(const struct sched_pool_options *o, struct sched_pool **out) MUST_CHECK;
/** The queue must be empty. NULL is allowed. */
void sched_pool_free(struct sched_pool *p);

/**
 * Another policy or queue size. Waiters stay, also those beyond a smaller size. Refresh with the current
 * snapshot first: it looks at the members' endpoints. On failure nothing changed.
 */
int sched_pool_reconfigure(struct sched_pool *p,
                           const struct policy *policy,
                           const struct route_queue *queue) MUST_CHECK;

/**
 * Take the members from a snapshot if it is newer than what the pool has. Holds references on their cells, but only
 * borrows endpoints: call it with the caller's current snapshot before admit, offer and explain (a comparison when
 * nothing changed). An endpoint that lists no model serves none: it is a member of pools of any model only.
 * @param model absent: any model, every enabled member. @return 0; WEIR_E_NOMEM or WEIR_E_FULL (more than
 * SCHED_ROWS_MAX members): the pool stays as it was.
 */
int sched_pool_refresh(struct sched_pool *p,
                       const struct snapshot *s,
                       struct slice model) MUST_CHECK;

/** Is this endpoint generation a member? Cost: O(log n). */
bool sched_pool_has(const struct sched_pool *p, uint32_t slot, uint32_t generation);

/**
 * Pick and reserve for a new request. Never jumps the queue: while somebody waits who could be served now, the answer
 * is "wait". Waiters that fit nowhere at present do not block it.
 * @param scratch at least sched_pool_members() rows.
 * @param d out: chosen endpoint's row is resolved to `chosen`; or the rejection.
 * @param chosen out: the endpoint and cell reserved. Valid until the next refresh; copy what is kept.
 * @return 0 = reserved; WEIR_E_AGAIN = all that fit are full (enqueue or refuse); WEIR_E_NOTFOUND = rejected, see d->rejection.
 * Who sends it then tells the prefix index, out of the lock: sched_work_note(). The same after sched_pool_offer().
 */
int sched_pool_admit(struct sched_pool *p,
                     const struct features *f,
                     const struct sched_exclude *exclude,
                     uint64_t now_ns,
                     uint64_t seed,
                     struct sched_scratch *scratch,
                     struct reservation *r,
                     struct member *chosen,
                     struct decision *d) MUST_CHECK;

/**
 * Queue a request that sched_pool_admit() told to wait. WEIR_E_FULL when the queue is at its size; WEIR_E_TIMEOUT when its
 * deadline or target (w->rejection says which) has passed, or will have at the rate at which the queue was served lately.
 * No allocation.
 * Then call sched_pool_offer() once: capacity may have come free, unseen, between the admit and this.
 */
int sched_pool_enqueue(struct sched_pool *p, struct sched_waiter *w, uint64_t now_ns) MUST_CHECK;

/** Take a waiter out; harmless when it is not in the queue. */
void sched_pool_cancel(struct sched_pool *p, struct sched_waiter *w);

/**
 * Somebody may fit now: grant to the first waiter in order for whom a pick succeeds.
 * A waiter that fits nowhere at present does not block those behind it that fit (looks at most 64 deep).
 * @param chosen out, as in admit. @return the waiter, out of the queue with its reservation raised; NULL when none.
 * One whose target no endpoint meets any more comes out without a reservation, and w->rejection says so.
 */
struct sched_waiter *sched_pool_offer(struct sched_pool *p,
                                      uint64_t now_ns,
                                      uint64_t seed,
                                      struct sched_scratch *scratch,
                                      struct member *chosen);

/**
 * The request of this reservation is over, or leaves its endpoint: set right what its tenant was charged, before the
 * reservation is released. Harmless when nothing was charged.
 * @param input, output tokens as used; 0 = nothing was done for it; UINT64_MAX: as was expected. Cost: O(log tenants).
 */
void sched_pool_settle(struct sched_pool *p,
                       struct reservation *r,
                       uint64_t input,
                       uint64_t output);

uint32_t sched_pool_waiting(const struct sched_pool *p);
/** Seconds after which a request that found the queue full should come back (sched/drain.h). */
uint32_t sched_pool_retry_after_s(const struct sched_pool *p, uint64_t now_ns);
/** Is any enabled member below its limit? @param scratch as in admit. */
bool sched_pool_room(struct sched_pool *p, uint64_t now_ns, struct sched_scratch *scratch);
/** Members now, for metrics and /v1/models. */
uint32_t sched_pool_members(const struct sched_pool *p);

/** The i-th member, as in explain rows. Endpoint borrowed from the snapshot of the last refresh. */
struct member sched_pool_member(const struct sched_pool *p, uint32_t i);

/** Same question without reserving or moving the rotation, with reasons. @param why n rows as sched_pool_members(). */
void sched_pool_explain(struct sched_pool *p,
                        const struct features *f,
                        uint64_t now_ns,
                        uint64_t seed,
                        struct sched_scratch *scratch,
                        struct decision *d,
                        struct explain_row *why);

#endif /* WEIR_SCHED_POOL_H */
