/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The Nacos-compatible HTTP API: v1 for HTTP-era SDKs, and the client part of v3. What is exact and what differs
 * from the reference server is written down in docs/registry.md.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bug.h"
#include "base/num.h"
#include "loop/alloc.h"
#include "registry/nacos_codec.h"
#include "registry/nacos_view.h"
#include "registry/registry_priv.h"

/* The reference server's value without push: how soon a subscriber polls again. */
enum { CACHE_MS = 3000, TOKEN_TTL_S = 18000, BEAT_OK = 10200, BEAT_UNKNOWN = 20404 };

/* Result codes of v3. */
enum {
    V3_MISSING = 10000,
    V3_DENIED = 10001,
    V3_INVALID = 20002,
    V3_NOT_FOUND = 21003,
    V3_SERVER = 30000
};

static const char json_type[] = "application/json;charset=UTF-8";
static const char text_type[] = "text/plain;charset=UTF-8";

/** One call of this API. */
struct nacos_call {
    struct call *c;
    struct nacos_params params;
    bool v3;
};

/* --- answers --- */

static void fail(struct nacos_call *n, unsigned status, unsigned code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void fail(struct nacos_call *n, unsigned status, unsigned code, const char *format, ...)
{
    char message[512];
    struct buf out;
    va_list args;

    va_start(args, format);
    (void)vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    call_out(n->c, &out);
    if (!n->v3) {
        buf_put_str(&out, "caused: ");
        buf_put_str(&out, message);
        buf_put_char(&out, ';');
        call_reply(n->c, status, text_type, &out);
        return;
    }
    buf_put_str(&out, "{\"code\":");
    buf_put_u64(&out, code);
    buf_put_str(&out, ",\"message\":");
    buf_put_json(&out, slice_str(message));
    buf_put_str(&out, ",\"data\":null}");
    call_reply(n->c, status, json_type, &out);
}

static void ok(struct nacos_call *n)
{
    if (n->v3)
        http_reply(n->c->request, 200, json_type,
                   SLICE("{\"code\":0,\"message\":\"success\",\"data\":\"ok\"}"));
    else
        http_reply(n->c->request, 200, text_type, SLICE("ok"));
}

/** The store or the fleet refused. */
static void refused(struct nacos_call *n, const struct nacos_write *w, int rc)
{
    if (rc == WEIR_E_UNSUPPORTED)
        fail(n, 400, V3_INVALID, "Current service %.*s is %s service, can't register %s instance.",
             SLICE_ARG(w->grouped), w->has_ephemeral && !w->ephemeral ? "ephemeral" : "persistent",
             w->has_ephemeral && !w->ephemeral ? "persistent" : "ephemeral");
    else if (rc == WEIR_E_RANGE)
        fail(n, 400, V3_INVALID,
             "Instance 'heart beat interval' must less than 'heart beat timeout' and 'ip delete "
             "timeout'.");
    else if (rc == WEIR_E_INVALID)
        fail(n, 400, V3_INVALID, "the fleet cannot take this instance: %s", err_text(rc));
    else if (rc == WEIR_E_FULL)
        fail(n, 400, V3_INVALID, "the limit of %u instances or %u metadata keys is reached",
             n->c->registry->o.instances_max, ENDPOINT_KV_MAX);
    else if (rc == WEIR_E_DENIED)
        fail(n, 403, V3_DENIED, "this address may not be registered");
    else
        fail(n, 500, V3_SERVER, "%s", err_text(rc));
}

/* --- reading parameters --- */

static struct slice param(const struct nacos_call *n, const char *name)
{
    return nacos_param(&n->params, name);
}

static struct slice param_or(const struct nacos_call *n, const char *name, const char *other)
{
    struct slice v = param(n, name);

    return v.p ? v : param(n, other);
}

/** @return false when answered. */
static bool need(struct nacos_call *n, const char *name, struct slice *out)
{
    *out = param(n, name);
    if (out->p)
        return true;
    fail(n, 400, V3_MISSING, "Param '%s' is required.", name);
    return false;
}

static bool read_namespace(struct nacos_call *n, struct slice *out)
{
    *out = param(n, "namespaceId");
    if (!out->p)
        *out = SLICE(NACOS_PUBLIC);
    bool good = out->n <= NACOS_NAMESPACE_MAX;
    for (size_t i = 0; i < out->n; i++) {
        char ch = ascii_lower(out->p[i]);
        good &= (ch >= 'a' && ch <= 'z') || (ch >= '0' && ch <= '9') || ch == '_' || ch == '-';
    }
    if (!good)
        fail(n, 400, V3_INVALID,
             "Param 'namespaceId' is illegal: letters, digits, '_' and '-', at most %u",
             NACOS_NAMESPACE_MAX);
    return good;
}

/** Namespace and grouped name, which nearly every call has. */
static bool read_service(struct nacos_call *n, struct nacos_write *w)
{
    struct slice service;

    if (!read_namespace(n, &w->ns) || !need(n, "serviceName", &service))
        return false;
    int rc = nacos_grouped(&n->c->arena, service, param(n, "groupName"), &w->grouped);
    if (rc)
        fail(n, 400, V3_INVALID,
             "Param 'serviceName' is illegal: group and service must not be empty, at most %u and "
             "%u bytes",
             NACOS_GROUP_MAX, NACOS_SERVICE_MAX);
    return rc == 0;
}

static bool
read_address(struct nacos_call *n, struct slice ip, struct slice port, struct nacos_write *w)
{
    if (!ip.p)
        fail(n, 400, V3_MISSING, "Param 'ip' is required.");
    else if (!port.p)
        fail(n, 400, V3_MISSING, "Param 'port' is required.");
    else if (nacos_host(ip, &w->host))
        fail(n, 400, V3_INVALID, "Param 'ip' is illegal: an IP address or a host name is expected");
    else if (nacos_port(port, &w->port))
        fail(n, 400, V3_INVALID, "Param 'port' is illegal: 1 to 65535 is expected");
    else
        return true;
    return false;
}

static bool read_cluster(struct nacos_call *n, struct nacos_write *w)
{
    w->cluster = param_or(n, "clusterName", "cluster");
    if (!w->cluster.p || nacos_cluster_ok(w->cluster))
        return true;
    fail(n, 400, V3_INVALID,
         "Param 'clusterName' is illegal: [0-9a-zA-Z-] and at most %u characters",
         NACOS_CLUSTER_MAX);
    return false;
}

static bool read_metadata(struct nacos_call *n, struct slice text, struct nacos_write *w)
{
    struct nacos_map map;
    const char *error;
    int rc = text.p ? nacos_metadata(&n->c->arena, text, &map, &error) : 0;

    if (rc == WEIR_E_NOMEM)
        fail(n, 500, V3_SERVER, "%s", err_text(rc));
    else if (rc)
        fail(n, 400, V3_INVALID, "Param 'metadata' is illegal: %s", error ? error : err_text(rc));
    if (rc)
        return false;
    if (text.p) {
        w->metadata = map.kv;
        w->n_metadata = map.n;
    }
    return true;
}

static bool read_flag(struct nacos_call *n, const char *name, const char *legacy, bool *out)
{
    struct slice v = legacy ? param_or(n, name, legacy) : param(n, name);

    if (v.p)
        *out = nacos_bool(v);
    return v.p != NULL;
}

/** Everything an instance call may carry. */
static bool read_instance(struct nacos_call *n, struct nacos_write *w)
{
    *w = (struct nacos_write){0};
    if (!read_service(n, w) || !read_address(n, param(n, "ip"), param(n, "port"), w) ||
        !read_cluster(n, w))
        return false;
    struct slice weight = param(n, "weight");
    w->has_weight = weight.p != NULL;
    if (weight.p && nacos_weight(weight, &w->weight)) {
        fail(n, 400, 21001, "Param 'weight' is illegal: 0 to 10000 is expected");
        return false;
    }
    w->has_enabled = read_flag(n, "enabled", "enable", &w->enabled);
    w->has_healthy = read_flag(n, "healthy", NULL, &w->healthy);
    w->has_ephemeral = read_flag(n, "ephemeral", NULL, &w->ephemeral);
    return read_metadata(n, param(n, "metadata"), w);
}

static struct record *find(struct nacos_call *n, const struct nacos_write *w)
{
    struct buf address;

    buf_init(&address, loop_mem(), 512);
    store_address(&address, w->host, w->port);
    struct record *r =
        store_find_nacos(&n->c->registry->store, w->ns, w->grouped, buf_slice(&address));
    buf_fini(&address);
    return r;
}

/* --- instances --- */

static void post_beat_v3(struct nacos_call *n, const struct nacos_write *w)
{
    struct record *r = find(n, w);

    if (!r) {
        fail(n, 200, V3_NOT_FOUND, "instance not found");
        return;
    }
    int rc = store_nacos_beat(&n->c->registry->store, r, w, n->c->now_ns);
    if (rc)
        refused(n, w, rc);
    else
        ok(n);
}

static void post_instance(struct nacos_call *n)
{
    struct nacos_write w;
    struct record *r;

    if (!read_instance(n, &w))
        return;
    if (n->v3 && nacos_bool(param(n, "heartBeat"))) {
        post_beat_v3(n, &w);
        return;
    }
    int rc = store_nacos_register(&n->c->registry->store, &w, n->c->now_ns, &r);
    if (rc)
        refused(n, &w, rc);
    else
        ok(n);
}

static void delete_instance(struct nacos_call *n)
{
    struct nacos_write w = {0};

    if (!read_service(n, &w) || !read_address(n, param(n, "ip"), param(n, "port"), &w))
        return;
    struct record *r = find(n, &w);
    /* A native endpoint leaves by the API it came with. */
    if (r && r->kind == RECORD_NACOS)
        store_remove(&n->c->registry->store, r, REASON_DEREGISTERED);
    ok(n);
}

/** PUT and PATCH: what is given changes, and outlives what the client registers again. */
static void edit_instance(struct nacos_call *n)
{
    struct nacos_write w;

    if (!read_instance(n, &w))
        return;
    struct record *r = find(n, &w);
    if (!r) {
        fail(n, 400, V3_NOT_FOUND, "instance not exist: %.*s:%u in service %.*s", SLICE_ARG(w.host),
             w.port, SLICE_ARG(w.grouped));
        return;
    }
    int rc = store_edit(&n->c->registry->store, r, &w);
    if (rc)
        refused(n, &w, rc);
    else
        ok(n);
}

static void get_instance(struct nacos_call *n)
{
    struct nacos_write w = {0};
    struct nacos_host_view v;
    struct buf out;

    if (!read_service(n, &w) || !read_address(n, param(n, "ip"), param(n, "port"), &w) ||
        !read_cluster(n, &w))
        return;
    struct record *r = find(n, &w);
    if (r && nacos_view(n->c->registry, &n->c->arena, r, w.grouped, &v)) {
        fail(n, 500, V3_SERVER, "%s", err_text(WEIR_E_NOMEM));
        return;
    }
    if (!r || (w.cluster.p && !slice_eq(w.cluster, v.cluster))) {
        fail(n, 404, V3_NOT_FOUND, "no matched ip found!");
        return;
    }
    call_out(n->c, &out);
    nacos_write_detail(&out, &v);
    call_reply(n->c, 200, json_type, &out);
}

static void get_list(struct nacos_call *n)
{
    struct nacos_write w = {0};
    struct buf out;
    struct slice healthy_only = param(n, "healthyOnly");
    struct slice clusters = n->v3 ? param(n, "clusterName") : param(n, "clusters");

    if (!read_service(n, &w))
        return;
    struct nacos_list_view v = {.grouped = w.grouped,
                                .clusters = clusters.p ? clusters : SLICE(""),
                                .now_ms = loop_wall_clock() / NS_PER_MS,
                                .cache_ms = CACHE_MS};
    call_out(n->c, &out);
    const struct service *service = store_service(&n->c->registry->store, w.ns, w.grouped);
    int rc = nacos_write_service(n->c->registry, &n->c->arena, service, &v,
                                 slice_eq_nocase(healthy_only, SLICE("true")), n->v3, &out);
    if (rc) {
        buf_fini(&out);
        fail(n, 500, V3_SERVER, "%s", err_text(rc));
        return;
    }
    call_reply(n->c, 200, json_type, &out);
}

/* --- beat --- */

static void beat_reply(struct nacos_call *n, const struct record *r)
{
    struct buf out;

    call_out(n->c, &out);
    nacos_write_beat(&out, r && r->kind == RECORD_NACOS ? r->interval_ms : NACOS_BEAT_INTERVAL_MS,
                     r ? BEAT_OK : BEAT_UNKNOWN);
    call_reply(n->c, 200, json_type, &out);
}

/** Fill w from the beat body, which wins over the parameters. @return false when answered. */
static bool read_beat(struct nacos_call *n, struct slice text, struct nacos_write *w)
{
    struct nacos_beat beat = {0};
    const char *error = NULL;
    int rc = text.p ? nacos_beat_parse(&n->c->arena, text, &beat, &error) : 0;

    if (rc) {
        fail(n, rc == WEIR_E_NOMEM ? 500 : 400, V3_INVALID, "Param 'beat' is illegal: %s",
             error ? error : err_text(rc));
        return false;
    }
    if (!read_address(n, beat.ip.p ? beat.ip : param(n, "ip"),
                      beat.port.p ? beat.port : param(n, "port"), w) ||
        !read_cluster(n, w))
        return false;
    if (beat.cluster.p)
        w->cluster = beat.cluster;
    if (w->cluster.p && !nacos_cluster_ok(w->cluster)) {
        fail(n, 400, V3_INVALID, "Param 'cluster' of the beat is illegal: [0-9a-zA-Z-]");
        return false;
    }
    w->has_weight = beat.weight.p != NULL;
    if (beat.weight.p && nacos_weight(beat.weight, &w->weight)) {
        fail(n, 400, 21001, "Param 'weight' of the beat is illegal: 0 to 10000 is expected");
        return false;
    }
    w->metadata = beat.metadata.kv;
    w->n_metadata = beat.metadata.n;
    return true;
}

static void put_beat(struct nacos_call *n)
{
    struct nacos_write w = {0};
    struct slice text = param(n, "beat");

    if (!read_service(n, &w) || !read_beat(n, text, &w))
        return;
    struct record *r = find(n, &w);
    int rc = 0;
    if (r && r->kind == RECORD_NACOS)
        rc = store_nacos_beat(&n->c->registry->store, r, &w, n->c->now_ns);
    else if (text.p)
        rc = store_nacos_register(&n->c->registry->store, &w, n->c->now_ns, &r);
    else
        r = NULL; /* a light beat does not keep a native endpoint */
    if (rc)
        refused(n, &w, rc);
    else
        beat_reply(n, r);
}

/* --- metadata batch --- */

static bool targeted(const struct record *r, const struct nacos_target *targets, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct slice host;
        uint16_t port;
        if (nacos_host(targets[i].ip, &host) || nacos_port(targets[i].port, &port))
            continue;
        if (slice_eq(host, r->instance.host) && port == r->instance.port &&
            (!targets[i].cluster.n || slice_eq(targets[i].cluster, slice_str(r->cluster))))
            return true;
    }
    return n == 0;
}

static void put_updated(struct buf *out, const struct record *r, bool first)
{
    struct buf text;

    buf_init(&text, loop_mem(), 1024);
    buf_put_slice(&text, r->instance.host);
    buf_put_char(&text, ':');
    buf_put_u64(&text, r->instance.port);
    buf_put_str(&text, ":unknown:");
    buf_put_str(&text, r->cluster);
    buf_put_str(&text, r->ephemeral ? ":ephemeral" : ":persistent");
    if (!first)
        buf_put_char(out, ',');
    buf_put_json(out, buf_slice(&text));
    buf_fini(&text);
}

/** @return false when answered. */
static bool read_batch(struct nacos_call *n,
                       struct nacos_write *w,
                       const struct nacos_target **targets,
                       uint32_t *n_targets)
{
    struct slice metadata;
    struct slice instances = param(n, "instances");

    if (!read_service(n, w) || !need(n, "metadata", &metadata) || !read_metadata(n, metadata, w))
        return false;
    *n_targets = 0;
    if (instances.p && nacos_targets(&n->c->arena, instances, targets, n_targets)) {
        fail(n, 400, V3_INVALID, "Param 'instances' has more than %u entries", NACOS_TARGETS_MAX);
        return false;
    }
    return true;
}

static void batch(struct nacos_call *n, bool remove)
{
    struct nacos_write w = {0};
    const struct nacos_target *targets = NULL;
    uint32_t n_targets;
    struct buf out;
    bool first = true;
    bool persistent = slice_eq(param(n, "consistencyType"), SLICE("persist"));
    int rc = 0;

    if (!read_batch(n, &w, &targets, &n_targets))
        return;
    for (uint32_t i = 0; remove && i < w.n_metadata; i++)
        ((struct kv *)(uintptr_t)w.metadata)[i].value = SLICE("");
    struct service *service = store_service(&n->c->registry->store, w.ns, w.grouped);
    call_out(n->c, &out);
    buf_put_str(&out, "{\"updated\":[");
    if (service) {
        weir_list_foreach (pos, &service->links) {
            struct record *r = container_of(pos, struct service_link, node)->record;
            if (r->kind != RECORD_NACOS || r->ephemeral == persistent ||
                !targeted(r, targets, n_targets))
                continue;
            rc = store_edit(&n->c->registry->store, r, &w);
            if (rc)
                break;
            put_updated(&out, r, first);
            first = false;
        }
    }
    if (rc) {
        buf_fini(&out);
        refused(n, &w, rc);
        return;
    }
    buf_put_str(&out, "]}");
    call_reply(n->c, 200, json_type, &out);
}

static void put_batch(struct nacos_call *n)
{
    batch(n, false);
}
static void delete_batch(struct nacos_call *n)
{
    batch(n, true);
}

static void any_statuses(struct nacos_call *n)
{
    struct slice key;
    struct slice ns = SLICE(NACOS_PUBLIC);
    struct slice grouped;
    struct buf out;
    bool first = true;

    if (!need(n, "key", &key))
        return;
    const char *at = memmem(key.p, key.n, "##", 2);
    if (at) {
        ns = slice_of(key.p, (size_t)(at - key.p));
        key = slice_from(key, ns.n + 2);
    }
    if (nacos_grouped(&n->c->arena, key, (struct slice){NULL, 0}, &grouped)) {
        fail(n, 400, V3_INVALID, "Param 'key' is illegal: NAMESPACE##GROUP@@SERVICE is expected");
        return;
    }
    const struct service *service = store_service(&n->c->registry->store, ns, grouped);
    call_out(n->c, &out);
    buf_put_str(&out, "{\"ips\":[");
    if (service) {
        weir_list_foreach (pos, &service->links) {
            const struct record *r = container_of(pos, struct service_link, node)->record;
            buf_put_str(&out, first ? "\"" : ",\"");
            buf_put_slice(&out, r->instance.host);
            buf_put_char(&out, ':');
            buf_put_u64(&out, r->instance.port);
            buf_put_str(&out, r->instance.healthy ? "_true\"" : "_false\"");
            first = false;
        }
    }
    buf_put_str(&out, "]}");
    call_reply(n->c, 200, json_type, &out);
}

/* --- services --- */

static void put_service(struct nacos_call *n)
{
    struct nacos_write w = {0};
    struct service *service;
    struct slice text = param(n, "protectThreshold");
    double threshold = -1;

    if (!read_service(n, &w))
        return;
    if (text.p && (num_f64(text, &threshold) || threshold < 0 || threshold > 1)) {
        fail(n, 400, V3_INVALID, "Param 'protectThreshold' is illegal: 0 to 1 is expected");
        return;
    }
    bool create = slice_eq(n->c->request->method, SLICE("POST"));
    service = store_service(&n->c->registry->store, w.ns, w.grouped);
    if (create ? service && service->kept : !service) {
        fail(n, 400, V3_INVALID,
             create ? "specified service %.*s already exists!" : "service %.*s not found!",
             SLICE_ARG(w.grouped));
        return;
    }
    int rc = store_service_put(&n->c->registry->store, w.ns, w.grouped, threshold, &service);
    if (rc)
        refused(n, &w, rc);
    else
        ok(n);
}

static void delete_service(struct nacos_call *n)
{
    struct nacos_write w = {0};

    if (!read_service(n, &w))
        return;
    int rc = store_service_delete(&n->c->registry->store, w.ns, w.grouped);
    if (rc == WEIR_E_EXISTS)
        fail(n, 400, V3_INVALID,
             "Service %.*s is not empty, can't be delete. Please unregister instance first",
             SLICE_ARG(w.grouped));
    else if (rc)
        fail(n, 400, V3_INVALID, "service %.*s not found!", SLICE_ARG(w.grouped));
    else
        ok(n);
}

static void get_service(struct nacos_call *n)
{
    struct nacos_write w = {0};
    struct buf out;

    if (!read_service(n, &w))
        return;
    const struct service *service = store_service(&n->c->registry->store, w.ns, w.grouped);
    if (!service) {
        fail(n, 404, V3_NOT_FOUND, "service %.*s not found!", SLICE_ARG(w.grouped));
        return;
    }
    call_out(n->c, &out);
    nacos_write_service_info(&out, service);
    call_reply(n->c, 200, json_type, &out);
}

static bool read_page(struct nacos_call *n, const char *name, uint64_t *out)
{
    struct slice text;

    if (!need(n, name, &text))
        return false;
    if (num_u64(text, out) == 0 && *out >= 1 && *out <= 1000000)
        return true;
    fail(n, 400, V3_INVALID, "Param '%s' is illegal: a number from 1 is expected", name);
    return false;
}

static void get_services(struct nacos_call *n)
{
    uint64_t page;
    uint64_t size;
    struct slice ns;
    struct buf out;
    struct slice group = param(n, "groupName");

    if (!read_page(n, "pageNo", &page) || !read_page(n, "pageSize", &size) ||
        !read_namespace(n, &ns))
        return;
    if (!group.p)
        group = SLICE(NACOS_GROUP);
    call_out(n->c, &out);
    int rc =
        nacos_write_services(&n->c->registry->store, &n->c->arena, ns, group, page, size, &out);
    if (rc) {
        buf_fini(&out);
        fail(n, 500, V3_SERVER, "%s", err_text(rc));
        return;
    }
    call_reply(n->c, 200, json_type, &out);
}

/* --- operator, login --- */

static void get_metrics(struct nacos_call *n)
{
    http_reply(n->c->request, 200, json_type, SLICE("{\"status\":\"UP\"}"));
}

static void get_switches(struct nacos_call *n)
{
    http_reply(n->c->request, 200, json_type,
               SLICE("{\"clientBeatInterval\":5000,\"defaultCacheMillis\":3000,"
                     "\"defaultPushCacheMillis\":10000,"
                     "\"distroEnabled\":false,\"healthCheckEnabled\":true,\"pushEnabled\":false,"
                     "\"lightBeatEnabled\":true,\"defaultInstanceEphemeral\":true}"));
}

static void post_login(struct nacos_call *n)
{
    struct slice username = param(n, "username");
    struct slice password = param(n, "password");
    const struct registry *r = n->c->registry;
    char header[128];
    struct buf out;

    if (!registry_token_ok(r, password)) {
        fail(n, 403, V3_DENIED, "unknown user!");
        return;
    }
    call_out(n->c, &out);
    buf_put_str(&out, "{\"accessToken\":\"");
    buf_put_str(&out, r->access_token);
    buf_put_str(&out, "\",\"tokenTtl\":");
    buf_put_u64(&out, TOKEN_TTL_S);
    buf_put_str(&out, ",\"globalAdmin\":true,\"username\":");
    buf_put_json(&out, username.p ? username : SLICE("nacos"));
    buf_put_char(&out, '}');
    (void)snprintf(header, sizeof(header), "Authorization: Bearer %s\r\n", r->access_token);
    if (out.err)
        http_reply(n->c->request, 500, text_type, SLICE(""));
    else
        http_reply_with(n->c->request, 200, json_type, slice_str(header), buf_slice(&out));
    buf_fini(&out);
}

static bool access_ok(const struct registry *r, struct slice given)
{
    unsigned differ = given.n != REGISTRY_ACCESS_TOKEN;

    for (size_t i = 0; i < given.n; i++)
        differ |=
            (unsigned char)given.p[i] ^ (unsigned char)r->access_token[i % REGISTRY_ACCESS_TOKEN];
    return differ == 0;
}

/** accessToken= (from a login, or the token itself), Authorization: Bearer, or username and password on each call. */
static bool authorized(const struct nacos_call *n)
{
    const struct registry *r = n->c->registry;
    struct slice given = param(n, "accessToken");

    if (!r->token)
        return true;
    if (!given.p)
        given = call_bearer(n->c);
    if (given.p)
        return access_ok(r, given) || registry_token_ok(r, given);
    return registry_token_ok(r, param(n, "password"));
}

/* --- dispatch --- */

struct route {
    const char *method; /**< NULL: any */
    const char *path;   /**< after /nacos */
    void (*handle)(struct nacos_call *n);
    bool open; /**< needs no authorization */
};

static const struct route routes[] = {
    {"POST", "/v1/ns/instance", post_instance, false},
    {"DELETE", "/v1/ns/instance", delete_instance, false},
    {"PUT", "/v1/ns/instance", edit_instance, false},
    {"PATCH", "/v1/ns/instance", edit_instance, false},
    {"GET", "/v1/ns/instance", get_instance, false},
    {"GET", "/v1/ns/instance/list", get_list, false},
    {"PUT", "/v1/ns/instance/beat", put_beat, false},
    {"PUT", "/v1/ns/instance/metadata/batch", put_batch, false},
    {"DELETE", "/v1/ns/instance/metadata/batch", delete_batch, false},
    {NULL, "/v1/ns/instance/statuses", any_statuses, false},
    {"POST", "/v1/ns/service", put_service, false},
    {"PUT", "/v1/ns/service", put_service, false},
    {"DELETE", "/v1/ns/service", delete_service, false},
    {"GET", "/v1/ns/service", get_service, false},
    {"GET", "/v1/ns/service/list", get_services, false},
    {"GET", "/v1/ns/operator/metrics", get_metrics, true},
    {"GET", "/v1/ns/operator/switches", get_switches, false},
    {"POST", "/v1/auth/login", post_login, true},
    {"POST", "/v1/auth/users/login", post_login, true},
    {"POST", "/v3/auth/user/login", post_login, true},
    {"POST", "/v3/client/ns/instance", post_instance, false},
    {"DELETE", "/v3/client/ns/instance", delete_instance, false},
    {"GET", "/v3/client/ns/instance/list", get_list, false},
};

static const struct route *route_of(struct slice method, struct slice path, bool *known)
{
    *known = false;
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        if (!slice_eq(path, slice_str(routes[i].path)))
            continue;
        *known = true;
        if (!routes[i].method || slice_eq(method, slice_str(routes[i].method)))
            return &routes[i];
    }
    return NULL;
}

void nacos_handle(struct call *c)
{
    struct slice path = slice_from(c->request->path, sizeof("/nacos") - 1);
    struct nacos_call n = {.c = c, .v3 = slice_starts(path, SLICE("/v3/"))};
    struct slice type = wire_http1_value(c->request->head, SLICE("Content-Type"));
    bool form = !type.p || slice_eq_nocase(slice_of(type.p, MIN(type.n, 33)),
                                           SLICE("application/x-www-form-urlencoded"));
    bool known;
    const struct route *route = route_of(c->request->method, path, &known);

    if (!route) {
        fail(&n, known ? 501 : 404, V3_SERVER,
             known ? "no such method on %.*s" : "no such api: %.*s", (int)MIN(path.n, 200), path.p);
        return;
    }
    int rc = nacos_params_parse(&n.params, &c->arena, c->request->query,
                                form ? c->request->body : (struct slice){NULL, 0});
    if (rc == WEIR_E_FULL)
        fail(&n, 400, V3_INVALID, "more than %u parameters", NACOS_PARAMS_MAX);
    else if (rc)
        fail(&n, 400, V3_INVALID, "parameters cannot be decoded: a broken %%-escape");
    else if (!route->open && !authorized(&n))
        fail(&n, 403, V3_DENIED, "unknown user!");
    else
        route->handle(&n);
}
