/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/json_tree.h"

#include "base/buf.h"
#include "base/num.h"
#include "wire/json_scan.h"

struct builder {
    struct arena *a;
    struct json_node *root;
    struct json_node *open[JSON_DEPTH_MAX];  /* arrays and objects we are inside */
    struct json_node **tail[JSON_DEPTH_MAX]; /* where their next child goes */
    unsigned depth;
    struct slice key;
    struct buf text; /* a string that came in pieces */
};

static struct json_node *add(struct builder *b, enum json_node_kind kind)
{
    struct json_node *n = arena_array(b->a, 1, sizeof(*n));

    if (!n)
        return NULL;
    n->kind = kind;
    if (b->depth == 0) {
        b->root = n;
        return n;
    }
    n->key = b->key;
    b->key = (struct slice){NULL, 0};
    *b->tail[b->depth - 1] = n;
    b->tail[b->depth - 1] = &n->next;
    b->open[b->depth - 1]->n++;
    return n;
}

static int open_node(struct builder *b, enum json_node_kind kind)
{
    struct json_node *n = add(b, kind);

    if (!n)
        return WEIR_E_NOMEM;
    if (b->depth == JSON_DEPTH_MAX)
        return WEIR_E_FULL;
    b->open[b->depth] = n;
    b->tail[b->depth] = &n->first;
    b->depth++;
    return 0;
}

/* Texts that came whole need no second copy. */
static int whole(struct builder *b, struct slice piece, bool last, struct slice *out)
{
    if (!last || buf_len(&b->text)) {
        buf_put_slice(&b->text, piece);
        piece = buf_slice(&b->text);
    }
    if (b->text.err)
        return b->text.err;
    if (!last)
        return 0;
    int rc = arena_slice(b->a, slice_of(piece.n ? piece.p : "", piece.n), out);
    buf_clear(&b->text);
    return rc;
}

static int on_event(void *ctx, enum json_event event, struct slice text, bool last)
{
    static const enum json_node_kind kinds[] = {
        [JSON_SCAN_TRUE] = JSON_NODE_TRUE,
        [JSON_SCAN_FALSE] = JSON_NODE_FALSE,
        [JSON_SCAN_NULL] = JSON_NODE_NULL,
    };
    struct builder *b = ctx;
    struct slice value;
    int rc;

    switch (event) {
    case JSON_SCAN_OBJECT_BEGIN:
        return open_node(b, JSON_NODE_OBJECT);
    case JSON_SCAN_ARRAY_BEGIN:
        return open_node(b, JSON_NODE_ARRAY);
    case JSON_SCAN_OBJECT_END:
    case JSON_SCAN_ARRAY_END:
        b->depth--;
        return 0;
    case JSON_SCAN_KEY:
        return whole(b, text, last, &b->key);
    case JSON_SCAN_STRING:
    case JSON_SCAN_NUMBER:
        rc = whole(b, text, event == JSON_SCAN_NUMBER || last, &value);
        if (rc || (event == JSON_SCAN_STRING && !last))
            return rc;
        struct json_node *n =
            add(b, event == JSON_SCAN_STRING ? JSON_NODE_STRING : JSON_NODE_NUMBER);
        if (!n)
            return WEIR_E_NOMEM;
        n->text = value;
        return 0;
    case JSON_SCAN_TRUE:
    case JSON_SCAN_FALSE:
    case JSON_SCAN_NULL:
        return add(b, kinds[event]) ? 0 : WEIR_E_NOMEM;
    }
    return 0;
}

int wire_json_tree(struct arena *a, struct slice text, const struct json_node **root)
{
    struct builder b = {.a = a};
    struct json_scan scan;

    buf_init(&b.text, a->mem, a->max);
    wire_json_init(&scan, on_event, &b);
    int rc = wire_json_scan(&scan, text.p, text.n);
    if (rc == 0)
        rc = wire_json_end(&scan);
    buf_fini(&b.text);
    *root = rc ? NULL : b.root;
    return rc;
}

const struct json_node *wire_json_get(const struct json_node *o, const char *key)
{
    const struct json_node *found = NULL;

    if (!wire_json_is(o, JSON_NODE_OBJECT))
        return NULL;
    for (const struct json_node *n = o->first; n; n = n->next)
        if (slice_eq(n->key, slice_str(key)))
            found = n;
    return found;
}

struct slice wire_json_text(const struct json_node *n)
{
    return wire_json_is(n, JSON_NODE_STRING) ? n->text : (struct slice){NULL, 0};
}

bool wire_json_number(const struct json_node *n, double *out)
{
    return wire_json_is(n, JSON_NODE_NUMBER) && num_f64(n->text, out) == 0;
}
