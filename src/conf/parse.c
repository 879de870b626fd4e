/* SPDX-License-Identifier: Apache-2.0 */
/* Walks the nodes along the option table. It goes on after an error, so that one run tells all of them. */
#include "conf/parse.h"

#include "base/bug.h"
#include "base/num.h"

enum { OPTIONS_MAX = 32, PATH_TEXT = 256, KEY_SHOWN = 64 };

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
    enum { PARTS_MAX = CONF_WHY_PARTS + 4 };
    struct slice all[PARTS_MAX];
    struct path_text text = {.n = 0};
    uint32_t used = 0;

    if (path) {
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
            return (struct conf_place){.file = slice_str(b->in->overrides[i - 1].origin)};
    uint32_t child = conf_child(b, node, key);
    if (child)
        return conf_place_value(b, child);
    if (node)
        return conf_place_value(b, node);
    return (struct conf_place){.file = b->in->file};
}

static void fail_why(struct build *b,
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

static bool is_null(const struct conf_node *n)
{
    return n->kind == CONF_NODE_SCALAR && !n->quoted &&
           (n->text.n == 0 || slice_eq(n->text, SLICE("~")) || slice_eq(n->text, SLICE("null")));
}

static uint32_t count_children(const struct build *b, uint32_t node)
{
    const struct conf_node *nodes = b->in->nodes;
    uint32_t n = 0;

    for (uint32_t i = node + 1; i < nodes[node].end; i = nodes[i].end)
        n++;
    return n;
}

static const char *kind_name(const struct conf_node *n)
{
    if (is_null(n))
        return "nothing";
    return n->kind == CONF_NODE_MAP   ? "a map"
           : n->kind == CONF_NODE_SEQ ? "a list"
                                      : "a single value";
}

/* @return may the children be walked? An empty value where a list or map belongs sets nothing. */
static bool want_kind(
    struct build *b, uint32_t node, enum conf_kind kind, uint64_t max, const struct conf_path *path)
{
    const struct conf_node *n = &b->in->nodes[node];
    struct conf_place at = conf_place_value(b, node);
    char text[2][CONF_NUMBER_TEXT];

    if (n->kind != kind) {
        if (!is_null(n))
            CONF_FAIL(b, &at, path, SLICE("must be "),
                      kind == CONF_NODE_MAP ? SLICE("a map") : SLICE("a list"), SLICE(", not "),
                      slice_str(kind_name(n)));
        return false;
    }
    uint32_t count = count_children(b, node);
    if (count > max) {
        CONF_FAIL(b, &at, path, SLICE("has "), conf_number_text(CONF_T_COUNT, count, text[0]),
                  SLICE(" entries; the most is "), conf_number_text(CONF_T_COUNT, max, text[1]));
        return false;
    }
    return true;
}

static bool want_scalar(struct build *b, uint32_t node, const struct conf_path *path)
{
    const struct conf_node *n = &b->in->nodes[node];
    struct conf_place at = conf_place_value(b, node);

    if (is_null(n))
        CONF_FAIL(b, &at, path, SLICE("has no value; give one, or leave the key out"));
    else if (n->kind != CONF_NODE_SCALAR)
        CONF_FAIL(b, &at, path, SLICE("must be a single value, not "), slice_str(kind_name(n)));
    else
        return true;
    return false;
}

static void *array_of(struct build *b, uint32_t n, size_t size)
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

/* A name that the user gives: key of a map. */
static bool
parse_name(struct build *b, uint32_t node, const struct conf_path *path, struct slice *out)
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
        fail_why(b, &at, path, rc, &why);
    return rc == 0;
}

static void fail_twice(struct build *b, uint32_t node, uint32_t first, const struct conf_path *path)
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
    struct map names; /* to the nodes, so that a name given twice is found in linear time */
    uint32_t n = 0;

    if (!want_kind(b, node, named ? CONF_NODE_MAP : CONF_NODE_SEQ, o->max, path))
        return;
    char *items = array_of(b, count_children(b, node), o->child->size);
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
            const struct conf_node *first = map_get(&names, nodes[i].key);
            if (first)
                fail_twice(b, i, (uint32_t)(first - nodes), &here);
            else if (parse_name(b, i, path, &item->name) &&
                     map_put(&names, nodes[i].key, (void *)(uintptr_t)&nodes[i]))
                b->nomem = true;
        }
        if (nodes[i].kind != CONF_NODE_MAP && !(named && is_null(&nodes[i]))) {
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

static void parse_words(struct build *b,
                        const struct conf_option *o,
                        uint32_t node,
                        uint32_t *out,
                        const struct conf_path *path)
{
    const struct conf_node *nodes = b->in->nodes;
    uint32_t n = 0;

    if (!want_kind(b, node, CONF_NODE_SEQ, o->max, path))
        return;
    *out = 0;
    for (uint32_t i = node + 1; i < nodes[node].end; i = nodes[i].end, n++) {
        struct conf_path here = {.up = path, .index = n};
        struct conf_place at = conf_place_value(b, i);
        struct conf_why why = {.n = 0};
        uint32_t word = 0;

        if (!want_scalar(b, i, &here))
            continue;
        int rc = conf_word_parse(o, nodes[i].text, &word, &why);
        if (rc)
            fail_why(b, &at, &here, rc, &why);
        else
            *out |= UINT32_C(1) << word;
    }
}

static void parse_texts(struct build *b,
                        const struct conf_option *o,
                        uint32_t node,
                        struct raw_texts *out,
                        const struct conf_path *path)
{
    const struct conf_node *nodes = b->in->nodes;
    uint32_t n = 0;

    if (!want_kind(b, node, CONF_NODE_SEQ, o->max, path))
        return;
    out->items = array_of(b, count_children(b, node), sizeof(*out->items));
    out->n = 0;
    if (!out->items)
        return;
    for (uint32_t i = node + 1; i < nodes[node].end; i = nodes[i].end, n++) {
        struct conf_path here = {.up = path, .index = n};
        struct conf_place at = conf_place_value(b, i);
        struct conf_why why = {.n = 0};

        if (!want_scalar(b, i, &here))
            continue;
        if (nodes[i].text.n == 0) {
            CONF_FAIL(b, &at, &here, SLICE("must not be empty"));
            continue;
        }
        bool twice = false;
        for (uint32_t j = 0; j < out->n && !twice; j++)
            twice = slice_eq(out->items[j], nodes[i].text);
        if (twice) {
            CONF_FAIL(b, &at, &here, SLICE("is listed twice"));
            continue;
        }
        int rc =
            conf_text_parse(nodes[i].text, ENDPOINT_TEXT_MAX, b->arena, &out->items[out->n], &why);
        if (rc)
            fail_why(b, &at, &here, rc, &why);
        else
            out->n++;
    }
}

static void parse_hash_on(struct build *b,
                          const struct conf_option *o,
                          uint32_t node,
                          struct raw_hash_on *out,
                          const struct conf_path *path)
{
    const struct conf_node *nodes = b->in->nodes;
    uint32_t n = 0;

    if (!want_kind(b, node, CONF_NODE_SEQ, o->max, path))
        return;
    out->n = 0;
    for (uint32_t i = node + 1; i < nodes[node].end; i = nodes[i].end, n++) {
        struct conf_path here = {.up = path, .index = n};
        struct conf_place at = conf_place_value(b, i);
        struct conf_why why = {.n = 0};

        if (!want_scalar(b, i, &here))
            continue;
        int rc = conf_hash_on_parse(nodes[i].text, b->arena, &out->items[out->n], &why);
        if (rc)
            fail_why(b, &at, &here, rc, &why);
        else
            out->n++;
    }
}

/* One entry of a small map whose keys are the user's: duplicates are sought one by one. */
static bool
fresh_key(struct build *b, uint32_t node, uint32_t i, bool nocase, const struct conf_path *here)
{
    const struct conf_node *nodes = b->in->nodes;

    for (uint32_t j = node + 1; j < i; j = nodes[j].end)
        if (nocase ? slice_eq_nocase(nodes[j].key, nodes[i].key)
                   : slice_eq(nodes[j].key, nodes[i].key)) {
            fail_twice(b, i, j, here);
            return false;
        }
    return true;
}

static void parse_labels(struct build *b,
                         const struct conf_option *o,
                         uint32_t node,
                         struct raw_labels *out,
                         const struct conf_path *path)
{
    const struct conf_node *nodes = b->in->nodes;

    if (!want_kind(b, node, CONF_NODE_MAP, o->max, path))
        return;
    out->items = array_of(b, count_children(b, node), sizeof(*out->items));
    out->n = 0;
    if (!out->items)
        return;
    for (uint32_t i = node + 1; i < nodes[node].end; i = nodes[i].end) {
        struct conf_path here = {.up = path, .key = nodes[i].key};
        struct conf_place at = conf_place_value(b, i);
        struct conf_why why = {.n = 0};
        struct kv *label = &out->items[out->n];

        if (!fresh_key(b, node, i, false, &here) || !parse_name(b, i, path, &label->key) ||
            !want_scalar(b, i, &here))
            continue;
        int rc = conf_text_parse(nodes[i].text, ENDPOINT_TEXT_MAX, b->arena, &label->value, &why);
        if (rc)
            fail_why(b, &at, &here, rc, &why);
        else
            out->n++;
    }
}

static void parse_gpu_weights(struct build *b,
                              const struct conf_option *o,
                              uint32_t node,
                              struct raw_gpu_weights *out,
                              const struct conf_path *path)
{
    static const struct conf_option weight = {.type = CONF_T_WEIGHT, .min = 0, .max = WEIGHT_MAX};
    const struct conf_node *nodes = b->in->nodes;

    if (!want_kind(b, node, CONF_NODE_MAP, o->max, path))
        return;
    out->n = 0;
    for (uint32_t i = node + 1; i < nodes[node].end; i = nodes[i].end) {
        struct conf_path here = {.up = path, .key = nodes[i].key};
        struct conf_place at = conf_place_value(b, i);
        struct conf_why why = {.n = 0};
        struct gpu_weight *w = &out->items[out->n];

        if (!fresh_key(b, node, i, true, &here) || !parse_name(b, i, path, &w->gpu_type) ||
            !want_scalar(b, i, &here))
            continue;
        int rc = conf_scalar_parse(&weight, nodes[i].text, b->arena, &w->weight, &why);
        if (rc)
            fail_why(b, &at, &here, rc, &why);
        else
            out->n++;
    }
}

static void parse_curve(struct build *b,
                        const struct conf_option *o,
                        uint32_t node,
                        struct raw_curve *out,
                        const struct conf_path *path)
{
    static const struct conf_option factor = {
        .type = CONF_T_FACTOR, .min = Q16_ONE / 100, .max = 100 * (uint64_t)Q16_ONE};
    const struct conf_node *nodes = b->in->nodes;

    if (!want_kind(b, node, CONF_NODE_MAP, o->max, path))
        return;
    out->n = 0;
    for (uint32_t i = node + 1; i < nodes[node].end; i = nodes[i].end) {
        struct conf_path here = {.up = path, .key = nodes[i].key};
        struct conf_place key_at = conf_place_key(b, i);
        struct conf_place at = conf_place_value(b, i);
        struct conf_why why = {.n = 0};
        struct curve_point *p = &out->items[out->n];
        struct slice key = nodes[i].key;
        uint64_t bp = 0;

        if (key.n && key.p[key.n - 1] == '%')
            key.n--;
        if (num_scaled(key, 100, &bp) || bp > 10000) {
            CONF_FAIL(b, &key_at, &here,
                      SLICE("the utilization must be a percentage from 0 to 100"));
            continue;
        }
        if (out->n && bp <= out->items[out->n - 1].util_bp) {
            CONF_FAIL(b, &key_at, &here,
                      SLICE("utilizations must rise from one point to the next"));
            continue;
        }
        if (!want_scalar(b, i, &here))
            continue;
        int rc = conf_scalar_parse(&factor, nodes[i].text, b->arena, &p->q16, &why);
        if (rc) {
            fail_why(b, &at, &here, rc, &why);
            continue;
        }
        p->util_bp = (uint32_t)bp;
        out->n++;
    }
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
        if (want_kind(b, node, CONF_NODE_MAP, UINT64_MAX, path))
            parse_section(b, o->child, node, at, path);
        return;
    case CONF_T_LIST:
    case CONF_T_MAP:
        parse_items(b, o, node, at, path);
        return;
    case CONF_T_WORDS:
        parse_words(b, o, node, at, path);
        return;
    case CONF_T_TEXTS:
        parse_texts(b, o, node, at, path);
        return;
    case CONF_T_HASH_ON:
        parse_hash_on(b, o, node, at, path);
        return;
    case CONF_T_LABELS:
        parse_labels(b, o, node, at, path);
        return;
    case CONF_T_GPU_WEIGHTS:
        parse_gpu_weights(b, o, node, at, path);
        return;
    case CONF_T_CURVE:
        parse_curve(b, o, node, at, path);
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
        if (!want_scalar(b, node, path))
            return;
        rc = conf_scalar_parse(o, b->in->nodes[node].text, b->arena, at, &why);
        if (rc)
            fail_why(b, &place, path, rc, &why);
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
            fail_twice(b, i, seen[o - s->options], &here);
        } else {
            seen[o - s->options] = i;
            parse_value(b, o, i, (char *)base + o->offset, &here);
        }
    }
    struct conf_place at = conf_place_value(b, node);
    for (uint32_t i = 0; i < s->n_options; i++) {
        struct conf_path here = {.up = path, .key = slice_str(s->options[i].key)};
        if ((s->options[i].flags & CONF_REQUIRED) && !seen[i])
            CONF_FAIL(b, &at, &here, SLICE("is missing"));
    }
}

void conf_parse(struct build *b)
{
    struct conf_place at = {.file = b->in->file};

    conf_defaults(b, &conf_root, b->raw);
    if (b->in->n_nodes == 0 || is_null(&b->in->nodes[0]))
        return;
    if (b->in->nodes[0].kind != CONF_NODE_MAP) {
        at = conf_place_value(b, 0);
        CONF_FAIL(b, &at, NULL, SLICE("the file must be a map of keys, not "),
                  slice_str(kind_name(&b->in->nodes[0])));
        return;
    }
    parse_section(b, &conf_root, 0, b->raw, NULL);
}
