/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Capacity belongs to endpoints, waiting to pools. When an endpoint may have room (a release, a fresher sample, a
 * join), the pools with waiters that contain it are offered it, each asker beginning with another pool each time, one
 * pool lock at a time. A grant is posted to the waiter's loop; a waiter that is gone by then gives it back
 * (exchange_granted()).
 *
 * No wake-up is lost: who queues makes it known in pool.waiting and proxy.n_waiting and then tries once more to be
 * served (exchange_decide()); who releases lowers the ledger and then looks at both. All of it is sequentially
 * consistent, so one of the two sees the other.
 */
#include "proxy/decision_log.h"

enum {
    /* More from one offer mean that a sample opened a wide gap; the next sample goes on. */
    GRANTS_MAX = 256,
    /* They take no room, so those behind them are not left to wait for another offer. */
    REFUSALS_MAX = 4096,
};

/* What one offer has given so far. */
struct given {
    unsigned granted, refused;
};

static bool enough(const struct given *g)
{
    return g->granted >= GRANTS_MAX || g->refused >= REFUSALS_MAX;
}

/* One offer to one pool. @param cell NULL: whatever it has. @return true when somebody left its queue. */
static bool
offer_to(struct asker *a, struct pool *pool, const struct cell *cell, struct given *given)
{
    struct sched_waiter *w = NULL;
    struct member chosen;

    if (!pool_enter(a, pool))
        return false;
    uint64_t now = loop_clock();
    decision_arm(a, false, now);
    if (!cell || sched_pool_has(pool->sched, cell->slot, cell->generation))
        w = sched_pool_offer(pool->sched, now, prng_next(&a->prng), &a->scratch, &chosen);
    pool_leave(a, pool);
    if (!w) {
        decision_disarm(a);
        return false;
    }
    struct exchange *x = container_of(w, struct exchange, waiter);
    *(w->rejection ? &given->refused : &given->granted) += 1;
    decision_grant(a, x);
    loop_post(x->lane->loop, &x->grant_job);
    return true;
}

static void offer(struct asker *a, const struct cell *cell)
{
    struct proxy *p = a->proxy;
    uint32_t n = atomic_load(&p->n_pools_seen);
    uint32_t dry = 0; /* pools in a row that granted nothing */
    uint32_t at = a->turn++;
    struct given given = {0, 0};

    for (; dry < n && !enough(&given) && !p->closing; at++) {
        struct pool *pool = p->pool_list[at % n];
        bool some = atomic_load(&pool->waiting) > 0 && offer_to(a, pool, cell, &given);
        dry = some ? 0 : dry + 1;
    }
}

void offer_cell(struct asker *a, const struct cell *cell)
{
    if (atomic_load(&a->proxy->n_waiting) == 0)
        return;
    if (atomic_load(&cell->waiting_pools) > 0)
        offer(a, cell);
    else if (!upstream_listed(a, cell))
        /* An older generation: its requests counted against the limit of the address, which the new one may use now. */
        offer(a, NULL);
}

void offer_all(struct asker *a)
{
    if (atomic_load(&a->proxy->n_waiting) > 0)
        offer(a, NULL);
}

void offer_release(struct asker *a, struct reservation *r)
{
    bool shared = sched_shares_devices(r);
    struct cell *cell = sched_release(r);

    if (!cell)
        return;
    if (shared) /* others have more room now, too */
        offer_all(a);
    else
        offer_cell(a, cell);
    sched_cell_put(cell);
}

void offer_pool(struct asker *a, struct pool *p)
{
    struct given given = {0, 0};

    while (!enough(&given) && offer_to(a, p, NULL, &given))
        ;
}
