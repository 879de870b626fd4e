/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/nacos_grpc.h"

#include "base/bug.h"
#include "base/num.h"
#include "loop/alloc.h"
#include "loop/log.h"

static const uint64_t TICK_NS = 1 * NS_PER_S;
/* As the reference server: a client says something every 5 s, and is asked when it has not for 20. */
static const uint64_t SILENT_NS = 20 * NS_PER_S;
static const uint64_t GONE_NS = 25 * NS_PER_S;
/* A client that has lost its connection is back within this, and registers again. */
static const uint64_t BACK_NS = 3 * NS_PER_S;

/* --- instances and their connections --- */

static void free_held(struct nacos_grpc *g, struct nacos_held *h)
{
    (void)map_del(&g->held, slice_str(h->key));
    list_del(&h->node);
    mem_free(loop_mem(), h->key);
    mem_free(loop_mem(), h);
}

int nacos_grpc_hold(struct nacos_client *c, struct record *r)
{
    struct nacos_grpc *g = c->server;
    struct nacos_held *h = map_get(&g->held, r->map_key);

    if (h) {
        list_del(&h->node);
    } else {
        h = mem_zalloc(loop_mem(), sizeof(*h));
        char *key = h ? mem_strdup(loop_mem(), r->map_key) : NULL;
        if (!key || map_put(&g->held, slice_str(key), h) != 0) {
            mem_free(loop_mem(), key);
            mem_free(loop_mem(), h);
            return WEIR_E_NOMEM;
        }
        h->key = key;
    }
    h->client = c;
    h->again = true;
    list_add(&c->held, &h->node);
    store_nacos_keep(&g->registry->store, r, true, loop_now(g->registry->loop));
    return 0;
}

static void orphan(struct nacos_grpc *g, struct nacos_held *h)
{
    list_del(&h->node);
    h->client = NULL;
    h->leave_ns = loop_now(g->registry->loop) + BACK_NS;
    list_add(&g->orphans, &h->node);
}

static void let_orphans_go(struct nacos_grpc *g, uint64_t now)
{
    while (!list_empty(&g->orphans)) {
        struct nacos_held *h = container_of(g->orphans.next, struct nacos_held, node);
        struct record *r = map_get(&g->registry->store.nacos, slice_str(h->key));
        if (now < h->leave_ns)
            return;
        if (!r) {
            free_held(g, h);
            continue;
        }
        store_remove(&g->registry->store, r, REASON_EXPIRED); /* frees h, by its event */
    }
}

void nacos_grpc_event(struct nacos_grpc *g, enum store_event event, const struct record *record)
{
    if (!record || event == STORE_NOTED)
        return;
    struct nacos_held *h = event == STORE_REMOVE && record->kind == RECORD_NACOS
                               ? map_get(&g->held, record->map_key)
                               : NULL;
    if (h)
        free_held(g, h);
    nacos_push_changed(g, record);
}

/* --- connections --- */

static void free_client(struct nacos_client *c)
{
    struct nacos_grpc *g = c->server;

    while (!list_empty(&c->held))
        orphan(g, container_of(c->held.next, struct nacos_held, node));
    nacos_push_forget(c);
    list_del(&c->node);
    g->n_clients--;
    mem_free(loop_mem(), c);
}

static void close_client(struct nacos_client *c)
{
    grpc_close(c->grpc);
    free_client(c);
}

void nacos_grpc_tell(struct nacos_client *c, const char *type, struct slice body)
{
    struct nacos_payload p = {.type = slice_str(type), .body = body};
    struct buf message;

    if (!c->stream || c->broken)
        return;
    buf_init(&message, loop_mem(), NACOS_REPLY_MAX + 4096);
    int rc = nacos_payload_write(&message, &p);
    if (rc == 0)
        rc = grpc_send(c->stream, buf_slice(&message));
    buf_fini(&message);
    /* Not here: whoever tells walks a list that it is in. */
    c->broken = rc != 0;
}

static bool on_call(struct grpc *grpc, struct grpc_call *call, struct slice path)
{
    struct nacos_client *c = grpc_ctx(grpc);

    if (slice_eq(path, SLICE(NACOS_GRPC_STREAM))) {
        if (c->stream)
            return false;
        c->stream = call;
        return true;
    }
    return slice_eq(path, SLICE(NACOS_GRPC_REQUEST));
}

static void on_message(struct grpc_call *call, struct slice message)
{
    struct nacos_client *c = grpc_ctx(grpc_of(call));
    struct nacos_payload p;

    c->heard_ns = loop_now(c->server->registry->loop);
    c->asked = false;
    if (nacos_payload_read(message, &p)) {
        grpc_finish(call, GRPC_INTERNAL);
        return;
    }
    /* On the stream come answers, which need none, and the setup. */
    if (call != c->stream)
        nacos_grpc_answer(c, call, &p);
    else if (slice_eq(p.type, SLICE("ConnectionSetupRequest")))
        c->set_up = true;
}

static void on_half_close(struct grpc_call *call)
{
    struct nacos_client *c = grpc_ctx(grpc_of(call));

    if (call == c->stream)
        grpc_finish(call, GRPC_OK);
}

static void on_end(struct grpc_call *call, unsigned status)
{
    struct nacos_client *c = grpc_ctx(grpc_of(call));

    (void)status;
    if (call != c->stream)
        return;
    /* The stream is the connection, to a Nacos client. */
    c->stream = NULL;
    c->broken = true;
}

static void on_closed(struct grpc *grpc, int error)
{
    (void)error;
    free_client(grpc_ctx(grpc));
}

static const struct grpc_ops ops = {.on_call = on_call,
                                    .on_message = on_message,
                                    .on_half_close = on_half_close,
                                    .on_end = on_end,
                                    .on_closed = on_closed};

static void on_accept(struct net_listener *l, int fd, const struct net_addr *peer)
{
    struct nacos_grpc *g = container_of(l, struct nacos_grpc, listener);
    struct nacos_client *c =
        g->n_clients < NACOS_CLIENTS_MAX ? mem_zalloc(loop_mem(), sizeof(*c)) : NULL;

    (void)peer;
    if (!c) {
        net_fd_close(fd);
        return;
    }
    c->server = g;
    c->id = ++g->next_id;
    c->heard_ns = loop_now(g->registry->loop);
    list_init(&c->held);
    list_init(&c->wants);
    if (grpc_accept(g->registry->loop, fd, &ops, c, &c->grpc)) {
        mem_free(loop_mem(), c);
        return;
    }
    list_add(&g->clients, &c->node);
    g->n_clients++;
}

static void look_at(struct nacos_client *c, uint64_t now)
{
    if (c->broken || now - c->heard_ns >= GONE_NS) {
        close_client(c);
    } else if (now - c->heard_ns >= SILENT_NS && !c->asked) {
        c->asked = true;
        nacos_grpc_tell(c, "ClientDetectionRequest",
                        SLICE("{\"requestId\":\"0\",\"module\":\"internal\",\"headers\":{}}"));
    }
}

static void on_tick(struct loop_timer *t)
{
    struct nacos_grpc *g = container_of(t, struct nacos_grpc, tick);
    uint64_t now = loop_now(g->registry->loop);

    loop_timer_set(g->registry->loop, t, now + TICK_NS);
    weir_list_foreach_safe (at, &g->clients)
        look_at(container_of(at, struct nacos_client, node), now);
    let_orphans_go(g, now);
    registry_leases_changed(g->registry);
}

/* --- life --- */

static int listen_above(struct nacos_grpc *g, const struct net_addr *http)
{
    uint32_t port = net_addr_port(http) + NACOS_GRPC_OFFSET;
    struct net_addr where = *http;
    int fd;

    if (port > UINT16_MAX)
        return WEIR_E_RANGE;
    if (where.any.sa_family == AF_INET6)
        where.v6.sin6_port = htons((uint16_t)port);
    else
        where.v4.sin_port = htons((uint16_t)port);
    int rc = net_listen(&where, false, &fd, &g->listener.addr);
    return rc ? rc : net_listener_start(&g->listener, g->registry->loop, fd);
}

int nacos_grpc_start(struct registry *r, const struct net_addr *addr, struct nacos_grpc **out)
{
    struct nacos_grpc *g = mem_zalloc(loop_mem(), sizeof(*g));

    if (!g)
        return WEIR_E_NOMEM;
    g->registry = r;
    g->listener.on_accept = on_accept;
    g->tick.on_timer = on_tick;
    list_init(&g->clients);
    list_init(&g->orphans);
    map_init(&g->held, loop_mem());
    nacos_push_init(g);
    int rc = listen_above(g, addr);
    if (rc) {
        nacos_grpc_stop(g);
        return rc;
    }
    loop_timer_set(r->loop, &g->tick, loop_now(r->loop) + TICK_NS);
    *out = g;
    return 0;
}

void nacos_grpc_stop(struct nacos_grpc *g)
{
    if (!g)
        return;
    net_listener_stop(&g->listener);
    loop_timer_cancel(&g->tick);
    while (!list_empty(&g->clients))
        close_client(container_of(g->clients.next, struct nacos_client, node));
    while (!list_empty(&g->orphans))
        free_held(g, container_of(g->orphans.next, struct nacos_held, node));
    nacos_push_fini(g);
    map_fini(&g->held);
    mem_free(loop_mem(), g);
}
