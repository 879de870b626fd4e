/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a request head to a route, to features, and to the head that goes upstream. That one keeps the client's fields
 * as they came, but for the hop-by-hop ones, Host and framing (the endpoint's own, written per attempt), Expect, and
 * the identifiers that Weir vouches for (X-Request-Id, traceparent, X-Weir-Hop).
 */
#include "base/hash.h"
#include "base/num.h"
#include "proxy/exchange.h"
#include "proxy/head.h"
#include "wire/url.h"

enum { REQUEST_ID_MAX = 128, HEAD_EXTRA = 1024 };

bool route_request_id_ok(struct slice v)
{
    if (v.n == 0 || v.n > REQUEST_ID_MAX)
        return false;
    for (size_t i = 0; i < v.n; i++) {
        char c = ascii_lower(v.p[i]);
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || strchr("-_.:/+=@~", c)) ||
            c == '\0')
            return false;
    }
    return true;
}

static bool lower_hex(struct slice v, size_t from, size_t n, bool *zero)
{
    *zero = true;
    for (size_t i = from; i < from + n; i++) {
        char c = v.p[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
        *zero = *zero && c == '0';
    }
    return true;
}

bool route_traceparent_ok(struct slice v)
{
    bool zero_version;
    bool zero_trace;
    bool zero_parent;
    bool zero_flags;

    if (v.n < 55 || v.p[2] != '-' || v.p[35] != '-' || v.p[52] != '-')
        return false;
    if (!lower_hex(v, 0, 2, &zero_version) || !lower_hex(v, 3, 32, &zero_trace) ||
        !lower_hex(v, 36, 16, &zero_parent) || !lower_hex(v, 53, 2, &zero_flags))
        return false;
    if (zero_trace || zero_parent || (v.p[0] == 'f' && v.p[1] == 'f'))
        return false;
    return v.n == 55 || (!zero_version && v.p[55] == '-');
}

/* One field into its place. A second one of a kind is ignored, but for traceparent, where it voids the first. */
static void note(struct exchange *x, struct request_fields *f, const struct http1_field *h)
{
    static const struct {
        struct slice name;
        size_t at;
    } known[] = {
#define FIELD(name, member) {SLICE(name), offsetof(struct request_fields, member)}
        FIELD("Content-Type", content_type),
        FIELD("X-Request-Id", request_id),
        FIELD("Tracestate", tracestate),
        FIELD("X-Model-Id", model),
        FIELD("X-Model-Version", version),
        FIELD("X-Required-Memory", memory),
        FIELD("X-Session-Id", session),
        FIELD("X-Priority", priority),
        FIELD("X-Tenant-Id", tenant),
        FIELD("X-Request-Timeout-Ms", timeout),
        FIELD("X-SLO-TTFT-Ms", slo),
        FIELD("X-SLO-TPOT-Ms", slo_tpot),
        FIELD("X-Weir-Explain", explain),
        FIELD("X-Weir-Token", token),
        FIELD("X-Forwarded-For", forwarded_for),
        FIELD("X-Forwarded-Proto", forwarded_proto),
        FIELD("X-Forwarded-Host", forwarded_host),
#undef FIELD
    };
    static const struct slice traceparent = SLICE("Traceparent");
    static const struct slice hop = SLICE("X-Weir-Hop");
    char first = ascii_lower(h->name.p[0]);

    if (first != 'x' && first != 't' && h->name.n != 12)
        return;
    for (unsigned i = 0; i < ARRAY_LEN(known); i++) {
        if (h->name.n != known[i].name.n || !slice_eq_nocase(h->name, known[i].name))
            continue;
        struct slice *to = (struct slice *)(void *)((char *)f + known[i].at);
        if (!to->p)
            *to = h->value;
        return;
    }
    if (slice_eq_nocase(h->name, traceparent)) {
        f->traceparent = f->traceparent.p ? SLICE("") : h->value;
    } else if (slice_eq_nocase(h->name, hop)) {
        struct slice rest = h->value;
        struct slice id;
        while (slice_cut(&rest, ',', &id))
            f->own_hop = f->own_hop || slice_eq(slice_trim(id), x->lane->proxy->hop);
    }
}

static bool drop_field(const struct http1_head *h, const struct http1_field *f, void *ctx)
{
    const struct request_fields *seen = ctx;

    switch (f->name.n) {
    case 4:
        return slice_eq_nocase(f->name, SLICE("Host"));
    case 6:
        return slice_eq_nocase(f->name, SLICE("Expect"));
    case 10:
        if (seen->new_trace && slice_eq_nocase(f->name, SLICE("Tracestate")))
            return true;
        break;
    case 11:
        if (slice_eq_nocase(f->name, SLICE("Traceparent")))
            return true;
        break;
    case 12:
        if (slice_eq_nocase(f->name, SLICE("X-Request-Id")) ||
            slice_eq_nocase(f->name, SLICE("X-Weir-Token")))
            return true;
        break;
    case 14:
        if (slice_eq_nocase(f->name, SLICE("Content-Length")) ||
            slice_eq_nocase(f->name, SLICE("X-Weir-Explain")))
            return true;
        break;
    default:
        if (f->name.n >= 9 && forwarded_drops(seen->forwarded, f->name))
            return true;
        break;
    }
    return wire_http1_hop_by_hop(h, f);
}

/* The next character of a path; where a dot or a separator is hidden in %XX, that one. */
static char path_char(struct slice path, size_t *at)
{
    char c = path.p[(*at)++];

    if (c != '%' || path.n - *at < 2)
        return c;
    char high = path.p[*at];
    char low = ascii_lower(path.p[*at + 1]);
    char hidden = high == '2' && low == 'e'   ? '.'
                  : high == '2' && low == 'f' ? '/'
                  : high == '5' && low == 'c' ? '\\'
                                              : c;
    *at += hidden == c ? 0 : 2;
    return hidden;
}

bool route_path_ok(struct slice path)
{
    static const char separators[] = "/\\;";
    unsigned dots = 0;
    bool plain = true; /* the segment has nothing but dots so far */

    if (slice_find(path, '.') == path.n && slice_find(path, '%') == path.n)
        return true;
    for (size_t at = 0; at < path.n;) {
        char c = path_char(path, &at);
        if (memchr(separators, c, sizeof(separators) - 1)) {
            if (plain && (dots == 1 || dots == 2))
                return false;
            plain = true;
            dots = 0;
        } else if (c == '.') {
            dots++;
        } else {
            plain = false;
        }
    }
    return !plain || (dots != 1 && dots != 2);
}

/* Origin form of the target, or the absent slice. */
static struct slice origin(struct slice target)
{
    static const struct slice scheme = SLICE("http://");
    static const struct slice root = SLICE("/");

    if (target.n && target.p[0] == '/')
        return target;
    if (target.n > scheme.n && slice_eq_nocase(slice_of(target.p, scheme.n), scheme)) {
        struct slice rest = slice_from(target, scheme.n);
        size_t slash = slice_find(rest, '/');
        size_t question = slice_find(rest, '?');
        /* A query right after the authority has no path to stand behind. */
        if (question < slash)
            return (struct slice){NULL, 0};
        return slash < rest.n ? slice_from(rest, slash) : root;
    }
    return (struct slice){NULL, 0};
}

const struct route *route_of(const struct routing *r, const struct http1_head *h)
{
    struct slice target = origin(h->target);

    target.n = slice_find(target, '?');
    return route_match(r, target, h);
}

enum rejection route_head(struct exchange *x,
                          const struct route *route,
                          const struct http1_head *h,
                          const char *end,
                          struct request_fields *f)
{
    struct slice target = origin(h->target);
    struct buf *out = &x->head;
    struct prng *r = &x->lane->asker.prng;

    *f = (struct request_fields){0};
    for (unsigned i = 0; i < h->n_fields; i++)
        note(x, f, &h->fields[i]);
    f->new_trace = !route_traceparent_ok(f->traceparent);
    f->forwarded = route ? route->forwarded : FORWARDED_OFF;

    lane_buf_take(x->lane, out, (size_t)x->plan->routing->limits.header_bytes + HEAD_EXTRA);
    buf_put_slice(out, h->method);
    buf_put_char(out, ' ');
    x->method_len = (uint32_t)h->method.n;
    x->path_at = (uint32_t)buf_len(out);
    x->path_len = (uint32_t)slice_find(target, '?');
    buf_put_slice(out, target);
    buf_put_str(out, " HTTP/1.1\r\nX-Request-Id: ");
    x->rid_at = (uint32_t)buf_len(out);
    if (route_request_id_ok(f->request_id)) {
        buf_put_slice(out, f->request_id);
    } else {
        buf_put_hex(out, prng_next(r), 16);
        buf_put_hex(out, prng_next(r), 16);
    }
    x->rid_len = (uint32_t)buf_len(out) - x->rid_at;
    buf_put_str(out, "\r\ntraceparent: ");
    if (f->new_trace) {
        buf_put_str(out, "00-");
        buf_put_hex(out, prng_next(r) | 1, 16); /* never all zero */
        buf_put_hex(out, prng_next(r), 16);
        buf_put_char(out, '-');
        buf_put_hex(out, prng_next(r) | 1, 16);
        buf_put_str(out, "-01");
    } else {
        buf_put_slice(out, f->traceparent);
    }
    buf_put_str(out, "\r\nX-Weir-Hop: ");
    buf_put_slice(out, x->lane->proxy->hop);
    buf_put(out, "\r\n", 2);
    head_copy_fields(out, h, end, drop_field, f);
    forwarded_put(out, f->forwarded, x->client, h, f);
    struct slice protocols = h->upgrade ? tunnel_asked(h) : (struct slice){NULL, 0};
    if (protocols.n) {
        buf_put_str(out, "Connection: Upgrade\r\nUpgrade: ");
        x->upgrade_at = (uint32_t)buf_len(out);
        x->upgrade_len = (uint32_t)protocols.n;
        buf_put_slice(out, protocols);
        buf_put(out, "\r\n", 2);
    }
    if (out->err) {
        x->method_len = x->path_len = x->rid_len = x->upgrade_len = 0;
        return out->err == WEIR_E_FULL ? REJECT_HEADERS_TOO_LARGE : REJECT_OVERLOADED;
    }
    /* Weir opens no tunnels, whatever form the target has. */
    if (!target.p || slice_eq(h->method, SLICE("CONNECT")) || !route_path_ok(exchange_path(x)))
        return REJECT_INVALID_REQUEST;
    return f->own_hop ? REJECT_LOOP_DETECTED : REJECT_NONE;
}

static uint64_t client_key(const struct net_addr *a)
{
    if (a->any.sa_family == AF_UNIX) /* they are all this machine */
        return hash_slice(SLICE("unix"), 0);
    if (a->any.sa_family == AF_INET6)
        return hash_slice(slice_of((const char *)&a->v6.sin6_addr, sizeof(a->v6.sin6_addr)), 0);
    return hash_slice(slice_of((const char *)&a->v4.sin_addr, sizeof(a->v4.sin_addr)), 0);
}

static struct slice cookie(const struct http1_head *h, struct slice name)
{
    for (unsigned i = 0; i < h->n_fields; i++) {
        if (!slice_eq_nocase(h->fields[i].name, SLICE("Cookie")))
            continue;
        struct slice rest = h->fields[i].value;
        struct slice pair;
        while (slice_cut(&rest, ';', &pair)) {
            pair = slice_trim(pair);
            size_t at = slice_find(pair, '=');
            if (at < pair.n && slice_eq(slice_of(pair.p, at), name))
                return slice_from(pair, at + 1);
        }
    }
    return (struct slice){NULL, 0};
}

/* X-Session-Id, else the first source of hash_on that the head can give. */
static void
session_from_head(struct exchange *x, const struct http1_head *h, const struct request_fields *f)
{
    const struct route *r = x->route;

    x->session_rank = (uint8_t)r->n_hash_on;
    if (f->session.n) {
        x->f.session = hash_slice(f->session, 0);
        x->f.has_session = true;
        x->session_rank = 0;
        return;
    }
    for (uint32_t i = 0; i < r->n_hash_on; i++) {
        struct slice key = {NULL, 0};
        if (r->hash_on[i].source == HASH_ON_HEADER)
            key = wire_http1_value(h, r->hash_on[i].name);
        else if (r->hash_on[i].source == HASH_ON_COOKIE)
            key = cookie(h, r->hash_on[i].name);
        bool ip = r->hash_on[i].source == HASH_ON_CLIENT_IP;
        if (!key.n && !ip)
            continue;
        x->f.session = ip ? client_key(&x->client->peer) : hash_slice(key, 0);
        x->f.has_session = true;
        x->session_rank = (uint8_t)i;
        return;
    }
}

/* Does a source in the body come before what the head gave? */
static bool session_in_body(const struct exchange *x)
{
    for (unsigned i = 0; i < x->session_rank; i++)
        if (x->route->hash_on[i].source == HASH_ON_BODY_USER ||
            x->route->hash_on[i].source == HASH_ON_PROMPT_CACHE_KEY ||
            x->route->hash_on[i].source == HASH_ON_PREVIOUS_RESPONSE)
            return true;
    return false;
}

void route_session_from_body(struct exchange *x, const struct peek_found *found)
{
    for (unsigned i = 0; i < x->session_rank; i++) {
        const struct peek_text *t = NULL;
        switch (x->route->hash_on[i].source) {
        case HASH_ON_BODY_USER:
            t = &found->user;
            break;
        case HASH_ON_PROMPT_CACHE_KEY:
            t = &found->prompt_cache_key;
            break;
        case HASH_ON_PREVIOUS_RESPONSE:
            t = &found->previous_response_id;
            break;
        case HASH_ON_HEADER:
        case HASH_ON_COOKIE:
        case HASH_ON_CLIENT_IP:
            break;
        }
        if (!t || !t->present)
            continue;
        x->f.session = t->hash;
        x->f.has_session = true;
        return;
    }
}

/* Copy a name that must outlive the head. */
static bool keep(char *to, size_t cap, struct slice v, struct slice *out)
{
    if (v.n > cap)
        return false;
    if (v.n) {
        memcpy(to, v.p, v.n);
        *out = slice_of(to, v.n);
    }
    return true;
}

/* A request without a body may name its model in the query (/v1/realtime?model=x). @return false: it is too long. */
static bool model_in_query(struct exchange *x, const struct http1_head *h)
{
    struct buf name = {.p = x->named, .cap = sizeof(x->named), .max = sizeof(x->named)};
    struct slice raw;

    if (!route_query_find(h->target, SLICE("model"), &raw) || !raw.n)
        return true;
    int rc = wire_url_decode(raw, true, &name);
    if (rc)
        return rc == WEIR_E_INVALID; /* not readable is not named */
    x->f.model = buf_slice(&name);
    x->model_in_query = true;
    return true;
}

/* A path may name it (/v2/models/x/infer), and a version. @return false: a name is too long. */
static bool model_in_path(struct exchange *x)
{
    struct buf name = {.p = x->named, .cap = sizeof(x->named), .max = sizeof(x->named)};
    struct buf version = {.p = x->version, .cap = sizeof(x->version), .max = sizeof(x->version)};
    struct slice raw;
    struct slice raw_version;

    if (!peek_path_model(exchange_path(x), &raw, &raw_version))
        return true;
    int rc = wire_url_decode(raw, false, &name);
    if (rc)
        return rc == WEIR_E_INVALID;
    x->f.model = buf_slice(&name);
    x->model_in_path = true;
    if (raw_version.n && !x->f.version.n) {
        rc = wire_url_decode(raw_version, false, &version);
        if (rc)
            return rc == WEIR_E_INVALID;
        x->f.version = buf_slice(&version);
        x->version_in_path = true;
    }
    return true;
}

static void put_encoded(struct buf *out, struct slice s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = ascii_lower(s.p[i]);
        if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c && strchr("-._~/:", c))) {
            buf_put_char(out, s.p[i]);
        } else {
            buf_put_char(out, '%');
            buf_put_hex(out, (unsigned char)s.p[i], 2);
        }
    }
}

/* Another name in place of a part of the rendered head's target. */
static int rename_in_head(struct exchange *x, struct slice raw, struct slice model)
{
    struct slice head = buf_slice(&x->head);
    struct buf changed;
    size_t from = (size_t)(raw.p - head.p);

    lane_buf_take(x->lane, &changed, x->head.max);
    buf_put(&changed, head.p, from);
    put_encoded(&changed, model);
    size_t grown = buf_len(&changed) - from; /* shorter is the same, modulo 2^32 */
    buf_put_slice(&changed, slice_from(head, from + raw.n));
    if (changed.err) {
        int rc = changed.err;
        lane_buf_give(x->lane, &changed);
        return rc;
    }
    if (from < x->path_at + x->path_len)
        x->path_len += (uint32_t)(grown - raw.n);
    x->rid_at += (uint32_t)(grown - raw.n);
    x->upgrade_at += (uint32_t)(grown - raw.n);
    lane_buf_give(x->lane, &x->head);
    x->head = changed;
    return 0;
}

int route_rename_query(struct exchange *x, struct slice model)
{
    struct slice target = slice_from(buf_slice(&x->head), x->path_at);
    struct slice raw;

    target.n = slice_find(target, ' ');
    if (!route_query_find(target, SLICE("model"), &raw))
        return WEIR_E_NOTFOUND;
    return rename_in_head(x, raw, model);
}

int route_rename_path(struct exchange *x, struct slice model)
{
    struct slice raw;
    struct slice version;

    if (!peek_path_model(exchange_path(x), &raw, &version))
        return WEIR_E_NOTFOUND;
    return rename_in_head(x, raw, model);
}

static bool milliseconds(struct slice v, uint64_t *ns)
{
    uint64_t ms;

    /* A year is as good as never, and cannot overflow. */
    if (num_u64(v, &ms) != 0 || ms == 0)
        return false;
    *ns = MIN(ms, UINT64_C(31536000000)) * NS_PER_MS;
    return true;
}

enum rejection route_features(struct exchange *x,
                              const struct http1_head *h,
                              const struct request_fields *f,
                              const char **param,
                              struct slice *detail)
{
    struct features *o = &x->f;
    uint64_t ns = 0;
    uint64_t priority = PRIORITY_DEFAULT;
    bool ok;

    *param = NULL;
    if (f->model.n) {
        *detail = f->model;
        if (!keep(x->named, sizeof(x->named), f->model, &o->model))
            return REJECT_MODEL_NOT_FOUND;
        x->model_in_header = true;
    } else if (!model_in_path(x)) {
        return REJECT_MODEL_NOT_FOUND;
    } else if (!x->model_in_path && x->complete && !model_in_query(x, h)) {
        return REJECT_MODEL_NOT_FOUND;
    }
    ok = !f->version.n || keep(x->version, sizeof(x->version), f->version, &o->version);
    if (!ok) {
        *param = "X-Model-Version";
        *detail = f->version;
        return REJECT_INVALID_HEADER;
    }
    if (f->memory.p && num_scaled(f->memory, GIB, &o->required_bytes) != 0) {
        *param = "X-Required-Memory";
        *detail = f->memory;
        return REJECT_INVALID_HEADER;
    }
    if (x->route->trust_priority && f->priority.p &&
        (num_u64(f->priority, &priority) != 0 || priority < PRIORITY_HIGHEST ||
         priority > PRIORITY_LOWEST)) {
        *param = "X-Priority";
        *detail = f->priority;
        return REJECT_INVALID_HEADER;
    }
    o->priority = (uint8_t)priority;
    if (x->route->trust_tenant && !keep(x->tenant, sizeof(x->tenant), f->tenant, &o->tenant)) {
        *param = "X-Tenant-Id";
        *detail = f->tenant;
        return REJECT_INVALID_HEADER;
    }
    if (f->timeout.p && !milliseconds(f->timeout, &ns)) {
        *param = "X-Request-Timeout-Ms";
        *detail = f->timeout;
        return REJECT_INVALID_HEADER;
    }
    uint64_t total = x->route->timeouts.total_ns;
    if (ns && (!total || ns < total))
        total = ns;
    o->deadline_ns = total ? x->start_ns + total : 0;
    o->slo_ttft_ns = x->route->slo.ttft_ns;
    o->slo_tpot_ns = x->route->slo.tpot_ns;
    if (f->slo.p && !milliseconds(f->slo, &o->slo_ttft_ns)) {
        *param = "X-SLO-TTFT-Ms";
        *detail = f->slo;
        return REJECT_INVALID_HEADER;
    }
    if (f->slo_tpot.p && !milliseconds(f->slo_tpot, &o->slo_tpot_ns)) {
        *param = "X-SLO-TPOT-Ms";
        *detail = f->slo_tpot;
        return REJECT_INVALID_HEADER;
    }
    o->slo_by_ns = o->slo_ttft_ns ? x->start_ns + o->slo_ttft_ns : 0;
    o->task = peek_task(exchange_path(x));
    x->any_model = slice_eq(h->method, SLICE("OPTIONS"));
    o->body_bytes = h->framing == HTTP1_BODY_LENGTH ? h->content_length : 0;
    session_from_head(x, h, f);
    const struct plan_route *r = plan_route(x->plan, x->route);
    x->reads_rest = r->reads_body || (r->uses_session && session_in_body(x));
    return REJECT_NONE;
}
