/* SPDX-License-Identifier: Apache-2.0 */
/** @file The native API: /v1/endpoints and /v1/watch. Every answer is JSON; every error names its field. */
#include <stdarg.h>
#include <stdio.h>

#include "base/bug.h"
#include "base/num.h"
#include "base/utf8.h"
#include "loop/alloc.h"
#include "registry/nacos_codec.h"
#include "registry/native_json.h"
#include "registry/registry_priv.h"
#include "wire/url.h"

static const char json_answer[] = "application/json";

/* --- answers --- */

static void error_reply(
    struct call *c, unsigned status, const char *code, const char *field, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

static void error_reply(
    struct call *c, unsigned status, const char *code, const char *field, const char *format, ...)
{
    char message[512];
    struct buf out;
    va_list args;

    va_start(args, format);
    (void)vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    call_out(c, &out);
    native_write_error(&out, code, field, message);
    call_reply(c, status, json_answer, &out);
}

static void not_found(struct call *c, struct slice id)
{
    error_reply(c, 404, "not_found", "id",
                "no endpoint '%.*s'; register it with PUT /v1/endpoints/{id}", (int)MIN(id.n, 200),
                id.p);
}

static void bad_document(struct call *c, const struct native_error *e)
{
    error_reply(c, 400, e->code, e->field, "%s", e->message);
}

/** The store or the fleet refused. */
static void refused(struct call *c, int rc)
{
    if (rc == WEIR_E_FULL)
        error_reply(c, 409, "limit_reached", NULL,
                    "the registry or the fleet is full (at most %u instances)",
                    c->registry->o.instances_max);
    else if (rc == WEIR_E_STALE)
        error_reply(c, 409, "stale_epoch", "epoch", "a newer run of this endpoint is registered");
    else if (rc == WEIR_E_DENIED)
        error_reply(c, 409, "refused", "url", "this address may not be registered");
    else if (rc == WEIR_E_INVALID)
        error_reply(c, 400, "invalid_field", NULL, "the fleet cannot take this endpoint: %s",
                    err_text(rc));
    else
        error_reply(c, 500, "internal", NULL, "%s", err_text(rc));
}

static struct native_view view_of(const struct call *c, const struct record *r)
{
    struct native_view v = {.now_ns = c->now_ns};

    v.has_requests = registry_requests(c->registry, r, &v.requests);
    return v;
}

static void reply_record(struct call *c, unsigned status, const struct record *r)
{
    struct buf out;
    struct native_view v = view_of(c, r);

    call_out(c, &out);
    native_write_view(&out, r, &v);
    call_reply(c, status, json_answer, &out);
}

/* --- one endpoint --- */

static void put_endpoint(struct call *c, struct slice id)
{
    struct native_error e;
    struct native_doc doc;
    struct record *r;
    bool created = false;
    json_t *json = native_load_json(c->request->body, &e);
    int rc = json ? native_read_endpoint(&c->arena, json, &doc, &e) : WEIR_E_INVALID;

    json_decref(json);
    if (rc == WEIR_E_INVALID) {
        bad_document(c, &e);
        return;
    }
    if (rc) {
        refused(c, WEIR_E_NOMEM);
        return;
    }
    if (doc.instance.id.p && !slice_eq(doc.instance.id, id)) {
        error_reply(c, 400, "invalid_field", "id", "id in the body is not the id in the path");
        return;
    }
    doc.instance.id = id;
    struct native_put put = {
        .instance = &doc.instance, .ttl_ns = doc.ttl_ns, .has_epoch = doc.has_epoch};
    rc = store_put(&c->registry->store, &put, c->now_ns, &r, &created);
    if (rc)
        refused(c, rc);
    else
        reply_record(c, created ? 201 : 200, r);
}

static void get_endpoint(struct call *c, struct slice id)
{
    const struct record *r = store_find(&c->registry->store, id);

    if (r)
        reply_record(c, 200, r);
    else
        not_found(c, id);
}

static void delete_endpoint(struct call *c, struct slice id)
{
    struct record *r = store_find(&c->registry->store, id);
    struct buf out;

    if (!r) {
        not_found(c, id);
        return;
    }
    store_remove(&c->registry->store, r, REASON_DEREGISTERED);
    call_out(c, &out);
    buf_put_str(&out, "{\"id\":");
    buf_put_json(&out, id);
    buf_put_str(&out, ",\"removed\":true}");
    call_reply(c, 200, json_answer, &out);
}

static void post_renew(struct call *c, struct slice id)
{
    struct record *r = store_find(&c->registry->store, id);
    struct buf out;

    if (!r) {
        not_found(c, id);
        return;
    }
    int rc = store_renew(&c->registry->store, r, c->now_ns);
    if (rc) {
        refused(c, rc);
        return;
    }
    uint64_t ms = r->kind == RECORD_NATIVE ? r->ttl_ns / NS_PER_MS : r->delete_ms;
    call_out(c, &out);
    buf_put_str(&out, "{\"id\":");
    buf_put_json(&out, r->instance.id);
    buf_put_str(&out, ",\"ttl_ms\":");
    buf_put_u64(&out, ms);
    buf_put_str(&out, ",\"epoch\":");
    buf_put_u64(&out, r->instance.epoch);
    buf_put_char(&out, '}');
    call_reply(c, 200, json_answer, &out);
}

static void post_load(struct call *c, struct slice id)
{
    struct native_error e;
    struct sample load;
    struct buf out;
    struct record *r = store_find(&c->registry->store, id);

    if (!r) {
        not_found(c, id);
        return;
    }
    json_t *json = native_load_json(c->request->body, &e);
    int rc = json ? native_read_load(json, &load, &e) : WEIR_E_INVALID;
    json_decref(json);
    if (rc) {
        bad_document(c, &e);
        return;
    }
    load.source = c->registry->o.source;
    load.received_ns = c->now_ns;
    if (!registry_requests(c->registry, r, &load.inflight_then))
        load.inflight_then = 0;
    rc = store_load(&c->registry->store, r, &load, c->now_ns);
    if (rc && rc != WEIR_E_STALE) {
        refused(c, rc);
        return;
    }
    call_out(c, &out);
    buf_put_str(&out, rc ? "{\"accepted\":false,\"epoch\":" : "{\"accepted\":true,\"epoch\":");
    buf_put_u64(&out, r->load_epoch);
    buf_put_str(&out, ",\"seq\":");
    if (r->has_load_seq)
        buf_put_u64(&out, r->load_seq);
    else
        buf_put_str(&out, "null");
    buf_put_char(&out, '}');
    call_reply(c, 200, json_answer, &out);
}

/* --- lists and the stream --- */

static bool in_service(const struct record *r, struct slice service)
{
    for (uint32_t i = 0; i < r->instance.n_services; i++)
        if (slice_eq(r->instance.services[i], service))
            return true;
    return false;
}

void native_write_all(const struct registry *r,
                      struct buf *out,
                      struct slice service,
                      struct slice model)
{
    bool first = true;

    buf_put_str(out, "{\"seq\":");
    buf_put_u64(out, watch_seq(&r->watch));
    buf_put_str(out, ",\"endpoints\":[");
    weir_list_foreach (pos, &r->store.records) {
        const struct record *record = container_of(pos, struct record, node);
        if ((service.p && !in_service(record, service)) ||
            (model.p && !native_has_model(record, model)))
            continue;
        struct native_view v = {.now_ns = loop_now(r->loop)};
        v.has_requests = registry_requests(r, record, &v.requests);
        if (!first)
            buf_put_char(out, ',');
        native_write_view(out, record, &v);
        first = false;
    }
    buf_put_str(out, "]}");
}

/** Query parameters; an unknown name is an error. @return false when answered. */
static bool query(struct call *c, struct nacos_params *p, const char *const *names, size_t n)
{
    if (nacos_params_parse(p, &c->arena, c->request->query, (struct slice){NULL, 0})) {
        error_reply(c, 400, "invalid_query", NULL, "the query string cannot be decoded");
        return false;
    }
    for (uint32_t i = 0; i < p->n; i++) {
        size_t k = 0;
        while (k < n && !slice_eq(p->list[i].name, slice_str(names[k])))
            k++;
        if (k < n)
            continue;
        char name[64];
        (void)snprintf(name, sizeof(name), "%.*s", (int)MIN(p->list[i].name.n, 40),
                       p->list[i].name.p);
        error_reply(c, 400, "unknown_field", name, "unknown query parameter '%s'", name);
        return false;
    }
    return true;
}

static void get_list(struct call *c)
{
    static const char *const names[] = {"service", "model"};
    struct nacos_params p;
    struct buf out;

    if (!query(c, &p, names, ARRAY_LEN(names)))
        return;
    call_out(c, &out);
    native_write_all(c->registry, &out, nacos_param(&p, "service"), nacos_param(&p, "model"));
    call_reply(c, 200, json_answer, &out);
}

static void get_watch(struct call *c)
{
    static const char *const names[] = {"since"};
    struct nacos_params p;
    uint64_t since = 0;

    if (!query(c, &p, names, ARRAY_LEN(names)))
        return;
    struct slice text = nacos_param(&p, "since");
    if (!text.p)
        text = wire_http1_value(c->request->head, SLICE("Last-Event-ID"));
    if (text.n && num_u64(text, &since)) {
        error_reply(c, 400, "invalid_field", "since", "since must be the id of an event");
        return;
    }
    int rc = watch_start(&c->registry->watch, c->request, since);
    if (rc == WEIR_E_FULL)
        error_reply(c, 409, "limit_reached", NULL, "%u watchers are connected already",
                    REGISTRY_WATCHERS_MAX);
    else if (rc)
        refused(c, rc);
}

/* --- dispatch --- */

typedef void (*endpoint_fn)(struct call *c, struct slice id);

static void wrong_method(struct call *c, const char *allowed)
{
    char headers[64];
    struct buf out;

    (void)snprintf(headers, sizeof(headers), "Allow: %s\r\n", allowed);
    call_out(c, &out);
    native_write_error(&out, "method_not_allowed", NULL, "this path does not take this method");
    if (out.err)
        http_reply(c->request, 405, NULL, SLICE(""));
    else
        http_reply_with(c->request, 405, json_answer, slice_str(headers), buf_slice(&out));
    buf_fini(&out);
}

static void handle_one(struct call *c, struct slice id, struct slice action)
{
    static const struct {
        const char *action, *method, *allowed;
        endpoint_fn handle;
    } table[] = {
        {"", "GET", "GET, PUT, DELETE", get_endpoint},
        {"", "PUT", "GET, PUT, DELETE", put_endpoint},
        {"", "DELETE", "GET, PUT, DELETE", delete_endpoint},
        {"renew", "POST", "POST", post_renew},
        {"load", "POST", "POST", post_load},
    };
    const char *allowed = NULL;

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        if (!slice_eq(action, slice_str(table[i].action)))
            continue;
        allowed = table[i].allowed;
        if (slice_eq(c->request->method, slice_str(table[i].method))) {
            table[i].handle(c, id);
            return;
        }
    }
    if (allowed)
        wrong_method(c, allowed);
    else
        error_reply(c, 404, "not_found", NULL, "no such path; see docs/registry.md");
}

/** The id segment, decoded and checked. @return false when answered. */
static bool read_id(struct call *c, struct slice raw, struct slice *id)
{
    struct buf b;
    bool ok = true;

    buf_init(&b, loop_mem(), ENDPOINT_TEXT_MAX);
    int rc = wire_url_decode(raw, false, &b);
    struct slice s = buf_slice(&b);
    for (size_t i = 0; i < s.n; i++)
        ok &= (unsigned char)s.p[i] >= 0x20 && s.p[i] != 0x7f;
    if (!rc && !b.err && ok && utf8_ok(s.p, s.n) && s.n > 0 && arena_slice(&c->arena, s, id) == 0) {
        buf_fini(&b);
        return true;
    }
    buf_fini(&b);
    error_reply(c, 400, "invalid_field", "id",
                "the id in the path must be 1 to %u bytes of UTF-8 without control characters",
                ENDPOINT_TEXT_MAX);
    return false;
}

void native_handle(struct call *c)
{
    struct slice rest = slice_from(c->request->path, sizeof("/v1/") - 1);
    struct slice noun;
    struct slice raw = {NULL, 0};
    struct slice id;
    bool get = slice_eq(c->request->method, SLICE("GET"));

    if (!registry_token_ok(c->registry, call_bearer(c))) {
        error_reply(c, 401, "unauthorized", NULL,
                    "send the registry token as Authorization: Bearer TOKEN");
        return;
    }
    (void)slice_cut(&rest, '/', &noun);
    if (slice_eq(noun, SLICE("watch")) && !rest.p) {
        if (get)
            get_watch(c);
        else
            wrong_method(c, "GET");
        return;
    }
    if (!slice_eq(noun, SLICE("endpoints"))) {
        error_reply(c, 404, "not_found", NULL, "no such path; see docs/registry.md");
        return;
    }
    (void)slice_cut(&rest, '/', &raw);
    if (slice_empty(raw) && slice_empty(rest)) {
        if (get)
            get_list(c);
        else
            wrong_method(c, "GET");
        return;
    }
    if (read_id(c, raw, &id))
        handle_one(c, id, rest.p ? rest : SLICE(""));
}
