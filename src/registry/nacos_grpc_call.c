/* SPDX-License-Identifier: Apache-2.0 */
/** @file Requests of Nacos SDKs over gRPC: JSON in, the store asked, JSON out. */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/bug.h"
#include "base/num.h"
#include "loop/alloc.h"
#include "registry/nacos_call.h"
#include "registry/nacos_grpc.h"
#include "registry/nacos_view.h"
#include "registry/native_json.h"

/* Nacos' own result and error codes. */
enum {
    RESULT_OK = 200,
    RESULT_FAIL = 500,
    ERROR_INVALID = 400,
    ERROR_DENIED = 403,
    ERROR_SERVER = 500,
    ERROR_CONFIG_NOT_FOUND = 300,
    ERROR_NO_HANDLER = 302,
    BATCH_MAX = 4096,
    PAGE_MAX = 100000,
};

/** One request while it is answered. */
struct request {
    struct nacos_client *client;
    struct registry *registry;
    const struct nacos_payload *payload;
    json_t *body;
    struct arena arena;
    struct buf out; /**< members of the answer, each with a comma before it */
    unsigned result, error;
    char message[256];
    struct slice ns, grouped;
};

static void fail(struct request *q, unsigned error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void fail(struct request *q, unsigned error, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(q->message, sizeof(q->message), format, args);
    va_end(args);
    q->result = RESULT_FAIL;
    q->error = error;
}

/* --- reading --- */

static struct slice text_of(const json_t *object, const char *name)
{
    const json_t *v = json_object_get(object, name);

    return json_is_string(v) && json_string_length(v)
               ? slice_of(json_string_value(v), json_string_length(v))
               : (struct slice){NULL, 0};
}

static bool truth_of(const json_t *object, const char *name, bool otherwise)
{
    const json_t *v = json_object_get(object, name);

    return json_is_boolean(v) ? json_is_true(v) : otherwise;
}

/* @return false when it failed. */
static bool read_namespace(struct request *q)
{
    q->ns = text_of(q->body, "namespace");
    if (!q->ns.p)
        q->ns = SLICE(NACOS_PUBLIC);
    if (nacos_namespace_ok(q->ns))
        return true;
    fail(q, ERROR_INVALID, "the namespace is illegal");
    return false;
}

static bool read_service(struct request *q)
{
    if (!read_namespace(q))
        return false;
    if (nacos_grouped(&q->arena, text_of(q->body, "serviceName"), text_of(q->body, "groupName"),
                      &q->grouped) == 0)
        return true;
    fail(q, ERROR_INVALID, "serviceName or groupName is missing or illegal");
    return false;
}

static bool read_metadata(struct request *q, const json_t *map, struct nacos_write *w)
{
    struct kv *kv = arena_array(&q->arena, json_object_size(map), sizeof(*kv));
    uint32_t n = 0;
    const char *key;
    json_t *value;

    if (json_object_size(map) > ENDPOINT_KV_MAX || (json_object_size(map) && !kv)) {
        fail(q, ERROR_INVALID, "metadata has more than %d keys", ENDPOINT_KV_MAX);
        return false;
    }
    json_object_foreach((json_t *)(uintptr_t)map, key, value)
    {
        struct slice name = slice_str(key);
        if (!name.n || name.n > META_KEY_MAX || !json_is_string(value) ||
            json_string_length(value) > META_VALUE_MAX) {
            fail(q, ERROR_INVALID, "metadata must be short texts under short keys");
            return false;
        }
        kv[n++] = (struct kv){name, slice_of(json_string_value(value), json_string_length(value))};
    }
    w->metadata = kv;
    w->n_metadata = n;
    return true;
}

static bool read_instance(struct request *q, const json_t *i, struct nacos_write *w)
{
    const json_t *weight = json_object_get(i, "weight");
    json_int_t port = json_integer_value(json_object_get(i, "port"));

    *w = (struct nacos_write){.ns = q->ns, .grouped = q->grouped, .weight = WEIGHT_ONE};
    if (nacos_host(text_of(i, "ip"), &w->host) || port < 1 || port > UINT16_MAX) {
        fail(q, ERROR_INVALID, "ip or port of the instance is missing or illegal");
        return false;
    }
    w->port = (uint16_t)port;
    w->cluster = text_of(i, "clusterName");
    if (w->cluster.p && !nacos_cluster_ok(w->cluster)) {
        fail(q, ERROR_INVALID, "clusterName is illegal: [0-9a-zA-Z-]");
        return false;
    }
    if (json_is_number(weight)) {
        double v = json_number_value(weight);
        if (!(v >= 0 && v <= 10000)) {
            fail(q, ERROR_INVALID, "weight is illegal: 0 to 10000");
            return false;
        }
        w->weight = v > 0 && v < 0.001 ? 1 : (uint32_t)(v * WEIGHT_ONE + 0.5);
    }
    w->has_weight = w->has_enabled = w->has_healthy = w->has_ephemeral = true;
    w->enabled = truth_of(i, "enabled", true);
    w->healthy = truth_of(i, "healthy", true);
    w->ephemeral = truth_of(i, "ephemeral", true);
    const json_t *metadata = json_object_get(i, "metadata");
    return !json_is_object(metadata) || read_metadata(q, metadata, w);
}

/* --- instances --- */

static struct record *find(struct request *q, const struct nacos_write *w)
{
    struct buf address;

    buf_init(&address, loop_mem(), 512);
    store_address(&address, w->host, w->port);
    struct record *r =
        store_find_nacos(&q->registry->store, w->ns, w->grouped, buf_slice(&address));
    buf_fini(&address);
    return r;
}

static bool register_one(struct request *q, const struct nacos_write *w)
{
    struct record *r;
    int rc = store_nacos_register(&q->registry->store, w, loop_now(q->registry->loop), &r);

    if (rc == 0 && w->ephemeral)
        rc = nacos_grpc_hold(q->client, r);
    if (rc)
        fail(q, rc == WEIR_E_NOMEM ? ERROR_SERVER : ERROR_INVALID, "%.*s:%u is refused: %s",
             SLICE_ARG(w->host), w->port, err_text(rc));
    return rc == 0;
}

static void remove_one(struct request *q, const struct nacos_write *w)
{
    struct record *r = find(q, w);

    if (r && r->kind == RECORD_NACOS)
        store_remove(&q->registry->store, r, REASON_DEREGISTERED);
}

static void put_type(struct request *q)
{
    buf_put_str(&q->out, ",\"type\":");
    buf_put_json(&q->out, text_of(q->body, "type"));
}

static void instance(struct request *q)
{
    struct nacos_write w;
    struct slice type = text_of(q->body, "type");

    if (!read_service(q) || !read_instance(q, json_object_get(q->body, "instance"), &w))
        return;
    if (slice_eq(q->payload->type, SLICE("PersistentInstanceRequest")))
        w.ephemeral = false;
    if (slice_eq(type, SLICE("registerInstance"))) {
        if (!register_one(q, &w))
            return;
    } else if (slice_eq(type, SLICE("deregisterInstance"))) {
        remove_one(q, &w);
    } else {
        fail(q, ERROR_INVALID, "type %.*s is unknown", SLICE_ARG(type));
        return;
    }
    put_type(q);
}

static bool of_service(const struct nacos_held *h, const struct request *q)
{
    struct slice rest = slice_str(h->key);
    struct slice ns;
    struct slice grouped;

    return slice_cut(&rest, '\n', &ns) && slice_cut(&rest, '\n', &grouped) && slice_eq(ns, q->ns) &&
           slice_eq(grouped, q->grouped);
}

/* A batch is the whole of what this connection has in that service. */
static void batch(struct request *q)
{
    const json_t *list = json_object_get(q->body, "instances");
    struct nacos_client *c = q->client;
    struct nacos_write w;

    if (!read_service(q))
        return;
    if (!json_is_array(list) || json_array_size(list) > BATCH_MAX) {
        fail(q, ERROR_INVALID, "instances must be a list of at most %d", BATCH_MAX);
        return;
    }
    weir_list_foreach (at, &c->held)
        container_of(at, struct nacos_held, node)->again = false;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!read_instance(q, json_array_get(list, i), &w) || !register_one(q, &w))
            return;
    weir_list_foreach_safe (pos, &c->held) {
        struct nacos_held *h = container_of(pos, struct nacos_held, node);
        struct record *r = h->again || !of_service(h, q)
                               ? NULL
                               : map_get(&q->registry->store.nacos, slice_str(h->key));
        if (r)
            store_remove(&q->registry->store, r, REASON_DEREGISTERED);
    }
    put_type(q);
}

/* --- lists --- */

static void put_service(struct request *q, struct slice clusters, bool healthy_only)
{
    buf_put_str(&q->out, ",\"serviceInfo\":");
    int rc = nacos_push_service(q->registry, q->ns, q->grouped, clusters, healthy_only, &q->out);
    if (rc)
        fail(q, ERROR_SERVER, "%s", err_text(rc));
}

static void query(struct request *q)
{
    if (read_service(q))
        put_service(q, text_of(q->body, "cluster"), truth_of(q->body, "healthyOnly", false));
}

static void subscribe(struct request *q)
{
    struct slice clusters = text_of(q->body, "clusters");

    if (!read_service(q))
        return;
    if (!truth_of(q->body, "subscribe", true)) {
        nacos_push_unsubscribe(q->client, q->ns, q->grouped, clusters);
    } else {
        int rc = nacos_push_subscribe(q->client, q->ns, q->grouped, clusters);
        if (rc) {
            fail(q, ERROR_SERVER, "%s", err_text(rc));
            return;
        }
    }
    put_service(q, clusters, false);
}

static uint64_t page_of(const json_t *object, const char *name)
{
    json_int_t v = json_integer_value(json_object_get(object, name));

    return v < 1 ? 1 : MIN((uint64_t)v, (uint64_t)PAGE_MAX);
}

static void services(struct request *q)
{
    struct slice group = text_of(q->body, "groupName");
    struct nacos_names names;

    if (!read_namespace(q))
        return;
    int rc = nacos_find_services(&q->registry->store, &q->arena, q->ns,
                                 group.p ? group : SLICE(NACOS_GROUP), page_of(q->body, "pageNo"),
                                 page_of(q->body, "pageSize"), &names);
    if (rc) {
        fail(q, ERROR_SERVER, "%s", err_text(rc));
        return;
    }
    buf_put_str(&q->out, ",\"count\":");
    buf_put_u64(&q->out, names.count);
    buf_put_str(&q->out, ",\"serviceNames\":[");
    for (uint32_t i = 0; i < names.n; i++) {
        buf_put_str(&q->out, i ? "," : "");
        buf_put_json(&q->out, names.list[i]);
    }
    buf_put_char(&q->out, ']');
}

/* --- the rest --- */

static void server_check(struct request *q)
{
    buf_put_str(&q->out, ",\"supportAbilityNegotiation\":false,\"connectionId\":\"weir_");
    buf_put_u64(&q->out, q->client->id);
    buf_put_char(&q->out, '"');
}

static void nothing(struct request *q)
{
    (void)q;
}

/* There is no configuration here: a client hears that its data is not there, which it can live with. */
static void config_query(struct request *q)
{
    fail(q, ERROR_CONFIG_NOT_FOUND, "config data not exist: this registry keeps no configuration");
}

static void config_listen(struct request *q)
{
    buf_put_str(&q->out, ",\"changedConfigs\":[]");
}

static void config_write(struct request *q)
{
    fail(q, ERROR_SERVER, "this registry keeps no configuration");
}

struct handler {
    const char *request, *reply;
    void (*handle)(struct request *q);
    bool open; /**< needs no token */
};

static const struct handler handlers[] = {
    {"ServerCheckRequest", "ServerCheckResponse", server_check, true},
    {"HealthCheckRequest", "HealthCheckResponse", nothing, true},
    {"InstanceRequest", "InstanceResponse", instance, false},
    {"PersistentInstanceRequest", "InstanceResponse", instance, false},
    {"BatchInstanceRequest", "BatchInstanceResponse", batch, false},
    {"ServiceQueryRequest", "QueryServiceResponse", query, false},
    {"SubscribeServiceRequest", "SubscribeServiceResponse", subscribe, false},
    {"ServiceListRequest", "ServiceListResponse", services, false},
    {"ConfigQueryRequest", "ConfigQueryResponse", config_query, false},
    {"ConfigBatchListenRequest", "ConfigChangeBatchListenResponse", config_listen, false},
    {"ConfigPublishRequest", "ConfigPublishResponse", config_write, false},
    {"ConfigRemoveRequest", "ConfigRemoveResponse", config_write, false},
};

static const struct handler *handler_of(struct slice type)
{
    for (size_t i = 0; i < ARRAY_LEN(handlers); i++)
        if (slice_eq(type, slice_str(handlers[i].request)))
            return &handlers[i];
    return NULL;
}

static void reply(struct request *q, struct grpc_call *call, const char *type)
{
    struct buf body;
    struct buf message;

    buf_init(&body, loop_mem(), NACOS_REPLY_MAX);
    buf_init(&message, loop_mem(), NACOS_REPLY_MAX + 4096);
    buf_put_str(&body, "{\"resultCode\":");
    buf_put_u64(&body, q->result);
    buf_put_str(&body, ",\"errorCode\":");
    buf_put_u64(&body, q->error);
    buf_put_str(&body, ",\"message\":");
    buf_put_json(&body, slice_str(q->message));
    buf_put_str(&body, ",\"requestId\":");
    buf_put_json(&body, text_of(q->body, "requestId"));
    if (q->result == RESULT_OK)
        buf_put_slice(&body, buf_slice(&q->out));
    buf_put_char(&body, '}');
    struct nacos_payload p = {.type = slice_str(type), .body = buf_slice(&body)};
    int rc = body.err ? body.err : q->result == RESULT_OK ? q->out.err : 0;
    if (rc == 0)
        rc = nacos_payload_write(&message, &p);
    if (rc == 0)
        rc = grpc_send(call, buf_slice(&message));
    grpc_finish(call, rc ? GRPC_RESOURCE_EXHAUSTED : GRPC_OK);
    buf_fini(&body);
    buf_fini(&message);
}

void nacos_grpc_answer(struct nacos_client *c,
                       struct grpc_call *call,
                       const struct nacos_payload *p)
{
    const struct handler *h = handler_of(p->type);
    struct registry *r = c->server->registry;
    struct native_error error;
    struct request q = {.client = c, .registry = r, .payload = p, .result = RESULT_OK};

    arena_init(&q.arena, loop_mem(), REGISTRY_CALL_MAX);
    buf_init(&q.out, loop_mem(), NACOS_REPLY_MAX);
    q.body = native_load_json(p->body, &error);
    if (!json_is_object(q.body))
        fail(&q, ERROR_INVALID, "the body is no JSON object");
    else if (!h)
        fail(&q, ERROR_NO_HANDLER, "%.*s is not known here", (int)MIN(p->type.n, 100), p->type.p);
    else if (!h->open && !nacos_token_ok(r, p->token))
        fail(&q, ERROR_DENIED, "unknown user!");
    else
        h->handle(&q);
    reply(&q, call, h ? h->reply : "ErrorResponse");
    json_decref(q.body);
    buf_fini(&q.out);
    arena_fini(&q.arena);
    registry_leases_changed(r);
}
