/* SPDX-License-Identifier: Apache-2.0 */
/** @file One source's word on one instance: checked, copied, metadata read, hashed. */
#include "base/bug.h"
#include "base/hash.h"
#include "fleet/table.h"
#include "model/instance.h"

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
    /* A Unix socket: its path is named nowhere but in logs. */
    bool local = s.p[0] == '/';
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] <= ' ' || s.p[i] == 127 || (s.p[i] == '/' && !local) || s.p[i] == '@' ||
            s.p[i] == '[' || s.p[i] == ']')
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
    if (!host_ok(i->host) || (i->port == 0) != (i->host.p[0] == '/') || i->key.n == 0 ||
        !text_ok(i->key) || !text_ok(i->id) || i->weight > WEIGHT_MAX ||
        i->n_services > ENDPOINT_SERVICES_MAX || i->n_models > ENDPOINT_MODELS_MAX ||
        i->n_devices > ENDPOINT_DEVICES_MAX || i->n_labels > ENDPOINT_KV_MAX ||
        i->n_metadata > ENDPOINT_KV_MAX || !text_ok(i->region) || !text_ok(i->zone) ||
        !text_ok(i->cluster))
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
        out[n++] = host.p[0] == '/' ? host.p[i] : ascii_lower(host.p[i]);
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
    if (r->i.host.p[0] == '/') {
        r->authority.n = n;
        return 0;
    }
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

/* Of what metadata say of models only the first has room. */
static size_t room_of(const struct instance *i)
{
    size_t names = 2 * (i->host.n + PORT_DIGITS + 4);

    return model_instance_room(i) + ARENA_ROOM(1, names) +
           ARENA_ROOM(MAX(i->n_models, 2U), sizeof(struct model_ref));
}

static int copy_instance(struct record *r, const struct instance *i)
{
    char key[ADDRESS_KEY_MAX];

    if (arena_reserve(&r->arena, room_of(i)) || model_instance_copy(&r->arena, i, &r->i) ||
        arena_slice(&r->arena, fleet_address_key(i->tls, i->host, i->port, key), &r->address) ||
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
    if (!r->i.region.n)
        r->i.region = m.region;
    if (!r->i.zone.n)
        r->i.zone = m.zone;
    if (!r->i.cluster.n)
        r->i.cluster = m.cluster;
    r->gpu_type = m.gpu_type;
    r->report_time_ms = m.report_time_ms;
    if (m.sample.known == 0 && m.report_time_ms == 0)
        return 0;
    r->told = mem_alloc(r->arena.mem, sizeof(*r->told));
    if (!r->told)
        return WEIR_E_NOMEM;
    *r->told = m.sample;
    return 0;
}

static void hash_record(struct record *r)
{
    const struct instance *i = &r->i;

    r->identity = model_instance_hash(i, fleet_metadata_fast);
    r->fast = 0;
    for (uint32_t k = 0; k < i->n_metadata; k++)
        if (fleet_metadata_fast(i->metadata[k].key))
            r->fast = hash_pair(hash_pair(r->fast, hash_slice(i->metadata[k].key, 1)),
                                hash_slice(i->metadata[k].value, 1));
}

static bool kv_unique(const struct kv *kv, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t k = 0; k < i; k++)
            if (slice_eq(kv[i].key, kv[k].key))
                return false;
    return true;
}

/* Can it be shown as it is, without a look for what is said twice? */
static bool is_plain(const struct instance *i)
{
    for (uint32_t m = 1; m < i->n_models; m++)
        for (uint32_t k = 0; k < m; k++)
            if (slice_eq(i->models[m].id, i->models[k].id) &&
                slice_eq(i->models[m].version, i->models[k].version))
                return false;
    for (uint32_t s = 1; s < i->n_services; s++)
        for (uint32_t k = 0; k < s; k++)
            if (slice_eq(i->services[s], i->services[k]))
                return false;
    return kv_unique(i->labels, i->n_labels) && kv_unique(i->metadata, i->n_metadata);
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
    r->refs = 1;
    int rc = copy_instance(r, i);
    if (rc == 0)
        rc = read_metadata(r);
    if (rc) {
        fleet_record_put(r);
        return rc;
    }
    r->plain = is_plain(&r->i);
    hash_record(r);
    *out = r;
    return 0;
}

void fleet_record_put(struct record *r)
{
    const struct mem *mem = r->arena.mem;

    if (--r->refs)
        return;

    arena_fini(&r->arena);
    mem_free(mem, r->told);
    mem_free(mem, r);
}
