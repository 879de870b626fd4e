/* SPDX-License-Identifier: Apache-2.0 */
#include "report/nacos_codec.h"

#include "base/bug.h"
#include "base/num.h"
#include "report/metadata_codec.h"
#include "report/report_codec.h"
#include "wire/json_scan.h"
#include "wire/url.h"

/* ---------------------------------------------------------------------------------------------------- URL */

static bool good_name(struct slice s, size_t max, const char *more)
{
    if (s.n == 0 || s.n > max)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        char c = ascii_lower(s.p[i]);
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-' && !strchr(more, c))
            return false;
    }
    return true;
}

static int read_place(struct slice query, struct nacos_place *p)
{
    struct slice name;
    struct slice value;

    while (wire_query_next(&query, &name, &value)) {
        if (slice_eq(name, SLICE("namespace")) && good_name(value, 64, "_"))
            p->namespace_id = value;
        else if (slice_eq(name, SLICE("group")) && good_name(value, 128, "_.:"))
            p->group = value;
        else if (slice_eq(name, SLICE("cluster")) && good_name(value, 64, ""))
            p->cluster = value;
        else
            return WEIR_E_INVALID;
    }
    return 0;
}

int report_nacos_url(struct slice text, struct nacos_url *out)
{
    struct slice host;
    struct slice rest;
    uint16_t port;

    *out = (struct nacos_url){.path = SLICE("/nacos")};
    int rc = report_split_url(text, "nacos", &out->tls, &out->authority, &rest);
    if (rc)
        return rc;
    size_t query = slice_find(rest, '?');
    struct slice given = slice_of(rest.p, query);
    while (slice_ends(given, SLICE("/")))
        given.n--;
    if (given.n)
        out->path = given;
    if (wire_authority_parse(out->authority, &host, &port) != 0 || host.n == 0)
        return WEIR_E_INVALID;
    return query < rest.n ? read_place(slice_from(rest, query + 1), &out->place) : 0;
}

/* ------------------------------------------------------------------------------------------------- writing */

void report_nacos_put_pair(struct buf *out, const char *name, struct slice value)
{
    if (buf_len(out) > 0)
        buf_put_char(out, '&');
    buf_put_str(out, name);
    buf_put_char(out, '=');
    wire_url_encode(value, "", out);
}

static void put_pair_if(struct buf *out, const char *name, struct slice value)
{
    if (value.n)
        report_nacos_put_pair(out, name, value);
}

int report_nacos_write_place(struct buf *out,
                             const struct instance *in,
                             const struct nacos_place *p)
{
    struct report_number port;

    report_nacos_put_pair(out, "serviceName", in->n_services ? in->services[0] : SLICE("default"));
    report_nacos_put_pair(out, "ip", in->host);
    report_nacos_put_pair(out, "port", report_number(&port, in->port, 0));
    report_nacos_put_pair(out, "clusterName", p->cluster.n ? p->cluster : SLICE("DEFAULT"));
    report_nacos_put_pair(out, "groupName", p->group.n ? p->group : SLICE("DEFAULT_GROUP"));
    put_pair_if(out, "namespaceId", p->namespace_id);
    report_nacos_put_pair(out, "ephemeral", SLICE("true"));
    return out->err;
}

/* The metadata map as JSON, key by key while there is room: what comes first is what matters most. */
struct map_writer {
    struct buf *json;
    size_t used; /* of NACOS_METADATA_MAX */
    uint32_t left_out;
};

static void put_meta(void *ctx, struct slice key, struct slice value)
{
    struct map_writer *w = ctx;

    if (w->used + key.n + value.n > NACOS_METADATA_MAX) {
        w->left_out++;
        return;
    }
    buf_put_char(w->json, w->used ? ',' : '{');
    buf_put_json(w->json, key);
    buf_put_char(w->json, ':');
    buf_put_json(w->json, value);
    w->used += key.n + value.n;
}

int report_nacos_write_instance(struct buf *out,
                                const struct instance *in,
                                const struct nacos_place *p,
                                const struct sample *s,
                                uint32_t *left_out)
{
    struct buf json;
    struct report_number weight;
    bool usable = !sample_has(s, SAMPLE_STATE) ||
                  (s->state != REPORTED_LOADING && s->state != REPORTED_UNHEALTHY);

    buf_init(&json, out->mem, (size_t)16 * NACOS_METADATA_MAX);
    struct map_writer w = {.json = &json};
    put_meta(&w, SLICE(REPORT_MARK_KEY), SLICE(REPORT_MARK_VALUE));
    report_put_sample(s, put_meta, &w);
    int told = report_put_identity(in, out->mem, put_meta, &w);
    buf_put_char(&json, '}');
    *left_out = w.left_out;

    int rc = report_nacos_write_place(out, in, p);
    report_nacos_put_pair(out, "weight",
                          report_number(&weight, (double)in->weight / WEIGHT_ONE, 3));
    /* To callers that know nothing of health_status: not now. */
    report_nacos_put_pair(out, "enabled", usable ? SLICE("true") : SLICE("false"));
    report_nacos_put_pair(out, "metadata", buf_slice(&json));
    if (rc == 0)
        rc = told ? told : json.err ? json.err : out->err;
    buf_fini(&json);
    return rc;
}

int report_nacos_write_login(struct buf *out, struct slice username, struct slice password)
{
    report_nacos_put_pair(out, "username", username);
    report_nacos_put_pair(out, "password", password);
    return out->err;
}

/* ------------------------------------------------------------------------------------------------- reading */

enum { TOKEN_ROOM = 8192, WORD_ROOM = 640 };

/* Scalars with the depth and the key they stand under; ends of objects. */
struct walk {
    int depth;
    char key[WORD_ROOM];
    size_t key_n;
    char value[TOKEN_ROOM];
    size_t value_n;
    bool key_open, value_open; /* the pieces of one text */
    bool in_hosts;             /* below root's "hosts" */
    void *ctx;
    void (*on_scalar)(void *ctx, const struct walk *w, struct slice value);
    void (*on_object_end)(void *ctx, const struct walk *w);
};

/* A text that does not fit is nothing we look for. */
static void append(char *room, size_t size, size_t *n, bool *open, struct slice piece)
{
    if (!*open)
        *n = 0;
    *open = true;
    if (*n + piece.n > size) {
        *n = size;
        return;
    }
    if (piece.n)
        memcpy(room + *n, piece.p, piece.n);
    *n += piece.n;
}

static int on_json(void *ctx, enum json_event event, struct slice text, bool last)
{
    struct walk *w = ctx;

    switch (event) {
    case JSON_SCAN_OBJECT_BEGIN:
    case JSON_SCAN_ARRAY_BEGIN:
        if (w->depth == 1)
            w->in_hosts = slice_eq(slice_of(w->key, w->key_n), SLICE("hosts"));
        w->depth++;
        break;
    case JSON_SCAN_OBJECT_END:
        if (w->on_object_end)
            w->on_object_end(w->ctx, w);
        w->depth--;
        break;
    case JSON_SCAN_ARRAY_END:
        w->depth--;
        break;
    case JSON_SCAN_KEY:
        append(w->key, sizeof(w->key), &w->key_n, &w->key_open, text);
        w->key_open = !last;
        break;
    case JSON_SCAN_STRING:
    case JSON_SCAN_NUMBER:
        append(w->value, sizeof(w->value), &w->value_n, &w->value_open, text);
        w->value_open = !last;
        if (last)
            w->on_scalar(w->ctx, w, slice_of(w->value, w->value_n));
        break;
    case JSON_SCAN_TRUE:
    case JSON_SCAN_FALSE:
    case JSON_SCAN_NULL:
        break;
    }
    return 0;
}

static int walk_json(struct walk *w, struct slice body)
{
    struct json_scan scan;

    wire_json_init(&scan, on_json, w);
    if (wire_json_scan(&scan, body.p ? body.p : "", body.n) != 0 || wire_json_end(&scan) != 0)
        return WEIR_E_INVALID;
    return 0;
}

static bool key_is(const struct walk *w, const char *name)
{
    return slice_eq(slice_of(w->key, w->key_n), slice_str(name));
}

struct list_reader {
    const struct instance *in;
    struct slice cluster;
    bool same_ip, same_port, same_cluster, marked; /* of the host that is read */
    enum nacos_holder holder;
};

/* root 1, "hosts" 2, a host 3, its metadata 4 */
static void on_list_scalar(void *ctx, const struct walk *w, struct slice value)
{
    struct list_reader *l = ctx;
    uint64_t port;

    if (!w->in_hosts)
        return;
    if (w->depth == 3 && key_is(w, "ip"))
        l->same_ip = slice_eq(value, l->in->host);
    else if (w->depth == 3 && key_is(w, "port"))
        l->same_port = num_u64(value, &port) == 0 && port == l->in->port;
    else if (w->depth == 3 && key_is(w, "clusterName"))
        l->same_cluster = slice_eq(value, l->cluster);
    else if (w->depth == 4 && key_is(w, REPORT_MARK_KEY))
        l->marked = slice_eq(value, SLICE(REPORT_MARK_VALUE));
}

static void on_list_object_end(void *ctx, const struct walk *w)
{
    struct list_reader *l = ctx;

    if (!w->in_hosts || w->depth != 3)
        return;
    if (l->same_ip && l->same_port && l->same_cluster)
        l->holder = l->marked ? NACOS_OURS : NACOS_ANOTHERS;
    l->same_ip = l->same_port = l->marked = false;
    l->same_cluster = true;
}

int report_nacos_read_list(struct slice body,
                           const struct instance *in,
                           struct slice cluster,
                           enum nacos_holder *out)
{
    struct list_reader l = {
        .in = in, .cluster = cluster.n ? cluster : SLICE("DEFAULT"), .same_cluster = true};
    struct walk w = {.ctx = &l, .on_scalar = on_list_scalar, .on_object_end = on_list_object_end};

    if (walk_json(&w, body) != 0)
        return WEIR_E_INVALID;
    *out = l.holder;
    return 0;
}

struct beat_reader {
    uint64_t code, interval_ms;
    bool coded;
};

static void on_beat_scalar(void *ctx, const struct walk *w, struct slice value)
{
    struct beat_reader *b = ctx;

    if (w->depth == 1 && key_is(w, "code"))
        b->coded = num_u64(value, &b->code) == 0;
    if (w->depth == 1 && key_is(w, "clientBeatInterval") && num_u64(value, &b->interval_ms) != 0)
        b->interval_ms = 0;
}

int report_nacos_read_beat(struct slice body, uint64_t *code, uint64_t *interval_ms)
{
    struct beat_reader b = {0};
    struct walk w = {.ctx = &b, .on_scalar = on_beat_scalar};

    if (walk_json(&w, body) != 0 || !b.coded)
        return WEIR_E_INVALID;
    *code = b.code;
    *interval_ms = b.interval_ms;
    return 0;
}

struct login_reader {
    struct buf *token;
    uint64_t ttl_s;
    bool told;
};

static void on_login_scalar(void *ctx, const struct walk *w, struct slice value)
{
    struct login_reader *l = ctx;

    if (w->depth == 1 && key_is(w, "accessToken") && value.n && value.n < TOKEN_ROOM && !l->told) {
        buf_put_slice(l->token, value);
        l->told = true;
    }
    if (w->depth == 1 && key_is(w, "tokenTtl") && num_u64(value, &l->ttl_s) != 0)
        l->ttl_s = 0;
}

int report_nacos_read_login(struct slice body, struct buf *token, uint64_t *ttl_s)
{
    struct login_reader l = {.token = token};
    struct walk w = {.ctx = &l, .on_scalar = on_login_scalar};

    if (walk_json(&w, body) != 0 || !l.told || token->err)
        return token->err ? token->err : WEIR_E_INVALID;
    *ttl_s = l.ttl_s;
    return 0;
}
