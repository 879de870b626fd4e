/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FastChat's controller, as its model workers and its API server call it: POST, JSON. A worker becomes a native record
 * with a lease of 90 s, which its heart beats renew; a worker that named no status is asked by the checks. The address
 * that is handed out for a model is Weir's own, so that every request is scheduled, not only the look-up.
 */
#include <jansson.h>
#include <stdio.h>

#include "base/num.h"
#include "loop/alloc.h"
#include "registry/nacos_codec.h"
#include "registry/native_json.h"
#include "registry/registry_priv.h"
#include "wire/url.h"

/* CONTROLLER_HEART_BEAT_EXPIRATION; workers beat every 45 s. */
#define FASTCHAT_TTL_NS (UINT64_C(90) * NS_PER_S)

enum { ADDRESS_MAX = 300, NAMES_MAX = 16 << 20 };

static const char json_media[] = "application/json";

static void reply(struct call *c, const char *json)
{
    http_reply(c->request, 200, json_media, slice_str(json));
}

static void fail(struct call *c, unsigned status, const char *code, const char *message)
{
    struct buf out;

    call_out(c, &out);
    native_write_error(&out, code, NULL, message);
    call_reply(c, status, json_media, &out);
}

static struct slice text_of(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);

    return json_is_string(v) ? slice_of(json_string_value(v), json_string_length(v))
                             : slice_of(NULL, 0);
}

/* --- workers --- */

/* "http://10.0.0.5:21002" to an address. @param id out: host:port, in the arena. */
static bool read_address(struct call *c, struct slice name, struct instance *i, struct slice *id)
{
    struct url url;
    struct buf text;

    if (wire_url_parse(name, &url) || nacos_host(url.host, &i->host) || url.port == 0 ||
        url.query.p || !slice_eq(url.path, SLICE("/")))
        return false;
    i->tls = url.tls;
    i->port = url.port;
    buf_init(&text, loop_mem(), ADDRESS_MAX);
    store_address(&text, i->host, i->port);
    bool ok = !text.err && arena_slice(&c->arena, buf_slice(&text), id) == 0;
    buf_fini(&text);
    return ok;
}

/* @return NULL, or what is wrong. */
static const char *read_names(struct call *c, const json_t *names, struct instance *i)
{
    size_t n = json_array_size(names);

    if (!json_is_array(names) || n > ENDPOINT_MODELS_MAX)
        return "worker_status.model_names must be a list of at most 256 names";
    struct model_ref *models = arena_array(&c->arena, n, sizeof(*models));
    if (n && !models)
        return "out of memory";
    for (size_t k = 0; k < n; k++) {
        const json_t *v = json_array_get(names, k);
        if (!json_is_string(v) || !json_string_length(v) ||
            json_string_length(v) > ENDPOINT_TEXT_MAX)
            return "a name in worker_status.model_names is empty, too long or no text";
        models[k].id = slice_of(json_string_value(v), json_string_length(v));
    }
    i->models = models;
    i->n_models = (uint32_t)n;
    return NULL;
}

static const char *read_worker(struct call *c, const json_t *doc, struct instance *i)
{
    const json_t *status = json_object_get(doc, "worker_status");
    const json_t *speed = json_object_get(status, "speed");

    if (!read_address(c, text_of(doc, "worker_name"), i, &i->id))
        return "worker_name must be http://host:port";
    if (!json_is_object(status)) /* the checks will ask it */
        return NULL;
    if (speed) {
        double v = json_number_value(speed);
        if (!json_is_number(speed) || !(v >= 0))
            return "worker_status.speed must be a number, 0 or above";
        v = v * WEIGHT_ONE + 0.5;
        i->weight = v > WEIGHT_MAX ? WEIGHT_MAX : (uint32_t)v;
    }
    return read_names(c, json_object_get(status, "model_names"), i);
}

static void register_worker(struct call *c, const json_t *doc)
{
    static const struct slice service = SLICE("fastchat");
    static const struct kv multimodal = {SLICE("fastchat.multimodal"), SLICE("true")};
    struct instance i = {.services = &service,
                         .n_services = 1,
                         .weight = WEIGHT_ONE,
                         .enabled = true,
                         .healthy = true,
                         .vouched = true,
                         .engine = ENGINE_FASTCHAT};
    struct native_put put = {.instance = &i, .ttl_ns = FASTCHAT_TTL_NS};
    struct record *record;
    const char *wrong = read_worker(c, doc, &i);

    if (wrong) {
        fail(c, 400, "invalid_field", wrong);
        return;
    }
    if (json_is_true(json_object_get(doc, "multimodal"))) {
        i.metadata = &multimodal;
        i.n_metadata = 1;
    }
    int rc = store_put(&c->registry->store, &put, c->now_ns, &record, NULL);
    if (rc)
        fail(c, rc == WEIR_E_NOMEM ? 500 : 409, "refused", err_text(rc));
    else
        reply(c, "null");
}

static void heart_beat(struct call *c, const json_t *doc)
{
    struct instance i = {0};
    struct slice id;
    struct record *r = NULL;

    if (read_address(c, text_of(doc, "worker_name"), &i, &id))
        r = store_native(&c->registry->store, id);
    bool known = r && r->instance.engine == ENGINE_FASTCHAT &&
                 store_renew(&c->registry->store, r, c->now_ns) == 0;
    reply(c, known ? "{\"exist\":true}" : "{\"exist\":false}");
}

/* --- the API server --- */

enum which { ALL, MULTIMODAL, LANGUAGE };

struct names {
    struct call *c;
    enum which which;
    struct map seen;
    struct buf out;
    double speed;
    uint64_t queued;
    struct slice wanted; /* look only whether this one is there */
    bool found;
};

static bool is_multimodal(const struct endpoint *e)
{
    for (uint32_t i = 0; i < e->n_metadata; i++)
        if (slice_eq(e->metadata[i].key, SLICE("fastchat.multimodal")))
            return slice_eq(e->metadata[i].value, SLICE("true"));
    return false;
}

static void on_endpoint(void *to, const struct endpoint *e)
{
    struct names *n = to;
    struct registry *r = n->c->registry;

    if (n->which != ALL && is_multimodal(e) != (n->which == MULTIMODAL))
        return;
    uint32_t busy = r->o.current_requests ? r->o.current_requests(r->o.ctx, e->host, e->port)
                                          : REGISTRY_REQUESTS_UNKNOWN;
    n->queued += busy == REGISTRY_REQUESTS_UNKNOWN ? 0 : busy;
    n->speed += (double)e->weight / WEIGHT_ONE;
    for (uint32_t i = 0; i < e->n_models; i++) {
        struct slice id = e->models[i].id;
        n->found = n->found || (n->wanted.n && slice_eq(id, n->wanted));
        if (map_get(&n->seen, id) || map_put(&n->seen, id, n))
            continue;
        if (buf_len(&n->out))
            buf_put_char(&n->out, ',');
        buf_put_json(&n->out, id);
    }
}

static void walk(struct call *c, struct names *n, enum which which, struct slice wanted)
{
    struct registry *r = c->registry;

    *n = (struct names){.c = c, .which = which, .wanted = wanted};
    map_init(&n->seen, loop_mem());
    buf_init(&n->out, loop_mem(), NAMES_MAX);
    if (r->o.endpoints)
        r->o.endpoints(r->o.ctx, ENGINE_FASTCHAT, on_endpoint, n);
}

static void walked(struct names *n)
{
    map_fini(&n->seen);
    buf_fini(&n->out);
}

static void list_models(struct call *c, enum which which)
{
    struct names n;
    struct buf out;

    walk(c, &n, which, slice_of(NULL, 0));
    call_out(c, &out);
    buf_put_str(&out, "{\"models\":[");
    buf_put_slice(&out, buf_slice(&n.out));
    buf_put_str(&out, "]}");
    call_reply(c, 200, json_media, &out);
    walked(&n);
}

static void get_status(struct call *c)
{
    struct names n;
    struct buf out;

    walk(c, &n, ALL, slice_of(NULL, 0));
    call_out(c, &out);
    buf_put_str(&out, "{\"model_names\":[");
    buf_put_slice(&out, buf_slice(&n.out));
    buf_put_str(&out, "],\"speed\":");
    buf_put_f64(&out, n.speed, 3);
    buf_put_str(&out, ",\"queue_length\":");
    buf_put_u64(&out, n.queued);
    buf_put_char(&out, '}');
    call_reply(c, 200, json_media, &out);
    walked(&n);
}

/* Where clients reach the data port: a wildcard is no address, so then the host by which they reached this one. */
static void put_own(struct call *c, struct buf *out)
{
    struct registry *r = c->registry;
    struct net_addr a;
    char text[NET_ADDR_TEXT];
    struct slice host;
    uint16_t port;

    if (!r->o.data_address || !r->o.data_address(r->o.ctx, &a))
        return;
    bool any = a.any.sa_family == AF_INET6 ? IN6_IS_ADDR_UNSPECIFIED(&a.v6.sin6_addr)
                                           : a.v4.sin_addr.s_addr == 0;
    buf_put_str(out, "http://");
    if (!any) {
        buf_put_str(out, net_addr_text(&a, text));
    } else if (!wire_authority_parse(wire_http1_value(c->request->head, SLICE("Host")), &host,
                                     &port)) {
        store_address(out, host, net_addr_port(&a));
    } else {
        buf_put_str(out, "127.0.0.1:");
        buf_put_u64(out, net_addr_port(&a));
    }
}

static void get_address(struct call *c, const json_t *doc)
{
    struct names n;
    struct buf own;
    struct buf out;

    walk(c, &n, ALL, text_of(doc, "model"));
    buf_init(&own, loop_mem(), ADDRESS_MAX);
    if (n.found)
        put_own(c, &own);
    call_out(c, &out);
    buf_put_str(&out, "{\"address\":");
    buf_put_json(&out, buf_slice(&own));
    buf_put_char(&out, '}');
    call_reply(c, 200, json_media, &out);
    buf_fini(&own);
    walked(&n);
}

/* The controller passes streams on; here that is the data port's work. */
static void redirect(struct call *c)
{
    struct buf line;

    buf_init(&line, loop_mem(), 2 * ADDRESS_MAX);
    buf_put_str(&line, "Location: ");
    put_own(c, &line);
    buf_put_str(&line, "/worker_generate_stream\r\n");
    http_reply_with(c->request, 307, NULL, buf_slice(&line), slice_of(NULL, 0));
    buf_fini(&line);
}

/* --- who answers what --- */

static const struct {
    const char *path;
    bool writes; /* its body is a document */
} paths[] = {
    {"/register_worker", true},         {"/receive_heart_beat", true},
    {"/get_worker_address", true},      {"/list_models", false},
    {"/list_multimodal_models", false}, {"/list_language_models", false},
    {"/refresh_all_workers", false},    {"/worker_get_status", false},
    {"/worker_generate_stream", false}, {"/test_connection", false},
};
enum { REGISTER, BEAT, ADDRESS, MODELS, MODELS_MM, MODELS_LANG, REFRESH, STATUS, STREAM, TEST };

bool fastchat_handles(struct slice path)
{
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        if (slice_eq(path, slice_str(paths[i].path)))
            return true;
    return false;
}

static void with_document(struct call *c, unsigned which)
{
    struct native_error e;
    json_t *doc = native_load_json(c->request->body, &e);

    if (!json_is_object(doc))
        fail(c, 400, "invalid_json", doc ? "an object is expected" : e.message);
    else if (which == REGISTER)
        register_worker(c, doc);
    else if (which == BEAT)
        heart_beat(c, doc);
    else
        get_address(c, doc);
    json_decref(doc);
}

void fastchat_handle(struct call *c)
{
    unsigned which = 0;

    while (!slice_eq(c->request->path, slice_str(paths[which].path)))
        which++;
    if (!registry_token_ok(c->registry, call_bearer(c))) {
        fail(c, 401, "unauthorized", "send the registry token as Authorization: Bearer TOKEN");
        return;
    }
    if (which == TEST && slice_eq(c->request->method, SLICE("GET"))) {
        reply(c, "\"success\"");
        return;
    }
    if (which == TEST || !slice_eq(c->request->method, SLICE("POST"))) {
        fail(c, 405, "method_not_allowed", "FastChat's controller is called by POST");
        return;
    }
    if (paths[which].writes)
        with_document(c, which);
    else if (which == STATUS)
        get_status(c);
    else if (which == STREAM)
        redirect(c);
    else if (which == REFRESH)
        reply(c, "null"); /* health checks never rest */
    else
        list_models(c, which == MODELS ? ALL : which == MODELS_MM ? MULTIMODAL : LANGUAGE);
}
