/* SPDX-License-Identifier: Apache-2.0 */
/** @file What Nacos clients send, read strictly where a wrong reading would route traffic, leniently elsewhere. */
#include "registry/nacos_codec.h"

#include "base/bug.h"
#include "base/num.h"
#include "base/utf8.h"
#include "wire/json_scan.h"
#include "wire/url.h"

static const struct slice absent = {NULL, 0};

/* --- parameters --- */

static bool blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static struct slice trim(struct slice s)
{
    while (s.n && blank(s.p[0]))
        s = slice_from(s, 1);
    while (s.n && blank(s.p[s.n - 1]))
        s.n--;
    return s;
}

static int decode(struct arena *a, struct buf *scratch, struct slice raw, struct slice *out)
{
    buf_clear(scratch);
    int rc = wire_url_decode(raw, true, scratch);
    if (!rc)
        rc = scratch->err;
    if (!rc && !utf8_ok(buf_slice(scratch).p, buf_len(scratch)))
        rc = WEIR_E_INVALID;
    return rc ? rc : arena_slice(a, trim(buf_slice(scratch)), out);
}

static int gather(struct nacos_params *p, struct arena *a, struct buf *scratch, struct slice rest)
{
    struct slice name;
    struct slice value;

    while (wire_query_next(&rest, &name, &value)) {
        if (p->n == NACOS_PARAMS_MAX)
            return WEIR_E_FULL;
        int rc = decode(a, scratch, name, &p->list[p->n].name);
        if (!rc)
            rc = decode(a, scratch, value, &p->list[p->n].value);
        if (rc)
            return rc;
        p->n++;
    }
    return 0;
}

int nacos_params_parse(struct nacos_params *p,
                       struct arena *a,
                       struct slice query,
                       struct slice form)
{
    struct buf scratch;

    p->n = 0;
    buf_init(&scratch, a->mem, a->max);
    int rc = gather(p, a, &scratch, query);
    if (!rc)
        rc = gather(p, a, &scratch, form);
    buf_fini(&scratch);
    return rc;
}

struct slice nacos_param(const struct nacos_params *p, const char *name)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (slice_eq(p->list[i].name, slice_str(name)))
            return p->list[i].value.n ? p->list[i].value : absent;
    return absent;
}

/* --- single values --- */

bool nacos_bool(struct slice s)
{
    static const char *const words[] = {"y", "yes", "on", "true", "t"};

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (slice_eq_nocase(s, slice_str(words[i])))
            return true;
    return false;
}

int nacos_weight(struct slice s, uint32_t *out)
{
    double v;
    int rc = num_f64(s, &v);

    if (rc)
        return rc;
    if (v < 0 || v > 10000)
        return WEIR_E_RANGE;
    *out = (uint32_t)(v * WEIGHT_ONE + 0.5);
    if (*out == 0 && v > 0)
        *out = 1;
    return 0;
}

int nacos_port(struct slice s, uint16_t *out)
{
    uint64_t v;

    if (num_u64(s, &v))
        return WEIR_E_INVALID;
    if (v == 0 || v > UINT16_MAX)
        return WEIR_E_RANGE;
    *out = (uint16_t)v;
    return 0;
}

static bool alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

int nacos_host(struct slice s, struct slice *out)
{
    bool bracketed = s.n > 2 && s.p[0] == '[' && s.p[s.n - 1] == ']';
    unsigned colons = 0;
    bool other = false;

    if (bracketed)
        s = slice_of(s.p + 1, s.n - 2);
    if (s.n == 0)
        return WEIR_E_INVALID;
    if (s.n > NACOS_HOST_MAX)
        return WEIR_E_RANGE;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        bool hex = (c >= '0' && c <= '9') || (ascii_lower(c) >= 'a' && ascii_lower(c) <= 'f');
        if (!alnum(c) && c != '.' && c != '-' && c != '_' && c != ':')
            return WEIR_E_INVALID;
        colons += c == ':';
        other |= !hex && c != '.' && c != ':';
    }
    /* A colon is part of IPv6 addresses only: hexadecimal digits, dots and at least two colons. */
    if (bracketed ? colons < 2 || other : colons > 0 && (colons < 2 || other))
        return WEIR_E_INVALID;
    *out = s;
    return 0;
}

bool nacos_namespace_ok(struct slice s)
{
    bool good = s.n <= NACOS_NAMESPACE_MAX;

    for (size_t i = 0; i < s.n; i++)
        good &= alnum(s.p[i]) || s.p[i] == '_' || s.p[i] == '-';
    return good;
}

bool nacos_cluster_ok(struct slice s)
{
    if (s.n == 0 || s.n > NACOS_CLUSTER_MAX)
        return false;
    for (size_t i = 0; i < s.n; i++)
        if (!alnum(s.p[i]) && s.p[i] != '-')
            return false;
    return true;
}

static size_t find_at(struct slice s)
{
    for (size_t i = 0; i + 1 < s.n; i++)
        if (s.p[i] == '@' && s.p[i + 1] == '@')
            return i;
    return s.n;
}

struct slice nacos_group_of(struct slice grouped)
{
    return slice_of(grouped.p, find_at(grouped));
}

struct slice nacos_name_of(struct slice grouped)
{
    return slice_from(grouped, find_at(grouped) + 2);
}

static bool has_control(struct slice s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] < 0x20 || s.p[i] == 0x7f)
            return true;
    return false;
}

int nacos_grouped(struct arena *a, struct slice service, struct slice group, struct slice *out)
{
    size_t at = find_at(service);

    if (at < service.n) {
        group = slice_of(service.p, at);
        service = slice_from(service, at + 2);
    } else if (!group.p) {
        group = SLICE("DEFAULT_GROUP");
    }
    if (group.n == 0 || service.n == 0 || has_control(group) || has_control(service) ||
        find_at(service) < service.n || find_at(group) < group.n)
        return WEIR_E_INVALID;
    if (group.n > NACOS_GROUP_MAX || group.n + 2 + service.n > NACOS_SERVICE_MAX)
        return WEIR_E_RANGE;
    char *p = arena_alloc(a, group.n + 2 + service.n);
    if (!p)
        return WEIR_E_NOMEM;
    memcpy(p, group.p, group.n);
    memcpy(p + group.n, "@@", 2);
    memcpy(p + group.n + 2, service.p, service.n);
    *out = slice_of(p, group.n + 2 + service.n);
    return 0;
}

/* --- maps --- */

/** Grows one map in an arena. */
struct map_draft {
    struct arena *a;
    struct kv *kv; /**< ENDPOINT_KV_MAX places, made with the first */
    uint32_t n;
    size_t total;
    const char *error;
};

static int map_add(struct map_draft *d, struct slice key, struct slice value)
{
    d->error = "a metadata key is empty";
    if (key.n == 0)
        return WEIR_E_INVALID;
    d->error = "a metadata key is longer than 512 bytes";
    if (key.n > META_KEY_MAX)
        return WEIR_E_INVALID;
    d->error = "a metadata value is longer than 4096 bytes";
    if (value.n > META_VALUE_MAX)
        return WEIR_E_INVALID;
    d->total += key.n + value.n;
    d->error = "metadata holds more than 65536 bytes";
    if (d->total > META_TOTAL_MAX)
        return WEIR_E_FULL;
    d->error = "metadata has more than 256 keys";
    if (d->n == ENDPOINT_KV_MAX)
        return WEIR_E_FULL;
    d->error = NULL;
    if (!d->kv && !(d->kv = arena_array(d->a, ENDPOINT_KV_MAX, sizeof(*d->kv))))
        return WEIR_E_NOMEM;
    d->kv[d->n++] = (struct kv){key, value};
    return 0;
}

static int map_pairs(struct map_draft *d, struct slice text)
{
    struct slice piece;

    while (slice_cut(&text, ',', &piece)) {
        size_t eq = slice_find(piece, '=');
        struct slice key = trim(slice_of(piece.p, eq));
        d->error = "metadata is neither a JSON object nor k=v,k2=v2";
        if (eq == piece.n)
            return WEIR_E_INVALID;
        int rc = map_add(d, key, trim(slice_from(piece, eq + 1)));
        if (rc)
            return rc;
    }
    return 0;
}

/* --- JSON: objects of scalars, at most three levels of interest --- */

enum { WALK_LEVELS = 3 };

/**
 * Turns scanner events into "leaf at this path". Level 1 is the outermost container.
 * Text inside deeper levels is not gathered.
 */
struct walk {
    struct arena *a;
    struct buf text;                   /**< of the string under way */
    struct slice key[WALK_LEVELS + 1]; /**< last key at each level */
    unsigned depth;
    /** A scalar or the begin of a container below depth; JSON_SCAN_OBJECT_END and JSON_SCAN_ARRAY_END after it closed. */
    int (*on_item)(struct walk *w, enum json_event event, struct slice text);
    void *ctx;
};

static int walk_scalar(struct walk *w, enum json_event event, struct slice text, bool last)
{
    if (w->depth > WALK_LEVELS)
        return 0;
    if (buf_put_slice(&w->text, text))
        return w->text.err;
    if (!last)
        return 0;
    struct slice whole;
    int rc = arena_slice(w->a, buf_slice(&w->text), &whole);
    buf_clear(&w->text);
    if (rc)
        return rc;
    if (event == JSON_SCAN_KEY) {
        w->key[w->depth] = whole;
        return 0;
    }
    return w->on_item(w, event, whole);
}

static int walk_event(void *ctx, enum json_event event, struct slice text, bool last)
{
    struct walk *w = ctx;
    int rc = 0;

    switch (event) {
    case JSON_SCAN_OBJECT_BEGIN:
    case JSON_SCAN_ARRAY_BEGIN:
        if (w->depth <= WALK_LEVELS)
            rc = w->on_item(w, event, absent);
        w->depth++;
        if (w->depth <= WALK_LEVELS)
            w->key[w->depth] = absent;
        return rc;
    case JSON_SCAN_OBJECT_END:
    case JSON_SCAN_ARRAY_END:
        w->depth--;
        return w->depth <= WALK_LEVELS ? w->on_item(w, event, absent) : 0;
    case JSON_SCAN_TRUE:
        return walk_scalar(w, event, SLICE("true"), true);
    case JSON_SCAN_FALSE:
        return walk_scalar(w, event, SLICE("false"), true);
    case JSON_SCAN_NULL:
        return walk_scalar(w, event, SLICE(""), true);
    case JSON_SCAN_KEY:
    case JSON_SCAN_STRING:
    case JSON_SCAN_NUMBER:
        break;
    }
    return walk_scalar(w, event, text, last);
}

static int walk_json(struct walk *w, struct arena *a, struct slice json)
{
    struct json_scan scan;

    w->a = a;
    buf_init(&w->text, a->mem, META_TOTAL_MAX);
    wire_json_init(&scan, walk_event, w);
    int rc = wire_json_scan(&scan, json.p, json.n);
    if (!rc)
        rc = wire_json_end(&scan);
    buf_fini(&w->text);
    return rc;
}

static bool container(enum json_event e)
{
    return e == JSON_SCAN_OBJECT_BEGIN || e == JSON_SCAN_ARRAY_BEGIN;
}

static bool closing(enum json_event e)
{
    return e == JSON_SCAN_OBJECT_END || e == JSON_SCAN_ARRAY_END;
}

static int metadata_item(struct walk *w, enum json_event event, struct slice text)
{
    struct map_draft *d = w->ctx;

    if (w->depth == 0 && (event == JSON_SCAN_OBJECT_BEGIN || closing(event)))
        return 0;
    d->error = "metadata must be a JSON object of strings";
    if (w->depth != 1 || container(event))
        return WEIR_E_INVALID;
    return map_add(d, w->key[1], text);
}

int nacos_metadata(struct arena *a, struct slice text, struct nacos_map *out, const char **error)
{
    struct map_draft d = {.a = a};
    int rc;

    text = trim(text);
    if (text.n && (text.p[0] == '{' || text.p[0] == '[' || text.p[0] == '"')) {
        struct walk w = {.on_item = metadata_item, .ctx = &d};
        rc = walk_json(&w, a, text);
        if (rc == WEIR_E_PROTO || (rc == WEIR_E_FULL && !d.error)) {
            d.error = "metadata is not valid JSON";
            rc = WEIR_E_INVALID;
        }
    } else {
        rc = text.n ? map_pairs(&d, text) : 0;
    }
    *error = d.error;
    *out = (struct nacos_map){.kv = d.kv, .n = d.n};
    return rc;
}

/* --- beat --- */

struct beat_draft {
    struct nacos_beat *beat;
    struct map_draft map;
};

static int beat_item(struct walk *w, enum json_event event, struct slice text)
{
    struct beat_draft *d = w->ctx;
    struct nacos_beat *b = d->beat;

    if (w->depth == 0) {
        d->map.error = "beat must be a JSON object";
        return event == JSON_SCAN_OBJECT_BEGIN || closing(event) ? 0 : WEIR_E_INVALID;
    }
    bool in_metadata = w->depth == 2 && slice_eq(w->key[1], SLICE("metadata"));
    if (in_metadata) {
        d->map.error = "metadata must be a JSON object of strings";
        return container(event) || closing(event) ? WEIR_E_INVALID
                                                  : map_add(&d->map, w->key[2], text);
    }
    if (w->depth != 1 || closing(event))
        return 0;
    const struct {
        struct slice key;
        struct slice *to;
    } wanted[] = {{SLICE("serviceName"), &b->service},
                  {SLICE("ip"), &b->ip},
                  {SLICE("cluster"), &b->cluster},
                  {SLICE("port"), &b->port},
                  {SLICE("weight"), &b->weight}};
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
        if (slice_eq(w->key[1], wanted[i].key) && !container(event))
            *wanted[i].to = trim(text).n ? trim(text) : absent;
    if (slice_eq(w->key[1], SLICE("metadata"))) {
        d->map.error = "metadata must be a JSON object of strings";
        if (event == JSON_SCAN_OBJECT_BEGIN)
            b->has_metadata = true;
        else if (event != JSON_SCAN_NULL)
            return WEIR_E_INVALID;
    }
    return 0;
}

int nacos_beat_parse(struct arena *a, struct slice json, struct nacos_beat *out, const char **error)
{
    struct beat_draft d = {.beat = out, .map = {.a = a}};
    struct walk w = {.on_item = beat_item, .ctx = &d};

    *out = (struct nacos_beat){0};
    int rc = walk_json(&w, a, json);
    *error = d.map.error;
    if (rc == WEIR_E_PROTO) {
        *error = "beat is not valid JSON";
        rc = WEIR_E_INVALID;
    } else if (rc == WEIR_E_FULL && !d.map.error) {
        *error = "beat is too long or nested too deep";
    }
    out->metadata = (struct nacos_map){.kv = d.map.kv, .n = d.map.n};
    return rc;
}

/* --- targets of a metadata batch --- */

struct target_draft {
    struct nacos_target *list;
    uint32_t n;
};

static int target_item(struct walk *w, enum json_event event, struct slice text)
{
    struct target_draft *d = w->ctx;

    if (w->depth == 0)
        return event == JSON_SCAN_ARRAY_BEGIN || closing(event) ? 0 : WEIR_E_INVALID;
    if (w->depth == 1) {
        if (closing(event))
            return 0;
        if (event != JSON_SCAN_OBJECT_BEGIN)
            return WEIR_E_INVALID;
        if (d->n == NACOS_TARGETS_MAX)
            return WEIR_E_FULL;
        if (!d->list && !(d->list = arena_array(w->a, NACOS_TARGETS_MAX, sizeof(*d->list))))
            return WEIR_E_NOMEM;
        d->list[d->n++] = (struct nacos_target){0};
        return 0;
    }
    if (w->depth != 2 || container(event) || closing(event) || d->n == 0)
        return 0;
    struct nacos_target *t = &d->list[d->n - 1];
    if (slice_eq(w->key[2], SLICE("ip")))
        t->ip = trim(text);
    else if (slice_eq(w->key[2], SLICE("port")))
        t->port = trim(text);
    else if (slice_eq(w->key[2], SLICE("clusterName")) || slice_eq(w->key[2], SLICE("cluster")))
        t->cluster = trim(text);
    return 0;
}

int nacos_targets(struct arena *a, struct slice json, const struct nacos_target **out, uint32_t *n)
{
    struct target_draft d = {0};
    struct walk w = {.on_item = target_item, .ctx = &d};
    int rc = walk_json(&w, a, json);

    if (rc == WEIR_E_PROTO || rc == WEIR_E_INVALID) {
        d.n = 0;
        rc = 0;
    }
    *out = d.list;
    *n = d.n;
    return rc;
}
