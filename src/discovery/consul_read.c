/* SPDX-License-Identifier: Apache-2.0 */
#include "discovery/consul_read.h"

#include <jansson.h>

#include "base/hash.h"
#include "base/num.h"
#include "registry/native_json.h"

enum {
    KV_MAX = 96, /* Consul takes 64 keys in Meta */
    TAGS_MAX = 64,
    NEAR = 64, /* so many may have gone, or come, between two neighbours */
};

/* Texts of the document are borrowed from it: all of it is copied before it goes. */
static struct slice text_of(const json_t *object, const char *name)
{
    const json_t *v = json_object_get(object, name);

    return json_is_string(v) ? slice_of(json_string_value(v), json_string_length(v))
                             : (struct slice){NULL, 0};
}

static int
join(struct arena *a, struct slice one, char between, struct slice other, struct slice *out)
{
    char *p = arena_alloc(a, one.n + 1 + other.n + 1);

    if (!p)
        return WEIR_E_NOMEM;
    memcpy(p, one.p ? one.p : "", one.n);
    p[one.n] = between;
    memcpy(p + one.n + 1, other.p ? other.p : "", other.n);
    p[one.n + 1 + other.n] = '\0';
    *out = slice_of(p, one.n + 1 + other.n);
    return 0;
}

/* --- pairs --- */

struct pairs {
    struct arena *a;
    struct kv *kv;
    uint32_t n, max;
    int rc;
};

static struct pairs begin_pairs(struct arena *a, size_t n)
{
    uint32_t max = (uint32_t)MIN(n, (size_t)KV_MAX);

    return (struct pairs){.a = a, .max = max, .kv = arena_array(a, max, sizeof(struct kv))};
}

static void put_pair(struct pairs *p, struct slice key, struct slice value)
{
    if (p->rc || p->n == p->max || !key.n || key.n > ENDPOINT_TEXT_MAX)
        return;
    for (uint32_t i = 0; i < p->n; i++)
        if (slice_eq(p->kv[i].key, key))
            return;
    struct kv *to = &p->kv[p->n];
    p->rc = arena_slice(p->a, key, &to->key);
    if (!p->rc)
        p->rc = arena_slice(p->a, slice_of(value.p ? value.p : "", value.n), &to->value);
    p->n += p->rc == 0;
}

static struct slice all_tags(struct pairs *p, const json_t *tags)
{
    struct slice all = {NULL, 0};
    size_t i;
    json_t *tag;

    json_array_foreach(tags, i, tag)
    {
        struct slice one = slice_of(json_string_value(tag), json_string_length(tag));
        if (i == TAGS_MAX || p->rc || !json_is_string(tag))
            break;
        if (!all.p)
            all = one;
        else
            p->rc = join(p->a, all, ',', one, &all);
    }
    return all;
}

static int
read_metadata(struct arena *a, const json_t *node, const json_t *service, struct instance *i)
{
    json_t *meta = json_object_get(service, "Meta");
    struct pairs p = begin_pairs(a, json_object_size(meta) + 3);
    struct slice tags = {NULL, 0};
    const char *key;
    json_t *value;

    if (!p.kv)
        return WEIR_E_NOMEM;
    json_object_foreach(meta, key, value) if (json_is_string(value))
        put_pair(&p, slice_str(key), slice_of(json_string_value(value), json_string_length(value)));
    tags = all_tags(&p, json_object_get(service, "Tags"));
    if (tags.n)
        put_pair(&p, SLICE("tags"), tags);
    if (text_of(node, "Node").n)
        put_pair(&p, SLICE("node"), text_of(node, "Node"));
    if (text_of(node, "Datacenter").n)
        put_pair(&p, SLICE("datacenter"), text_of(node, "Datacenter"));
    i->metadata = p.kv;
    i->n_metadata = p.n;
    return p.rc;
}

static int read_labels(struct arena *a, const json_t *tags, struct instance *i)
{
    struct pairs p = begin_pairs(a, json_array_size(tags));
    size_t at;
    json_t *tag;

    if (!p.kv)
        return WEIR_E_NOMEM;
    json_array_foreach(tags, at, tag)
    {
        struct slice text = slice_of(json_string_value(tag), json_string_length(tag));
        size_t equals = json_is_string(tag) ? slice_find(text, '=') : 0;
        if (at < TAGS_MAX && json_is_string(tag))
            put_pair(&p, slice_of(text.p, equals),
                     equals < text.n ? slice_from(text, equals + 1) : SLICE("true"));
    }
    i->labels = p.kv;
    i->n_labels = p.n;
    return p.rc;
}

/* Since Consul 1.16: the service's own, or its node's. */
static int
read_place(struct arena *a, const json_t *node, const json_t *service, struct instance *i)
{
    const json_t *own = json_object_get(service, "Locality");
    const json_t *place = json_is_object(own) ? own : json_object_get(node, "Locality");
    int rc = arena_slice(a, text_of(place, "Region"), &i->region);

    return rc ? rc : arena_slice(a, text_of(place, "Zone"), &i->zone);
}

/* --- one entry --- */

enum status { PASSING, WARNING, CRITICAL };

static void read_checks(const json_t *checks, enum status *status, bool *maintenance)
{
    size_t i;
    json_t *check;

    json_array_foreach(checks, i, check)
    {
        struct slice word = text_of(check, "Status");
        struct slice id = text_of(check, "CheckID");
        enum status one = slice_eq(word, SLICE("passing"))   ? PASSING
                          : slice_eq(word, SLICE("warning")) ? WARNING
                                                             : CRITICAL;
        *maintenance |= one == CRITICAL && (slice_eq(id, SLICE("_node_maintenance")) ||
                                            slice_starts(id, SLICE("_service_maintenance")));
        if (one > *status)
            *status = one;
    }
}

static uint32_t read_weight(const json_t *service, enum status status)
{
    const json_t *weights = json_object_get(service, "Weights");
    const json_t *w = json_object_get(weights, status == WARNING ? "Warning" : "Passing");
    json_int_t n = json_is_integer(w) ? json_integer_value(w) : 1;

    return n < 0                         ? WEIGHT_ONE
           : n > WEIGHT_MAX / WEIGHT_ONE ? (uint32_t)WEIGHT_MAX
                                         : (uint32_t)n * WEIGHT_ONE;
}

/* WEIR_E_RANGE: this one cannot be used. */
static int read_entry(struct arena *a, const json_t *entry, struct instance *i)
{
    const json_t *node = json_object_get(entry, "Node");
    const json_t *service = json_object_get(entry, "Service");
    json_int_t port = json_integer_value(json_object_get(service, "Port"));
    struct slice *name = arena_array(a, 1, sizeof(*name));
    struct slice host = text_of(service, "Address");
    struct slice id = text_of(service, "ID");
    enum status status = PASSING;
    bool maintenance = false;

    if (!name)
        return WEIR_E_NOMEM;
    if (!host.n)
        host = text_of(node, "Address");
    if (!host.n || !id.n || port < 1 || port > UINT16_MAX)
        return WEIR_E_RANGE;
    read_checks(json_object_get(entry, "Checks"), &status, &maintenance);
    const json_t *meta = json_object_get(service, "Meta");
    *i = (struct instance){
        .services = name,
        .n_services = text_of(service, "Service").n > 0,
        .tls = slice_eq(text_of(meta, "scheme"), SLICE("https")) ||
               slice_eq(text_of(meta, "secure"), SLICE("true")),
        .port = (uint16_t)port,
        .weight = read_weight(service, status),
        .enabled = !maintenance,
        .healthy = status != CRITICAL,
    };
    int rc = join(a, text_of(node, "Node"), '/', id, &i->key);
    if (!rc)
        rc = arena_slice(a, host, &i->host);
    if (!rc)
        rc = arena_slice(a, text_of(service, "Service"), name);
    if (!rc)
        rc = read_place(a, node, service, i);
    if (!rc)
        rc = read_metadata(a, node, service, i);
    return rc ? rc : read_labels(a, json_object_get(service, "Tags"), i);
}

/* --- the list --- */

static bool find(const struct consul_seen *before,
                 uint32_t n,
                 uint32_t *at,
                 struct json_seen text,
                 struct slice *key)
{
    for (uint32_t i = *at; i < n && i < *at + NEAR; i++)
        if (json_seen_same(before[i].text, text)) {
            *at = i + 1;
            *key = before[i].key;
            return true;
        }
    return false;
}

static int read_text(struct arena *a, const struct json_element *element, struct instance *out)
{
    json_t *entry = json_element_load(element);
    int rc = entry ? read_entry(a, entry, out) : WEIR_E_INVALID;

    json_decref(entry);
    return rc;
}

/* Room for one more. */
static int grow(struct arena *a, struct consul_answer *out, uint32_t *room)
{
    if (out->n < *room)
        return 0;
    struct consul_entry *more = arena_array(a, (size_t)*room * 2, sizeof(*more));
    if (!more)
        return WEIR_E_NOMEM;
    memcpy(more, out->entries, out->n * sizeof(*more));
    out->entries = more;
    *room *= 2;
    return 0;
}

int consul_read(struct arena *a,
                struct slice body,
                const struct consul_seen *before,
                uint32_t n_before,
                uint64_t seed,
                struct consul_answer *out)
{
    struct json_list list;
    struct json_element element;
    uint32_t room = n_before + NEAR;
    uint32_t at = 0;
    int more;

    *out = (struct consul_answer){0};
    if (!json_list_open(body, seed, &list))
        return WEIR_E_INVALID;
    out->entries = arena_array(a, room, sizeof(*out->entries));
    if (!out->entries)
        return WEIR_E_NOMEM;
    while ((more = json_list_next(&list, at < n_before ? &before[at].text : NULL, &element)) == 1) {
        int rc = grow(a, out, &room);
        if (rc)
            return rc;
        struct consul_entry *e = &out->entries[out->n];
        *e = (struct consul_entry){.text = element.seen};
        e->same = find(before, n_before, &at, element.seen, &e->instance.key);
        if (!e->same)
            rc = read_text(a, &element, &e->instance);
        if (rc && rc != WEIR_E_RANGE)
            return rc;
        out->n_bad += rc != 0;
        out->n += rc == 0;
    }
    return more ? more : json_list_alone(&list) ? 0 : WEIR_E_INVALID;
}
