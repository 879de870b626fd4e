/* SPDX-License-Identifier: Apache-2.0 */
/** @file Nacos calls about instances: register, edit, look, beat, metadata batch. */
#include <stdlib.h>

#include "base/num.h"
#include "loop/alloc.h"
#include "registry/nacos_call.h"
#include "registry/nacos_view.h"

/* The reference server's value without push: how soon a subscriber polls again. */
enum { CACHE_MS = 3000, BEAT_OK = 10200, BEAT_UNKNOWN = 20404 };

/* --- instances --- */

static void begin_wrapped(const struct nacos_call *n, struct buf *out)
{
    if (n->wrapped)
        buf_put_str(out, "{\"code\":0,\"message\":\"success\",\"data\":");
}

static void end_wrapped(const struct nacos_call *n, struct buf *out)
{
    if (n->wrapped)
        buf_put_char(out, '}');
}

static void post_beat_v3(struct nacos_call *n, const struct nacos_write *w)
{
    struct record *r = nacos_find(n, w);

    if (!r) {
        nacos_fail(n, 200, V3_NOT_FOUND, "instance not found");
        return;
    }
    int rc = store_nacos_beat(&n->c->registry->store, r, w, n->c->now_ns);
    if (rc)
        nacos_refused(n, w, rc);
    else
        nacos_ok(n);
}

void nacos_post_instance(struct nacos_call *n)
{
    struct nacos_write w;
    struct record *r;

    if (!nacos_read_instance(n, &w))
        return;
    if (n->v3 && nacos_bool(nacos_text(n, "heartBeat"))) {
        post_beat_v3(n, &w);
        return;
    }
    int rc = store_nacos_register(&n->c->registry->store, &w, n->c->now_ns, &r);
    if (rc)
        nacos_refused(n, &w, rc);
    else
        nacos_ok(n);
}

void nacos_delete_instance(struct nacos_call *n)
{
    struct nacos_write w = {0};

    if (!nacos_read_service(n, &w) ||
        !nacos_read_address(n, nacos_text(n, "ip"), nacos_text(n, "port"), &w))
        return;
    struct record *r = nacos_find(n, &w);
    /* A native endpoint leaves by the API it came with. */
    if (r && r->kind == RECORD_NACOS)
        store_remove(&n->c->registry->store, r, REASON_DEREGISTERED);
    nacos_ok(n);
}

/** PUT and PATCH: what is given changes, and outlives what the client registers again. */
void nacos_edit_instance(struct nacos_call *n)
{
    struct nacos_write w;

    if (!nacos_read_instance(n, &w))
        return;
    struct record *r = nacos_find(n, &w);
    if (!r) {
        nacos_fail(n, 400, V3_NOT_FOUND, "instance not exist: %.*s:%u in service %.*s",
                   SLICE_ARG(w.host), w.port, SLICE_ARG(w.grouped));
        return;
    }
    int rc = store_edit(&n->c->registry->store, r, &w);
    if (rc)
        nacos_refused(n, &w, rc);
    else
        nacos_ok(n);
}

void nacos_get_instance(struct nacos_call *n)
{
    struct nacos_write w = {0};
    struct nacos_host_view v;
    struct buf out;

    if (!nacos_read_service(n, &w) ||
        !nacos_read_address(n, nacos_text(n, "ip"), nacos_text(n, "port"), &w) ||
        !nacos_read_cluster(n, &w))
        return;
    struct record *r = nacos_find(n, &w);
    if (r && nacos_view(n->c->registry, &n->c->arena, r, w.grouped, &v)) {
        nacos_fail(n, 500, V3_SERVER, "%s", err_text(WEIR_E_NOMEM));
        return;
    }
    if (!r || (w.cluster.p && !slice_eq(w.cluster, v.cluster))) {
        nacos_fail(n, 404, V3_NOT_FOUND, "no matched ip found!");
        return;
    }
    call_out(n->c, &out);
    begin_wrapped(n, &out);
    nacos_write_detail(&out, &v, n->wrapped);
    end_wrapped(n, &out);
    call_reply(n->c, 200, nacos_json_type, &out);
}

void nacos_get_list(struct nacos_call *n)
{
    struct nacos_write w = {0};
    struct buf out;
    struct slice healthy_only = nacos_text(n, "healthyOnly");
    struct slice clusters =
        n->wrapped ? nacos_text_or(n, "clusterName", "clusters") : nacos_text(n, "clusters");

    if (!nacos_read_service(n, &w))
        return;
    struct nacos_list_view v = {.grouped = w.grouped,
                                .clusters = clusters.p ? clusters : SLICE(""),
                                .now_ms = loop_wall_clock() / NS_PER_MS,
                                .cache_ms = CACHE_MS};
    call_out(n->c, &out);
    begin_wrapped(n, &out);
    const struct service *service = store_service(&n->c->registry->store, w.ns, w.grouped);
    int rc = nacos_write_service(n->c->registry, &n->c->arena, service, &v,
                                 slice_eq_nocase(healthy_only, SLICE("true")), n->v3, &out);
    if (rc) {
        buf_fini(&out);
        nacos_fail(n, 500, V3_SERVER, "%s", err_text(rc));
        return;
    }
    end_wrapped(n, &out);
    call_reply(n->c, 200, nacos_json_type, &out);
}

/* --- beat --- */

static void beat_reply(struct nacos_call *n, const struct record *r)
{
    struct buf out;

    call_out(n->c, &out);
    nacos_write_beat(&out, r && r->kind == RECORD_NACOS ? r->interval_ms : NACOS_BEAT_INTERVAL_MS,
                     r ? BEAT_OK : BEAT_UNKNOWN);
    call_reply(n->c, 200, nacos_json_type, &out);
}

/** Fill w from the beat body, which wins over the parameters. @return false when answered. */
static bool read_beat(struct nacos_call *n, struct slice text, struct nacos_write *w)
{
    struct nacos_beat beat = {0};
    const char *error = NULL;
    int rc = text.p ? nacos_beat_parse(&n->c->arena, text, &beat, &error) : 0;

    if (rc) {
        nacos_fail(n, rc == WEIR_E_NOMEM ? 500 : 400, V3_INVALID, "Param 'beat' is illegal: %s",
                   error ? error : err_text(rc));
        return false;
    }
    if (!nacos_read_address(n, beat.ip.p ? beat.ip : nacos_text(n, "ip"),
                            beat.port.p ? beat.port : nacos_text(n, "port"), w) ||
        !nacos_read_cluster(n, w))
        return false;
    if (beat.cluster.p)
        w->cluster = beat.cluster;
    if (w->cluster.p && !nacos_cluster_ok(w->cluster)) {
        nacos_fail(n, 400, V3_INVALID, "Param 'cluster' of the beat is illegal: [0-9a-zA-Z-]");
        return false;
    }
    w->has_weight = beat.weight.p != NULL;
    if (beat.weight.p && nacos_weight(beat.weight, &w->weight)) {
        nacos_fail(n, 400, V3_WEIGHT,
                   "Param 'weight' of the beat is illegal: 0 to 10000 is expected");
        return false;
    }
    w->metadata = beat.metadata.kv;
    w->n_metadata = beat.metadata.n;
    return true;
}

void nacos_put_beat(struct nacos_call *n)
{
    struct nacos_write w = {0};
    struct slice text = nacos_text(n, "beat");

    if (!nacos_read_service(n, &w) || !read_beat(n, text, &w))
        return;
    struct record *r = nacos_find(n, &w);
    int rc = 0;
    if (r && r->kind == RECORD_NACOS)
        rc = store_nacos_beat(&n->c->registry->store, r, &w, n->c->now_ns);
    else if (text.p)
        rc = store_nacos_register(&n->c->registry->store, &w, n->c->now_ns, &r);
    else
        r = NULL; /* a light beat does not keep a native endpoint */
    if (rc)
        nacos_refused(n, &w, rc);
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
    struct slice instances = nacos_text(n, "instances");

    if (!nacos_read_service(n, w) || !nacos_need(n, "metadata", &metadata) ||
        !nacos_read_metadata(n, metadata, w))
        return false;
    *n_targets = 0;
    if (instances.p && nacos_targets(&n->c->arena, instances, targets, n_targets)) {
        nacos_fail(n, 400, V3_INVALID, "Param 'instances' has more than %u entries",
                   NACOS_TARGETS_MAX);
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
    bool persistent = slice_eq(nacos_text(n, "consistencyType"), SLICE("persist"));
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
        nacos_refused(n, &w, rc);
        return;
    }
    buf_put_str(&out, "]}");
    call_reply(n->c, 200, nacos_json_type, &out);
}

void nacos_put_batch(struct nacos_call *n)
{
    batch(n, false);
}
void nacos_delete_batch(struct nacos_call *n)
{
    batch(n, true);
}

void nacos_any_statuses(struct nacos_call *n)
{
    struct slice key;
    struct slice ns = SLICE(NACOS_PUBLIC);
    struct slice grouped;
    struct buf out;
    bool first = true;

    if (!nacos_need(n, "key", &key))
        return;
    const char *at = memmem(key.p, key.n, "##", 2);
    if (at) {
        ns = slice_of(key.p, (size_t)(at - key.p));
        key = slice_from(key, ns.n + 2);
    }
    if (nacos_grouped(&n->c->arena, key, (struct slice){NULL, 0}, &grouped)) {
        nacos_fail(n, 400, V3_INVALID,
                   "Param 'key' is illegal: NAMESPACE##GROUP@@SERVICE is expected");
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
    call_reply(n->c, 200, nacos_json_type, &out);
}
