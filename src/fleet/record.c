/* SPDX-License-Identifier: Apache-2.0 */
/** @file One source's word on one instance: checked, copied, metadata read, hashed. */
#include "base/bug.h"
#include "base/hash.h"
#include "fleet/table.h"

enum {
    RECORD_BYTES_MAX = 1 << 20, /* all text of one instance */
    METADATA_VALUE_MAX = 65536,
    PORT_DIGITS = 5,
};

static bool text_ok(struct slice s)
{
    return s.n <= ENDPOINT_TEXT_MAX;
}

/* A host goes into request heads, so nothing that could end a line or a word may be in it. */
static bool host_ok(struct slice s)
{
    if (s.n == 0 || s.n > 255)
        return false;
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] <= ' ' || s.p[i] == 127 || s.p[i] == '/' || s.p[i] == '@' || s.p[i] == '[' ||
            s.p[i] == ']')
            return false;
    return true;
}

static bool kv_ok(const struct kv *kv, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        if (!text_ok(kv[k].key) || kv[k].value.n > METADATA_VALUE_MAX)
            return false;
    return true;
}

static bool instance_ok(const struct instance *i)
{
    if (!host_ok(i->host) || i->port == 0 || i->key.n == 0 || !text_ok(i->key) || !text_ok(i->id) ||
        i->weight > WEIGHT_MAX || i->n_services > ENDPOINT_SERVICES_MAX ||
        i->n_models > ENDPOINT_MODELS_MAX || i->n_devices > ENDPOINT_DEVICES_MAX ||
        i->n_labels > ENDPOINT_KV_MAX || i->n_metadata > ENDPOINT_KV_MAX || !text_ok(i->region) ||
        !text_ok(i->zone) || !text_ok(i->cluster))
        return false;
    for (uint32_t k = 0; k < i->n_services; k++)
        if (!text_ok(i->services[k]))
            return false;
    for (uint32_t k = 0; k < i->n_models; k++)
        if (i->models[k].id.n == 0 || !text_ok(i->models[k].id) || !text_ok(i->models[k].version) ||
            !text_ok(i->models[k].lora_base))
            return false;
    for (uint32_t k = 0; k < i->n_devices; k++)
        if (!text_ok(i->devices[k].uuid) || !text_ok(i->devices[k].type))
            return false;
    return kv_ok(i->labels, i->n_labels) && kv_ok(i->metadata, i->n_metadata);
}

struct slice fleet_address_key(bool tls, struct slice host, uint16_t port, char *out)
{
    size_t n = 0;
    unsigned rest = port;

    BUG_ON(host.n > ENDPOINT_TEXT_MAX);
    out[n++] = tls ? 's' : 'p';
    for (unsigned digit = 10000; digit > 0; digit /= 10) {
        out[n++] = (char)('0' + rest / digit);
        rest %= digit;
    }
    for (size_t i = 0; i < host.n; i++)
        out[n++] = ascii_lower(host.p[i]);
    return slice_of(out, n);
}

static int make_authority(struct record *r)
{
    bool literal6 = slice_find(r->i.host, ':') < r->i.host.n;
    char *p = arena_alloc(&r->arena, r->i.host.n + 2 + 1 + PORT_DIGITS);
    size_t n = 0;
    unsigned divisor = 10000;

    if (!p)
        return WEIR_E_NOMEM;
    r->authority.p = p;
    if (literal6)
        p[n++] = '[';
    memcpy(p + n, r->i.host.p, r->i.host.n);
    n += r->i.host.n;
    if (literal6)
        p[n++] = ']';
    p[n++] = ':';
    while (divisor > r->i.port)
        divisor /= 10;
    for (unsigned rest = r->i.port; divisor > 0; divisor /= 10) {
        p[n++] = (char)('0' + rest / divisor);
        rest %= divisor;
    }
    r->authority.n = n;
    return 0;
}

static int kv_copy(struct arena *a, const struct kv *from, uint32_t n, const struct kv **out)
{
    struct kv *to = arena_array(a, n, sizeof(*to));

    if (!to)
        return WEIR_E_NOMEM;
    for (uint32_t k = 0; k < n; k++)
        if (arena_slice(a, from[k].key, &to[k].key) || arena_slice(a, from[k].value, &to[k].value))
            return WEIR_E_NOMEM;
    *out = to;
    return 0;
}

int fleet_models_copy(struct arena *a,
                      const struct model_ref *from,
                      uint32_t n,
                      struct model_ref **out)
{
    struct model_ref *to = arena_array(a, n, sizeof(*to));

    if (!to)
        return WEIR_E_NOMEM;
    for (uint32_t k = 0; k < n; k++) {
        to[k].max_model_len = from[k].max_model_len;
        to[k].loading = from[k].loading;
        if (arena_slice(a, from[k].id, &to[k].id) ||
            arena_slice(a, from[k].version, &to[k].version) ||
            arena_slice(a, from[k].lora_base, &to[k].lora_base))
            return WEIR_E_NOMEM;
    }
    *out = to;
    return 0;
}

/* Metadata model_id: a comma list, each with the one version and length that metadata can tell. */
static int models_from_metadata(struct record *r, const struct fleet_metadata *m)
{
    struct slice rest = m->model_ids;
    struct slice piece;
    uint32_t room = 1;

    for (size_t i = 0; i < rest.n && room < ENDPOINT_MODELS_MAX; i++)
        room += rest.p[i] == ',';
    struct model_ref *to = arena_array(&r->arena, room, sizeof(*to));
    if (!to)
        return WEIR_E_NOMEM;
    r->i.models = to;
    while (slice_cut(&rest, ',', &piece)) {
        piece = slice_trim(piece);
        if (piece.n == 0 || !text_ok(piece) || r->i.n_models == room)
            continue;
        to[r->i.n_models++] = (struct model_ref){
            .id = piece, .version = m->model_version, .max_model_len = m->max_model_len};
    }
    return 0;
}

static int copy_instance(struct record *r, const struct instance *i)
{
    struct arena *a = &r->arena;
    struct slice *services = arena_array(a, i->n_services, sizeof(*services));
    struct device *devices = arena_array(a, i->n_devices, sizeof(*devices));
    struct model_ref *models = NULL;

    r->i = *i;
    r->i.services = services;
    r->i.devices = devices;
    if (!services || !devices || arena_slice(a, i->key, &r->i.key) ||
        arena_slice(a, i->id, &r->i.id) || arena_slice(a, i->host, &r->i.host) ||
        arena_slice(a, i->region, &r->i.region) || arena_slice(a, i->zone, &r->i.zone) ||
        arena_slice(a, i->cluster, &r->i.cluster) ||
        kv_copy(a, i->labels, i->n_labels, &r->i.labels) ||
        kv_copy(a, i->metadata, i->n_metadata, &r->i.metadata) ||
        fleet_models_copy(a, i->models, i->n_models, &models))
        return WEIR_E_NOMEM;
    r->i.models = models;
    for (uint32_t k = 0; k < i->n_services; k++)
        if (arena_slice(a, i->services[k], &services[k]))
            return WEIR_E_NOMEM;
    for (uint32_t k = 0; k < i->n_devices; k++) {
        devices[k].memory_total_bytes = i->devices[k].memory_total_bytes;
        if (arena_slice(a, i->devices[k].uuid, &devices[k].uuid) ||
            arena_slice(a, i->devices[k].type, &devices[k].type))
            return WEIR_E_NOMEM;
    }
    char key[ADDRESS_KEY_MAX];
    if (arena_slice(a, fleet_address_key(i->tls, i->host, i->port, key), &r->address) ||
        make_authority(r))
        return WEIR_E_NOMEM;
    return 0;
}

static int read_metadata(struct record *r)
{
    struct fleet_metadata m;
    uint32_t max_model_len = r->i.max_model_len;

    /* From the copy, so that what it borrows lives as long as the record. */
    fleet_metadata_read(r->i.metadata, r->i.n_metadata, &m);
    if (max_model_len == 0)
        max_model_len = m.max_model_len;
    m.max_model_len = max_model_len;
    if (r->i.n_models == 0 && m.model_ids.n) {
        int rc = models_from_metadata(r, &m);
        if (rc)
            return rc;
    } else if (max_model_len) {
        struct model_ref *models = arena_array(&r->arena, r->i.n_models, sizeof(*models));
        if (!models)
            return WEIR_E_NOMEM;
        for (uint32_t k = 0; k < r->i.n_models; k++) {
            models[k] = r->i.models[k];
            if (models[k].max_model_len == 0)
                models[k].max_model_len = max_model_len;
        }
        r->i.models = models;
    }
    if (r->i.tasks == 0)
        r->i.tasks = m.tasks;
    if (r->i.max_concurrency == 0)
        r->i.max_concurrency = m.max_concurrency;
    if (r->i.engine == ENGINE_UNKNOWN)
        r->i.engine = m.engine;
    r->gpu_type = m.gpu_type;
    r->metadata_sample = m.sample;
    r->report_time_ms = m.report_time_ms;
    return 0;
}

static uint64_t add(uint64_t h, struct slice s)
{
    return hash_pair(h, hash_slice(s.p ? s : SLICE(""), s.p ? 1 : 2));
}

static void hash_record(struct record *r)
{
    const struct instance *i = &r->i;
    uint64_t h = hash_pair(i->weight, ((uint64_t)i->tasks << 32) | i->max_concurrency);
    uint64_t fast = 0;

    h = hash_pair(h, (uint64_t)i->enabled | (uint64_t)i->healthy << 1 | (uint64_t)i->vouched << 2 |
                         (uint64_t)i->draining << 3 | (uint64_t)i->probation << 4 |
                         (uint64_t)i->role << 8 | (uint64_t)i->engine << 16);
    h = add(add(add(add(add(h, i->id), i->region), i->zone), i->cluster), r->authority);
    h = hash_pair(h, (uint64_t)i->n_services << 40 | (uint64_t)i->n_models << 20 | i->n_devices);
    for (uint32_t k = 0; k < i->n_services; k++)
        h = add(h, i->services[k]);
    for (uint32_t k = 0; k < i->n_models; k++)
        h = hash_pair(
            add(add(add(h, i->models[k].id), i->models[k].version), i->models[k].lora_base),
            (uint64_t)i->models[k].loading << 32 | i->models[k].max_model_len);
    for (uint32_t k = 0; k < i->n_devices; k++)
        h = hash_pair(add(add(h, i->devices[k].uuid), i->devices[k].type),
                      i->devices[k].memory_total_bytes);
    h = hash_pair(h, i->n_labels);
    for (uint32_t k = 0; k < i->n_labels; k++)
        h = add(add(h, i->labels[k].key), i->labels[k].value);
    for (uint32_t k = 0; k < i->n_metadata; k++) {
        /* That a key is there is part of who it is; a fast key's value is not. */
        h = add(h, i->metadata[k].key);
        if (fleet_metadata_fast(i->metadata[k].key))
            fast = add(add(fast, i->metadata[k].key), i->metadata[k].value);
        else
            h = add(h, i->metadata[k].value);
    }
    r->identity = h;
    r->fast = fast;
}

int fleet_record_new(const struct mem *mem,
                     uint16_t source,
                     const struct instance *i,
                     struct record **out)
{
    if (!instance_ok(i))
        return WEIR_E_INVALID;
    struct record *r = mem_zalloc(mem, sizeof(*r));
    if (!r)
        return WEIR_E_NOMEM;
    list_init(&r->in_entry);
    arena_init(&r->arena, mem, RECORD_BYTES_MAX);
    r->source = source;
    int rc = copy_instance(r, i);
    if (rc == 0)
        rc = read_metadata(r);
    if (rc) {
        fleet_record_free(r);
        return rc;
    }
    hash_record(r);
    *out = r;
    return 0;
}

void fleet_record_free(struct record *r)
{
    const struct mem *mem = r->arena.mem;

    arena_fini(&r->arena);
    mem_free(mem, r);
}
