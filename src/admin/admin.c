/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One table of (method, path pattern, action). A pattern has at most one "{id}", percent-decoded before the hook sees
 * it. /health, /liveness and /readiness need no token: a failing probe of the admin port restarts the gateway.
 */
#include "admin/admin.h"

#include "admin/events.h"
#include "base/num.h"
#include "loop/alloc.h"
#include "net/http_server.h"
#include "wire/prom.h"
#include "wire/url.h"

enum { ANSWER_MAX = 256 << 20, BODY_MAX = 4 << 20, ID_MAX = 1024, CONNECTIONS = 256 };
enum { DECISIONS_DEFAULT = 100 };
#define NDJSON "application/x-ndjson"

struct admin {
    struct http_server *server;
    struct admin_hooks hooks;
    char *token;
    struct events events;
};

struct call {
    struct admin *admin;
    struct slice id;
    struct slice body;
    const struct http_request *request;
    const char *content_type; /* of the answer; an action may choose another */
    struct buf *out;
};

typedef int (*action_fn)(struct call *c);

static int do_metrics(struct call *c)
{
    return c->admin->hooks.metrics(c->admin->hooks.ctx, c->out);
}

static int do_endpoints(struct call *c)
{
    return c->admin->hooks.endpoints(c->admin->hooks.ctx, c->out);
}

static int do_endpoint(struct call *c)
{
    return c->admin->hooks.endpoint(c->admin->hooks.ctx, c->id, c->out);
}

static int do_drain(struct call *c)
{
    return c->admin->hooks.set_drain(c->admin->hooks.ctx, c->id, true, c->out);
}

static int do_undrain(struct call *c)
{
    return c->admin->hooks.set_drain(c->admin->hooks.ctx, c->id, false, c->out);
}

static int do_config(struct call *c)
{
    return c->admin->hooks.config(c->admin->hooks.ctx, c->out);
}

static int do_validate(struct call *c)
{
    return c->admin->hooks.config_validate(c->admin->hooks.ctx, c->body, c->out);
}

static int do_apply(struct call *c)
{
    return c->admin->hooks.config_apply(c->admin->hooks.ctx, c->body, c->out);
}

static int do_workers(struct call *c)
{
    return c->admin->hooks.workers(c->admin->hooks.ctx, c->out);
}

static int do_worker(struct call *c)
{
    return c->admin->hooks.worker(c->admin->hooks.ctx, c->id, c->out);
}

static int do_worker_add(struct call *c)
{
    return c->admin->hooks.worker_add(c->admin->hooks.ctx, c->body, c->out);
}

static int do_worker_remove(struct call *c)
{
    return c->admin->hooks.worker_remove(c->admin->hooks.ctx, c->id, c->out);
}

static int do_explain(struct call *c)
{
    return c->admin->hooks.explain(c->admin->hooks.ctx, c->body, c->out);
}

static int do_decisions(struct call *c)
{
    struct slice accept = wire_http1_value(c->request->head, SLICE("accept"));
    struct slice rest = c->request->query;
    struct slice name;
    struct slice value;
    uint64_t limit = DECISIONS_DEFAULT;
    bool lines = slice_eq_nocase(slice_trim(accept), SLICE(NDJSON));

    while (wire_query_next(&rest, &name, &value)) {
        if (slice_eq(name, SLICE("limit"))) {
            if (num_u64(value, &limit) != 0) {
                buf_put_str(c->out, "limit: a whole number is needed");
                return WEIR_E_INVALID;
            }
        } else if (slice_eq(name, SLICE("format"))) {
            lines = slice_eq(value, SLICE("jsonl"));
            if (!lines && !slice_eq(value, SLICE("json"))) {
                buf_put_str(c->out, "format: json or jsonl");
                return WEIR_E_INVALID;
            }
        } else {
            buf_put_str(c->out, "known parameters are limit and format");
            return WEIR_E_INVALID;
        }
    }
    if (lines)
        c->content_type = NDJSON;
    return c->admin->hooks.decisions(c->admin->hooks.ctx, (uint32_t)MIN(limit, UINT64_C(1) << 30),
                                     lines, c->out);
}

static int do_alive(struct call *c)
{
    return buf_put_str(c->out, "{\"status\":\"ok\"}");
}

static const struct entry {
    const char *method;
    const char *path;
    action_fn action; /* NULL: the stream of events */
    const char *content_type;
    bool open; /* needs no token */
} entries[] = {
    {"GET", "/metrics", do_metrics, PROM_CONTENT_TYPE, false},
    {"GET", "/api/v1/endpoints", do_endpoints, "application/json", false},
    {"GET", "/api/v1/endpoints/{id}", do_endpoint, "application/json", false},
    {"POST", "/api/v1/endpoints/{id}/drain", do_drain, "application/json", false},
    {"POST", "/api/v1/endpoints/{id}/undrain", do_undrain, "application/json", false},
    {"GET", "/api/v1/config", do_config, "application/json", false},
    {"POST", "/api/v1/config/validate", do_validate, "application/json", false},
    {"POST", "/api/v1/config/apply", do_apply, "application/json", false},
    {"GET", "/api/v1/events", NULL, "text/event-stream", false},
    {"POST", "/api/v1/explain", do_explain, "application/json", false},
    {"GET", "/api/v1/decisions", do_decisions, "application/json", false},
    {"GET", "/workers", do_workers, "application/json", false},
    {"POST", "/workers", do_worker_add, "application/json", false},
    {"GET", "/workers/{id}", do_worker, "application/json", false},
    {"DELETE", "/workers/{id}", do_worker_remove, "application/json", false},
    {"GET", "/health", do_alive, "application/json", true},
    {"GET", "/liveness", do_alive, "application/json", true},
    {"GET", "/readiness", do_alive, "application/json", true},
};

/* Does path match the pattern? The id part (one segment, not empty) goes to *id. */
static bool matches(struct slice path, struct slice pattern, struct slice *id)
{
    size_t at = slice_find(pattern, '{');

    *id = (struct slice){NULL, 0};
    if (at == pattern.n)
        return slice_eq(path, pattern);
    if (!slice_starts(path, slice_of(pattern.p, at)))
        return false;
    struct slice rest = slice_from(path, at);
    struct slice tail = slice_from(pattern, slice_find(pattern, '}') + 1);
    size_t end = slice_find(rest, '/');
    *id = slice_of(rest.p, end);
    return id->n > 0 && slice_eq(slice_from(rest, end), tail);
}

static void reply_error(struct http_request *r,
                        unsigned status,
                        const char *code,
                        struct slice message,
                        struct slice extra)
{
    struct buf b;

    buf_init(&b, loop_mem(), 65536);
    buf_put_str(&b, "{\"error\":{\"code\":");
    buf_put_json(&b, slice_str(code));
    buf_put_str(&b, ",\"message\":");
    buf_put_json(&b, slice_of(message.p, MIN(message.n, (size_t)8192)));
    buf_put_str(&b, "}}");
    http_reply_with(r, status, "application/json", extra, buf_slice(&b));
    buf_fini(&b);
}

static bool authorized(const struct admin *a, const struct http_request *r)
{
    struct slice value = wire_http1_value(r->head, SLICE("authorization"));

    if (!a->token)
        return true;
    if (value.n < 7 || !slice_eq_nocase(slice_of(value.p, 7), SLICE("bearer ")))
        return false;
    return slice_same_secret(slice_trim(slice_from(value, 7)), slice_str(a->token));
}

static void follow(struct admin *a, struct http_request *r)
{
    struct slice none = {NULL, 0};
    int rc = slice_eq(r->method, SLICE("GET")) ? events_follow(&a->events, r) : WEIR_E_UNSUPPORTED;

    if (rc == WEIR_E_INVALID)
        reply_error(r, 400, "invalid_request",
                    SLICE("Last-Event-ID and ?since= are the number of an event"), none);
    else if (rc == WEIR_E_UNSUPPORTED)
        http_reply(r, 200, "text/event-stream", none);
    else if (rc)
        reply_error(r, 503, "unavailable", SLICE("too many readers of events"),
                    SLICE("Retry-After: 1\r\n"));
}

static void run(struct admin *a, struct http_request *r, const struct entry *e, struct slice raw_id)
{
    struct buf out;
    struct buf id;

    buf_init(&out, loop_mem(), ANSWER_MAX);
    buf_init(&id, loop_mem(), ID_MAX);
    int rc = wire_url_decode(raw_id, false, &id);
    struct call c = {.admin = a,
                     .id = buf_slice(&id),
                     .body = r->body,
                     .request = r,
                     .content_type = e->content_type,
                     .out = &out};
    if (rc == 0)
        rc = e->action(&c);
    if (rc == 0 && out.err)
        rc = out.err;
    struct slice said = out.err ? (struct slice){NULL, 0} : buf_slice(&out);
    if (said.n == 0 && rc != 0)
        said = slice_str(err_text(rc));
    struct slice none = {NULL, 0};
    if (rc == 0)
        http_reply(r, 200, c.content_type, said);
    else if (rc == WEIR_E_NOTFOUND)
        reply_error(r, 404, "not_found", said, none);
    else if (rc == WEIR_E_INVALID || rc == WEIR_E_RANGE)
        reply_error(r, 400, "invalid_request", said, none);
    else if (rc == WEIR_E_EXISTS)
        reply_error(r, 409, "exists", said, none);
    else if (rc == WEIR_E_UNSUPPORTED)
        reply_error(r, 409, "restart_required", said, none);
    else
        reply_error(r, 503, "unavailable", said, none);
    buf_fini(&out);
    buf_fini(&id);
}

static void handle(void *ctx, struct http_request *r)
{
    struct admin *a = ctx;
    const struct entry *found = NULL;
    struct slice id = {NULL, 0};
    bool path_known = false;
    bool head = slice_eq(r->method, SLICE("HEAD"));

    for (size_t i = 0; i < ARRAY_LEN(entries) && !found; i++) {
        struct slice this_id;
        if (!matches(r->path, slice_str(entries[i].path), &this_id))
            continue;
        path_known = true;
        if (slice_eq(r->method, slice_str(entries[i].method)) ||
            (head && entries[i].method[0] == 'G')) {
            found = &entries[i];
            id = this_id;
        }
    }
    if ((!found || !found->open) && !authorized(a, r))
        reply_error(r, 401, "unauthorized",
                    SLICE("send the admin token as Authorization: Bearer TOKEN"),
                    SLICE("WWW-Authenticate: Bearer\r\n"));
    else if (found && !found->action)
        follow(a, r);
    else if (found)
        run(a, r, found, id);
    else if (path_known)
        reply_error(r, 405, "method_not_allowed",
                    SLICE("this path exists, but not with this method"), (struct slice){NULL, 0});
    else
        reply_error(r, 404, "not_found", SLICE("no such path; docs/admin.md lists them"),
                    (struct slice){NULL, 0});
}

int admin_start(struct loop *loop,
                const struct admin_options *o,
                struct admin **out,
                struct net_addr *bound)
{
    struct admin *a = mem_zalloc(loop_mem(), sizeof(*a));

    if (!a)
        return WEIR_E_NOMEM;
    a->hooks = o->hooks;
    events_init(&a->events, loop);
    if (o->token) {
        a->token = mem_strdup(loop_mem(), slice_str(o->token));
        if (!a->token) {
            mem_free(loop_mem(), a);
            return WEIR_E_NOMEM;
        }
    }
    struct http_server_options so = {.addr = o->addr,
                                     .tls = o->tls,
                                     .body_max = BODY_MAX,
                                     .connections_max = CONNECTIONS,
                                     .idle_ns = 60 * NS_PER_S,
                                     .handler = handle,
                                     .ctx = a};
    int rc = http_server_start(loop, &so, &a->server, bound);
    if (rc) {
        mem_free(loop_mem(), a->token);
        mem_free(loop_mem(), a);
        return rc;
    }
    *out = a;
    return 0;
}

int admin_set_token(struct admin *a, const char *token)
{
    char *copy = token ? mem_strdup(loop_mem(), slice_str(token)) : NULL;

    if (token && !copy)
        return WEIR_E_NOMEM;
    if (a->token)
        explicit_bzero(a->token, strlen(a->token));
    mem_free(loop_mem(), a->token);
    a->token = copy;
    return 0;
}

void admin_event(struct admin *a, const char *type, struct slice json)
{
    if (a)
        events_add(&a->events, type, json);
}

void admin_stop(struct admin *a)
{
    if (!a)
        return;
    http_server_stop(a->server);
    events_fini(&a->events);
    mem_free(loop_mem(), a->token);
    mem_free(loop_mem(), a);
}
