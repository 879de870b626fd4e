/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools, made when a known model is first asked for on a route, and kept, also when another configuration has no such
 * route any more: its requests may still wait there. The lock of a pool guards only its
 * sched_pool_* calls; a lane finds a pool in its own map, so the table's lock is taken once per lane and pool.
 *
 * A pool borrows endpoints from the snapshot it was last refreshed with. Whoever enters it makes sure, under the
 * lock, that it stands on the newest published snapshot, and that this one cannot be freed meanwhile: either it is the
 * lane's own of this turn, or it is named in the asker's pool_hazard. The pool cannot be newer than that, because it
 * is refreshed only from what is published, under the same lock.
 */
#include "base/num.h"
#include "loop/log.h"
#include "proxy/exchange.h"

/* A map's key is never absent. */
static struct slice key_of(struct slice model)
{
    return model.n ? model : SLICE("");
}

/* The newest configuration of a track; of one that is gone from it, the asking request's. Under pools_lock. */
static const struct route *newest_route(const struct plan **n, const struct route *r)
{
    const struct plan *now = plan_now((*n)->proxy);
    const struct track *t = plan_route(*n, r)->track;

    for (uint32_t i = 0; i < now->routing->n_routes; i++)
        if (now->routes[i].track == t) {
            *n = now;
            return &now->routing->routes[i];
        }
    return r;
}

static uint64_t kv_bytes(const struct routing *r, struct slice model)
{
    for (uint32_t i = 0; i < r->n_models; i++)
        if (slice_eq(r->models[i].id, model))
            return r->models[i].kv_bytes_per_token;
    return 0;
}

/* Routes that metrics cannot tell apart share the counters of a model. */
static uint32_t series_of(struct proxy *p, const struct track *t, struct slice model)
{
    for (uint32_t i = 0; i < p->n_tracks; i++) {
        const struct track *other = p->tracks[i];
        const struct pool *pool = other->series == t->series ? map_get(&other->pools, model) : NULL;
        if (pool)
            return pool->series;
    }
    return p->n_series++;
}

/* Labels of a route in one block; NULL without any, or without memory. */
static struct kv *labels_copy(const struct mem *mem, const struct route *r)
{
    size_t text = 0;

    for (uint32_t i = 0; i < r->n_labels; i++)
        text += r->labels[i].key.n + r->labels[i].value.n;
    struct kv *copy = r->n_labels ? mem_zalloc(mem, r->n_labels * sizeof(*copy) + text) : NULL;
    char *at = copy ? (char *)(copy + r->n_labels) : NULL;
    for (uint32_t i = 0; copy && i < r->n_labels; i++) {
        struct slice from[2] = {r->labels[i].key, r->labels[i].value};
        struct slice *to[2] = {&copy[i].key, &copy[i].value};
        for (int k = 0; k < 2; k++) {
            if (from[k].n)
                memcpy(at, from[k].p, from[k].n);
            *to[k] = slice_of(at, from[k].n);
            at += from[k].n;
        }
    }
    return copy;
}

/* Make it, under pools_lock. */
static struct pool *
pool_new(struct proxy *p, const struct plan *n, const struct route *r, struct slice model)
{
    struct track *t = plan_route(n, r)->track;
    r = newest_route(&n, r);
    struct policy_copy *policy = policy_copy_new(p->mem, r->policy);
    struct kv *labels = labels_copy(p->mem, r);
    struct sched_pool_options o = {.mem = p->mem,
                                   .policy = policy ? &policy->policy : NULL,
                                   .queue = &r->queue,
                                   .labels = labels,
                                   .n_labels = r->n_labels,
                                   .lore = p->lore};
    struct pool *pool = mem_zalloc(p->mem, sizeof(*pool));
    char *text = model.n ? mem_strdup(p->mem, model) : NULL;

    if (!pool || (model.n && !text) || !policy || (r->n_labels && !labels))
        goto out;
    pool->labels = labels;
    pool->track = t;
    pool->policy = policy;
    pool->queue = r->queue;
    pool->model = slice_of(text, model.n); /* absent: any model */
    atomic_init(&pool->kv_bytes_per_token, kv_bytes(n->routing, model));
    if (sched_pool_new(&o, &pool->sched) != 0)
        goto out;
    pool->series =
        series_of(p, t, model); /* before it stands in the map, where it would find itself */
    if (map_put(&t->pools, key_of(pool->model), pool) != 0) {
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
    mem_free(p->mem, policy);
    mem_free(p->mem, labels);
    mem_free(p->mem, pool);
    return NULL;
}

/* This lane's view of a track's pools; NULL without memory. */
static struct map *view_of(struct lane *l, const struct track *t)
{
    if (t->index >= l->n_pools) {
        uint32_t n = t->index + 16;
        struct map *more = mem_resize(loop_mem(), l->pools, n, sizeof(*more));
        if (!more)
            return NULL;
        for (uint32_t i = l->n_pools; i < n; i++)
            map_init(&more[i], loop_mem());
        l->pools = more;
        l->n_pools = n;
    }
    return &l->pools[t->index];
}

struct pool *pool_known(const struct lane *l, const struct track *t, struct slice model)
{
    return t->index < l->n_pools ? map_get(&l->pools[t->index], model) : NULL;
}

struct pool *pool_get(struct lane *l,
                      const struct plan *n,
                      const struct route *r,
                      struct slice model,
                      enum rejection *why)
{
    struct proxy *p = l->proxy;
    const struct track *t = plan_route(n, r)->track;
    struct pool *pool = pool_known(l, t, model);

    if (pool)
        return pool;
    const struct snapshot *s = l->asker.snap;
    *why = !s || !s->synced ? REJECT_STARTING : REJECT_MODEL_NOT_FOUND;
    if (!s || (model.n && !model_find(s, model)))
        return NULL;
    *why = REJECT_OVERLOADED;
    struct map *view = view_of(l, t);
    if (!view)
        return NULL;
    pthread_mutex_lock(&p->pools_lock);
    pool = map_get(&t->pools, model);
    if (!pool && p->n_pools < POOLS_MAX)
        pool = pool_new(p, n, r, model);
    pthread_mutex_unlock(&p->pools_lock);
    if (pool && map_put(view, key_of(pool->model), pool) != 0)
        return NULL;
    return pool;
}

/* ---- another configuration ---- */

struct change {
    struct pool *pool;
    const struct route *route;
    struct policy_copy *policy; /* the new one, then the old one */
    struct route_queue before;
};

static int turn(struct proxy *p, struct change *c, const struct route_queue *queue)
{
    struct pool *pool = c->pool;

    if (!pool_enter(&p->control_asker, pool))
        return WEIR_E_NOMEM;
    int rc = sched_pool_reconfigure(pool->sched, &c->policy->policy, queue);
    if (rc == 0) {
        struct policy_copy *before = pool->policy;
        pool->policy = c->policy;
        pool->queue = *queue;
        c->policy = before;
    }
    pool_leave(&p->control_asker, pool);
    return rc;
}

/* @return how many; all that can fail before the first pool is touched, but for memory inside it. */
static uint32_t collect(struct proxy *p, const struct plan *to, struct change *list, bool *nomem)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < to->routing->n_routes; i++)
        map_foreach(at, &to->routes[i].track->pools)
        {
            struct change *c = &list[n++];
            c->pool = at->value;
            c->route = &to->routing->routes[i];
            c->before = c->pool->queue;
            c->policy = policy_copy_new(p->mem, c->route->policy);
            *nomem = *nomem || !c->policy;
        }
    return n;
}

int pools_follow(struct proxy *p, const struct plan *to, struct plan *from)
{
    struct change *list = mem_array(p->mem, MAX(p->n_pools, 1u), sizeof(*list));
    bool nomem = false;
    uint32_t done = 0;

    if (!list)
        return WEIR_E_NOMEM;
    uint32_t n = collect(p, to, list, &nomem);
    int rc = nomem ? WEIR_E_NOMEM : 0;
    while (rc == 0 && done < n) {
        rc = turn(p, &list[done], &list[done].route->queue);
        done += rc == 0;
    }
    for (uint32_t i = done; rc && i-- > 0;)
        if (turn(p, &list[i], &list[i].before) != 0)
            log_error("proxy", "out of memory: a pool keeps the policy of a refused configuration");
    for (uint32_t i = 0; i < n; i++) {
        struct change *c = &list[i];
        if (rc == 0)
            atomic_store_explicit(&c->pool->kv_bytes_per_token,
                                  kv_bytes(to->routing, c->pool->model), memory_order_relaxed);
        if (!c->policy)
            continue;
        c->policy->next = from->policies;
        from->policies = c->policy;
    }
    mem_free(p->mem, list);
    return rc;
}

/* ---- use ---- */

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
    if (waiting)
        atomic_store_explicit(&p->retry_after_s, sched_pool_retry_after_s(p->sched, loop_clock()),
                              memory_order_relaxed);
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
        mem_free(p->mem, pool->policy);
        mem_free(p->mem, pool->labels);
        mem_free(p->mem, pool);
    }
    for (uint32_t i = 0; i < p->n_tracks; i++) {
        map_fini(&p->tracks[i]->pools);
        mem_free(p->mem, p->tracks[i]);
    }
    mem_free(p->mem, p->tracks);
    mem_free(p->mem, p->pool_list);
}
