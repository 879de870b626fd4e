/* SPDX-License-Identifier: Apache-2.0 */
/** @file One endpoint as snapshots show it: what all sources say of it, merged field by field. */
#include "fleet/shown.h"
#include "model/instance.h"

/* A record of an entry, in config order of the sources. */
#define RECORD(at) container_of(at, const struct record, in_entry)

static bool has_slice(const struct slice *list, uint32_t n, struct slice s)
{
    for (uint32_t i = 0; i < n; i++)
        if (slice_eq(list[i], s))
            return true;
    return false;
}

static int merge_services(struct arena *a, const struct entry *e, struct endpoint *out)
{
    struct slice list[ENDPOINT_SERVICES_MAX];
    uint32_t n = 0;

    weir_list_foreach (at, &e->records) {
        const struct instance *i = &RECORD(at)->i;
        for (uint32_t k = 0; k < i->n_services && n < ENDPOINT_SERVICES_MAX; k++)
            if (!has_slice(list, n, i->services[k]))
                list[n++] = i->services[k];
    }
    struct slice *copy = arena_array(a, n, sizeof(*copy));
    if (!copy)
        return WEIR_E_NOMEM;
    for (uint32_t k = 0; k < n; k++)
        if (arena_slice(a, list[k], &copy[k]))
            return WEIR_E_NOMEM;
    out->services = copy;
    out->n_services = n;
    if (n)
        out->service = copy[0];
    return 0;
}

static bool has_model(const struct model_ref *list, uint32_t n, const struct model_ref *m)
{
    for (uint32_t i = 0; i < n; i++)
        if (slice_eq(list[i].id, m->id) && slice_eq(list[i].version, m->version))
            return true;
    return false;
}

static int merge_models(struct arena *a, const struct entry *e, struct endpoint *out)
{
    struct model_ref list[ENDPOINT_MODELS_MAX];
    const struct model_ref *copy;
    uint32_t n = 0;

    weir_list_foreach (at, &e->records) {
        const struct instance *i = &RECORD(at)->i;
        for (uint32_t k = 0; k < i->n_models && n < ENDPOINT_MODELS_MAX; k++)
            if (!has_model(list, n, &i->models[k]))
                list[n++] = i->models[k];
    }
    const struct model_ref *from = list;
    if (n == 0 && e->probed) {
        from = e->probed->list;
        n = e->probed->n;
        out->models_probed = n > 0;
    }
    if (model_copy_models(a, from, n, &copy))
        return WEIR_E_NOMEM;
    out->models = copy;
    out->n_models = n;
    return 0;
}

static int
copy_devices(struct arena *a, const struct device *from, uint32_t n, struct endpoint *out)
{
    struct device *copy = arena_array(a, n, sizeof(*copy));
    bool all_known = true;
    uint64_t total = 0;

    if (!copy)
        return WEIR_E_NOMEM;
    for (uint32_t k = 0; k < n; k++) {
        copy[k].memory_total_bytes = from[k].memory_total_bytes;
        all_known = all_known && copy[k].memory_total_bytes != 0;
        total += copy[k].memory_total_bytes;
        if (arena_slice(a, from[k].uuid, &copy[k].uuid) ||
            arena_slice(a, from[k].type, &copy[k].type))
            return WEIR_E_NOMEM;
        if (!out->gpu_type.p)
            out->gpu_type = copy[k].type;
    }
    out->devices = copy;
    out->n_devices = n;
    out->memory_total_bytes = all_known ? total : 0;
    return 0;
}

static int merge_devices(struct arena *a, const struct entry *e, struct endpoint *out)
{
    weir_list_foreach (at, &e->records) {
        const struct instance *i = &RECORD(at)->i;
        if (i->n_devices)
            return copy_devices(a, i->devices, i->n_devices, out);
    }
    return 0;
}

/* No source knows them: what was found out counts, behind what metadata says of the type. */
static int found_devices(struct arena *a, const struct entry *e, struct endpoint *out)
{
    if (out->n_devices != 0 || !e->found || e->found->n == 0)
        return 0;
    out->devices_probed = true;
    return copy_devices(a, e->found->list, e->found->n, out);
}

static bool has_key(const struct kv *list, uint32_t n, struct slice key)
{
    for (uint32_t i = 0; i < n; i++)
        if (slice_eq(list[i].key, key))
            return true;
    return false;
}

static int merge_kv(
    struct arena *a, const struct entry *e, bool labels, const struct kv **out, uint32_t *out_n)
{
    uint32_t most = 0;
    uint32_t n = 0;

    weir_list_foreach (at, &e->records)
        most += labels ? RECORD(at)->i.n_labels : RECORD(at)->i.n_metadata;
    struct kv *copy = arena_array(a, most, sizeof(*copy));
    if (!copy)
        return WEIR_E_NOMEM;
    weir_list_foreach (at, &e->records) {
        const struct instance *i = &RECORD(at)->i;
        const struct kv *from = labels ? i->labels : i->metadata;
        uint32_t from_n = labels ? i->n_labels : i->n_metadata;
        for (uint32_t k = 0; k < from_n; k++) {
            if (has_key(copy, n, from[k].key))
                continue;
            if (arena_slice(a, from[k].key, &copy[n].key) ||
                arena_slice(a, from[k].value, &copy[n].value))
                return WEIR_E_NOMEM;
            n++;
        }
    }
    *out = copy;
    *out_n = n;
    return 0;
}

static void first_slice(struct slice *out, struct slice s)
{
    if (!out->p && s.n)
        *out = s;
}

/* Single values: the first source that tells one wins; a veto of any source wins over all. */
static void merge_values(const struct entry *e, struct endpoint *out)
{
    const struct record *first = RECORD(e->records.next);
    bool any_zero = false;

    out->slot = e->slot;
    out->generation = e->generation;
    out->tls = first->i.tls;
    out->port = first->i.port;
    out->source = first->source;
    out->weight = first->i.weight;
    out->enabled = out->registry_healthy = true;
    out->draining = e->operator_drain;
    weir_list_foreach (at, &e->records) {
        const struct record *r = RECORD(at);
        const struct instance *i = &r->i;
        any_zero |= i->weight == 0;
        out->enabled &= i->enabled;
        out->registry_healthy &= i->healthy;
        out->draining |= i->draining;
        out->vouched |= i->vouched && !i->probation;
        out->tasks |= i->tasks;
        if (out->role == ROLE_UNIFIED)
            out->role = i->role;
        if (out->engine == ENGINE_UNKNOWN)
            out->engine = i->engine;
        if (out->max_concurrency == 0)
            out->max_concurrency = i->max_concurrency;
        first_slice(&out->id, i->id);
        first_slice(&out->region, i->region);
        first_slice(&out->zone, i->zone);
        first_slice(&out->cluster, i->cluster);
        first_slice(&out->gpu_type, r->gpu_type);
    }
    out->engine_probed = out->engine == ENGINE_UNKNOWN && e->probed_engine != ENGINE_UNKNOWN;
    if (out->engine_probed)
        out->engine = e->probed_engine;
    /* It works off one job at a time, whatever is sent: the others would wait where nobody can choose. */
    if (out->engine == ENGINE_SDWEBUI && out->max_concurrency == 0)
        out->max_concurrency = 1;
    if (any_zero)
        out->weight = 0;
    first_slice(&out->id, first->authority);
    out->host = first->i.host;
    out->authority = first->authority;
}

static int merge(struct arena *a, const struct entry *e, struct endpoint *out)
{
    *out = (struct endpoint){0};
    /* Device types come before the metadata's word on the GPU. */
    int rc = merge_devices(a, e, out);
    struct slice device_type = out->gpu_type;
    merge_values(e, out);
    struct slice *const text[] = {&out->id,   &out->host,    &out->authority, &out->region,
                                  &out->zone, &out->cluster, &out->gpu_type};
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(text); i++)
        if (text[i]->p != device_type.p || !device_type.p)
            rc = arena_slice(a, *text[i], text[i]);
    if (rc == 0)
        rc = found_devices(a, e, out);
    if (rc == 0)
        rc = merge_services(a, e, out);
    if (rc == 0)
        rc = merge_models(a, e, out);
    if (rc == 0)
        rc = merge_kv(a, e, true, &out->labels, &out->n_labels);
    if (rc == 0)
        rc = merge_kv(a, e, false, &out->metadata, &out->n_metadata);
    return rc;
}

/* One source, as for nearly all of them: nothing is to be merged, and no text copied. */
static int show_record(struct shown *s, const struct entry *e, struct record *r)
{
    const struct instance *i = &r->i;
    struct endpoint *out = &s->endpoint;

    out->devices = i->devices;
    out->n_devices = i->n_devices;
    bool all_known = true;
    for (uint32_t k = 0; k < i->n_devices; k++) {
        first_slice(&out->gpu_type, i->devices[k].type);
        out->memory_total_bytes += i->devices[k].memory_total_bytes;
        all_known = all_known && i->devices[k].memory_total_bytes;
    }
    if (!all_known)
        out->memory_total_bytes = 0;
    merge_values(e, out);
    int rc = found_devices(&s->arena, e, out);
    if (rc)
        return rc;
    out->services = i->services;
    out->n_services = i->n_services;
    if (i->n_services)
        out->service = i->services[0];
    out->labels = i->labels;
    out->n_labels = i->n_labels;
    out->metadata = i->metadata;
    out->n_metadata = i->n_metadata;
    s->record = r;
    r->refs++;
    if (i->n_models == 0)
        return merge_models(&s->arena, e, out);
    out->models = i->models;
    out->n_models = i->n_models;
    return 0;
}

static int fill(struct shown *s, const struct entry *e)
{
    struct record *first = container_of(e->records.next, struct record, in_entry);

    return e->records.next == e->records.prev && first->plain ? show_record(s, e, first)
                                                              : merge(&s->arena, e, &s->endpoint);
}

static int find_models(const struct fleet *f, struct shown *s)
{
    struct known_model **known = s->endpoint.n_models <= 1
                                     ? &s->one
                                     : arena_array(&s->arena, s->endpoint.n_models, sizeof(*known));

    if (!known)
        return WEIR_E_NOMEM;
    for (uint32_t i = 0; i < s->endpoint.n_models; i++) {
        known[i] = map_get(&f->models, s->endpoint.models[i].id);
        BUG_ON(!known[i]);
    }
    s->known = known;
    s->n_known = s->endpoint.n_models;
    return 0;
}

static void drop(const struct fleet *f, struct shown *s)
{
    if (s->record)
        fleet_record_put(s->record);
    arena_fini(&s->arena);
    mem_free(f->mem, s);
}

int fleet_shown_new(struct fleet *f, const struct entry *e, struct shown **out)
{
    struct shown *s = mem_zalloc(f->mem, sizeof(*s));

    if (!s)
        return WEIR_E_NOMEM;
    arena_init(&s->arena, f->mem, SIZE_MAX / 2);
    int rc = fill(s, e);
    /* A model last seen long ago comes back without an update when the source that vetoed it leaves. */
    if (rc == 0)
        rc = fleet_note_models(f, s->endpoint.models, s->endpoint.n_models);
    /* What nobody serves may be forgotten. */
    if (rc == 0 && s->endpoint.enabled)
        rc = find_models(f, s);
    if (rc == 0)
        rc = fleet_bind_devices(f, e->cell, &s->endpoint);
    if (rc) {
        drop(f, s);
        return rc;
    }
    s->cell = e->cell;
    atomic_fetch_add_explicit(&s->cell->refs, 1, memory_order_relaxed);
    *out = s;
    return 0;
}

void fleet_shown_free(struct fleet *f, struct shown *s)
{
    fleet_cell_drop(f, s->cell);
    drop(f, s);
}

void fleet_shown_retire(struct fleet *f, struct shown *s)
{
    s->last_seq = f->newest ? f->newest->s.seq : 0;
    s->next = NULL;
    if (f->retired_last)
        f->retired_last->next = s;
    else
        f->retired = s;
    f->retired_last = s;
}

void fleet_shown_reclaim(struct fleet *f, uint64_t oldest)
{
    while (f->retired && f->retired->last_seq < oldest) {
        struct shown *s = f->retired;
        f->retired = s->next;
        if (!f->retired)
            f->retired_last = NULL;
        fleet_shown_free(f, s);
    }
}
