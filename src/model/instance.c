/* SPDX-License-Identifier: Apache-2.0 */
#include "model/instance.h"

#include "base/bug.h"
#include "base/hash.h"

/* Of nothing there is no copy. */
static void *array(struct arena *a, uint32_t n, size_t size, int *rc)
{
    void *p = n ? arena_array(a, n, size) : NULL;

    *rc = n && !p ? WEIR_E_NOMEM : 0;
    return p;
}

static int copy_kv(struct arena *a, const struct kv *from, uint32_t n, const struct kv **out)
{
    int rc;
    struct kv *to = array(a, n, sizeof(*to), &rc);

    if (rc)
        return rc;
    for (uint32_t i = 0; i < n; i++)
        if (arena_slice(a, from[i].key, &to[i].key) || arena_slice(a, from[i].value, &to[i].value))
            return WEIR_E_NOMEM;
    *out = to;
    return 0;
}

int model_copy_models(struct arena *a,
                      const struct model_ref *from,
                      uint32_t n,
                      const struct model_ref **out)
{
    int rc;
    struct model_ref *to = array(a, n, sizeof(*to), &rc);

    if (rc)
        return rc;
    for (uint32_t i = 0; i < n; i++) {
        to[i] = from[i];
        if (arena_slice(a, from[i].id, &to[i].id) ||
            arena_slice(a, from[i].version, &to[i].version) ||
            arena_slice(a, from[i].lora_base, &to[i].lora_base))
            return WEIR_E_NOMEM;
    }
    *out = to;
    return 0;
}

static int copy_devices(struct arena *a, struct instance *i)
{
    int rc;
    struct device *to = array(a, i->n_devices, sizeof(*to), &rc);

    if (rc)
        return rc;
    for (uint32_t d = 0; d < i->n_devices; d++) {
        to[d] = i->devices[d];
        if (arena_slice(a, i->devices[d].uuid, &to[d].uuid) ||
            arena_slice(a, i->devices[d].type, &to[d].type))
            return WEIR_E_NOMEM;
    }
    i->devices = to;
    return 0;
}

static int copy_services(struct arena *a, struct instance *i)
{
    int rc;
    struct slice *to = array(a, i->n_services, sizeof(*to), &rc);

    if (rc)
        return rc;
    for (uint32_t k = 0; k < i->n_services; k++)
        if (arena_slice(a, i->services[k], &to[k]))
            return WEIR_E_NOMEM;
    i->services = to;
    return 0;
}

static size_t text_room(const struct slice s)
{
    return s.p ? s.n + 1 : 0;
}

static size_t kv_room(const struct kv *kv, uint32_t n)
{
    size_t room = ARENA_ROOM(n, sizeof(*kv));

    for (uint32_t i = 0; i < n; i++)
        room += text_room(kv[i].key) + text_room(kv[i].value);
    return room;
}

size_t model_instance_room(const struct instance *i)
{
    size_t room =
        text_room(i->key) + text_room(i->id) + text_room(i->host) + text_room(i->region) +
        text_room(i->zone) + text_room(i->cluster) + kv_room(i->labels, i->n_labels) +
        kv_room(i->metadata, i->n_metadata) + ARENA_ROOM(i->n_services, sizeof(*i->services)) +
        ARENA_ROOM(i->n_models, sizeof(*i->models)) + ARENA_ROOM(i->n_devices, sizeof(*i->devices));

    for (uint32_t k = 0; k < i->n_services; k++)
        room += text_room(i->services[k]);
    for (uint32_t k = 0; k < i->n_models; k++)
        room += text_room(i->models[k].id) + text_room(i->models[k].version) +
                text_room(i->models[k].lora_base);
    for (uint32_t k = 0; k < i->n_devices; k++)
        room += text_room(i->devices[k].uuid) + text_room(i->devices[k].type);
    return room;
}

int model_instance_copy(struct arena *a, const struct instance *from, struct instance *to)
{
    struct slice *texts[] = {&to->key, &to->id, &to->host, &to->region, &to->zone, &to->cluster};

    *to = *from;
    for (unsigned i = 0; i < ARRAY_LEN(texts); i++)
        if (arena_slice(a, *texts[i], texts[i]))
            return WEIR_E_NOMEM;
    if (copy_services(a, to) || copy_devices(a, to) ||
        model_copy_models(a, to->models, to->n_models, &to->models) ||
        copy_kv(a, to->labels, to->n_labels, &to->labels) ||
        copy_kv(a, to->metadata, to->n_metadata, &to->metadata))
        return WEIR_E_NOMEM;
    return 0;
}

static uint64_t add(uint64_t h, struct slice s)
{
    return hash_pair(h, hash_slice(s.p ? s : SLICE(""), s.p ? 1 : 2));
}

uint64_t model_instance_hash(const struct instance *i, bool (*fast)(struct slice key))
{
    uint64_t h = hash_pair(i->weight, ((uint64_t)i->tasks << 32) | i->max_concurrency);

    h = hash_pair(h, (uint64_t)i->enabled | (uint64_t)i->healthy << 1 | (uint64_t)i->vouched << 2 |
                         (uint64_t)i->draining << 3 | (uint64_t)i->probation << 4 |
                         (uint64_t)i->tls << 5 | (uint64_t)i->role << 8 |
                         (uint64_t)i->engine << 16 | (uint64_t)i->port << 32);
    h = add(add(add(add(add(h, i->id), i->region), i->zone), i->cluster), i->host);
    h = hash_pair(h, (uint64_t)i->n_services << 40 | (uint64_t)i->n_models << 20 | i->n_devices);
    h = hash_pair(h, (uint64_t)i->n_metadata << 32 | i->max_model_len);
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
        if (!fast || !fast(i->metadata[k].key))
            h = add(h, i->metadata[k].value);
    }
    return h;
}

void model_write_kv(struct buf *out, const struct kv *kv, uint32_t n)
{
    buf_put_char(out, '{');
    for (uint32_t i = 0; i < n; i++) {
        if (i)
            buf_put_char(out, ',');
        buf_put_json(out, kv[i].key);
        buf_put_char(out, ':');
        buf_put_json(out, kv[i].value);
    }
    buf_put_char(out, '}');
}
