/* SPDX-License-Identifier: Apache-2.0 */
/** @file The text of the state file: one entry a line, each with the document that would register it again. */
#include <jansson.h>

#include "base/bug.h"
#include "loop/log.h"
#include "registry/nacos_codec.h"
#include "registry/native_json.h"
#include "registry/state.h"

enum { STATE_VERSION = 1, ENTRY_MAX = 8 << 20 };

/* --- writing --- */

static void put_bool(struct buf *out, const char *name, bool v)
{
    buf_put_str(out, name);
    buf_put_str(out, v ? "true" : "false");
}

static void put_text(struct buf *out, const char *name, struct slice v)
{
    buf_put_str(out, name);
    buf_put_json(out, v);
}

/** What clients last said, where it is not what is in effect. */
static void put_told(struct buf *out, const struct meta *m)
{
    bool first = true;

    buf_put_str(out, ",\"told\":{");
    for (uint32_t i = 0; m && i < m->n_entries; i++) {
        if (!m->entries[i].told.p)
            continue;
        if (!first)
            buf_put_char(out, ',');
        buf_put_json(out, m->entries[i].key);
        buf_put_char(out, ':');
        buf_put_json(out, m->entries[i].told);
        first = false;
    }
    buf_put_char(out, '}');
}

static void put_record(struct buf *out, const struct record *r)
{
    buf_put_str(out, "{\"endpoint\":");
    native_write_doc(out, r);
    put_bool(out, ",\"healthy\":", r->instance.healthy);
    put_bool(out, ",\"epoch_given\":", r->epoch_given);
    put_bool(out, ",\"weight_held\":", r->weight_held);
    put_bool(out, ",\"enabled_held\":", r->enabled_held);
    if (r->kind == RECORD_NACOS) {
        put_text(out, ",\"nacos\":{\"namespace\":", r->links[0].service->ns);
        put_text(out, ",\"service\":", r->links[0].service->grouped);
        put_text(out, ",\"cluster\":", slice_str(r->cluster));
        put_bool(out, ",\"ephemeral\":", r->ephemeral);
        buf_put_str(out, ",\"client_weight_thousandths\":");
        buf_put_u64(out, r->client_weight);
        put_bool(out, ",\"client_enabled\":", r->client_enabled);
        put_told(out, r->meta);
        buf_put_char(out, '}');
    }
    buf_put_char(out, '}');
}

void state_write(struct buf *out, const struct store *store, uint64_t generation)
{
    const char *between = "\n";

    buf_put_str(out, "{\"format\":\"weir-registry\",\"version\":");
    buf_put_u64(out, STATE_VERSION);
    buf_put_str(out, ",\"generation\":");
    buf_put_u64(out, generation);
    buf_put_str(out, ",\"services\":[");
    weir_list_foreach (pos, &store->services) {
        const struct service *v = container_of(pos, struct service, node);
        if (!v->kept)
            continue;
        buf_put_str(out, between);
        put_text(out, "{\"namespace\":", v->ns);
        put_text(out, ",\"service\":", v->grouped);
        buf_put_str(out, ",\"protect_threshold\":");
        buf_put_f64(out, v->protect_threshold, 9);
        buf_put_char(out, '}');
        between = ",\n";
    }
    between = "\n";
    buf_put_str(out, "],\n\"endpoints\":[");
    weir_list_foreach (pos, &store->records) {
        buf_put_str(out, between);
        put_record(out, container_of(pos, struct record, node));
        between = ",\n";
    }
    buf_put_str(out, "\n]}\n");
}

/* --- reading --- */

static struct slice text_of(const json_t *object, const char *name)
{
    const json_t *v = json_object_get(object, name);

    return json_is_string(v) ? slice_of(json_string_value(v), json_string_length(v))
                             : (struct slice){NULL, 0};
}

static int
read_nacos(struct arena *a, const json_t *nacos, struct saved_record *saved, struct native_error *e)
{
    const json_t *weight = json_object_get(nacos, "client_weight_thousandths");
    const json_t *told = json_object_get(nacos, "told");

    saved->kind = RECORD_NACOS;
    saved->ns = text_of(nacos, "namespace");
    saved->grouped = text_of(nacos, "service");
    saved->cluster = text_of(nacos, "cluster");
    saved->ephemeral = json_is_true(json_object_get(nacos, "ephemeral"));
    saved->client_enabled = json_is_true(json_object_get(nacos, "client_enabled"));
    if (!json_is_integer(weight) || json_integer_value(weight) < 0 ||
        json_integer_value(weight) > WEIGHT_MAX)
        return WEIR_E_INVALID;
    saved->client_weight = (uint32_t)json_integer_value(weight);
    if (!saved->ns.n || saved->ns.n > NACOS_NAMESPACE_MAX || !nacos_cluster_ok(saved->cluster))
        return WEIR_E_INVALID;
    struct slice grouped;
    if (nacos_grouped(a, saved->grouped, (struct slice){NULL, 0}, &grouped) ||
        !slice_eq(grouped, saved->grouped))
        return WEIR_E_INVALID;
    return told ? native_read_map(a, told, "told", &saved->told, &saved->n_told, e) : 0;
}

static int read_record(struct store *store, const json_t *entry, uint64_t now_ns)
{
    struct arena a;
    struct native_error e;
    struct native_doc doc;
    struct saved_record saved = {.kind = RECORD_NATIVE, .ephemeral = true};
    const json_t *nacos = json_object_get(entry, "nacos");

    arena_init(&a, store->o.mem, ENTRY_MAX);
    int rc = native_read_endpoint(&a, json_object_get(entry, "endpoint"), &doc, &e);
    if (!rc) {
        doc.instance.healthy = json_is_true(json_object_get(entry, "healthy"));
        saved.instance = &doc.instance;
        saved.ttl_ns = doc.ttl_ns;
        saved.client_weight = doc.instance.weight;
        saved.client_enabled = doc.instance.enabled;
        saved.epoch_given = json_is_true(json_object_get(entry, "epoch_given"));
        saved.weight_held = json_is_true(json_object_get(entry, "weight_held"));
        saved.enabled_held = json_is_true(json_object_get(entry, "enabled_held"));
        if (nacos)
            rc = read_nacos(&a, nacos, &saved, &e);
    }
    if (!rc)
        rc = store_restore(store, &saved, now_ns);
    arena_fini(&a);
    return rc;
}

static void read_services(struct store *store, const json_t *list, uint32_t *bad)
{
    size_t i;
    json_t *entry;

    json_array_foreach((json_t *)(uintptr_t)list, i, entry)
    {
        struct slice ns = text_of(entry, "namespace");
        struct slice grouped = text_of(entry, "service");
        double threshold = json_number_value(json_object_get(entry, "protect_threshold"));
        struct service *service;
        bool ok = ns.n && grouped.n && nacos_name_of(grouped).n && threshold >= 0 && threshold <= 1;
        if (!ok || store_service_put(store, ns, grouped, threshold, &service))
            ++*bad;
    }
}

int state_read(
    struct store *store, struct slice text, uint64_t now_ns, uint64_t *generation, uint32_t *bad)
{
    struct native_error e;
    json_t *file = native_load_json(text, &e);
    const json_t *list = json_object_get(file, "endpoints");
    const json_t *version = json_object_get(file, "version");
    int rc = 0;
    size_t i;
    json_t *entry;

    *bad = 0;
    if (!slice_eq(text_of(file, "format"), SLICE("weir-registry")) || !json_is_integer(version) ||
        json_integer_value(version) != STATE_VERSION || !json_is_array(list)) {
        json_decref(file);
        return WEIR_E_INVALID;
    }
    json_int_t g = json_integer_value(json_object_get(file, "generation"));
    *generation = g > 0 ? (uint64_t)g : 0;
    read_services(store, json_object_get(file, "services"), bad);
    json_array_foreach((json_t *)(uintptr_t)list, i, entry)
    {
        rc = read_record(store, entry, now_ns);
        if (rc == WEIR_E_NOMEM)
            break;
        if (rc)
            log_warn("registry", "state file: entry %zu left out: %s", i, err_text(rc));
        *bad += rc != 0;
        rc = 0;
    }
    json_decref(file);
    return rc;
}
