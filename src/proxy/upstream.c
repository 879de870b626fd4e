/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections to workers. A target is one endpoint generation as this lane knows it, with its idle connections,
 * newest last: taking the newest keeps the set small and the rest ages out. An idle connection that the worker closes
 * is noticed at once, because the loop watches it like any other.
 */
#include "base/num.h"
#include "proxy/exchange.h"

enum { SLOTS_STEP = 64 };

static struct upstream *upstream_of(struct net_conn *c)
{
    return container_of(c, struct upstream, conn);
}

static struct upstream *upstream_alloc(struct lane *l)
{
    struct upstream *u;

    if (list_empty(&l->free_upstreams)) {
        u = mem_zalloc(loop_mem(), sizeof(*u));
    } else {
        u = container_of(l->free_upstreams.next, struct upstream, node);
        list_del(&u->node);
        l->n_free_upstreams--;
        *u = (struct upstream){0};
    }
    if (u) {
        u->lane = l;
        list_init(&u->node);
    }
    return u;
}

/* ---- targets ---- */

static bool slots_grow(struct lane *l, uint32_t slot)
{
    if (slot < l->n_slots)
        return true;
    uint32_t n = (slot / SLOTS_STEP + 1) * SLOTS_STEP;
    struct target **grown = mem_resize(loop_mem(), l->by_slot, n, sizeof(*grown));
    if (!grown)
        return false;
    for (uint32_t i = l->n_slots; i < n; i++)
        grown[i] = NULL;
    l->by_slot = grown;
    l->n_slots = n;
    return true;
}

static const struct member *member_find(const struct snapshot *s, const struct cell *cell)
{
    uint32_t from = 0;
    uint32_t to = s ? s->n_members : 0;

    while (from < to) {
        uint32_t mid = from + (to - from) / 2;
        if (s->members[mid].endpoint->slot < cell->slot)
            from = mid + 1;
        else
            to = mid;
    }
    for (; s && from < s->n_members && s->members[from].endpoint->slot == cell->slot; from++)
        if (s->members[from].cell == cell)
            return &s->members[from];
    return NULL;
}

const struct member *upstream_member(struct asker *a, const struct cell *cell)
{
    return member_find(asker_newest(a), cell);
}

bool upstream_listed(struct asker *a, const struct cell *cell)
{
    bool listed = member_find(asker_newest(a), cell) != NULL;

    asker_done(a);
    return listed;
}

static char *put_text(char *at, struct slice from, struct slice *to)
{
    if (from.n)
        memcpy(at, from.p, from.n);
    *to = slice_of(at, from.n);
    return at + from.n;
}

static struct target *target_new(struct lane *l, const struct member *m)
{
    const struct endpoint *e = m->endpoint;
    size_t text = e->id.n + e->host.n + e->authority.n;
    struct target *t = mem_zalloc(loop_mem(), sizeof(*t) + text);

    if (!t || !slots_grow(l, e->slot)) {
        mem_free(loop_mem(), t);
        return NULL;
    }
    char *at = (char *)(t + 1);
    at = put_text(at, e->id, &t->id);
    at = put_text(at, e->host, &t->host);
    put_text(at, e->authority, &t->authority);
    if (t->host.n && t->host.p[0] == '/')
        t->authority = SLICE("localhost"); /* a path is no host that a worker could know */
    t->peer.host = t->host;
    t->port = e->port;
    t->tls = e->tls;
    t->fastchat = e->engine == ENGINE_FASTCHAT;
    t->literal = net_addr_literal(t->host, t->port, &t->addr) == 0;
    t->cell = m->cell;
    sched_cell_get(t->cell);
    list_init(&t->idle);
    list_add(&l->targets, &t->node);
    l->by_slot[e->slot] = t;
    return t;
}

struct target *upstream_target(struct lane *l, struct cell *cell)
{
    struct target *t = cell->slot < l->n_slots ? l->by_slot[cell->slot] : NULL;

    if (!t || t->cell != cell) {
        t = NULL;
        /* Rare: an older generation of a slot that is in use again, or an endpoint met for the first time. */
        weir_list_foreach (n, &l->targets)
            if (container_of(n, struct target, node)->cell == cell)
                t = container_of(n, struct target, node);
    }
    if (!t) {
        /* The pool may have been ahead of this turn's snapshot. */
        const struct member *m = member_find(asker_newest(&l->asker), cell);
        t = m ? target_new(l, m) : NULL;
        asker_done(&l->asker);
    }
    if (t)
        t->users++;
    return t;
}

void upstream_target_put(struct lane *l, struct target *t)
{
    (void)l;
    BUG_ON(t->users == 0);
    t->users--;
}

static void target_free(struct lane *l, struct target *t)
{
    uint32_t slot = t->cell->slot;

    if (slot < l->n_slots && l->by_slot[slot] == t)
        l->by_slot[slot] = NULL;
    list_del(&t->node);
    net_tls_peer_fini(&t->peer);
    sched_cell_put(t->cell);
    fastchat_forget(t);
    mem_free(loop_mem(), t);
}

/* ---- connections ---- */

/* Out of every list, and reusable after this turn. Its descriptor is closed. */
static void bury(struct upstream *u)
{
    struct lane *l = u->lane;

    if (u->resolving)
        net_resolve_cancel(&u->query);
    u->resolving = false;
    if (u->x)
        u->x->up = NULL;
    u->x = NULL;
    if (u->target) {
        if (!list_empty(&u->node))
            u->target->n_idle--;
        upstream_target_put(l, u->target);
    }
    u->target = NULL;
    list_del(&u->node);
    list_add(&l->dead_upstreams, &u->node);
}

static void on_connected(struct net_conn *c)
{
    struct exchange *x = upstream_of(c)->x;

    exchange_send(x);
}

static size_t on_data(struct net_conn *c, const char *p, size_t n)
{
    struct upstream *u = upstream_of(c);

    if (!u->x) {
        /* An answer nobody asked for: this connection cannot be trusted. */
        upstream_drop(u);
        return n;
    }
    if (u->x->translation)
        return fastchat_data(u->x, p, n);
    return relay_data(u->x, p, n);
}

static void on_eof(struct net_conn *c)
{
    struct upstream *u = upstream_of(c);

    if (!u->x)
        upstream_drop(u);
    else if (
        !c->paused) { /* while paused there may be bytes before it; it is told again after them */
        if (u->x->translation)
            fastchat_eof(u->x);
        else
            relay_end_of_stream(u->x, true);
    }
}

static void on_drained(struct net_conn *c)
{
    struct exchange *x = upstream_of(c)->x;

    if (!x)
        return;
    if (x->state == X_TUNNEL) {
        tunnel_drained(x);
        return;
    }
    if (x->state == X_AWAIT)
        x->stall_ns = 0;
    body_pump(x);
    body_charge(x);
    if (x->client && !x->complete)
        net_conn_resume(&x->client->conn);
}

static void on_closed(struct net_conn *c, int error)
{
    struct upstream *u = upstream_of(c);
    struct exchange *x = u->x;

    bury(u);
    if (!x)
        return;
    if (x->state == X_CONNECT)
        attempt_connect_failed(x, error);
    else
        relay_end_of_stream(x, false);
}

static const struct net_conn_ops upstream_ops = {
    .on_connected = on_connected,
    .on_data = on_data,
    .on_eof = on_eof,
    .on_drained = on_drained,
    .on_closed = on_closed,
};

/* Connections that were made under other TLS settings are not used again. */
static void drop_outdated(struct lane *l, struct target *t)
{
    struct net_tls_slot *slot = l->proxy->upstream_tls;
    struct net_tls_context *now = slot ? net_tls_slot_get(slot) : NULL;

    weir_list_foreach_safe (n, &t->idle) {
        struct upstream *u = container_of(n, struct upstream, node);
        if (u->tls != now)
            upstream_drop(u);
    }
    net_tls_put(now);
}

struct upstream *upstream_take(struct exchange *x)
{
    struct target *t = x->target;

    if (t->tls)
        drop_outdated(x->lane, t);
    if (list_empty(&t->idle))
        return NULL;
    struct upstream *u = container_of(t->idle.prev, struct upstream, node);
    list_del(&u->node);
    t->n_idle--;
    u->x = x;
    x->up = u;
    x->up_reused = true;
    return u;
}

static int start_tls(struct upstream *u)
{
    struct net_tls_slot *slot = u->lane->proxy->upstream_tls;
    struct net_tls_context *x = slot ? net_tls_slot_get(slot) : NULL;

    if (!x)
        return WEIR_E_UNSUPPORTED;
    u->tls = x; /* alive as long as the connection has it */
    int rc = net_conn_tls(&u->conn, x, &u->target->peer);
    net_tls_put(x);
    return rc;
}

static int connect_once(struct upstream *u, const struct net_addr *addr)
{
    uint64_t now = loop_now(u->lane->loop);
    uint64_t left = u->connect_by_ns > now ? u->connect_by_ns - now : 1;
    int rc = u->target->tls ? start_tls(u) : 0;

    return rc ? rc : net_conn_connect(&u->conn, u->lane->loop, addr, left);
}

static int connect_to(struct upstream *u, const struct net_addr *addr)
{
    stat_add(&u->lane->stats.upstreams, 1);
    int rc = connect_once(u, addr);
    if (rc != WEIR_E_FULL)
        return rc;
    /* Out of descriptors or ports: a request is worth more than the connections that are kept in case. */
    upstream_sweep(u->lane, true);
    return connect_once(u, addr);
}

static void on_resolved(struct resolve_query *q, int error, const struct net_addr *addr)
{
    struct upstream *u = container_of(q, struct upstream, query);
    struct exchange *x = u->x;

    u->resolving = false;
    if (!error)
        error = connect_to(u, addr);
    if (error) {
        bury(u);
        attempt_connect_failed(x, error);
    }
}

int upstream_connect(struct exchange *x)
{
    struct target *t = x->target;
    struct lane *l = x->lane;
    struct net_addr addr;

    struct upstream *u = upstream_alloc(l);
    if (!u)
        return WEIR_E_NOMEM;
    net_conn_init(&u->conn, &upstream_ops, UPSTREAM_HEAD_MAX);
    u->target = t;
    t->users++;
    u->x = x;
    x->up = u;
    x->up_reused = false;
    u->connect_by_ns = loop_now(l->loop) + x->route->timeouts.connect_ns;
    int rc = 0;
    if (t->literal) {
        addr = t->addr;
    } else {
        u->query.done = on_resolved;
        rc = net_resolve(l->resolver, t->host, t->port, x->route->timeouts.connect_ns, &u->query,
                         &addr);
        u->resolving = rc == WEIR_E_AGAIN;
        if (u->resolving)
            return 0;
    }
    if (!rc)
        rc = connect_to(u, &addr);
    if (rc)
        bury(u);
    return rc;
}

void upstream_drop(struct upstream *u)
{
    net_conn_close(&u->conn);
    bury(u);
}

void upstream_linger(struct upstream *u)
{
    net_conn_linger(&u->conn);
    bury(u);
}

void upstream_put(struct upstream *u)
{
    struct target *t = u->target;

    if (u->x)
        u->x->up = NULL;
    u->x = NULL;
    if (!net_conn_open(&u->conn) || net_conn_queued(&u->conn) || t->n_idle >= UPSTREAM_IDLE_MAX ||
        u->lane->draining) {
        upstream_drop(u);
        return;
    }
    net_conn_resume(&u->conn);
    u->idle_since_ns = loop_now(u->lane->loop);
    list_add(&t->idle, &u->node);
    t->n_idle++;
}

void upstream_sweep(struct lane *l, bool all)
{
    uint64_t now = loop_now(l->loop);
    const struct snapshot *s = l->asker.snap;
    bool compare = s && s->seq != l->swept_seq;
    bool again = false; /* something that is gone is still in use */

    weir_list_foreach_safe (n, &l->targets) {
        struct target *t = container_of(n, struct target, node);
        bool gone = compare && !member_find(s, t->cell);
        weir_list_foreach_safe (i, &t->idle) {
            struct upstream *u = container_of(i, struct upstream, node);
            if (!all && !gone && now - u->idle_since_ns < UPSTREAM_IDLE_NS)
                break; /* the rest is newer */
            upstream_drop(u);
        }
        if (gone && t->users == 0)
            target_free(l, t);
        else
            again = again || gone;
    }
    if (compare && !again)
        l->swept_seq = s->seq;
}

void upstream_fini(struct lane *l)
{
    upstream_sweep(l, true);
    weir_list_foreach_safe (n, &l->targets) {
        struct target *t = container_of(n, struct target, node);
        BUG_ON(t->users != 0);
        target_free(l, t);
    }
    mem_free(loop_mem(), l->by_slot);
}
