/* SPDX-License-Identifier: Apache-2.0 */
/* Walks the nodes along the option table. It goes on after an error, so that one run tells all of them. */
#include "conf/parse_flow.h"

#include "base/bug.h"

enum { OPTIONS_MAX = 48, PATH_TEXT = 256, KEY_SHOWN = 64 };

struct path_text {
    char text[PATH_TEXT];
    size_t n;
};

static void path_add(struct path_text *t, struct slice s)
{
    size_t n = MIN(s.n, (size_t)KEY_SHOWN);

    n = MIN(n, sizeof(t->text) - t->n);
    if (n)
        memcpy(t->text + t->n, s.p, n);
    t->n += n;
}

static void path_write(const struct conf_path *path, struct path_text *t)
{
    char number[CONF_NUMBER_TEXT];

    if (path->up)
        path_write(path->up, t);
    if (path->key.p) {
        if (t->n)
            path_add(t, SLICE("."));
        path_add(t, path->key);
        return;
    }
    path_add(t, SLICE("["));
    path_add(t, conf_number_text(CONF_T_COUNT, path->index, number));
    path_add(t, SLICE("]"));
}

void conf_fail_parts(struct build *b,
                     const struct conf_place *at,
                     const struct conf_path *path,
                     const struct slice *parts,
                     uint32_t n)
{
    enum { PARTS_MAX = 160 }; /* a list of every name there is; the text itself is cut sooner */
    struct slice all[PARTS_MAX];
    struct path_text text = {.n = 0};
    uint32_t used = 0;

    if (path && !at->flag) {
        path_write(path, &text);
        all[used++] = slice_of(text.text, text.n);
        all[used++] = SLICE(": ");
    }
    for (uint32_t i = 0; i < n && used < PARTS_MAX; i++)
        all[used++] = parts[i];
    conf_error_add(b->errors, at, all, used);
}

struct conf_place conf_place_value(const struct build *b, uint32_t node)
{
    const struct conf_node *n = &b->in->nodes[node];

    return (struct conf_place){.file = b->in->file, .line = n->line, .column = n->column};
}

struct conf_place conf_place_key(const struct build *b, uint32_t node)
{
    const struct conf_node *n = &b->in->nodes[node];

    return (struct conf_place){.file = b->in->file, .line = n->key_line, .column = n->key_column};
}

uint32_t conf_child(const struct build *b, uint32_t node, const char *key)
{
    const struct conf_node *nodes = b->in->nodes;

    if (b->in->n_nodes == 0 || nodes[node].kind != CONF_NODE_MAP)
        return 0;
    for (uint32_t i = node + 1; i < nodes[node].end; i = nodes[i].end)
        if (slice_eq(nodes[i].key, slice_str(key)))
            return i;
    return 0;
}

uint32_t conf_nth(const struct build *b, uint32_t node, uint32_t n)
{
    const struct conf_node *nodes = b->in->nodes;

    if (b->in->n_nodes == 0)
        return 0;
    for (uint32_t i = node + 1; i < nodes[node].end; i = nodes[i].end)
        if (n-- == 0)
            return i;
    return 0;
}

struct conf_place
conf_place_option(const struct build *b, uint32_t node, const char *key, const char *path)
{
    for (uint32_t i = b->in->n_overrides; path && i > 0; i--)
        if (strcmp(b->in->overrides[i - 1].path, path) == 0)
            return (struct conf_place){.file = slice_str(b->in->overrides[i - 1].origin),
                                       .flag = true};
    uint32_t child = conf_child(b, node, key);
    if (child)
        return conf_place_value(b, child);
    if (node)
        return conf_place_value(b, node);
    return (struct conf_place){.file = b->in->file};
}

void conf_fail_why(struct build *b,
                   const struct conf_place *at,
                   const struct conf_path *path,
                   int rc,
                   const struct conf_why *why)
{
    if (rc == WEIR_E_NOMEM)
        b->nomem = true;
    else
        conf_fail_parts(b, at, path, why->parts, why->n);
}

/* --- defaults --- */

void conf_defaults(struct build *b, const struct conf_section *s, void *base)
{
    for (uint32_t i = 0; i < s->n_options; i++) {
        const struct conf_option *o = &s->options[i];
        void *at = (char *)base + o->offset;
        struct conf_why why = {.n = 0};
        int rc = 0;

        if (o->type == CONF_T_SECTION) {
            conf_defaults(b, o->child, at);
        } else if (o->type == CONF_T_HASH_ON) {
            struct raw_hash_on *h = at;
            rc = conf_hash_on_parse(slice_str(o->fallback), b->arena, &h->items[0], &why);
            h->n = rc ? 0 : 1;
        } else if (o->fallback) {
            rc = conf_scalar_parse(o, slice_str(o->fallback), b->arena, at, &why);
        }
        BUG_ON(rc && rc != WEIR_E_NOMEM); /* the table contradicts itself */
        if (rc)
            b->nomem = true;
    }
}

/* --- values --- */

bool conf_node_null(const struct conf_node *n)
{
    return n->kind == CONF_NODE_SCALAR && !n->quoted &&
           (n->text.n == 0 || slice_eq(n->text, SLICE("~")) || slice_eq(n->text, SLICE("null")));
}

uint32_t conf_children(const struct build *b, uint32_t node)
{
    const struct conf_node *nodes = b->in->nodes;
    uint32_t n = 0;

    for (uint32_t i = node + 1; i < nodes[node].end; i = nodes[i].end)
        n++;
    return n;
}

static const char *kind_name(const struct conf_node *n)
{
    if (conf_node_null(n))
        return "nothing";
    return n->kind == CONF_NODE_MAP   ? "a map"
           : n->kind == CONF_NODE_SEQ ? "a list"
                                      : "a single value";
}

bool conf_want_kind(
    struct build *b, uint32_t node, enum conf_kind kind, uint64_t max, const struct conf_path *path)
{
    const struct conf_node *n = &b->in->nodes[node];
    struct conf_place at = conf_place_value(b, node);
    char text[2][CONF_NUMBER_TEXT];

    if (n->kind != kind) {
        if (!conf_node_null(n))
            CONF_FAIL(b, &at, path, SLICE("must be "),
                      kind == CONF_NODE_MAP ? SLICE("a map") : SLICE("a list"), SLICE(", not "),
                      slice_str(kind_name(n)));
        return false;
    }
    uint32_t count = conf_children(b, node);
    if (count > max) {
        CONF_FAIL(b, &at, path, SLICE("has "), conf_number_text(CONF_T_COUNT, count, text[0]),
                  SLICE(" entries; the most is "), conf_number_text(CONF_T_COUNT, max, text[1]));
        return false;
    }
    return true;
}

bool conf_want_scalar(struct build *b, uint32_t node, const struct conf_path *path)
{
    const struct conf_node *n = &b->in->nodes[node];
    struct conf_place at = conf_place_value(b, node);

    if (conf_node_null(n))
        CONF_FAIL(b, &at, path, SLICE("has no value; give one, or leave the key out"));
    else if (n->kind != CONF_NODE_SCALAR)
        CONF_FAIL(b, &at, path, SLICE("must be a single value, not "), slice_str(kind_name(n)));
    else
        return true;
    return false;
}

void *conf_array(struct build *b, uint32_t n, size_t size)
{
    void *p = arena_array(b->arena, n, size);

    if (!p)
        b->nomem = true;
    return p;
}

static void parse_section(struct build *b,
                          const struct conf_section *s,
                          uint32_t node,
                          void *base,
                          const struct conf_path *path);

bool conf_parse_name(struct build *b,
                     uint32_t node,
                     const struct conf_path *path,
                     struct slice *out)
{
    struct slice key = b->in->nodes[node].key;
    struct conf_place at = conf_place_key(b, node);
    struct conf_why why = {.n = 0};

    if (key.n == 0) {
        CONF_FAIL(b, &at, path, SLICE("a name must not be empty"));
        return false;
    }
    int rc = conf_text_parse(key, ENDPOINT_TEXT_MAX, b->arena, out, &why);
    if (rc)
        conf_fail_why(b, &at, path, rc, &why);
    return rc == 0;
}

void conf_fail_twice(struct build *b, uint32_t node, uint32_t first, const struct conf_path *path)
{
    struct conf_place at = conf_place_key(b, node);
    char line[CONF_NUMBER_TEXT];

    CONF_FAIL(b, &at, path, SLICE("is given twice; first in line "),
              conf_number_text(CONF_T_COUNT, b->in->nodes[first].key_line, line));
}

static void parse_items(struct build *b,
                        const struct conf_option *o,
                        uint32_t node,
                        struct raw_list *out,
                        const struct conf_path *path)
{
    const struct conf_node *nodes = b->in->nodes;
    bool named = o->type == CONF_T_MAP;
    struct map names; /* to the items, so that a name given twice is found in linear time */
    uint32_t n = 0;

    if (!conf_want_kind(b, node, named ? CONF_NODE_MAP : CONF_NODE_SEQ, o->max, path))
        return;
    char *items = conf_array(b, conf_children(b, node), o->child->size);
    if (!items)
        return;
    map_init(&names, b->mem);
    for (uint32_t i = node + 1; i < nodes[node].end && !b->nomem; i = nodes[i].end, n++) {
        struct conf_path here = {.up = path, .key = nodes[i].key, .index = n};
        void *at = items + (size_t)n * o->child->size;
        struct raw_item *item = at;

        conf_defaults(b, o->child, at);
        item->node = i;
        if (named) {
            const struct raw_item *first = map_get(&names, nodes[i].key);
            if (first)
                conf_fail_twice(b, i, first->node, &here);
            else if (conf_parse_name(b, i, path, &item->name) &&
                     map_put(&names, nodes[i].key, item))
                b->nomem = true;
        }
        if (nodes[i].kind != CONF_NODE_MAP && !(named && conf_node_null(&nodes[i]))) {
            struct conf_place place = conf_place_value(b, i);
            CONF_FAIL(b, &place, &here, SLICE("must be a map, not "),
                      slice_str(kind_name(&nodes[i])));
            continue;
        }
        parse_section(b, o->child, i, at, &here);
    }
    map_fini(&names);
    out->items = items;
    out->n = n;
}

static void parse_value(struct build *b,
                        const struct conf_option *o,
                        uint32_t node,
                        void *at,
                        const struct conf_path *path)
{
    struct conf_place place = conf_place_value(b, node);
    struct conf_place key_place = conf_place_key(b, node);
    struct conf_why why = {.n = 0};
    int rc;

    switch (o->type) {
    case CONF_T_SECTION:
        if (conf_want_kind(b, node, CONF_NODE_MAP, UINT64_MAX, path))
            parse_section(b, o->child, node, at, path);
        return;
    case CONF_T_LIST:
    case CONF_T_MAP:
        parse_items(b, o, node, at, path);
        return;
    case CONF_T_WORDS:
        conf_parse_words(b, o, node, at, path);
        return;
    case CONF_T_TEXTS:
        conf_parse_texts(b, o, node, at, path);
        return;
    case CONF_T_HASH_ON:
        conf_parse_hash_on(b, o, node, at, path);
        return;
    case CONF_T_LABELS:
        conf_parse_labels(b, o, node, at, path);
        return;
    case CONF_T_GPU_WEIGHTS:
        conf_parse_gpu_weights(b, o, node, at, path);
        return;
    case CONF_T_CURVE:
        conf_parse_curve(b, o, node, at, path);
        return;
    case CONF_T_LATER:
        CONF_FAIL(b, &key_place, path, SLICE("is not supported yet in this version; leave it out"));
        return;
    case CONF_T_BOOL:
    case CONF_T_COUNT:
    case CONF_T_RATE:
    case CONF_T_WEIGHT:
    case CONF_T_FACTOR:
    case CONF_T_DURATION:
    case CONF_T_SIZE:
    case CONF_T_WORD:
    case CONF_T_TEXT:
    case CONF_T_ADDRESS:
    case CONF_T_SECRET:
    case CONF_T_FILE:
        if (!conf_want_scalar(b, node, path))
            return;
        rc = conf_scalar_parse(o, b->in->nodes[node].text, b->arena, at, &why);
        if (rc)
            conf_fail_why(b, &place, path, rc, &why);
        return;
    }
}

static void fail_unknown(struct build *b,
                         const struct conf_section *s,
                         uint32_t node,
                         const struct conf_path *path)
{
    const char *known[OPTIONS_MAX];
    struct slice key = b->in->nodes[node].key;
    struct conf_place at = conf_place_key(b, node);
    struct path_text where = {.n = 0};
    struct slice parts[2 * OPTIONS_MAX + 8];
    uint32_t n = 0;
    uint32_t n_known = 0;

    if (b->errors->n == CONF_ERRORS_MAX) {
        b->errors->total++; /* nobody will read it */
        return;
    }
    for (uint32_t i = 0; i < s->n_options; i++)
        if (s->options[i].type != CONF_T_LATER)
            known[n_known++] = s->options[i].key;
    if (path)
        path_write(path, &where);
    parts[n++] = SLICE("unknown key \"");
    parts[n++] = slice_of(key.p, MIN(key.n, (size_t)KEY_SHOWN));
    parts[n++] = path ? SLICE("\" in ") : SLICE("\" at the top level");
    parts[n++] = slice_of(where.text, where.n);
    struct slice near = conf_nearest(key, known, n_known);
    if (near.p) {
        parts[n++] = SLICE("; did you mean \"");
        parts[n++] = near;
        parts[n++] = SLICE("\"?");
    } else {
        parts[n++] = SLICE("; known are ");
        for (uint32_t i = 0; i < n_known; i++) {
            if (i)
                parts[n++] = SLICE(", ");
            parts[n++] = slice_str(known[i]);
        }
    }
    conf_error_add(b->errors, &at, parts, n);
}

/* Keys that the given type has no use for are errors. @param fits out: those that count; none where the type is unknown. */
static void check_type(struct build *b,
                       const struct conf_section *s,
                       const uint32_t *seen,
                       const void *base,
                       const struct conf_path *path,
                       bool *fits)
{
    const struct conf_option *type = conf_option_find(s, SLICE("type"));

    for (uint32_t i = 0; i < s->n_options; i++) {
        const struct conf_option *o = &s->options[i];
        fits[i] = !o->only || (seen[type - s->options] && conf_option_counts(s, o, base));
        if (fits[i] || !seen[i] || !seen[type - s->options])
            continue;
        struct conf_path here = {.up = path, .key = slice_str(o->key)};
        struct conf_place at = conf_place_key(b, seen[i]);
        CONF_FAIL(b, &at, &here, SLICE("means nothing with type \""),
                  b->in->nodes[seen[type - s->options]].text, SLICE("\""));
    }
}

static void parse_section(struct build *b,
                          const struct conf_section *s,
                          uint32_t node,
                          void *base,
                          const struct conf_path *path)
{
    const struct conf_node *nodes = b->in->nodes;
    uint32_t seen[OPTIONS_MAX] = {0};

    BUG_ON(s->n_options > OPTIONS_MAX);
    for (uint32_t i = node + 1; i < nodes[node].end && !b->nomem; i = nodes[i].end) {
        const struct conf_option *o = conf_option_find(s, nodes[i].key);
        struct conf_path here = {.up = path, .key = nodes[i].key};

        if (!o) {
            fail_unknown(b, s, i, path);
        } else if (seen[o - s->options]) {
            conf_fail_twice(b, i, seen[o - s->options], &here);
        } else {
            seen[o - s->options] = i;
            parse_value(b, o, i, (char *)base + o->offset, &here);
        }
    }
    struct conf_place at = conf_place_value(b, node);
    bool fits[OPTIONS_MAX];
    check_type(b, s, seen, base, path, fits);
    for (uint32_t i = 0; i < s->n_options; i++) {
        struct conf_path here = {.up = path, .key = slice_str(s->options[i].key)};
        if ((s->options[i].flags & CONF_REQUIRED) && !seen[i] && fits[i])
            CONF_FAIL(b, &at, &here, SLICE("is missing"));
    }
}

static void parse_endpoints(struct build *b)
{
    struct raw_source *source = conf_array(b, 1, sizeof(*source));

    if (!source)
        return;
    conf_defaults(b, conf_option_find(&conf_root, SLICE("discovery"))->child, source);
    parse_section(b, &conf_endpoints_root, 0, source, NULL);
    b->raw->discovery = (struct raw_list){.items = source, .n = 1};
}

void conf_parse(struct build *b)
{
    struct conf_place at = {.file = b->in->file};

    conf_defaults(b, &conf_root, b->raw);
    if (b->in->n_nodes == 0 || conf_node_null(&b->in->nodes[0]))
        return;
    if (b->in->nodes[0].kind != CONF_NODE_MAP) {
        at = conf_place_value(b, 0);
        CONF_FAIL(b, &at, NULL, SLICE("the file must be a map of keys, not "),
                  slice_str(kind_name(&b->in->nodes[0])));
        return;
    }
    if (b->in->endpoints_only)
        parse_endpoints(b);
    else
        parse_section(b, &conf_root, 0, b->raw, NULL);
}
