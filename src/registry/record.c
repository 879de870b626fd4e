/* SPDX-License-Identifier: Apache-2.0 */
/** @file Making a record: everything it is told is copied into memory of its own. */
#include "base/bug.h"
#include "base/hash.h"
#include "model/instance.h"
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

/* Metadata is kept apart, merged key by key; the key is made by the store. */
static int copy_instance(struct arena *a, struct instance *i)
{
    i->metadata = NULL;
    i->n_metadata = 0;
    i->key = (struct slice){NULL, 0};
    return model_instance_copy(a, i, i);
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
