/* SPDX-License-Identifier: Apache-2.0 */
/** @file Building snapshots: records merged field by field, models indexed, all in one arena. */
#include "base/bug.h"
#include "fleet/table.h"
#include "model/instance.h"

enum { PURGE_AT_ONCE = 64 };

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
    const struct model_ref *from = n ? list : e->probed;
    out->models_probed = n == 0 && e->n_probed > 0;
    if (n == 0)
        n = e->n_probed;
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
    if (out->n_devices != 0 || e->n_devices == 0)
        return 0;
    out->devices_probed = true;
    return copy_devices(a, e->devices, e->n_devices, out);
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

static void
count_members(struct fleet *f, const struct endpoint *endpoints, uint32_t n, uint64_t now_ns)
{
    map_foreach(at, &f->models)
    {
        struct known_model *k = at->value;
        k->members = NULL;
        k->n = k->last = 0;
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t m = 0; endpoints[i].enabled && m < endpoints[i].n_models; m++) {
            struct known_model *k = map_get(&f->models, endpoints[i].models[m].id);
            BUG_ON(!k);
            if (k->last != i + 1) {
                k->n++;
                k->last = i + 1;
            }
            k->seen = true;
            k->seen_ns = now_ns;
        }
}

static void fill_members(struct fleet *f, const struct endpoint *endpoints, uint32_t n)
{
    map_foreach(at, &f->models)
    {
        struct known_model *k = at->value;
        k->n = k->last = 0;
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t m = 0; endpoints[i].enabled && m < endpoints[i].n_models; m++) {
            struct known_model *k = map_get(&f->models, endpoints[i].models[m].id);
            if (k->last != i + 1) {
                k->members[k->n++] = i;
                k->last = i + 1;
            }
        }
}

static bool still_known(const struct fleet *f, const struct known_model *k, uint64_t now_ns)
{
    return k->configured || k->n > 0 || (k->seen && now_ns - k->seen_ns < f->options.remember_ns);
}

static void sift(struct snapshot_model *m, uint32_t at, uint32_t n)
{
    for (;;) {
        uint32_t kid = 2 * at + 1;
        if (kid >= n)
            return;
        if (kid + 1 < n && slice_cmp(m[kid].id, m[kid + 1].id) < 0)
            kid++;
        if (slice_cmp(m[at].id, m[kid].id) >= 0)
            return;
        struct snapshot_model t = m[at];
        m[at] = m[kid];
        m[kid] = t;
        at = kid;
    }
}

static void sort_models(struct snapshot_model *m, uint32_t n)
{
    for (uint32_t i = n / 2; i-- > 0;)
        sift(m, i, n);
    for (uint32_t i = n; i-- > 1;) {
        struct snapshot_model t = m[0];
        m[0] = m[i];
        m[i] = t;
        sift(m, 0, i);
    }
}

static int
index_models(struct fleet *f, struct built *b, const struct endpoint *endpoints, uint64_t now_ns)
{
    uint32_t n = 0;

    count_members(f, endpoints, b->s.n_members, now_ns);
    struct snapshot_model *models = arena_array(&b->arena, f->models.n, sizeof(*models));
    if (!models)
        return WEIR_E_NOMEM;
    map_foreach(at, &f->models)
    {
        struct known_model *k = at->value;
        if (!still_known(f, k, now_ns))
            continue;
        k->members = arena_array(&b->arena, k->n, sizeof(*k->members));
        if (!k->members || arena_slice(&b->arena, k->id, &models[n].id))
            return WEIR_E_NOMEM;
        models[n].members = k->members;
        models[n].n_members = k->n;
        b->s.n_live_models += k->n > 0;
        n++;
    }
    fill_members(f, endpoints, b->s.n_members);
    sort_models(models, n);
    b->s.models = models;
    b->s.n_models = n;
    return 0;
}

static void purge_models(struct fleet *f, uint64_t now_ns)
{
    struct known_model *old[PURGE_AT_ONCE];
    uint32_t n = 0;

    map_foreach(at, &f->models) if (n < PURGE_AT_ONCE && !still_known(f, at->value, now_ns))
        old[n++] = at->value;
    while (n > 0) {
        map_del(&f->models, old[--n]->id);
        mem_free(f->mem, old[n]);
    }
}

static int build(struct fleet *f, struct built *b, uint64_t now_ns)
{
    uint32_t n = f->entries.n;
    struct endpoint *endpoints = arena_array(&b->arena, n, sizeof(*endpoints));
    struct member *members = arena_array(&b->arena, n, sizeof(*members));

    if (!endpoints || !members)
        return WEIR_E_NOMEM;
    for (uint32_t i = 0; i < f->n_slots; i++) {
        const struct entry *e = f->slots[i].entry;
        if (!e)
            continue;
        uint32_t m = b->s.n_members;
        if (merge(&b->arena, e, &endpoints[m]))
            return WEIR_E_NOMEM;
        if (fleet_bind_devices(f, e->cell, &endpoints[m]))
            return WEIR_E_NOMEM;
        members[m] = (struct member){&endpoints[m], e->cell};
        b->s.n_members++;
        /* A model last seen long ago comes back without an update when the source that vetoed it leaves. */
        if (fleet_note_models(f, endpoints[m].models, endpoints[m].n_models))
            return WEIR_E_NOMEM;
    }
    for (uint32_t i = 0; i < b->s.n_members; i++)
        fleet_mark_shared(members[i].cell);
    b->s.members = members;
    b->s.synced = true;
    for (uint16_t i = 0; i < f->options.n_sources; i++)
        b->s.synced = b->s.synced && f->synced[i];
    return index_models(f, b, endpoints, now_ns);
}

int fleet_build(struct fleet *f, uint64_t now_ns, const struct snapshot **out)
{
    fleet_sweep(f);
    if (!f->dirty && f->newest) {
        *out = &f->newest->s;
        return 0;
    }
    struct built *b = mem_zalloc(f->mem, sizeof(*b));
    if (!b)
        return WEIR_E_NOMEM;
    arena_init(&b->arena, f->mem, SIZE_MAX / 2);
    int rc = build(f, b, now_ns);
    if (rc) {
        arena_fini(&b->arena);
        mem_free(f->mem, b);
        return rc;
    }
    for (uint32_t i = 0; i < b->s.n_members; i++)
        atomic_fetch_add_explicit(&b->s.members[i].cell->refs, 1, memory_order_relaxed);
    b->s.seq = f->newest ? f->newest->s.seq + 1 : 1;
    b->older = f->newest;
    f->newest = b;
    f->dirty = false;
    purge_models(f, now_ns);
    *out = &b->s;
    return 0;
}

void fleet_free_built(struct fleet *f, struct built *b)
{
    for (uint32_t i = 0; i < b->s.n_members; i++)
        fleet_cell_drop(f, b->s.members[i].cell);
    arena_fini(&b->arena);
    mem_free(f->mem, b);
}

void fleet_reclaim(struct fleet *f, bool (*in_use)(void *ctx, const struct snapshot *s), void *ctx)
{
    for (struct built **at = f->newest ? &f->newest->older : NULL; at && *at;) {
        struct built *b = *at;
        if (in_use(ctx, &b->s)) {
            at = &b->older;
            continue;
        }
        *at = b->older;
        fleet_free_built(f, b);
    }
    fleet_sweep(f);
}
