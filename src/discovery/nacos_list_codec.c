/* SPDX-License-Identifier: Apache-2.0 */
#include "discovery/nacos_list_codec.h"

#include "base/buf.h"
#include "base/hash.h"
#include "base/num.h"
#include "registry/nacos_codec.h"
#include "wire/json_scan.h"

enum { KEY_ROOM = META_KEY_MAX + 1, VALUE_ROOM = META_VALUE_MAX + 1 };

/* Text that comes in pieces; what does not fit is nothing we look for. */
struct piece {
    char *room;
    size_t size, n;
    bool open;
};

struct reader {
    struct arena *a;
    struct nacos_answer *out;
    struct nacos_listed *last;
    struct piece key, value;
    unsigned depth;
    unsigned hosts_depth; /* of the list of hosts, while in it */
    bool in_metadata;
    /* the host under way */
    struct slice ip, cluster;
    uint16_t port;
    uint32_t weight;
    bool healthy, enabled, good;
    struct kv *kv; /* ENDPOINT_KV_MAX places */
    uint32_t n_kv;
    int rc;
    char key_room[KEY_ROOM];
    char value_room[VALUE_ROOM];
};

static void append(struct piece *p, struct slice text)
{
    if (!p->open)
        p->n = 0;
    p->open = true;
    size_t n = text.n < p->size - p->n ? text.n : p->size - p->n;
    if (n)
        memcpy(p->room + p->n, text.p, n);
    p->n += n;
}

static bool whole(const struct piece *p)
{
    return p->n < p->size;
}

static bool key_is(const struct reader *r, const char *name)
{
    return slice_eq(slice_of(r->key.room, r->key.n), slice_str(name));
}

static void keep(struct reader *r, struct slice text, struct slice *to)
{
    if (arena_slice(r->a, text, to))
        r->rc = WEIR_E_NOMEM;
}

static void begin_host(struct reader *r)
{
    r->ip = r->cluster = (struct slice){NULL, 0};
    r->port = 0;
    r->weight = WEIGHT_ONE;
    r->healthy = r->enabled = r->good = true;
    r->n_kv = 0;
}

static int copy_kv(struct reader *r, struct instance *i)
{
    struct kv *kv = r->n_kv ? arena_array(r->a, r->n_kv, sizeof(*kv)) : NULL;

    if (r->n_kv && !kv)
        return WEIR_E_NOMEM;
    for (uint32_t k = 0; k < r->n_kv; k++)
        kv[k] = r->kv[k];
    i->metadata = kv;
    i->n_metadata = r->n_kv;
    return 0;
}

static int make_key(struct reader *r, struct instance *i)
{
    struct buf key;

    buf_init(&key, r->a->mem, 1024);
    bool v6 = slice_find(i->host, ':') < i->host.n;
    buf_put_str(&key, v6 ? "[" : "");
    buf_put_slice(&key, i->host);
    buf_put_str(&key, v6 ? "]:" : ":");
    buf_put_u64(&key, i->port);
    buf_put_char(&key, '#');
    buf_put_slice(&key, r->cluster);
    int rc = key.err ? key.err : arena_slice(r->a, buf_slice(&key), &i->key);
    buf_fini(&key);
    return rc;
}

static void end_host(struct reader *r)
{
    struct slice host;

    if (r->cluster.n && !nacos_cluster_ok(r->cluster))
        r->cluster = (struct slice){NULL, 0};
    if (!r->good || !r->port || !r->ip.n || nacos_host(r->ip, &host)) {
        r->out->bad++;
        return;
    }
    struct nacos_listed *l = arena_array(r->a, 1, sizeof(*l));
    if (!l) {
        r->rc = WEIR_E_NOMEM;
        return;
    }
    l->instance = (struct instance){.host = host,
                                    .port = r->port,
                                    .weight = r->weight,
                                    .enabled = r->enabled,
                                    .healthy = r->healthy,
                                    .vouched = r->healthy};
    if (r->cluster.n && !slice_eq(r->cluster, SLICE("DEFAULT")))
        l->instance.cluster = r->cluster;
    if (copy_kv(r, &l->instance) || make_key(r, &l->instance)) {
        r->rc = WEIR_E_NOMEM;
        return;
    }
    if (r->last)
        r->last->next = l;
    else
        r->out->first = l;
    r->last = l;
    r->out->n++;
}

static void host_member(struct reader *r, struct slice text, bool truth)
{
    if (key_is(r, "ip"))
        keep(r, slice_trim(text), &r->ip);
    else if (key_is(r, "port"))
        r->good &= nacos_port(text, &r->port) == 0;
    else if (key_is(r, "clusterName"))
        keep(r, text, &r->cluster);
    else if (key_is(r, "weight"))
        r->good &= nacos_weight(text, &r->weight) == 0;
    else if (key_is(r, "enabled"))
        r->enabled = truth;
    else if (key_is(r, "healthy") || key_is(r, "valid"))
        r->healthy &= truth;
}

static void metadata_member(struct reader *r, struct slice text)
{
    if (r->n_kv == ENDPOINT_KV_MAX || !r->key.n || !whole(&r->key) || !whole(&r->value))
        return;
    if (!r->kv && !(r->kv = arena_array(r->a, ENDPOINT_KV_MAX, sizeof(*r->kv)))) {
        r->rc = WEIR_E_NOMEM;
        return;
    }
    struct kv *kv = &r->kv[r->n_kv++];
    keep(r, slice_of(r->key.room, r->key.n), &kv->key);
    keep(r, text, &kv->value);
}

static void root_member(struct reader *r, struct slice text, bool truth)
{
    struct nacos_answer *o = r->out;
    uint64_t code;

    if (key_is(r, "reachProtectionThreshold"))
        o->protected_ = truth;
    else if (key_is(r, "message"))
        keep(r, text, &o->message);
    else if (key_is(r, "requestId"))
        keep(r, text, &o->request_id);
    else if (key_is(r, "name"))
        keep(r, text, &o->name);
    else if (key_is(r, "groupName"))
        keep(r, text, &o->group);
    else if (r->depth == 1 && key_is(r, "errorCode"))
        o->error = num_u64(text, &code) == 0 ? code : 0;
    else if (r->depth == 1 && (key_is(r, "resultCode") || (key_is(r, "code") && !o->coded)) &&
             num_u64(text, &code) == 0) {
        o->code = code;
        o->coded = true;
    }
}

static void scalar(struct reader *r, struct slice text, bool truth)
{
    if (r->hosts_depth && r->in_metadata && r->depth == r->hosts_depth + 2)
        metadata_member(r, text);
    else if (r->hosts_depth && r->depth == r->hosts_depth + 1)
        host_member(r, text, truth);
    else if (!r->hosts_depth && r->depth <= 2)
        root_member(r, text, truth);
    r->key.n = 0;
}

static void begin(struct reader *r, bool object)
{
    r->depth++;
    if (!object && !r->hosts_depth && !r->out->has_hosts && r->depth <= 3 &&
        (key_is(r, "hosts") || (r->depth == 2 && key_is(r, "data")))) {
        r->hosts_depth = r->depth;
        r->out->has_hosts = true;
    } else if (object && r->hosts_depth && r->depth == r->hosts_depth + 1) {
        begin_host(r);
    } else if (object && r->hosts_depth && r->depth == r->hosts_depth + 2) {
        r->in_metadata = key_is(r, "metadata");
    }
    r->key.n = 0;
}

static void end(struct reader *r, bool object)
{
    if (object && r->hosts_depth && r->depth == r->hosts_depth + 1)
        end_host(r);
    if (r->depth == r->hosts_depth + 2)
        r->in_metadata = false;
    if (r->depth == r->hosts_depth)
        r->hosts_depth = 0;
    r->depth--;
    r->key.n = 0;
}

static int on_json(void *ctx, enum json_event event, struct slice text, bool last)
{
    struct reader *r = ctx;

    switch (event) {
    case JSON_SCAN_OBJECT_BEGIN:
    case JSON_SCAN_ARRAY_BEGIN:
        begin(r, event == JSON_SCAN_OBJECT_BEGIN);
        break;
    case JSON_SCAN_OBJECT_END:
    case JSON_SCAN_ARRAY_END:
        end(r, event == JSON_SCAN_OBJECT_END);
        break;
    case JSON_SCAN_KEY:
        append(&r->key, text);
        r->key.open = !last;
        break;
    case JSON_SCAN_STRING:
    case JSON_SCAN_NUMBER:
        append(&r->value, text);
        r->value.open = !last;
        if (last) {
            struct slice v = slice_of(r->value.room, r->value.n);
            scalar(r, v, slice_eq_nocase(v, SLICE("true")));
        }
        break;
    case JSON_SCAN_TRUE:
    case JSON_SCAN_FALSE:
        r->value.n = 0;
        scalar(r, event == JSON_SCAN_TRUE ? SLICE("true") : SLICE("false"),
               event == JSON_SCAN_TRUE);
        break;
    case JSON_SCAN_NULL:
        r->key.n = 0;
        break;
    }
    return r->rc;
}

int nacos_list_read(struct arena *a, struct slice body, struct nacos_answer *out)
{
    struct json_scan scan;
    struct reader r = {.a = a, .out = out};

    r.key = (struct piece){.room = r.key_room, .size = sizeof(r.key_room)};
    r.value = (struct piece){.room = r.value_room, .size = sizeof(r.value_room)};
    *out = (struct nacos_answer){0};
    wire_json_init(&scan, on_json, &r);
    int rc = wire_json_scan(&scan, body.p ? body.p : "", body.n);
    if (rc == 0)
        rc = wire_json_end(&scan);
    if (rc)
        return rc == WEIR_E_NOMEM ? rc : WEIR_E_INVALID;
    for (struct nacos_listed *l = out->protected_ ? out->first : NULL; l; l = l->next)
        l->instance.vouched = false;
    return 0;
}

uint64_t nacos_list_hash(struct slice body)
{
    static const char name[] = "\"lastRefTime\":";
    const char *at = body.n ? memmem(body.p, body.n, name, sizeof(name) - 1) : NULL;

    if (!at)
        return hash_slice(body, 0);
    size_t from = (size_t)(at - body.p) + sizeof(name) - 1;
    size_t to = from;
    while (to < body.n && body.p[to] >= '0' && body.p[to] <= '9')
        to++;
    return hash_pair(hash_slice(slice_of(body.p, from), 0), hash_slice(slice_from(body, to), 0));
}
