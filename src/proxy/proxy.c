/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Assembly: lanes on their loops, the snapshot they look at, upkeep four times a second, drain, and the end.
 *
 * The published snapshot is one atomic pointer. A lane names the one it uses in `hazard` from the end of one wait to
 * the start of the next, so an idle lane holds none back. Order of publishing and of looking is sequentially
 * consistent: a reclaimer that does not see the hazard has published before the lane looked again.
 */
#include "proxy/proxy.h"

#include "base/num.h"
#include "loop/log.h"
#include "proxy/decision_log.h"
#include "sched/record.h"

/* SCRATCH_ROWS: to begin with; pool_enter() makes room for larger pools. */
enum { SCRATCH_ROWS = 64, OUT_MAX = 64 << 20, LOG_MAX = 1 << 20 };

/* ---- buffers ---- */

void lane_buf_take(struct lane *l, struct buf *b, size_t max)
{
    if (l->n_spare > 0)
        *b = l->spare[--l->n_spare];
    else
        buf_init(b, loop_mem(), max);
    b->max = max;
}

void lane_buf_give(struct lane *l, struct buf *b)
{
    if (b->p && b->cap <= LANE_SPARE_BYTES && l->n_spare < LANE_SPARE_BUFS) {
        buf_clear(b);
        l->spare[l->n_spare++] = *b;
        *b = (struct buf){.mem = loop_mem(), .max = b->max};
    } else if (b->p) {
        buf_fini(b);
    }
}

uint64_t proxy_buffered(const struct proxy *p)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < p->n_lanes; i++)
        sum += stat_get(&p->lanes[i].stats.buffered);
    return sum;
}

uint64_t proxy_connections(const struct proxy *p)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < p->n_lanes; i++)
        sum += stat_get(&p->lanes[i].stats.connections);
    return sum;
}

/* ---- the snapshot ---- */

static void after_wait(void *ctx)
{
    struct lane *l = ctx;
    const struct snapshot *s = atomic_load(&l->proxy->snapshot);

    for (;;) {
        atomic_store(&l->hazard, s);
        const struct snapshot *again = atomic_load(&l->proxy->snapshot);
        if (again == s)
            break;
        s = again;
    }
    l->asker.snap = s;
}

static void recycle(struct list *dead, struct list *free, unsigned *n)
{
    while (!list_empty(dead)) {
        struct list *node = dead->next;
        list_del(node);
        list_add(free, node);
        (*n)++;
    }
}

#define TRIM(list_, n_, type_)                                                                     \
    while (*(n_) > LANE_FREE_MAX) {                                                                \
        struct list *node_ = (list_)->next;                                                        \
        list_del(node_);                                                                           \
        mem_free(loop_mem(), container_of(node_, struct type_, node));                             \
        (*(n_))--;                                                                                 \
    }

/* What died in this turn cannot be named by any caller on the stack any more. */
static void before_wait(void *ctx)
{
    struct lane *l = ctx;

    weir_list_foreach (at, &l->dead_exchanges)
        plan_put(l, container_of(at, struct exchange, node)->plan);
    recycle(&l->dead_clients, &l->free_clients, &l->n_free_clients);
    recycle(&l->dead_exchanges, &l->free_exchanges, &l->n_free_exchanges);
    recycle(&l->dead_upstreams, &l->free_upstreams, &l->n_free_upstreams);
    TRIM(&l->free_clients, &l->n_free_clients, client)
    TRIM(&l->free_exchanges, &l->n_free_exchanges, exchange)
    TRIM(&l->free_upstreams, &l->n_free_upstreams, upstream)
    l->asker.snap = NULL;
    atomic_store_explicit(&l->hazard, NULL, memory_order_release);
}

void proxy_publish(struct proxy *p, const struct snapshot *s)
{
    atomic_store(&p->snapshot, s);
    offer_all(&p->control_asker);
}

bool proxy_snapshot_in_use(void *proxy, const struct snapshot *s)
{
    struct proxy *p = proxy;

    if (atomic_load(&p->snapshot) == s)
        return true;
    for (unsigned i = 0; i < p->n_lanes; i++)
        if (atomic_load(&p->lanes[i].hazard) == s ||
            atomic_load(&p->lanes[i].asker.pool_hazard) == s)
            return true;
    return false;
}

void proxy_offer(struct proxy *p, struct cell *cell)
{
    offer_cell(&p->control_asker, cell);
}

/* ---- upkeep and drain ---- */

/* Idle ones, and those that have their answer; not those that are still to take or to send something. */
static void close_idle_clients(struct lane *l)
{
    weir_list_foreach_safe (n, &l->clients) {
        struct client *c = container_of(n, struct client, node);
        if (!c->x && !c->in_head && net_conn_queued(&c->conn) == 0 && c->dropped == 0)
            client_close(c, FATE_KEEP);
    }
}

static uint64_t proxy_active(const struct proxy *p)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < p->n_lanes; i++)
        n += stat_get(&p->lanes[i].stats.active);
    return n;
}

static void drain_step(struct lane *l)
{
    struct proxy *p = l->proxy;

    if (loop_now(l->loop) >= l->drain_deadline_ns) {
        weir_list_foreach_safe (n, &l->exchanges) {
            struct exchange *x = container_of(n, struct exchange, node);
            if (x->state < X_RELAY)
                exchange_reject(x, REJECT_DRAINING, NULL, (struct slice){NULL, 0});
            else
                exchange_end(x, OUTCOME_UPSTREAM_ABORTED, FATE_ABORT);
        }
        weir_list_foreach_safe (n, &l->clients) {
            struct client *c = container_of(n, struct client, node);
            client_close(c, net_conn_queued(&c->conn) ? FATE_ABORT : FATE_KEEP);
        }
    }
    /* As long as any answer is under way, open connections may still bring requests. */
    if (proxy_active(p) == 0)
        close_idle_clients(l);
    if (l->drained || !list_empty(&l->clients) || !list_empty(&l->orphans))
        return;
    l->drained = true;
    upstream_sweep(l, true);
    access_log_flush(l);
    if (atomic_fetch_sub(&p->lanes_draining, 1) == 1)
        loop_post(p->control, &p->drained_job);
}

static void on_sweep(struct loop_timer *t)
{
    struct lane *l = container_of(t, struct lane, sweep);

    exchange_sweep(l);
    upstream_sweep(l, false);
    access_log_flush(l);
    if (l->draining)
        drain_step(l);
    loop_timer_set(l->loop, t, loop_now(l->loop) + (l->draining ? SWEEP_NS / 10 : SWEEP_NS));
}

static void on_drain(struct loop_job *j)
{
    struct lane *l = container_of(j, struct lane, drain_job);

    l->draining = true;
    doors_stop(l);
    loop_timer_set(l->loop, &l->sweep, 0);
}

static void on_drained(struct loop_job *j)
{
    struct proxy *p = container_of(j, struct proxy, drained_job);

    p->drained(p->drained_ctx);
}

void proxy_drain(struct proxy *p, uint64_t deadline_ns, void (*done)(void *ctx), void *ctx)
{
    p->drained = done;
    p->drained_ctx = ctx;
    p->drained_job.run = on_drained;
    atomic_store(&p->lanes_draining, p->n_lanes);
    for (unsigned i = 0; i < p->n_lanes; i++) {
        p->lanes[i].drain_deadline_ns = deadline_ns;
        p->lanes[i].drain_job.run = on_drain;
        loop_post(p->lanes[i].loop, &p->lanes[i].drain_job);
    }
}

/* ---- beginning and end ---- */

static int asker_init(struct asker *a, struct proxy *p, uint64_t seed)
{
    a->proxy = p;
    a->prng.state = seed;
    int rc = sched_record_new(p->mem, SCHED_RECORD_ROWS, &a->record);
    if (rc)
        return rc;
    return sched_scratch_reserve(&a->scratch, p->mem, SCRATCH_ROWS);
}

static void asker_fini(struct asker *a)
{
    sched_scratch_fini(&a->scratch, loop_mem());
    sched_record_free(a->record);
}

static int
lane_init(struct lane *l, struct proxy *p, struct loop *loop, unsigned index, uint64_t seed)
{
    struct list *lists[] = {&l->clients,        &l->exchanges,      &l->orphans,
                            &l->targets,        &l->dead_clients,   &l->free_clients,
                            &l->dead_exchanges, &l->free_exchanges, &l->dead_upstreams,
                            &l->free_upstreams, &l->scans};

    l->proxy = p;
    l->loop = loop;
    l->index = index;
    for (unsigned i = 0; i < ARRAY_LEN(lists); i++)
        list_init(lists[i]);
    buf_init(&l->out, p->mem, OUT_MAX);
    buf_init(&l->log, p->mem, LOG_MAX);
    l->sweep.on_timer = on_sweep;
    int rc = asker_init(&l->asker, p, seed);
    if (!rc)
        rc = resolver_new(loop, NULL, &l->resolver);
    if (!rc)
        loop_set_hooks(loop, before_wait, after_wait, l);
    return rc;
}

static bool options_ok(const struct proxy_options *o)
{
    return o->n_loops >= 1 && o->n_loops <= PROXY_LOOPS_MAX && o->n_listen <= PROXY_LISTENERS_MAX &&
           proxy_routing_ok(o->routing) && o->hop_id.n >= 1 && o->hop_id.n <= PROXY_HOP_ID_MAX &&
           route_request_id_ok(o->hop_id);
}

/* Without memory for it nothing is remembered of prefixes and sessions, and everything else works. */
static int lore_init(struct proxy *p, size_t bytes)
{
    p->lore_pages = bytes ? loop_pages(bytes) : NULL;
    p->lore_bytes = p->lore_pages ? bytes : 0;
    return sched_lore_new(p->mem, p->lore_pages, p->lore_bytes, &p->lore);
}

int proxy_new(const struct proxy_options *o, struct proxy **out)
{
    if (!options_ok(o))
        return WEIR_E_INVALID;
    const struct mem *mem = loop_mem();
    struct proxy *p = mem_zalloc(mem, sizeof(*p));
    struct plan *plan = NULL;
    if (!p)
        return WEIR_E_NOMEM;
    p->mem = mem;
    p->control = o->control;
    p->upstream_tls = o->upstream_tls;
    p->fetcher = o->fetcher;
    p->fetch_tls = o->fetch_tls;
    doors_init(p);
    list_init(&p->left);
    list_init(&p->interrupts);
    pthread_mutex_init(&p->interrupts_lock, NULL);
    memcpy(p->hop_id, o->hop_id.p, o->hop_id.n);
    p->hop = slice_of(p->hop_id, o->hop_id.n);
    atomic_init(&p->access_fd, o->access_fd);
    pthread_mutex_init(&p->pools_lock, NULL);
    p->n_series = 1;
    struct prng seeds = {.state = loop_clock() ^ loop_wall_clock()};
    p->tracks = mem_array(mem, TRACKS_MAX, sizeof(struct track *));
    p->pool_list = mem_array(mem, POOLS_MAX, sizeof(struct pool *));
    p->lanes = mem_array(mem, o->n_loops, sizeof(*p->lanes));
    int rc = p->tracks && p->pool_list && p->lanes ? 0 : WEIR_E_NOMEM;
    if (!rc)
        rc = lore_init(p, (size_t)o->routing->limits.prefix_index_bytes);
    if (!rc)
        rc = decision_log_new(mem, o->decisions_per_s, &p->decisions);
    if (!rc)
        rc = asker_init(&p->control_asker, p, prng_next(&seeds));
    for (unsigned i = 0; !rc && i < o->n_loops; i++) {
        p->n_lanes++;
        rc = lane_init(&p->lanes[i], p, o->loops[i], i, prng_next(&seeds));
    }
    if (!rc)
        rc = plan_new(p, o, &plan);
    if (rc) {
        proxy_free(p);
        return rc;
    }
    plan_in_force(plan);
    atomic_store(&p->plan, plan);
    *out = p;
    return 0;
}

int proxy_start(struct proxy *p, const struct proxy_options *o, struct net_addr *bound)
{
    uint64_t opened;
    uint64_t closed;

    memset(bound, 0, o->n_listen * sizeof(*bound));
    int rc = doors_open(p, o->listen, o->n_listen, bound, &opened, &closed);
    if (!rc)
        doors_tls(p, o->listen, o->n_listen);
    for (unsigned i = 0; i < p->n_lanes && !rc; i++) {
        struct lane *l = &p->lanes[i];
        rc = doors_pass(l, opened, 0);
        loop_timer_set(l->loop, &l->sweep, loop_now(l->loop) + SWEEP_NS);
    }
    return rc;
}

static void free_list(struct list *l, size_t offset)
{
    while (!list_empty(l)) {
        struct list *node = l->next;
        list_del(node);
        mem_free(loop_mem(), (char *)node - offset);
    }
}

static void lane_fini(struct lane *l)
{
    if (!l->loop)
        return;
    doors_stop(l);
    loop_timer_cancel(&l->sweep);
    loop_set_hooks(l->loop, NULL, NULL, NULL);
    exchange_fini(l);
    weir_list_foreach_safe (n, &l->clients)
        client_close(container_of(n, struct client, node), FATE_ABORT);
    upstream_fini(l);
    access_log_flush(l);
    free_list(&l->dead_clients, offsetof(struct client, node));
    free_list(&l->free_clients, offsetof(struct client, node));
    free_list(&l->dead_exchanges, offsetof(struct exchange, node));
    free_list(&l->free_exchanges, offsetof(struct exchange, node));
    free_list(&l->dead_upstreams, offsetof(struct upstream, node));
    free_list(&l->free_upstreams, offsetof(struct upstream, node));
    free_list(&l->scans, offsetof(struct scan, node));
    for (unsigned i = 0; i < l->n_spare; i++)
        buf_fini(&l->spare[i]);
    buf_fini(&l->out);
    buf_fini(&l->log);
    for (uint32_t i = 0; i < l->n_pools; i++)
        map_fini(&l->pools[i]);
    mem_free(loop_mem(), l->pools);
    asker_fini(&l->asker);
    if (l->resolver)
        resolver_free(l->resolver);
    stats_fini(&l->stats);
}

void proxy_free(struct proxy *p)
{
    if (!p)
        return;
    p->closing = true;
    for (unsigned i = 0; i < p->n_lanes; i++)
        lane_fini(&p->lanes[i]);
    interrupts_free(p);
    doors_fini(p);
    asker_fini(&p->control_asker);
    pools_free(p);
    plan_free(atomic_load(&p->plan));
    weir_list_foreach_safe (at, &p->left)
        plan_free(container_of(at, struct plan, node));
    plan_accounts_free(p);
    pthread_mutex_destroy(&p->pools_lock);
    pthread_mutex_destroy(&p->interrupts_lock);
    decision_log_free(p->decisions);
    sched_lore_free(p->lore);
    loop_pages_free(p->lore_pages, p->lore_bytes);
    mem_free(p->mem, p->lanes);
    mem_free(p->mem, p);
}
