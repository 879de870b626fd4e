/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Who was served how much in one pool: virtual token counters (Sheng et al., Fairness in Serving Large Language
 * Models, OSDI 2024). A tenant is charged 1 for each prompt token and 2 for each token of the answer, over its weight:
 * as expected when it is sent, and set right by what was used at the end. Pure; the caller holds the pool's lock.
 *
 * One for each pool, not for the process: what a tenant used where nobody else wanted anything is not held against it
 * where somebody does, and no other lock is needed.
 *
 * Who comes back is lifted to the smallest counter of those who wait, less what is charged for requests under way: those
 * tokens are charged to the others but not served to them yet. So nobody saves up credit by staying away, and who stays
 * within its share hardly waits behind who does not.
 */
#ifndef WEIR_SCHED_TENANTS_H
#define WEIR_SCHED_TENANTS_H

#include "base/err.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/pairing.h"
#include "model/features_t.h"
#include "sched/ledger.h"

enum {
    SCHED_TENANTS_MAX = 256, /**< told apart in a pool at one time; see sched_tenants_find() */
    TENANT_WEIGHT_ONE = 1000,
    TENANT_INPUT = 1, /**< charged for a token of the prompt */
    TENANT_OUTPUT = 2,
};

/** One tenant of a pool. */
struct sched_tenant {
    uint64_t key; /**< hash of its name; 0 = none has this place */
    uint64_t
        counter; /**< virtual: 1,000 a charged token of weight 1. Wraps: compare by difference */
    uint32_t weight;   /**< thousandths, of its last request */
    uint32_t inflight; /**< requests charged and not settled */
    uint32_t waiting;
    uint32_t chain;          /**< next of the same hash, + 1 */
    struct list idle;        /**< of those that nothing refers to, longest idle first */
    struct heap_node active; /**< while somebody waits: by counter */
    struct heap_node line;   /**< likewise, in the queue (sched/queue.h) */
    struct heap_node rise;   /**< likewise, when it ages */
    uint64_t since_ns;       /**< one of it was served, or the first one came */
    uint64_t rise_ns;        /**< when it rises next */
    uint32_t risen;          /**< classes since then, at most PRIORITY_LOWEST */
    struct pairing waiters;  /**< its own, in order */
};

struct sched_tenants {
    const struct mem *mem;
    struct sched_tenant shared;  /**< who has no name, and who found no place */
    struct sched_tenant *places; /**< SCHED_TENANTS_MAX; NULL: there is one tenant, uncharged */
    uint32_t *heads;
    struct list idle;
    struct heap active;
    uint64_t last;      /**< counter of who was served last, before it was charged */
    uint64_t under_way; /**< virtual, charged and not settled */
    bool on;            /**< tenants are told apart; counters stay when it is switched off */
};

/** With one tenant for all. WEIR_E_NOMEM. */
int sched_tenants_init(struct sched_tenants *t, const struct mem *mem) MUST_CHECK;
void sched_tenants_fini(struct sched_tenants *t);
/** Room to tell tenants apart, before `on` is set. WEIR_E_NOMEM: as before. Allocates once. */
int sched_tenants_reserve(struct sched_tenants *t) MUST_CHECK;

/**
 * Whose request it is. Beyond SCHED_TENANTS_MAX the one that was idle longest is forgotten; when all of them wait or are
 * served, newcomers share the place of requests without a tenant. Cost: O(1).
 */
struct sched_tenant *sched_tenants_find(struct sched_tenants *t, const struct features *f);

/** A waiter of its comes, or leaves. Cost: O(log n). The first one lifts its counter. */
void sched_tenants_wait(struct sched_tenants *t, struct sched_tenant *who);
void sched_tenants_leave(struct sched_tenants *t, struct sched_tenant *who);

/** Its request is sent; it is not waiting any more, or never was. @param c out, zeroed before. Cost: O(log n). */
void sched_tenants_charge(struct sched_tenants *t,
                          struct sched_tenant *who,
                          const struct features *f,
                          struct sched_charge *c);
/**
 * It ended. Harmless on an empty charge. @param input, output tokens as used; UINT64_MAX: as they were charged.
 * Its place in sched/queue.h is to be restored by the caller.
 */
void sched_tenants_settle(struct sched_tenants *t,
                          struct sched_charge *c,
                          uint64_t input,
                          uint64_t output);

/** Does x come before y? */
static inline bool sched_tenant_less(const struct sched_tenant *x, const struct sched_tenant *y)
{
    return (int64_t)(x->counter - y->counter) < 0;
}

#endif /* WEIR_SCHED_TENANTS_H */
