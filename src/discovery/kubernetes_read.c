/* SPDX-License-Identifier: Apache-2.0 */
#include "discovery/kubernetes_read.h"

#include <jansson.h>

#include "base/hash.h"
#include "base/num.h"
#include "registry/native_json.h"
#include "wire/url.h"

enum {
    KV_MAX = 128,
    DEPTH_MAX = 64,
    NEAR = 64, /* so many endpoints may have gone, or come, between two neighbours */
};

static const struct slice SERVICE_LABEL = {"kubernetes.io/service-name", 26};

/* Texts of the document are borrowed from it: all of it is copied before it goes. */
static struct slice text_of(const json_t *object, const char *name)
{
    const json_t *v = json_object_get(object, name);

    return json_is_string(v) ? slice_of(json_string_value(v), json_string_length(v))
                             : (struct slice){NULL, 0};
}

static int copy_text(struct arena *a, const json_t *object, const char *name, struct slice *out)
{
    return arena_slice(a, text_of(object, name), out);
}

static bool flag_of(const json_t *object, const char *name, bool absent)
{
    const json_t *v = json_object_get(object, name);

    return json_is_boolean(v) ? json_is_true(v) : absent;
}

/* --- slices --- */

/* Name or number as asked for, else the first; UDP and SCTP serve no HTTP. @return NULL: it has none. */
static const json_t *choose_port(const json_t *ports, struct slice wanted)
{
    uint64_t number = 0;
    size_t i;
    json_t *p;

    if (num_u64(wanted, &number))
        number = 0;
    json_array_foreach(ports, i, p)
    {
        struct slice protocol = text_of(p, "protocol");
        json_int_t port = json_integer_value(json_object_get(p, "port"));
        if ((protocol.n && !slice_eq(protocol, SLICE("TCP"))) || port < 1 || port > UINT16_MAX)
            continue;
        if (!wanted.n || (number ? (uint64_t)port == number : slice_eq(text_of(p, "name"), wanted)))
            return p;
    }
    return NULL;
}

/* No ports at all: every port is open, so that a number says which. */
static uint16_t any_port(const json_t *ports, struct slice wanted)
{
    const json_t *first = json_array_get(ports, 0);
    uint64_t number = 0;

    if (json_array_size(ports) > 1 || (first && json_is_integer(json_object_get(first, "port"))))
        return 0;
    return num_u64(wanted, &number) || number > UINT16_MAX ? 0 : (uint16_t)number;
}

/* The first address is the endpoint's; others are never used. A zone id means something on one machine only. */
static struct slice address_of(const json_t *endpoint)
{
    const json_t *first = json_array_get(json_object_get(endpoint, "addresses"), 0);
    struct slice host = json_is_string(first)
                            ? slice_of(json_string_value(first), json_string_length(first))
                            : (struct slice){NULL, 0};
    bool bad = host.n > ENDPOINT_TEXT_MAX;

    for (size_t i = 0; i < host.n && !bad; i++)
        bad = host.p[i] <= 0x20 || host.p[i] >= 0x7f || strchr("%/[]@?#\\", host.p[i]);
    return bad ? (struct slice){NULL, 0} : host;
}

static int
read_endpoint(struct arena *a, const json_t *from, struct slice host, struct kube_endpoint *e)
{
    const json_t *conditions = json_object_get(from, "conditions");
    const json_t *target = json_object_get(from, "targetRef");

    e->ready = flag_of(conditions, "ready", true);
    e->serving = flag_of(conditions, "serving", e->ready);
    e->terminating = flag_of(conditions, "terminating", false);
    int rc = arena_slice(a, host, &e->host);
    if (!rc && slice_eq(text_of(target, "kind"), SLICE("Pod"))) {
        rc = copy_text(a, target, "name", &e->pod);
        if (!rc)
            rc = copy_text(a, target, "uid", &e->uid);
    }
    if (!rc)
        rc = copy_text(a, from, "nodeName", &e->node);
    return rc ? rc : copy_text(a, from, "zone", &e->zone);
}

/* The endpoints of a slice, in order; those that have no address of use have no host. */
struct told {
    struct kube_endpoint *list; /* NULL: they stand in the document */
    uint32_t n;
};

static int read_told(struct arena *a, const json_t *list, struct told *out)
{
    size_t i;
    json_t *one;
    int rc = 0;

    out->list = arena_array(a, json_array_size(list) + 1, sizeof(*out->list));
    if (!out->list)
        return WEIR_E_NOMEM;
    json_array_foreach(list, i, one)
    {
        struct slice host = address_of(one);
        if (!rc && host.n)
            rc = read_endpoint(a, one, host, &out->list[out->n]);
        out->n++;
    }
    return rc;
}

static int read_slice(struct arena *a,
                      const json_t *doc,
                      struct slice wanted,
                      struct told *told,
                      struct kube_object *out)
{
    const json_t *ports = json_object_get(doc, "ports");
    const json_t *port = choose_port(ports, wanted);
    uint16_t number = port ? (uint16_t)json_integer_value(json_object_get(port, "port"))
                           : any_port(ports, wanted);
    bool tls = slice_eq_nocase(text_of(port, "appProtocol"), SLICE("https"));

    int rc = copy_text(a, json_object_get(json_object_get(doc, "metadata"), "labels"),
                       SERVICE_LABEL.p, &out->service);
    if (!rc && !told->list)
        rc = read_told(a, json_object_get(doc, "endpoints"), told);
    if (rc)
        return rc;
    out->endpoints = told->list;
    for (uint32_t i = 0; i < told->n; i++) {
        struct kube_endpoint *e = &out->endpoints[out->n_endpoints];
        *e = told->list[i];
        e->port = number;
        e->tls = tls;
        if (e->host.n && number)
            out->n_endpoints++;
        else
            out->n_bad++;
    }
    return 0;
}

/* --- pods --- */

/* @param rest what is behind it from now on. */
static struct slice next_text(const char **rest)
{
    struct slice text = slice_str(*rest);

    *rest += text.n + 1;
    return text;
}

void kube_unpack(const struct kube_pairs *p, struct kv *out)
{
    const char *rest = p->text.p;

    for (uint32_t i = 0; i < p->n; i++) {
        out[i].key = next_text(&rest);
        out[i].value = next_text(&rest);
    }
}

static bool has_pair(const struct kube_pairs *p, struct slice key)
{
    const char *rest = p->text.p;

    for (uint32_t i = 0; i < p->n; i++) {
        bool same = slice_eq(next_text(&rest), key);
        (void)next_text(&rest);
        if (same)
            return true;
    }
    return false;
}

/* @param text has room. */
static char *put_text(char *text, struct slice s)
{
    memcpy(text, s.p, s.n);
    text[s.n] = '\0';
    return text + s.n + 1;
}

static void put_pair(struct kube_pairs *p, char *text, struct slice key, struct slice value)
{
    if (p->n == KV_MAX || !key.n || key.n > ENDPOINT_TEXT_MAX || value.n > ENDPOINT_TEXT_MAX ||
        has_pair(p, key))
        return;
    char *end = put_text(put_text(text + p->text.n, key), value);
    p->text.n = (size_t)(end - text);
    p->n++;
}

/* "weir.dev/gpu_type" and "nacos.metadata.gpu_type" to "gpu_type"; absent for all others. */
static struct slice our_key(struct slice key)
{
    static const struct slice prefixes[] = {{"weir.dev/", 9}, {"nacos.metadata.", 15}};

    for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++)
        if (slice_starts(key, prefixes[i]))
            return slice_from(key, prefixes[i].n);
    return (struct slice){NULL, 0};
}

static void read_pairs(const json_t *map, bool ours, struct kube_pairs *p, char *text)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)map, name, value) if (json_is_string(value))
        put_pair(p, text, ours ? our_key(slice_str(name)) : slice_str(name),
                 slice_of(json_string_value(value), json_string_length(value)));
}

/* At most this long; no text of a document has a NUL in it. */
static size_t pairs_room(const json_t *map)
{
    const char *name;
    json_t *value;
    size_t room = 0;

    json_object_foreach((json_t *)(uintptr_t)map, name, value) room +=
        strlen(name) + 1 + json_string_length(value) + 1;
    return room;
}

static char *begin_pairs(struct arena *a, size_t room, struct kube_pairs *p)
{
    char *text = arena_alloc(a, room);

    *p = (struct kube_pairs){.text = {text, 0}};
    return text;
}

static int read_pod(struct arena *a, const json_t *doc, struct kube_object *out)
{
    const json_t *meta = json_object_get(doc, "metadata");
    const json_t *annotations = json_object_get(meta, "annotations");
    const json_t *labels = json_object_get(meta, "labels");
    char *text = begin_pairs(a, pairs_room(annotations) + pairs_room(labels), &out->metadata);

    if (!text)
        return WEIR_E_NOMEM;
    read_pairs(annotations, true, &out->metadata, text);
    read_pairs(labels, true, &out->metadata, text);
    text = begin_pairs(a, pairs_room(labels), &out->labels);
    if (!text)
        return WEIR_E_NOMEM;
    read_pairs(labels, false, &out->labels, text);
    return 0;
}

/* --- documents --- */

static int read_object(struct arena *a,
                       enum kube_kind kind,
                       struct slice port,
                       const json_t *doc,
                       struct told *told,
                       struct kube_object *out)
{
    const json_t *meta = json_object_get(doc, "metadata");

    *out = (struct kube_object){0};
    if (!text_of(meta, "name").n)
        return WEIR_E_INVALID;
    int rc = copy_text(a, meta, "name", &out->name);
    if (!rc)
        rc = copy_text(a, meta, "resourceVersion", &out->version);
    if (rc)
        return rc;
    return kind == KUBE_SLICES ? read_slice(a, doc, port, told, out) : read_pod(a, doc, out);
}

static int read_list(struct arena *a,
                     enum kube_kind kind,
                     struct slice port,
                     const json_t *top,
                     struct kube_list *out)
{
    const json_t *meta = json_object_get(top, "metadata");
    const json_t *items = json_object_get(top, "items");
    size_t i;
    json_t *one;

    /* A client in Go writes null for no items. */
    if (!slice_ends(text_of(top, "kind"), SLICE("List")) || !json_is_object(meta) ||
        (items && !json_is_array(items) && !json_is_null(items)))
        return WEIR_E_INVALID;
    int rc = copy_text(a, meta, "resourceVersion", &out->version);
    if (!rc && text_of(meta, "continue").n)
        rc = copy_text(a, meta, "continue", &out->more);
    out->objects = arena_array(a, json_array_size(items) + 1, sizeof(*out->objects));
    if (!out->objects)
        return WEIR_E_NOMEM;
    json_array_foreach(items, i, one)
    {
        struct told told = {NULL, 0};
        if (!rc)
            rc = read_object(a, kind, port, one, &told, &out->objects[out->n]);
        out->n += rc == 0;
    }
    return rc;
}

int kube_read_list(struct arena *a,
                   enum kube_kind kind,
                   struct slice port,
                   struct slice body,
                   struct kube_list *out)
{
    struct native_error error;
    json_t *top = native_load_json(body, &error);

    *out = (struct kube_list){0};
    int rc = json_is_object(top) ? read_list(a, kind, port, top, out) : WEIR_E_INVALID;
    json_decref(top);
    return rc;
}

static int read_event(struct arena *a,
                      enum kube_kind kind,
                      struct slice port,
                      const json_t *top,
                      struct told *told,
                      struct kube_event *out)
{
    const json_t *object = json_object_get(top, "object");
    struct slice type = text_of(top, "type");

    if (slice_eq(type, SLICE("ADDED")) || slice_eq(type, SLICE("MODIFIED")))
        out->type = KUBE_PUT;
    else if (slice_eq(type, SLICE("DELETED")))
        out->type = KUBE_GONE;
    else if (slice_eq(type, SLICE("BOOKMARK")))
        out->type = KUBE_BOOKMARK;
    else if (slice_eq(type, SLICE("ERROR")))
        out->type = KUBE_ERROR;
    else
        return WEIR_E_INVALID;
    if (!json_is_object(object))
        return WEIR_E_INVALID;
    if (out->type == KUBE_BOOKMARK)
        return copy_text(a, json_object_get(object, "metadata"), "resourceVersion",
                         &out->object.version);
    if (out->type == KUBE_ERROR) {
        json_int_t code = json_integer_value(json_object_get(object, "code"));
        out->code = code > 0 && code < 1000 ? (uint32_t)code : 0;
        return copy_text(a, object, "message", &out->why);
    }
    return read_object(a, kind, port, object, told, &out->object);
}

/* --- the endpoints of an event, which are nearly all as they were --- */

static const struct kube_endpoint *
find(const struct kube_object *before, uint32_t *at, struct json_seen text)
{
    for (uint32_t i = *at; before && i < before->n_endpoints && i < *at + NEAR; i++)
        if (json_seen_same(before->endpoints[i].seen, text)) {
            *at = i + 1;
            return &before->endpoints[i];
        }
    return NULL;
}

static int read_element(struct arena *a, const struct json_element *from, struct kube_endpoint *out)
{
    json_t *one = json_element_load(from);
    struct slice host = address_of(one);
    int rc = !one ? WEIR_E_INVALID : host.n ? read_endpoint(a, one, host, out) : 0;

    out->seen = from->seen;
    json_decref(one);
    return rc;
}

static int read_elements(struct arena *a,
                         struct json_list *l,
                         const struct kube_object *before,
                         struct told *out)
{
    uint32_t room = (before ? before->n_endpoints : 0) + NEAR;
    struct json_element element;
    uint32_t at = 0;
    int more;

    out->list = arena_array(a, room, sizeof(*out->list));
    while (out->list) {
        bool ahead = before && at < before->n_endpoints;
        more = json_list_next(l, ahead ? &before->endpoints[at].seen : NULL, &element);
        if (more != 1)
            return more;
        if (out->n == room) {
            struct kube_endpoint *list = arena_array(a, (size_t)room * 2, sizeof(*list));
            if (!list)
                return WEIR_E_NOMEM;
            memcpy(list, out->list, room * sizeof(*list));
            out->list = list;
            room *= 2;
        }
        const struct kube_endpoint *same = find(before, &at, element.seen);
        int rc = 0;
        if (same)
            out->list[out->n] = *same;
        else
            rc = read_element(a, &element, &out->list[out->n]);
        if (rc)
            return rc;
        out->n++;
    }
    return WEIR_E_NOMEM;
}

/* The document with an empty list in their place. */
static int cut_endpoints(struct arena *a,
                         const struct kube_object *before,
                         uint64_t seed,
                         struct slice *text,
                         struct told *out)
{
    static const struct slice path[] = {{"object", 6}, {"endpoints", 9}};
    struct json_list list;
    struct slice from;

    if (!json_find(*text, path, 2, &from) || !json_list_open(from, seed, &list))
        return 0;
    size_t head = (size_t)(list.rest.p - text->p);
    int rc = read_elements(a, &list, before, out);
    if (rc)
        return rc;
    char *p = arena_alloc(a, head + 1 + list.rest.n);
    if (!p)
        return WEIR_E_NOMEM;
    memcpy(p, text->p, head);
    p[head] = ']';
    memcpy(p + head + 1, list.rest.p, list.rest.n);
    *text = slice_of(p, head + 1 + list.rest.n);
    return 0;
}

struct slice kube_event_name(struct slice text)
{
    static const struct slice path[] = {{"object", 6}, {"metadata", 8}, {"name", 4}};
    struct slice name;

    if (!json_find(text, path, 3, &name) || name.p[0] != '"')
        return (struct slice){NULL, 0};
    name = slice_from(name, 1);
    return slice_of(name.p, slice_find(name, '"'));
}

int kube_read_event(struct arena *a,
                    enum kube_kind kind,
                    struct slice port,
                    struct slice text,
                    const struct kube_object *before,
                    uint64_t seed,
                    struct kube_event *out)
{
    struct native_error error;
    struct told told = {NULL, 0};

    *out = (struct kube_event){0};
    int rc = kind == KUBE_SLICES ? cut_endpoints(a, before, seed, &text, &told) : 0;
    if (rc)
        return rc;
    json_t *top = native_load_json(text, &error);
    rc = json_is_object(top) ? read_event(a, kind, port, top, &told, out) : WEIR_E_INVALID;
    json_decref(top);
    return rc;
}

struct slice kube_read_status(struct arena *a, struct slice body)
{
    struct native_error error;
    json_t *top = native_load_json(body, &error);
    struct slice message = {NULL, 0};

    if (!slice_eq(text_of(top, "kind"), SLICE("Status")) || copy_text(a, top, "message", &message))
        message = (struct slice){NULL, 0};
    json_decref(top);
    return message;
}

/* --- objects --- */

static size_t text_room(struct slice s)
{
    return s.p ? s.n + 1 : 0;
}

static size_t room_of(const struct kube_object *o)
{
    size_t room = text_room(o->name) + text_room(o->service) + text_room(o->metadata.text) +
                  text_room(o->labels.text) + ARENA_ROOM(o->n_endpoints, sizeof(*o->endpoints));

    for (uint32_t i = 0; i < o->n_endpoints; i++) {
        const struct kube_endpoint *e = &o->endpoints[i];
        room += text_room(e->host) + text_room(e->pod) + text_room(e->uid) + text_room(e->node) +
                text_room(e->zone);
    }
    return room;
}

static int copy_endpoints(struct arena *a, struct kube_object *to)
{
    uint32_t n = to->n_endpoints;
    struct kube_endpoint *list = n ? arena_array(a, n, sizeof(*list)) : NULL;

    if (n && !list)
        return WEIR_E_NOMEM;
    for (uint32_t i = 0; i < to->n_endpoints; i++) {
        struct kube_endpoint *e = &list[i];
        *e = to->endpoints[i];
        struct slice *texts[] = {&e->host, &e->pod, &e->uid, &e->node, &e->zone};
        for (size_t t = 0; t < sizeof(texts) / sizeof(*texts); t++)
            if (arena_slice(a, *texts[t], texts[t]))
                return WEIR_E_NOMEM;
    }
    to->endpoints = list;
    return 0;
}

int kube_copy(struct arena *a, const struct kube_object *from, struct kube_object *to)
{
    struct kube_object o = *from;

    if (arena_reserve(a, room_of(from)) || arena_slice(a, o.name, &o.name) ||
        arena_slice(a, o.service, &o.service) ||
        arena_slice(a, o.metadata.text, &o.metadata.text) ||
        arena_slice(a, o.labels.text, &o.labels.text) || copy_endpoints(a, &o))
        return WEIR_E_NOMEM;
    o.version = (struct slice){NULL, 0};
    *to = o;
    return 0;
}

static bool same_endpoint(const struct kube_endpoint *a, const struct kube_endpoint *b)
{
    return slice_eq(a->host, b->host) && a->port == b->port && a->tls == b->tls &&
           a->ready == b->ready && a->serving == b->serving && a->terminating == b->terminating &&
           slice_eq(a->pod, b->pod) && slice_eq(a->uid, b->uid) && slice_eq(a->node, b->node) &&
           slice_eq(a->zone, b->zone);
}

bool kube_same(const struct kube_object *one, const struct kube_object *other)
{
    if (!slice_eq(one->service, other->service) || one->n_endpoints != other->n_endpoints ||
        !slice_eq(one->metadata.text, other->metadata.text) ||
        !slice_eq(one->labels.text, other->labels.text))
        return false;
    for (uint32_t i = 0; i < one->n_endpoints; i++)
        if (!same_endpoint(&one->endpoints[i], &other->endpoints[i]))
            return false;
    return true;
}

static struct slice value_of(const struct kv *kv, uint32_t n, struct slice key)
{
    for (uint32_t i = 0; i < n; i++)
        if (slice_eq(kv[i].key, key))
            return kv[i].value;
    return (struct slice){NULL, 0};
}

static uint32_t weight_of(struct slice text)
{
    uint64_t w;

    if (num_scaled(slice_trim(text), WEIGHT_ONE, &w))
        return WEIGHT_ONE;
    return w > WEIGHT_MAX ? (uint32_t)WEIGHT_MAX : (uint32_t)w;
}

int kube_instance(struct arena *a,
                  const struct kube_endpoint *e,
                  const struct kube_object *pod,
                  struct instance *out)
{
    uint32_t n_told = pod ? pod->metadata.n : 0;
    uint32_t n_labels = pod ? pod->labels.n : 0;
    uint32_t n = n_told;
    struct kv *kv = arena_array(a, (size_t)n + 2 + n_labels, sizeof(*kv));

    if (!kv)
        return WEIR_E_NOMEM;
    struct kv *labels = kv + n + 2;
    if (pod) {
        kube_unpack(&pod->metadata, kv);
        kube_unpack(&pod->labels, labels);
    }
    if (e->pod.n && !value_of(kv, n_told, SLICE("pod")).p)
        kv[n++] = (struct kv){SLICE("pod"), e->pod};
    if (e->node.n && !value_of(kv, n_told, SLICE("node")).p)
        kv[n++] = (struct kv){SLICE("node"), e->node};
    *out = (struct instance){
        .tls = e->tls || slice_eq_nocase(value_of(kv, n_told, SLICE("scheme")), SLICE("https")),
        .host = e->host,
        .port = e->port,
        .weight = weight_of(value_of(kv, n_told, SLICE("weight"))),
        .enabled = true,
        /* Who terminates is no longer ready, but what runs there may finish. */
        .healthy = e->terminating || e->ready,
        .draining = e->terminating,
        .zone = e->zone.n ? e->zone : e->node,
        .metadata = kv,
        .n_metadata = n,
        .labels = labels,
        .n_labels = n_labels,
        /* A pod that takes the address of another is another life. 53 bits, as JSON has: it is saved. */
        .epoch = e->uid.n ? hash_slice(e->uid, 0) >> 11 : 0,
    };
    return 0;
}

/* --- streams --- */

ssize_t kube_frame(struct kube_frame *f, struct slice text)
{
    for (; f->at < text.n; f->at++) {
        char c = text.p[f->at];
        if (f->in_text) {
            if (f->escaped)
                f->escaped = false;
            else if (c == '\\')
                f->escaped = true;
            else
                f->in_text = c != '"';
            continue;
        }
        if (f->depth == 0 && c != '{' && !strchr(" \t\r\n", c))
            return WEIR_E_INVALID;
        f->in_text = c == '"';
        if (c == '{' || c == '[') {
            if (++f->depth > DEPTH_MAX)
                return WEIR_E_INVALID;
        } else if ((c == '}' || c == ']') && --f->depth == 0) {
            ssize_t n = (ssize_t)f->at + 1;
            *f = (struct kube_frame){0};
            return n;
        }
    }
    return 0;
}

/* --- asking --- */

static void put_value(struct buf *out, const char *name, struct slice value)
{
    buf_put_char(out, '&');
    buf_put_str(out, name);
    buf_put_char(out, '=');
    wire_url_encode(value, "", out);
}

int kube_write_path(struct buf *out, const struct kube_query *q)
{
    buf_put_str(out, q->kind == KUBE_SLICES ? "/apis/discovery.k8s.io/v1/namespaces/"
                                            : "/api/v1/namespaces/");
    wire_url_encode(q->ns, "", out);
    buf_put_str(out, q->kind == KUBE_SLICES ? "/endpointslices?" : "/pods?");
    if (q->watch) {
        buf_put_str(out, "watch=1&allowWatchBookmarks=true&timeoutSeconds=");
        buf_put_u64(out, q->timeout_s);
        put_value(out, "resourceVersion", q->version);
    } else {
        buf_put_str(out, "limit=");
        buf_put_u64(out, q->limit);
        if (q->more.n)
            put_value(out, "continue", q->more);
    }
    if (q->selector.n)
        put_value(out, "labelSelector", q->selector);
    return out->err;
}

int kube_write_selector(struct buf *out, const struct slice *services, uint32_t n)
{
    buf_put_slice(out, SERVICE_LABEL);
    buf_put_str(out, " in (");
    for (uint32_t i = 0; i < n; i++) {
        if (i)
            buf_put_char(out, ',');
        buf_put_slice(out, services[i]);
    }
    return buf_put_char(out, ')');
}
