/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `routes`: what one asks for must be possible, and must leave something for it that no earlier route takes. The first
 * match counts, so a route that comes after one that takes all of its requests is a mistake, and is told as one.
 */
#include "base/bug.h"
#include "conf/parse_flow.h"
#include "conf/print.h"

static struct conf_path under(const struct conf_path *up, const char *key)
{
    return (struct conf_path){.up = up, .key = slice_str(key)};
}

static bool token(struct slice s)
{
    static const char more[] = "!#$%&'*+-.^_`|~";

    for (size_t i = 0; i < s.n; i++) {
        char c = ascii_lower(s.p[i]);
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c && strchr(more, c))))
            return false;
    }
    return s.n > 0;
}

/* --- one value: what is wrong with it, or NULL --- */

static const char *path_wrong(struct slice p)
{
    static const struct slice own[] = {SLICE("/health"), SLICE("/liveness"), SLICE("/readiness"),
                                       SLICE("/v1/models")};

    if (p.n == 0 || p.p[0] != '/')
        return "must start with /";
    bool prefix = slice_ends(p, SLICE("**"));
    for (size_t i = 0; i < p.n - (prefix ? 2 : 0); i++)
        if (p.p[i] == '*' || p.p[i] == '?' || p.p[i] == '#' || p.p[i] == ' ')
            return p.p[i] == '*'   ? "may have ** only once, at the end"
                   : p.p[i] == '?' ? "must be a plain path, without ?, # or spaces; match.query "
                                     "says what the query must have"
                                   : "must be a plain path, without ?, # or spaces";
    for (size_t i = 0; i < ARRAY_LEN(own); i++)
        if (slice_eq(p, own[i]))
            return "is never reached: Weir answers it itself";
    return NULL;
}

static const char *method_wrong(struct slice m)
{
    if (!token(m))
        return "is not a method";
    if (slice_eq(m, SLICE("CONNECT")))
        return "is never reached: Weir refuses it";
    for (size_t i = 0; i < m.n; i++)
        if (m.p[i] >= 'a' && m.p[i] <= 'z')
            return "has small letters, and methods are told apart by case";
    return NULL;
}

static const char *host_wrong(struct slice h)
{
    bool wild = slice_starts(h, SLICE("*."));
    struct slice rest = wild ? slice_from(h, 2) : h;

    if (slice_find(rest, ':') < rest.n && rest.p[0] == '[')
        return "must stand without brackets and without a port";
    for (size_t i = 0; i < rest.n; i++) {
        char c = ascii_lower(rest.p[i]);
        if (c == '*')
            return "may have * only in front, as *.example.com";
        if (c == ':' && slice_find(slice_from(rest, i + 1), ':') == rest.n - i - 1 &&
            slice_find(rest, ':') == i)
            return "must stand without a port";
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
              c == '_' || c == ':'))
            return "is not a host";
    }
    return rest.n ? NULL : "is not a host";
}

static const char *header_wrong(struct slice name)
{
    if (!token(name))
        return "is not the name of a header field";
    if (slice_eq_nocase(name, SLICE("Host")))
        return "is matched by hosts";
    if (slice_eq_nocase(name, SLICE("Content-Type")))
        return "is matched by content_types, without its parameters";
    return NULL;
}

static const char *content_type_wrong(struct slice t)
{
    size_t slash = slice_find(t, '/');

    if (slice_find(t, ';') < t.n)
        return "must stand without parameters";
    struct slice rest = slash < t.n ? slice_from(t, slash + 1) : t;
    if (slash == t.n || !token(slice_of(t.p, slash)) || !token(rest) || t.p[0] == '*')
        return "is not a media type; write type/subtype, or type/*";
    return NULL;
}

/* --- does an earlier route take everything? --- */

static bool path_covers(struct slice a, struct slice b)
{
    if (!slice_ends(a, SLICE("**")))
        return slice_eq(a, b);
    if (slice_ends(b, SLICE("**")))
        b.n -= 2;
    return slice_starts(b, slice_of(a.p, a.n - 2));
}

static bool same(struct slice a, struct slice b)
{
    return slice_eq(a, b);
}

static bool host_covers(struct slice a, struct slice b)
{
    if (!slice_starts(a, SLICE("*.")))
        return slice_eq_nocase(a, b);
    a = slice_from(a, 1);
    return b.n > a.n && slice_eq_nocase(slice_from(b, b.n - a.n), a);
}

static bool type_covers(struct slice a, struct slice b)
{
    if (slice_ends(a, SLICE("/*"))) {
        a.n--;
        return b.n > a.n && slice_eq_nocase(slice_of(b.p, a.n), a);
    }
    return slice_eq_nocase(a, b);
}

/* Is each of b's alternatives within one of a's? None means any. */
static bool texts_cover(const struct raw_texts *a,
                        const struct raw_texts *b,
                        bool (*covers)(struct slice, struct slice))
{
    bool all = a->n == 0 || b->n > 0;

    for (uint32_t i = 0; a->n && i < b->n && all; i++) {
        bool one = false;
        for (uint32_t j = 0; j < a->n && !one; j++)
            one = covers(a->items[j], b->items[i]);
        all = one;
    }
    return all;
}

/* Does b ask for all that a asks for? */
static bool pairs_cover(const struct raw_labels *a, const struct raw_labels *b, bool nocase)
{
    for (uint32_t i = 0; i < a->n; i++) {
        bool found = false;
        for (uint32_t j = 0; j < b->n && !found; j++)
            found = (nocase ? slice_eq_nocase(a->items[i].key, b->items[j].key)
                            : slice_eq(a->items[i].key, b->items[j].key)) &&
                    (slice_eq(a->items[i].value, SLICE("*")) ||
                     slice_eq(a->items[i].value, b->items[j].value));
        if (!found)
            return false;
    }
    return true;
}

/* Does every request that b matches match a too? */
static bool covers(const struct raw_route *a, const struct raw_route *b)
{
    return path_covers(a->path, b->path) && texts_cover(&a->methods, &b->methods, same) &&
           texts_cover(&a->hosts, &b->hosts, host_covers) &&
           texts_cover(&a->content_types, &b->content_types, type_covers) &&
           pairs_cover(&a->headers, &b->headers, true) && pairs_cover(&a->query, &b->query, false);
}

/* --- checks --- */

static uint32_t match_node(const struct build *b, const struct raw_route *r)
{
    uint32_t node = conf_child(b, r->item.node, "match");

    return node ? node : r->item.node;
}

/* Values of a list, or keys of a map. @return false when one is wrong. */
static bool check_words(struct build *b,
                        const struct raw_route *r,
                        const struct conf_path *match,
                        const char *key,
                        const char *(*wrong)(struct slice))
{
    const struct conf_node *nodes = b->in->nodes;
    uint32_t list = conf_child(b, match_node(b, r), key);
    struct conf_path here = under(match, key);
    bool ok = true;
    uint32_t n = 0;

    for (uint32_t i = list ? list + 1 : 0; list && i < nodes[list].end; i = nodes[i].end, n++) {
        bool map = nodes[list].kind == CONF_NODE_MAP;
        struct slice word = map ? nodes[i].key : nodes[i].text;
        struct conf_path one = {.up = &here, .key = map ? word : slice_of(NULL, 0), .index = n};
        struct conf_place at = map ? conf_place_key(b, i) : conf_place_value(b, i);
        const char *why = wrong(word);
        if (why)
            CONF_FAIL(b, &at, &one, SLICE("\""), word, SLICE("\" "), slice_str(why));
        ok = ok && !why;
    }
    return ok;
}

static bool check_possible(struct build *b, const struct raw_route *r, const struct conf_path *path)
{
    struct conf_path match = under(path, "match");
    struct conf_path here = under(&match, "path");
    struct conf_place at = conf_place_option(b, match_node(b, r), "path", NULL);
    const char *why = path_wrong(r->path);

    if (why)
        CONF_FAIL(b, &at, &here, SLICE("\""), r->path, SLICE("\" "), slice_str(why));
    bool ok = check_words(b, r, &match, "methods", method_wrong);
    ok = check_words(b, r, &match, "hosts", host_wrong) && ok;
    ok = check_words(b, r, &match, "headers", header_wrong) && ok;
    ok = check_words(b, r, &match, "content_types", content_type_wrong) && ok;
    return ok && !why;
}

static struct slice label_of(const struct raw_route *r)
{
    return r->name.p ? r->name : r->path;
}

static void check_against_earlier(struct build *b, uint32_t i, const struct conf_path *path)
{
    const struct raw_route *raw = b->raw->routes.items;
    struct conf_path match = under(path, "match");
    struct conf_path path_key = under(&match, "path");
    struct conf_path name_key = under(path, "name");
    struct conf_place at = conf_place_option(b, match_node(b, &raw[i]), "path", NULL);
    char number[CONF_NUMBER_TEXT];

    for (uint32_t j = 0; j < i; j++) {
        if (!path_wrong(raw[j].path) && covers(&raw[j], &raw[i])) {
            CONF_FAIL(b, &at, &path_key, SLICE("\""), raw[i].path,
                      SLICE("\" is never reached: routes["),
                      conf_number_text(CONF_T_COUNT, j, number), SLICE("] takes all of it with \""),
                      raw[j].path, SLICE("\""));
            return;
        }
        if (slice_eq(label_of(&raw[j]), label_of(&raw[i]))) {
            at = conf_place_option(b, raw[i].item.node, "name", NULL);
            CONF_FAIL(b, &at, &name_key, SLICE("\""), label_of(&raw[i]),
                      SLICE("\" is what routes["), conf_number_text(CONF_T_COUNT, j, number),
                      SLICE("] is called already; give this one a name of its own"));
            return;
        }
    }
}

/* --- to the model --- */

/* What makes it another route when it changes, printed: whatever options `match` has. */
static struct slice match_text(struct build *b, const struct raw_route *raw)
{
    enum { MATCH_MAX = 1 << 20 };
    static const char *const keys[] = {"name", "match", "labels"};
    const struct conf_option *routes = conf_option_find(&conf_root, SLICE("routes"));
    struct slice text = {NULL, 0};
    struct buf out;

    buf_init(&out, b->mem, MATCH_MAX);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const struct conf_option *o = conf_option_find(routes->child, slice_str(keys[i]));
        conf_value_print(o, (const char *)raw + o->offset, &out);
    }
    if (out.err || arena_slice(b->arena, buf_slice(&out), &text))
        b->nomem = true;
    buf_fini(&out);
    return text;
}

/* @return NULL: the path alone decides. */
static const struct route_match *compile_match(struct build *b, const struct raw_route *raw)
{
    struct route_match m = {.methods = raw->methods.items,
                            .n_methods = raw->methods.n,
                            .hosts = raw->hosts.items,
                            .n_hosts = raw->hosts.n,
                            .headers = raw->headers.items,
                            .n_headers = raw->headers.n,
                            .query = raw->query.items,
                            .n_query = raw->query.n,
                            .content_types = raw->content_types.items,
                            .n_content_types = raw->content_types.n};

    if (m.n_methods + m.n_hosts + m.n_headers + m.n_query + m.n_content_types == 0)
        return NULL;
    struct route_match *kept = conf_array(b, 1, sizeof(*kept));
    if (kept)
        *kept = m;
    return kept;
}

/* @return false: a flag is wrong, which the other routes need not repeat. */
static bool compile_route(struct build *b,
                          struct conf *c,
                          const struct raw_route *raw,
                          const struct conf_path *path,
                          const struct map *names,
                          struct route *r)
{
    const struct raw_model *model =
        raw->default_model.p ? map_get(names, raw->default_model) : NULL;

    *r = (struct route){.name = raw->name,
                        .path = raw->path,
                        .match = match_text(b, raw),
                        .more = compile_match(b, raw),
                        .labels = raw->labels.items,
                        .n_labels = raw->labels.n,
                        .default_model = model ? model->item.name : raw->default_model,
                        .n_hash_on = raw->hash_on.n,
                        .half_close = raw->half_close,
                        .forwarded = raw->forwarded,
                        .timeouts = raw->timeouts,
                        .retry = raw->retry,
                        .queue = raw->queue,
                        .slo = raw->slo,
                        .trust_priority = raw->trust & (1U << TRUST_PRIORITY),
                        .trust_tenant = raw->trust & (1U << TRUST_TENANT)};
    r->queue.by_tenant = r->trust_tenant;
    memcpy(r->hash_on, raw->hash_on.items, sizeof(r->hash_on));

    struct conf_path here = under(path, "policy");
    struct conf_place at = conf_place_option(b, raw->item.node, "policy", "routes.policy");
    r->policy = conf_policy_find(b, c, raw->policy, &at, &here);
    return r->policy || !at.flag;
}

void conf_routes_compile(struct build *b, struct conf *c, const struct map *names)
{
    const struct raw_route *raw = b->raw->routes.items;
    uint32_t n = b->raw->routes.n;
    struct conf_path top = {.key = SLICE("routes")};
    struct route *routes = conf_array(b, n, sizeof(*routes));

    for (uint32_t i = 0; i < n && !b->nomem; i++) {
        struct conf_path here = {.up = &top, .index = i};
        if (check_possible(b, &raw[i], &here))
            check_against_earlier(b, i, &here);
        if (!compile_route(b, c, &raw[i], &here, names, &routes[i]))
            break;
    }
    c->routing.routes = routes;
    c->routing.n_routes = n;
}
