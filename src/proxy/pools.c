/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools, made when a known model is first asked for on a route, and kept. The lock of a pool guards only its
 * sched_pool_* calls; a lane finds a pool in its own map, so the table's lock is taken once per lane and pool.
 *
 * A pool borrows endpoints from the snapshot it was last refreshed with. Whoever enters it makes sure, under the
 * lock, that it stands on the newest published snapshot, and that this one cannot be freed meanwhile: either it is the
 * lane's own of this turn, or it is named in the asker's pool_hazard. The pool cannot be newer than that, because it
 * is refreshed only from what is published, under the same lock.
 */
#include "proxy/exchange.h"

/* Make it, under pools_lock. */
static struct pool *pool_new(struct proxy *p, uint32_t route, struct slice model)
{
    const struct route *r = &p->routing->routes[route];
    struct sched_pool_options o = {.mem = p->mem, .policy = r->policy, .queue = &r->queue};
    struct pool *pool = mem_zalloc(p->mem, sizeof(*pool));
    char *text = mem_strdup(p->mem, model);

    if (!pool || !text)
        goto out;
    pool->route = r;
    pool->model = slice_of(text, model.n);
    pool->series = 1 + p->routing->n_routes + p->n_pools;
    for (uint32_t i = 0; i < p->routing->n_models; i++)
        if (slice_eq(p->routing->models[i].id, model))
            pool->kv_bytes_per_token = p->routing->models[i].kv_bytes_per_token;
    if (sched_pool_new(&o, &pool->sched) != 0)
        goto out;
    if (map_put(&p->pools[route], pool->model, pool) != 0) {
        sched_pool_free(pool->sched);
        goto out;
    }
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    /* Held for about a microsecond: spin before sleeping. */
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(&pool->lock, &attr);
    pthread_mutexattr_destroy(&attr);
    p->pool_list[p->n_pools++] = pool;
    atomic_store(&p->n_pools_seen, p->n_pools);
    return pool;
out:
    mem_free(p->mem, text);
    mem_free(p->mem, pool);
    return NULL;
}

struct pool *
pool_get(struct lane *l, const struct route *r, struct slice model, enum rejection *why)
{
    struct proxy *p = l->proxy;
    uint32_t route = (uint32_t)(r - p->routing->routes);
    struct pool *pool = map_get(&l->pools[route], model);

    if (pool)
        return pool;
    const struct snapshot *s = l->asker.snap;
    *why = !s || !s->synced ? REJECT_STARTING : REJECT_MODEL_NOT_FOUND;
    if (!s || !model_find(s, model))
        return NULL;
    *why = REJECT_OVERLOADED;
    pthread_mutex_lock(&p->pools_lock);
    pool = map_get(&p->pools[route], model);
    if (!pool && p->n_pools < POOLS_MAX)
        pool = pool_new(p, route, model);
    pthread_mutex_unlock(&p->pools_lock);
    if (pool && map_put(&l->pools[route], pool->model, pool) != 0)
        return NULL;
    return pool;
}

const struct snapshot *asker_newest(struct asker *a)
{
    const struct snapshot *s = atomic_load(&a->proxy->snapshot);

    while (s != a->snap) {
        atomic_store(&a->pool_hazard, s);
        const struct snapshot *again = atomic_load(&a->proxy->snapshot);
        if (again == s)
            break;
        s = again;
    }
    return s;
}

void asker_done(struct asker *a)
{
    if (atomic_load_explicit(&a->pool_hazard, memory_order_relaxed))
        atomic_store_explicit(&a->pool_hazard, NULL, memory_order_release);
}

bool pool_enter(struct asker *a, struct pool *p)
{
    pthread_mutex_lock(&p->lock);
    const struct snapshot *s = asker_newest(a);
    if (s && (p->seq != s->seq || !p->usable)) {
        p->usable = sched_pool_refresh(p->sched, s, p->model) == 0;
        p->seq = s->seq;
        atomic_store_explicit(&p->members, sched_pool_members(p->sched), memory_order_relaxed);
    }
    if (s && p->usable &&
        sched_scratch_reserve(&a->scratch, a->proxy->mem, sched_pool_members(p->sched)) == 0)
        return true;
    asker_done(a);
    pthread_mutex_unlock(&p->lock);
    return false;
}

void pool_leave(struct asker *a, struct pool *p)
{
    uint32_t waiting = sched_pool_waiting(p->sched);

    if (waiting != atomic_load_explicit(&p->waiting, memory_order_relaxed))
        atomic_store(&p->waiting, waiting);
    if ((waiting > 0) != p->listed) {
        p->listed = waiting > 0;
        if (p->listed)
            atomic_fetch_add(&a->proxy->n_waiting, 1);
        else
            atomic_fetch_sub(&a->proxy->n_waiting, 1);
    }
    asker_done(a);
    pthread_mutex_unlock(&p->lock);
}

void pools_free(struct proxy *p)
{
    for (uint32_t i = 0; i < p->n_pools; i++) {
        struct pool *pool = p->pool_list[i];
        sched_pool_free(pool->sched);
        pthread_mutex_destroy(&pool->lock);
        mem_free(p->mem, (void *)(uintptr_t)pool->model.p);
        mem_free(p->mem, pool);
    }
    for (uint32_t i = 0; p->pools && i < p->routing->n_routes; i++)
        map_fini(&p->pools[i]);
    mem_free(p->mem, p->pools);
    mem_free(p->mem, p->pool_list);
}
