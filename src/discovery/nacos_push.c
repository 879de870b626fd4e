/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Nacos over gRPC: one connection that subscribes to every service and is pushed what changes. While it stands for a
 * service, that is not polled. Lost, it is made anew, at the next server; where HTTP is allowed too, lists are polled meanwhile.
 */
#include "base/bug.h"
#include "base/num.h"
#include "discovery/nacos_priv.h"
#include "loop/alloc.h"
#include "loop/log.h"
#include "net/grpc.h"
#include "net/resolve.h"
#include "registry/nacos_payload_codec.h"
#include "wire/url.h"

enum { MESSAGE_MAX = GRPC_MESSAGE_MAX, ERROR_DENIED = 403, AUTHORITY_MAX = 512 };

static const uint64_t CONNECT_NS = 3 * NS_PER_S;
static const uint64_t RETRY_MIN_NS = 100 * NS_PER_MS;
static const uint64_t RETRY_MAX_NS = 5 * NS_PER_S;
/* The reference server knows a connection a moment after its setup; its own clients wait as long. */
static const uint64_t SETTLE_NS = 100 * NS_PER_MS;
static const uint64_t IDLE_NS = 5 * NS_PER_S;
static const uint64_t DEAD_NS = 12 * NS_PER_S;

enum state { PUSH_WAITS, PUSH_RESOLVES, PUSH_CONNECTS, PUSH_CHECKS, PUSH_SETTLES, PUSH_STANDS };

struct nacos_push {
    struct nacos *nacos;
    struct resolver *resolver;
    struct resolve_query query;
    struct grpc *grpc;
    struct grpc_call *stream;
    struct loop_timer timer; /* of the state */
    enum state state;
    uint32_t server;                  /* that it is or will be connected to */
    uint32_t failures;                /* in a row */
    bool renewed;                     /* a new token was asked for since the last good answer */
    bool dead, checked, again, reset; /* what the timer has to see to */
    uint64_t heard_ns;
    uint64_t next_request;
};

static void lost(struct nacos_push *p, const char *why);

/* --- sending --- */

static int send_on(struct nacos_push *p, struct grpc_call *call, const char *type, struct buf *body)
{
    struct buf message;
    struct nacos_payload payload = {
        .type = slice_str(type), .token = slice_str(p->nacos->token), .body = buf_slice(body)};

    buf_init(&message, loop_mem(), MESSAGE_MAX);
    int rc = body->err ? body->err : nacos_payload_write(&message, &payload);
    if (rc == 0)
        rc = grpc_send(call, buf_slice(&message));
    buf_fini(&message);
    return rc;
}

static void begin_body(struct nacos_push *p, struct buf *body, const char *module)
{
    buf_init(body, loop_mem(), MESSAGE_MAX);
    buf_put_str(body, "{\"headers\":{},\"module\":\"");
    buf_put_str(body, module);
    buf_put_str(body, "\",\"requestId\":\"");
    buf_put_u64(body, ++p->next_request);
    buf_put_char(body, '"');
}

/* One request, one answer. @param service what the answer is about; may be NULL. */
static int ask(struct nacos_push *p, const char *type, struct buf *body, void *service)
{
    struct grpc_call *call = NULL;
    int rc = grpc_call(p->grpc, NACOS_GRPC_REQUEST, service, &call);

    buf_put_char(body, '}');
    if (rc == 0) {
        rc = send_on(p, call, type, body);
        grpc_finish(call, GRPC_OK);
    }
    buf_fini(body);
    return rc;
}

static void check_server(struct nacos_push *p)
{
    struct buf body;

    begin_body(p, &body, "internal");
    if (ask(p, "ServerCheckRequest", &body, NULL))
        lost(p, "out of memory");
}

static void check_health(struct nacos_push *p)
{
    struct buf body;

    begin_body(p, &body, "internal");
    if (ask(p, "HealthCheckRequest", &body, NULL))
        lost(p, "out of memory");
}

static void set_up(struct nacos_push *p)
{
    struct nacos *n = p->nacos;
    struct buf body;

    begin_body(p, &body, "internal");
    buf_put_str(&body, ",\"clientVersion\":\"Weir:v" WEIR_VERSION "\",\"tenant\":");
    buf_put_json(&body, nacos_namespace(n));
    buf_put_str(&body, ",\"labels\":{\"source\":\"sdk\",\"module\":\"naming\"}}");
    int rc = grpc_call(p->grpc, NACOS_GRPC_STREAM, NULL, &p->stream);
    if (rc == 0)
        rc = send_on(p, p->stream, "ConnectionSetupRequest", &body);
    buf_fini(&body);
    if (rc) {
        lost(p, err_text(rc));
        return;
    }
    p->state = PUSH_SETTLES;
    loop_timer_set(n->env->loop, &p->timer, loop_now(n->env->loop) + SETTLE_NS);
}

static void subscribe(struct nacos_push *p, struct nacos_service *s)
{
    struct buf body;

    begin_body(p, &body, "naming");
    buf_put_str(&body, ",\"namespace\":");
    buf_put_json(&body, nacos_namespace(p->nacos).n ? nacos_namespace(p->nacos) : SLICE("public"));
    buf_put_str(&body, ",\"serviceName\":");
    buf_put_json(&body, s->name);
    buf_put_str(&body, ",\"groupName\":");
    buf_put_json(&body, s->group);
    buf_put_str(&body, ",\"subscribe\":true,\"clusters\":");
    buf_put_json(&body, buf_slice(&p->nacos->clusters));
    if (ask(p, "SubscribeServiceRequest", &body, s))
        lost(p, "out of memory");
}

/* Those that are not yet. */
static void subscribe_all(struct nacos_push *p)
{
    struct nacos *n = p->nacos;
    struct grpc *now = p->grpc;

    if (nacos_needs_login(n))
        return; /* nacos_push_login() goes on */
    for (uint32_t i = 0; i < n->conf->n_services && p->grpc == now; i++)
        if (!n->services[i].subscribed)
            subscribe(p, &n->services[i]);
}

void nacos_push_login(struct nacos_push *p, bool in)
{
    if (p->state != PUSH_STANDS)
        return;
    if (in)
        subscribe_all(p);
    else
        lost(p, "the login failed");
}

/* --- ends --- */

static void forget_connection(struct nacos_push *p)
{
    net_resolve_cancel(&p->query);
    grpc_close(p->grpc);
    p->grpc = NULL;
    p->stream = NULL;
}

static void wait_and_retry(struct nacos_push *p)
{
    struct loop *loop = p->nacos->env->loop;
    uint64_t wait = RETRY_MIN_NS << MIN(p->failures, 8U);

    p->state = PUSH_WAITS;
    p->failures++;
    loop_timer_set(loop, &p->timer, loop_now(loop) + MIN(wait, RETRY_MAX_NS));
}

static void lost(struct nacos_push *p, const char *why)
{
    struct nacos *n = p->nacos;
    bool stood = p->state == PUSH_STANDS;
    uint32_t round = n->conf->n_servers;

    forget_connection(p);
    if (stood && p->failures == 0)
        log_info("discovery", "source=%s: connection to %.*s lost: %s", n->source->o.name,
                 SLICE_ARG(n->servers[p->server].url), why);
    /* What stood is made anew first; a source is in trouble when no server can be had. */
    if (!n->polls && p->failures >= round)
        source_failed(n->source, "gRPC to %.*s: %s", SLICE_ARG(n->servers[p->server].url), why);
    p->server = (p->server + 1) % round;
    for (uint32_t i = 0; i < n->conf->n_services; i++) {
        struct nacos_service *s = &n->services[i];
        if (s->subscribed && n->polls)
            nacos_poll_at(s,
                          loop_now(n->env->loop) + n->conf->interval_ns * i / n->conf->n_services);
        s->subscribed = false;
    }
    wait_and_retry(p);
}

/* --- receiving --- */

static void answer_push(struct nacos_push *p, const char *type, const struct nacos_answer *a)
{
    struct buf body;

    buf_init(&body, loop_mem(), MESSAGE_MAX);
    buf_put_str(&body, "{\"resultCode\":200,\"errorCode\":0,\"requestId\":");
    buf_put_json(&body, a->request_id);
    buf_put_char(&body, '}');
    if (p->stream && send_on(p, p->stream, type, &body))
        log_debug("discovery", "source=%s: %s could not be sent", p->nacos->source->o.name, type);
    buf_fini(&body);
}

static struct nacos_service *service_of(const struct nacos *n, const struct nacos_answer *a)
{
    for (uint32_t i = 0; i < n->conf->n_services; i++) {
        struct nacos_service *s = &n->services[i];
        if (slice_eq(a->name, s->grouped) ||
            (slice_eq(a->name, s->name) && (!a->group.n || slice_eq(a->group, s->group))))
            return s;
    }
    return NULL;
}

static void pushed(struct nacos_push *p, const struct nacos_payload *m)
{
    static const struct {
        const char *request, *reply;
    } kinds[] = {{"NotifySubscriberRequest", "NotifySubscriberResponse"},
                 {"ClientDetectionRequest", "ClientDetectionResponse"},
                 {"ConnectResetRequest", "ConnectResetResponse"},
                 {"SetupAckRequest", "SetupAckResponse"}};
    struct nacos_answer a;
    struct arena arena;

    arena_init(&arena, loop_mem(), NACOS_LIST_BYTES_MAX);
    bool good = nacos_list_read(&arena, m->body, &a) == 0;
    for (size_t i = 0; good && i < ARRAY_LEN(kinds); i++)
        if (slice_eq(m->type, slice_str(kinds[i].request)))
            answer_push(p, kinds[i].reply, &a);
    struct nacos_service *s = good && a.has_hosts ? service_of(p->nacos, &a) : NULL;
    if (!good)
        source_failed(p->nacos->source, "what was pushed is no JSON");
    else if (s)
        nacos_take_answer(s, m->body, &a);
    arena_fini(&arena);
    if (slice_eq(m->type, SLICE("ConnectResetRequest")))
        p->reset = true;
}

static void subscribed(struct nacos_push *p, struct nacos_service *s, struct slice body)
{
    struct nacos_answer a;
    struct arena arena;

    arena_init(&arena, loop_mem(), NACOS_LIST_BYTES_MAX);
    int rc = nacos_list_read(&arena, body, &a);
    bool denied = rc == 0 && a.error == ERROR_DENIED;
    if (rc == 0 && a.has_hosts) {
        nacos_take_answer(s, body, &a);
        s->subscribed = true;
        p->failures = 0;
        p->renewed = false;
        nacos_http_fini(s); /* an answer that is still under way would be older */
    } else if (denied && p->nacos->conf->username.n && !p->renewed) {
        p->renewed = true;
        p->nacos->token_until_ns = 0;
        p->again = true;
    } else if (!denied || !p->nacos->login) {
        source_failed(p->nacos->source, "%.*s cannot be subscribed to: %.*s", SLICE_ARG(s->grouped),
                      SLICE_ARG(a.message));
        p->dead = true;
    }
    arena_fini(&arena);
}

/* Inside callbacks the connection stays; what has to end ends from the loop. */
static void soon(struct nacos_push *p)
{
    loop_timer_set(p->nacos->env->loop, &p->timer, 0);
}

static void on_message(struct grpc_call *call, struct slice message)
{
    struct nacos_push *p = grpc_ctx(grpc_of(call));
    struct nacos_payload m;

    p->heard_ns = loop_now(p->nacos->env->loop);
    if (nacos_payload_read(message, &m)) {
        p->dead = true;
    } else if (call == p->stream) {
        pushed(p, &m);
    } else if (grpc_user(call)) {
        subscribed(p, grpc_user(call), m.body);
    } else if (p->state == PUSH_CHECKS) {
        p->checked = slice_eq(m.type, SLICE("ServerCheckResponse"));
        p->dead = !p->checked;
    } else if (slice_eq(m.type, SLICE("HealthCheckResponse"))) {
        source_ok(p->nacos->source);
    } else {
        p->dead = true; /* it does not know this connection (any more) */
    }
    if (p->dead || p->checked || p->again || p->reset)
        soon(p);
}

static void on_half_close(struct grpc_call *call)
{
    (void)call;
}

static void on_end(struct grpc_call *call, unsigned status)
{
    struct nacos_push *p = grpc_ctx(grpc_of(call));

    if (call == p->stream)
        p->stream = NULL;
    else if (status == GRPC_OK)
        return;
    p->dead = true;
    soon(p);
}

static void on_connected(struct grpc *g)
{
    struct nacos_push *p = grpc_ctx(g);

    p->state = PUSH_CHECKS;
    check_server(p);
}

static void on_closed(struct grpc *g, int error)
{
    struct nacos_push *p = grpc_ctx(g);

    p->grpc = NULL; /* freed by its owner */
    p->stream = NULL;
    lost(p, err_text(error));
}

static const struct grpc_ops ops = {.on_connected = on_connected,
                                    .on_message = on_message,
                                    .on_half_close = on_half_close,
                                    .on_end = on_end,
                                    .on_closed = on_closed};

/* --- connecting --- */

static void connect_to(struct nacos_push *p, const struct net_addr *addr)
{
    struct nacos *n = p->nacos;
    struct buf authority;

    p->state = PUSH_CONNECTS;
    p->dead = p->checked = p->again = p->reset = false;
    p->renewed = false;
    buf_init(&authority, loop_mem(), AUTHORITY_MAX);
    buf_put_slice(&authority, slice_from(n->servers[p->server].url, sizeof("http://") - 1));
    int rc = authority.err ? authority.err
                           : grpc_connect(n->env->loop, addr, buf_slice(&authority), CONNECT_NS,
                                          &ops, p, &p->grpc);
    buf_fini(&authority);
    if (rc) {
        lost(p, err_text(rc));
        return;
    }
    /* The connection has a time of its own; this is for one that stands and says nothing. */
    loop_timer_set(n->env->loop, &p->timer, loop_now(n->env->loop) + 2 * CONNECT_NS);
}

static void on_resolved(struct resolve_query *q, int error, const struct net_addr *addr)
{
    struct nacos_push *p = container_of(q, struct nacos_push, query);

    if (error)
        lost(p, err_text(error));
    else
        connect_to(p, addr);
}

static void connect_now(struct nacos_push *p)
{
    struct nacos *n = p->nacos;
    struct net_addr addr;
    struct url url;

    if (wire_url_parse(n->servers[p->server].url, &url) || url.tls ||
        url.port + NACOS_GRPC_OFFSET > UINT16_MAX) {
        lost(p, "there is no gRPC without TLS at that address");
        return;
    }
    p->state = PUSH_RESOLVES;
    int rc = net_resolve(p->resolver, url.host, (uint16_t)(url.port + NACOS_GRPC_OFFSET),
                         CONNECT_NS, &p->query, &addr);
    if (rc == 0)
        connect_to(p, &addr);
    else if (rc != WEIR_E_AGAIN)
        lost(p, err_text(rc));
}

/* --- time --- */

static void stand(struct nacos_push *p)
{
    struct loop *loop = p->nacos->env->loop;
    uint64_t now = loop_now(loop);

    if (p->again) {
        p->again = false;
        subscribe_all(p);
    }
    if (p->state != PUSH_STANDS)
        return;
    if (now - p->heard_ns >= DEAD_NS) {
        lost(p, "it does not answer any more");
        return;
    }
    if (now - p->heard_ns >= IDLE_NS)
        check_health(p);
    if (p->state == PUSH_STANDS)
        loop_timer_set(loop, &p->timer, now + IDLE_NS);
}

static void on_timer(struct loop_timer *t)
{
    struct nacos_push *p = container_of(t, struct nacos_push, timer);

    if (p->state == PUSH_WAITS) {
        connect_now(p);
    } else if (p->dead || p->reset) {
        lost(p, p->reset ? "the server asks to go elsewhere" : "the connection is of no use");
    } else if (p->state == PUSH_CHECKS && p->checked) {
        p->checked = false;
        set_up(p);
    } else if (p->state == PUSH_SETTLES) {
        p->state = PUSH_STANDS;
        loop_timer_set(p->nacos->env->loop, t, loop_now(p->nacos->env->loop) + IDLE_NS);
        subscribe_all(p);
    } else if (p->state == PUSH_STANDS) {
        stand(p);
    } else {
        lost(p, "no answer in time");
    }
}

/* --- life --- */

int nacos_push_start(struct nacos *n)
{
    struct nacos_push *p = mem_zalloc(loop_mem(), sizeof(*p));

    if (!p)
        return WEIR_E_NOMEM;
    p->nacos = n;
    p->timer.on_timer = on_timer;
    p->query.done = on_resolved;
    list_init(&p->query.node);
    int rc = resolver_new(n->env->loop, NULL, &p->resolver);
    if (rc) {
        mem_free(loop_mem(), p);
        return rc;
    }
    n->push = p;
    loop_timer_set(n->env->loop, &p->timer, 0);
    return 0;
}

void nacos_push_stop(struct nacos *n)
{
    struct nacos_push *p = n->push;

    if (!p)
        return;
    loop_timer_cancel(&p->timer);
    forget_connection(p);
    resolver_free(p->resolver);
    mem_free(loop_mem(), p);
    n->push = NULL;
}
