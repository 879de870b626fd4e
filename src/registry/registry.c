/* SPDX-License-Identifier: Apache-2.0 */
/** @file Wiring: the HTTP server's requests to the two APIs, the store's events to watchers and to the state file. */
#include "registry/registry.h"

#include <string.h>
#include <sys/random.h>

#include "base/bug.h"
#include "base/num.h"
#include "loop/alloc.h"
#include "loop/log.h"
#include "registry/nacos_grpc.h"
#include "registry/native_json.h"
#include "registry/registry_priv.h"

/* A little above the limit, so that a body just above it still gets an answer in JSON. */
enum { SERVER_BODY_MAX = REGISTRY_BODY_MAX + 65536, SPARE_CONNECTIONS = 4096, PORT_TRIES = 16 };

/* --- answering --- */

void call_out(const struct call *c, struct buf *out)
{
    (void)c;
    buf_init(out, loop_mem(), REGISTRY_ANSWER_MAX);
}

void call_reply(struct call *c, unsigned status, const char *type, struct buf *out)
{
    if (out->err)
        http_reply(c->request, 500, "text/plain; charset=utf-8",
                   slice_str("the answer does not fit\n"));
    else
        http_reply(c->request, status, type, buf_slice(out));
    buf_fini(out);
}

bool registry_token_ok(const struct registry *r, struct slice given)
{
    return !r->token || slice_same_secret(given, slice_str(r->token));
}

struct slice call_bearer(const struct call *c)
{
    struct slice v = wire_http1_value(c->request->head, SLICE("Authorization"));

    if (v.n < 7 || !slice_eq_nocase(slice_of(v.p, 7), SLICE("Bearer ")))
        return (struct slice){NULL, 0};
    return slice_trim(slice_from(v, 7));
}

bool registry_requests(const struct registry *r, const struct record *record, uint32_t *out)
{
    if (!r->o.current_requests)
        return false;
    *out = r->o.current_requests(r->o.ctx, record->instance.host, record->instance.port);
    return *out != REGISTRY_REQUESTS_UNKNOWN;
}

/* --- requests --- */

void registry_leases_changed(struct registry *r)
{
    uint64_t due = store_next_due(&r->store);

    if (due == UINT64_MAX)
        loop_timer_cancel(&r->lease_timer);
    else if (!loop_timer_active(&r->lease_timer) || r->lease_timer.at_ns != due)
        loop_timer_set(r->loop, &r->lease_timer, due);
}

static void on_lease(struct loop_timer *t)
{
    struct registry *r = container_of(t, struct registry, lease_timer);

    store_expire(&r->store, loop_now(r->loop));
    registry_leases_changed(r);
}

/* Browsers name the page that sent a request. No client of a registry is a web page, and without a token a page could
 * otherwise make its visitor's browser register endpoints here. */
static bool from_web_page(const struct call *c)
{
    return !c->registry->token && wire_http1_find(c->request->head, SLICE("Origin")) != NULL;
}

static void refuse(struct call *c, unsigned status, const char *code, const char *message)
{
    struct buf out;

    call_out(c, &out);
    native_write_error(&out, code, NULL, message);
    call_reply(c, status, "application/json", &out);
}

static void on_request(void *ctx, struct http_request *request)
{
    struct registry *r = ctx;
    struct call c = {.registry = r, .request = request, .now_ns = loop_now(r->loop)};

    arena_init(&c.arena, loop_mem(), REGISTRY_CALL_MAX);
    if (request->body.n > REGISTRY_BODY_MAX)
        refuse(&c, 413, "body_too_large", "the body is longer than 1 MiB");
    else if (from_web_page(&c))
        refuse(&c, 403, "forbidden",
               "requests from web pages need a registry token to be configured");
    else if (slice_starts(request->path, SLICE("/v1/")))
        native_handle(&c);
    else if (slice_starts(request->path, SLICE("/nacos/")))
        nacos_handle(&c);
    else if (fastchat_handles(request->path))
        fastchat_handle(&c);
    else
        refuse(&c, 404, "not_found",
               "the registry answers under /v1/ and /nacos/, and FastChat's paths");
    arena_fini(&c.arena);
    registry_leases_changed(r);
}

/* --- events --- */

static const char *const reasons[] = {
    [REASON_NONE] = "none", [REASON_DEREGISTERED] = "deregistered", [REASON_EXPIRED] = "expired"};

static void publish(struct registry *r,
                    enum store_event event,
                    const struct record *record,
                    enum store_reason reason)
{
    struct buf data;

    buf_init(&data, loop_mem(), REGISTRY_ANSWER_MAX);
    if (event == STORE_UPSERT) {
        struct native_view view = {.now_ns = loop_now(r->loop)};
        buf_put_str(&data, "{\"endpoint\":");
        native_write_view(&data, record, &view);
    } else {
        buf_put_str(&data, "{\"id\":");
        buf_put_json(&data, record->instance.id);
        buf_put_str(&data, ",\"key\":");
        buf_put_json(&data, record->instance.key);
        buf_put_str(&data, ",\"reason\":");
        buf_put_json(&data, slice_str(reasons[reason]));
    }
    buf_put_char(&data, '}');
    if (data.err)
        log_error("registry", "event of %.*s does not fit: %s", SLICE_ARG(record->instance.id),
                  err_text(data.err));
    watch_publish(&r->watch, event == STORE_UPSERT ? "upsert" : "remove",
                  data.err ? SLICE("{}") : buf_slice(&data));
    buf_fini(&data);
}

static void
on_event(void *ctx, enum store_event event, const struct record *record, enum store_reason reason)
{
    struct registry *r = ctx;

    if (event == STORE_REMOVE && reason == REASON_EXPIRED && record->kept)
        log_warn("registry", "%.*s goes: the connection that registered it is gone",
                 SLICE_ARG(record->instance.key));
    else if (event == STORE_REMOVE && reason == REASON_EXPIRED)
        log_warn("registry",
                 "lease of %.*s ended: not heard of for %llu ms; it has to register again",
                 SLICE_ARG(record->instance.key),
                 (unsigned long long)(record->kind == RECORD_NATIVE ? record->ttl_ns / NS_PER_MS
                                                                    : record->delete_ms));
    else if (event == STORE_REMOVE)
        log_info("registry", "%.*s deregistered", SLICE_ARG(record->instance.key));
    if (event != STORE_NOTED)
        publish(r, event, record, reason);
    if (r->grpc)
        nacos_grpc_event(r->grpc, event, record);
    state_changed(&r->state);
}

static void write_all(void *ctx, struct buf *out)
{
    native_write_all(ctx, out, (struct slice){NULL, 0}, (struct slice){NULL, 0});
}

/* --- life --- */

static int make_access_token(struct registry *r)
{
    unsigned char raw[REGISTRY_ACCESS_TOKEN / 2];
    static const char hex[] = "0123456789abcdef";

    if (getrandom(raw, sizeof(raw), 0) != (ssize_t)sizeof(raw))
        return WEIR_E_IO;
    for (size_t i = 0; i < sizeof(raw); i++) {
        r->access_token[2 * i] = hex[raw[i] >> 4];
        r->access_token[2 * i + 1] = hex[raw[i] & 15];
    }
    return 0;
}

int registry_set_token(struct registry *r, const char *token)
{
    struct slice now = slice_str(r->token);
    struct slice next = slice_str(token);
    char *copy = NULL;

    if (!r->token == !token && (!token || slice_same_secret(now, next)))
        return 0;
    if (token && !(copy = mem_strdup(loop_mem(), next)))
        return WEIR_E_NOMEM;
    int rc = make_access_token(r);
    if (rc) {
        mem_free(loop_mem(), copy);
        return rc;
    }
    if (r->token)
        explicit_bzero(r->token, strlen(r->token));
    mem_free(loop_mem(), r->token);
    r->token = copy;
    r->o.token = copy;
    return 0;
}

static int copy_options(struct registry *r, const struct registry_options *o)
{
    r->o = *o;
    if (!r->o.instances_max)
        r->o.instances_max = REGISTRY_INSTANCES_MAX;
    if (o->token && !(r->token = mem_strdup(loop_mem(), slice_str(o->token))))
        return WEIR_E_NOMEM;
    if (o->state_file && !(r->state_file = mem_strdup(loop_mem(), slice_str(o->state_file))))
        return WEIR_E_NOMEM;
    r->o.token = r->token;
    r->o.state_file = r->state_file;
    return make_access_token(r);
}

/* With any port for HTTP another one is tried when the port for gRPC is not free. */
static int
start_servers(struct registry *r, const struct http_server_options *o, struct net_addr *where)
{
    bool any = net_addr_port(&o->addr) == 0;
    int rc = 0;

    for (unsigned tries = any ? PORT_TRIES : 1; tries > 0 && !r->grpc; tries--) {
        if (r->server)
            http_server_stop(r->server);
        r->server = NULL;
        rc = http_server_start(r->loop, o, &r->server, where);
        if (rc)
            return rc;
        rc = nacos_grpc_start(r, where, &r->grpc);
    }
    if (rc)
        log_warn("registry", "gRPC for Nacos is off: port %u cannot be used: %s",
                 net_addr_port(where) + NACOS_GRPC_OFFSET, err_text(rc));
    return 0;
}

const struct net_addr *registry_grpc_addr(const struct registry *r)
{
    return r->grpc ? &r->grpc->listener.addr : NULL;
}

int registry_start(struct loop *loop,
                   const struct registry_options *o,
                   struct registry **out,
                   struct net_addr *bound)
{
    struct registry *r = mem_zalloc(loop_mem(), sizeof(*r));
    struct net_addr where;

    if (!r)
        return WEIR_E_NOMEM;
    r->loop = loop;
    r->lease_timer.on_timer = on_lease;
    int rc = copy_options(r, o);
    struct store_options so = {.mem = loop_mem(),
                               .sink = o->sink,
                               .source = o->source,
                               .records_max = r->o.instances_max,
                               .on_event = on_event,
                               .ctx = r};
    store_init(&r->store, &so);
    watch_init(&r->watch, loop, write_all, r);
    state_init(&r->state, loop, &r->store, r->state_file);
    struct http_server_options ho = {.addr = o->addr,
                                     .tls = o->tls,
                                     .body_max = SERVER_BODY_MAX,
                                     .connections_max = REGISTRY_WATCHERS_MAX + SPARE_CONNECTIONS,
                                     .idle_ns = 75 * NS_PER_S,
                                     .handler = on_request,
                                     .ctx = r};
    /* Bind first: who cannot serve must not move a state file aside. Nothing is answered before the loop turns. */
    if (!rc)
        rc = start_servers(r, &ho, &where);
    if (rc) {
        registry_stop(r);
        return rc;
    }
    state_load(&r->state, loop_now(loop));
    if (r->o.sink.synced)
        r->o.sink.synced(r->o.sink.ctx, r->o.source);
    registry_leases_changed(r);
    if (bound)
        *bound = where;
    *out = r;
    return 0;
}

void registry_stop(struct registry *r)
{
    if (!r)
        return;
    nacos_grpc_stop(r->grpc);
    r->grpc = NULL;
    if (r->server)
        http_server_stop(r->server);
    loop_timer_cancel(&r->lease_timer);
    state_fini(&r->state);
    watch_fini(&r->watch);
    store_fini(&r->store);
    mem_free(loop_mem(), r->token);
    mem_free(loop_mem(), r->state_file);
    mem_free(loop_mem(), r);
}

uint32_t registry_count(const struct registry *r)
{
    return r->store.n;
}
