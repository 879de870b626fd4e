/* SPDX-License-Identifier: Apache-2.0 */
/** @file Making a record: everything it is told is copied into memory of its own. */
#include "base/bug.h"
#include "base/hash.h"
#include "registry/store_priv.h"

enum { RECORD_TEXT_MAX = 4 << 20, ADDRESS_MAX = 512 };

void store_address(struct buf *out, struct slice host, uint16_t port)
{
    bool v6 = slice_find(host, ':') < host.n;

    if (v6)
        buf_put_char(out, '[');
    buf_put_slice(out, host);
    buf_put_str(out, v6 ? "]:" : ":");
    buf_put_u64(out, port);
}

static int copy_kv(struct arena *a, const struct kv *from, uint32_t n, const struct kv **out)
{
    struct kv *to = arena_array(a, n, sizeof(*to));

    if (!to)
        return WEIR_E_NOMEM;
    for (uint32_t i = 0; i < n; i++)
        if (arena_slice(a, from[i].key, &to[i].key) || arena_slice(a, from[i].value, &to[i].value))
            return WEIR_E_NOMEM;
    *out = to;
    return 0;
}

static int copy_models(struct arena *a, struct instance *i)
{
    struct model_ref *to = arena_array(a, i->n_models, sizeof(*to));

    if (!to)
        return WEIR_E_NOMEM;
    for (uint32_t m = 0; m < i->n_models; m++) {
        to[m].max_model_len = i->models[m].max_model_len;
        if (arena_slice(a, i->models[m].id, &to[m].id) ||
            arena_slice(a, i->models[m].version, &to[m].version) ||
            arena_slice(a, i->models[m].lora_base, &to[m].lora_base))
            return WEIR_E_NOMEM;
    }
    i->models = to;
    return 0;
}

static int copy_devices(struct arena *a, struct instance *i)
{
    struct device *to = arena_array(a, i->n_devices, sizeof(*to));

    if (!to)
        return WEIR_E_NOMEM;
    for (uint32_t d = 0; d < i->n_devices; d++) {
        to[d].memory_total_bytes = i->devices[d].memory_total_bytes;
        if (arena_slice(a, i->devices[d].uuid, &to[d].uuid) ||
            arena_slice(a, i->devices[d].type, &to[d].type))
            return WEIR_E_NOMEM;
    }
    i->devices = to;
    return 0;
}

/** Replace every borrowed text of *i except metadata and key by a copy in the arena. */
static int copy_instance(struct arena *a, struct instance *i)
{
    struct slice *services = arena_array(a, i->n_services, sizeof(*services));

    if (!services)
        return WEIR_E_NOMEM;
    for (uint32_t k = 0; k < i->n_services; k++)
        if (arena_slice(a, i->services[k], &services[k]))
            return WEIR_E_NOMEM;
    i->services = services;
    if (copy_models(a, i) || copy_devices(a, i) || copy_kv(a, i->labels, i->n_labels, &i->labels) ||
        arena_slice(a, i->id, &i->id) || arena_slice(a, i->host, &i->host) ||
        arena_slice(a, i->region, &i->region) || arena_slice(a, i->zone, &i->zone) ||
        arena_slice(a, i->cluster, &i->cluster))
        return WEIR_E_NOMEM;
    return 0;
}

/** The concatenation, in the arena. */
int record_join(struct arena *a, const struct slice *parts, unsigned n, struct slice *out)
{
    size_t size = 0;

    for (unsigned i = 0; i < n; i++)
        size += parts[i].n;
    char *p = arena_alloc(a, size + 1);
    if (!p)
        return WEIR_E_NOMEM;
    *out = slice_of(p, size);
    for (unsigned i = 0; i < n; i++) {
        if (parts[i].n)
            memcpy(p, parts[i].p, parts[i].n);
        p += parts[i].n;
    }
    *p = '\0';
    return 0;
}

/** The key the sink knows it by: the parts joined, or their begin and a hash when that is too long for a key. */
int record_join_key(struct record *r, const struct slice *parts, unsigned n)
{
    enum { KEPT = ENDPOINT_TEXT_MAX - 17 };
    struct slice whole;
    struct buf hex;
    int rc = record_join(&r->text, parts, n, &whole);

    r->instance.key = whole;
    if (rc || whole.n <= ENDPOINT_TEXT_MAX)
        return rc;
    buf_init(&hex, r->text.mem, 16);
    buf_put_hex(&hex, hash_slice(whole, 0), 16);
    struct slice shorter[] = {slice_of(whole.p, KEPT), SLICE("#"), buf_slice(&hex)};
    rc = hex.err ? hex.err : record_join(&r->text, shorter, ARRAY_LEN(shorter), &r->instance.key);
    buf_fini(&hex);
    return rc;
}

static int name_address(struct record *r)
{
    struct buf b;

    buf_init(&b, r->text.mem, ADDRESS_MAX);
    store_address(&b, r->instance.host, r->instance.port);
    int rc = b.err ? b.err : arena_slice(&r->text, buf_slice(&b), &r->address);
    buf_fini(&b);
    return rc;
}

static int
set_metadata(struct store *s, struct record *r, const struct instance *in, enum meta_writer writer)
{
    bool visible;
    int rc = meta_merge(s->o.mem, NULL, in->metadata, in->n_metadata, writer, &r->meta, &visible);

    r->instance.metadata = r->meta ? r->meta->kv : NULL;
    r->instance.n_metadata = r->meta ? r->meta->n_kv : 0;
    return rc;
}

/** A record outside of every table. */
int record_new(struct store *s,
               enum record_kind kind,
               const struct instance *in,
               struct record **out)
{
    struct record *r = mem_zalloc(s->o.mem, sizeof(*r));

    if (!r)
        return WEIR_E_NOMEM;
    r->kind = kind;
    r->instance = *in;
    arena_init(&r->text, s->o.mem, RECORD_TEXT_MAX);
    list_init(&r->node);
    list_init(&r->same_address);
    r->ephemeral = true;
    r->client_weight = in->weight;
    r->client_enabled = in->enabled;
    r->interval_ms = NACOS_BEAT_INTERVAL_MS;
    r->timeout_ms = NACOS_BEAT_TIMEOUT_MS;
    r->delete_ms = NACOS_DELETE_TIMEOUT_MS;
    int rc = copy_instance(&r->text, &r->instance);
    if (!rc)
        rc = name_address(r);
    if (!rc)
        rc = set_metadata(s, r, in, kind == RECORD_NACOS ? META_CLIENT : META_OPERATOR);
    if (rc) {
        record_free(s, r);
        return rc;
    }
    *out = r;
    return 0;
}

void record_free(struct store *s, struct record *r)
{
    arena_fini(&r->text);
    mem_free(s->o.mem, r->meta);
    mem_free(s->o.mem, r->cluster);
    mem_free(s->o.mem, r);
}
