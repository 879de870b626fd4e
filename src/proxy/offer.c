/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Capacity belongs to endpoints, waiting to pools. When an endpoint may have room (a release, a fresher sample, a
 * join), the pools with waiters that contain it are offered it in rotation, one pool lock at a time. A grant is
 * posted to the waiter's loop; a waiter that is gone by then gives it back (exchange_granted()).
 *
 * No wake-up is lost: who queues raises waiting_pools of the members, then lists its pool, then tries once more to be
 * served (exchange_decide()); who releases lowers the ledger and then looks at waiting_pools. Both are sequentially
 * consistent, so one of the two sees the other.
 */
#include "proxy/decision_log.h"

/* More grants than this from one offer mean a sample opened a wide gap; the next sample goes on. */
enum { GRANTS_MAX = 256 };

/* The next pool in rotation, or NULL. */
static struct pool *rotate(struct proxy *p)
{
    struct pool *pool = NULL;

    pthread_mutex_lock(&p->waiting_lock);
    if (!list_empty(&p->waiting)) {
        struct list *first = p->waiting.next;
        list_del(first);
        list_add(&p->waiting, first);
        pool = container_of(first, struct pool, node);
    }
    pthread_mutex_unlock(&p->waiting_lock);
    return pool;
}

/* One offer to one pool. @return true when somebody was granted. */
static bool
offer_to(struct asker *a, struct pool *pool, bool any, uint32_t slot, uint32_t generation)
{
    struct sched_waiter *w = NULL;
    struct member chosen;

    if (!pool_enter(a, pool))
        return false;
    uint64_t now = loop_clock();
    decision_arm(a, false, now);
    if (any || sched_pool_has(pool->sched, slot, generation))
        w = sched_pool_offer(pool->sched, now, prng_next(&a->prng), &a->scratch, &chosen);
    pool_leave(a, pool);
    if (!w) {
        decision_disarm(a);
        return false;
    }
    struct exchange *x = container_of(w, struct exchange, waiter);
    decision_grant(a, x);
    loop_post(x->lane->loop, &x->grant_job);
    return true;
}

static void offer(struct asker *a, bool any, uint32_t slot, uint32_t generation)
{
    struct proxy *p = a->proxy;
    unsigned dry = 0; /* pools in a row that granted nothing */

    for (unsigned granted = 0; granted < GRANTS_MAX && !p->closing;) {
        unsigned waiting = atomic_load(&p->n_waiting);
        struct pool *pool = dry < waiting ? rotate(p) : NULL;
        if (!pool)
            return;
        if (offer_to(a, pool, any, slot, generation)) {
            granted++;
            dry = 0;
        } else {
            dry++;
        }
    }
}

void offer_cell(struct asker *a, const struct cell *cell)
{
    if (atomic_load(&cell->waiting_pools) > 0)
        offer(a, false, cell->slot, cell->generation);
}

void offer_all(struct asker *a)
{
    if (atomic_load(&a->proxy->n_waiting) > 0)
        offer(a, true, 0, 0);
}

void offer_pool(struct asker *a, struct pool *p)
{
    for (unsigned i = 0; i < GRANTS_MAX && offer_to(a, p, true, 0, 0); i++)
        ;
}
