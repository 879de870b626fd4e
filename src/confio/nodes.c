/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libyaml's events to a flat list. What a configuration does not need is refused: anchors and aliases (a small file
 * could stand for a huge one), tags, several documents, keys that are not plain text.
 */
#include "confio/nodes.h"

#include <yaml.h>

#include "base/bug.h"
#include "base/utf8.h"

enum { NODES_MEMORY_MAX = 64 << 20 };

/* One open map or list. */
struct level {
    uint32_t node;
    bool is_map;
    bool has_key; /* the next value belongs to it */
    struct slice key;
    uint32_t key_line, key_column;
};

struct reader {
    struct confio_nodes *out;
    struct conf_errors *errors;
    struct slice file;
    struct slice text;
    struct level levels[CONF_DEPTH_MAX];
    uint32_t depth;
    uint32_t documents;
};

void confio_nodes_init(struct confio_nodes *n, const struct mem *mem)
{
    *n = (struct confio_nodes){.n = 0};
    arena_init(&n->arena, mem, NODES_MEMORY_MAX);
}

void confio_nodes_fini(struct confio_nodes *n)
{
    mem_free(n->arena.mem, n->list);
    arena_fini(&n->arena);
}

static int fail_at(struct reader *r, size_t line, size_t column, const char *what, const char *more)
{
    struct conf_place at = {
        .file = r->file, .line = (uint32_t)line + 1, .column = (uint32_t)column + 1};
    struct slice parts[] = {slice_str(what), slice_str(more ? more : "")};

    conf_error_add(r->errors, &at, parts, ARRAY_LEN(parts));
    return WEIR_E_INVALID;
}

static int fail_mark(struct reader *r, const yaml_mark_t *m, const char *what)
{
    return fail_at(r, m->line, m->column, what, NULL);
}

/* Also what libyaml would say about it, but with a place. */
static int check_text(struct reader *r)
{
    size_t line = 0;
    size_t characters = 0;

    if (r->text.n >= 2 &&
        (memcmp(r->text.p, "\xff\xfe", 2) == 0 || memcmp(r->text.p, "\xfe\xff", 2) == 0))
        return fail_at(r, 0, 0, "is UTF-16; write UTF-8", NULL);
    for (size_t i = 0; i < r->text.n; characters++) {
        unsigned char c = (unsigned char)r->text.p[i];
        size_t n = utf8_len(r->text.p + i, r->text.n - i);
        if (n == 0)
            return fail_at(r, line, characters, "is not text: this byte is not UTF-8", NULL);
        if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f)
            return fail_at(r, line, characters, "is not text: control character", NULL);
        i += n;
        if (c == '\n' || (c == '\r' && (i == r->text.n || r->text.p[i] != '\n'))) {
            line++;
            characters = SIZE_MAX; /* the loop makes it 0 */
        }
    }
    return 0;
}

static int grow(struct confio_nodes *out)
{
    uint32_t cap = out->cap ? out->cap * 2 : 64;
    struct conf_node *list = mem_resize(out->arena.mem, out->list, cap, sizeof(*list));

    if (!list)
        return WEIR_E_NOMEM;
    out->list = list;
    out->cap = cap;
    return 0;
}

/* @param at out: index of the new node, whose end is itself + 1. */
static int add_node(struct reader *r, enum conf_kind kind, const yaml_mark_t *m, uint32_t *at)
{
    struct confio_nodes *out = r->out;
    struct level *l = r->depth ? &r->levels[r->depth - 1] : NULL;

    if (out->n == CONF_NODES_MAX)
        return fail_mark(r, m, "the file has more than 100,000 values");
    if (out->n == out->cap && grow(out))
        return WEIR_E_NOMEM;
    struct conf_node *n = &out->list[out->n];
    *n = (struct conf_node){.kind = kind,
                            .line = (uint32_t)m->line + 1,
                            .column = (uint32_t)m->column + 1,
                            .end = out->n + 1};
    n->key_line = n->line;
    n->key_column = n->column;
    if (l && l->is_map) {
        n->key = l->key;
        n->key_line = l->key_line;
        n->key_column = l->key_column;
        l->has_key = false;
    }
    *at = out->n++;
    return 0;
}

static bool wants_key(const struct reader *r)
{
    return r->depth && r->levels[r->depth - 1].is_map && !r->levels[r->depth - 1].has_key;
}

static int scalar(struct reader *r, const yaml_event_t *e)
{
    struct slice text = slice_of((const char *)e->data.scalar.value, e->data.scalar.length);
    bool plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    struct slice copy;
    uint32_t at;

    if (e->data.scalar.anchor)
        return fail_mark(r, &e->start_mark,
                         "anchors (&name) are not accepted; write the value out");
    if (e->data.scalar.tag)
        return fail_mark(r, &e->start_mark, "tags (!name) are not accepted");
    if (arena_slice(&r->out->arena, text, &copy))
        return WEIR_E_NOMEM;
    if (wants_key(r)) {
        struct level *l = &r->levels[r->depth - 1];
        l->has_key = true;
        l->key = copy;
        l->key_line = (uint32_t)e->start_mark.line + 1;
        l->key_column = (uint32_t)e->start_mark.column + 1;
        return 0;
    }
    int rc = add_node(r, CONF_NODE_SCALAR, &e->start_mark, &at);
    if (rc == 0) {
        r->out->list[at].text = copy;
        r->out->list[at].quoted = !plain;
    }
    return rc;
}

static int open_level(struct reader *r,
                      const yaml_event_t *e,
                      bool is_map,
                      const yaml_char_t *anchor,
                      const yaml_char_t *tag)
{
    uint32_t at;

    if (anchor)
        return fail_mark(r, &e->start_mark,
                         "anchors (&name) are not accepted; write the value out");
    if (tag)
        return fail_mark(r, &e->start_mark, "tags (!name) are not accepted");
    if (wants_key(r))
        return fail_mark(r, &e->start_mark, "a key must be plain text");
    if (r->depth == CONF_DEPTH_MAX)
        return fail_mark(r, &e->start_mark, "nested more than 32 levels deep");
    int rc = add_node(r, is_map ? CONF_NODE_MAP : CONF_NODE_SEQ, &e->start_mark, &at);
    if (rc == 0)
        r->levels[r->depth++] = (struct level){.node = at, .is_map = is_map};
    return rc;
}

static void close_level(struct reader *r)
{
    BUG_ON(r->depth == 0);
    r->out->list[r->levels[--r->depth].node].end = r->out->n;
}

static int one_event(struct reader *r, const yaml_event_t *e)
{
    switch (e->type) {
    case YAML_SCALAR_EVENT:
        return scalar(r, e);
    case YAML_MAPPING_START_EVENT:
        return open_level(r, e, true, e->data.mapping_start.anchor, e->data.mapping_start.tag);
    case YAML_SEQUENCE_START_EVENT:
        return open_level(r, e, false, e->data.sequence_start.anchor, e->data.sequence_start.tag);
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        close_level(r);
        return 0;
    case YAML_ALIAS_EVENT:
        return fail_mark(r, &e->start_mark,
                         "aliases (*name) are not accepted; write the value out");
    case YAML_DOCUMENT_START_EVENT:
        if (r->documents++)
            return fail_mark(r, &e->start_mark, "a second document (---) is not accepted");
        return 0;
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
    case YAML_DOCUMENT_END_EVENT:
        return 0;
    }
    return 0;
}

/* The byte at a place, to tell the commonest mistake by its name. */
static char char_at(struct slice text, size_t line, size_t column)
{
    struct slice piece = {NULL, 0};

    for (size_t i = 0; i <= line; i++)
        if (!slice_cut(&text, '\n', &piece))
            return '\0';
    return column < piece.n ? piece.p[column] : '\0';
}

static int syntax_error(struct reader *r, const yaml_parser_t *p)
{
    const yaml_mark_t *m = &p->problem_mark;

    if (p->error == YAML_MEMORY_ERROR)
        return WEIR_E_NOMEM;
    if (p->error == YAML_SCANNER_ERROR && char_at(r->text, m->line, m->column) == '\t')
        return fail_mark(r, m, "a tab cannot indent; use spaces");
    return fail_at(r, m->line, m->column,
                   "not valid YAML: ", p->problem ? p->problem : "cannot be read");
}

int confio_yaml_parse(struct slice file,
                      struct slice text,
                      struct confio_nodes *out,
                      struct conf_errors *errors)
{
    struct reader r = {.out = out, .errors = errors, .file = file};
    yaml_parser_t parser;
    bool ended = false;

    if (slice_starts(text, SLICE("\xef\xbb\xbf")))
        text = slice_from(text, 3);
    r.text = text;
    int rc = check_text(&r);
    if (rc)
        return rc;
    if (!yaml_parser_initialize(&parser))
        return WEIR_E_NOMEM;
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)(text.p ? text.p : ""), text.n);
    while (rc == 0 && !ended) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event)) {
            rc = syntax_error(&r, &parser);
            break;
        }
        ended = event.type == YAML_STREAM_END_EVENT;
        rc = one_event(&r, &event);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return rc;
}
