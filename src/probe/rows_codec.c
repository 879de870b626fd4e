/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scanner's events are followed with three depths in mind: the list's key, the row's key, and one level below it.
 * Everything deeper is passed over.
 */
#include "probe/rows_codec.h"

#include "base/bug.h"
#include "wire/json_scan.h"

enum { KEY_MAX = 64, VALUE_MAX = 512 };

struct text {
    uint16_t n;
    bool too_long;
    bool present;
    char bytes[VALUE_MAX];
};

struct walk {
    const struct engine_rows_shape *shape;
    engine_rows_fn on_row;
    void *ctx;
    unsigned depth;     /* objects and arrays we are inside */
    unsigned row_depth; /* depth inside a row; 0 = in no list */
    bool top_is_list;
    bool in_list; /* inside a list of rows that the top-level object has */
    bool any_list;
    bool in_row;
    char key[2][KEY_MAX]; /* of the row, and of an object inside it */
    uint16_t key_n[2];    /* above KEY_MAX: too long to be one we know */
    char list_key[KEY_MAX];
    uint16_t list_key_n;
    int field; /* whose text is coming in; -1 = nobody's */
    bool in_text;
    struct text values[ENGINE_ROWS_FIELDS_MAX];
};

static void key_put(char *key, uint16_t *n, struct slice piece)
{
    if (*n + piece.n > KEY_MAX) {
        *n = KEY_MAX + 1;
        return;
    }
    memcpy(key + *n, piece.p, piece.n);
    *n = (uint16_t)(*n + piece.n);
}

static bool key_is(const char *key, uint16_t n, struct slice word)
{
    return n == word.n && memcmp(key, word.p, word.n) == 0;
}

static bool is_list(const struct walk *w)
{
    for (const char *const *l = w->shape->lists; l && *l; l++)
        if (w->list_key_n <= KEY_MAX && key_is(w->list_key, w->list_key_n, slice_str(*l)))
            return true;
    return false;
}

/* The wanted field that the keys name now, or -1. */
static int field_now(const struct walk *w)
{
    unsigned level = w->depth - w->row_depth;

    if (!w->in_row || level > 1 || w->key_n[0] > KEY_MAX || w->key_n[level] > KEY_MAX)
        return -1;
    for (int i = 0; w->shape->fields[i]; i++) {
        struct slice name = slice_str(w->shape->fields[i]);
        size_t dot = slice_find(name, '.');
        if ((dot < name.n) != (level == 1))
            continue;
        if (key_is(w->key[0], w->key_n[0], slice_of(name.p, dot)) &&
            (level == 0 || key_is(w->key[1], w->key_n[1], slice_from(name, dot + 1))))
            return i;
    }
    return -1;
}

static void value_put(struct text *t, struct slice piece)
{
    if (t->n + piece.n > VALUE_MAX) {
        t->too_long = true;
        return;
    }
    memcpy(t->bytes + t->n, piece.p, piece.n);
    t->n = (uint16_t)(t->n + piece.n);
}

static void on_key(struct walk *w, struct slice text, bool last)
{
    char *key = w->list_key;
    uint16_t *n = &w->list_key_n;

    if (w->in_row) {
        unsigned level = w->depth - w->row_depth;
        if (level > 1)
            return;
        key = w->key[level];
        n = &w->key_n[level];
    } else if (w->depth != 1) {
        return;
    }
    if (!w->in_text)
        *n = 0;
    w->in_text = !last;
    key_put(key, n, text);
}

static void on_value(struct walk *w, struct slice text, bool last)
{
    if (!w->in_text) {
        w->field = field_now(w);
        if (w->field >= 0)
            w->values[w->field] = (struct text){.present = true};
    }
    w->in_text = !last;
    if (w->field >= 0)
        value_put(&w->values[w->field], text);
}

static int row_end(struct walk *w)
{
    struct slice values[ENGINE_ROWS_FIELDS_MAX] = {{NULL, 0}};

    for (int i = 0; w->shape->fields[i]; i++)
        if (w->values[i].present && !w->values[i].too_long)
            values[i] = slice_of(w->values[i].bytes, w->values[i].n);
    w->in_row = false;
    w->row_depth = 0;
    return w->on_row(w->ctx, values);
}

static void on_open(struct walk *w, bool object)
{
    bool single = !w->shape->lists && w->depth == 0 && object;
    bool in_list = (w->depth == 1 && w->top_is_list) || (w->depth == 2 && w->in_list);

    if (w->depth == 0)
        w->top_is_list = w->any_list = !object;
    else if (w->depth == 1 && !object && !w->top_is_list && is_list(w))
        w->any_list = w->in_list = true;
    w->depth++;
    if (!w->in_row && object && (single || in_list)) {
        w->any_list = true;
        w->in_row = true;
        w->row_depth = w->depth;
        w->key_n[0] = w->key_n[1] = 0;
        for (int i = 0; w->shape->fields[i]; i++)
            w->values[i].present = false;
    } else if (w->in_row && w->depth - w->row_depth == 1) {
        w->key_n[1] = object ? 0 : KEY_MAX + 1;
    }
}

static int on_close(struct walk *w)
{
    w->depth--;
    if (w->depth == 1)
        w->in_list = false;
    return w->in_row && w->depth < w->row_depth ? row_end(w) : 0;
}

static int on_event(void *ctx, enum json_event event, struct slice text, bool last)
{
    struct walk *w = ctx;

    switch (event) {
    case JSON_SCAN_OBJECT_BEGIN:
    case JSON_SCAN_ARRAY_BEGIN:
        on_open(w, event == JSON_SCAN_OBJECT_BEGIN);
        return 0;
    case JSON_SCAN_OBJECT_END:
    case JSON_SCAN_ARRAY_END:
        return on_close(w);
    case JSON_SCAN_KEY:
        on_key(w, text, last);
        return 0;
    case JSON_SCAN_STRING:
        on_value(w, text, last);
        return 0;
    case JSON_SCAN_NUMBER:
        on_value(w, text, true);
        return 0;
    case JSON_SCAN_TRUE:
        on_value(w, SLICE("true"), true);
        return 0;
    case JSON_SCAN_FALSE:
        on_value(w, SLICE("false"), true);
        return 0;
    case JSON_SCAN_NULL:
    default:
        return 0;
    }
}

int engine_rows_read(struct slice body,
                     const struct engine_rows_shape *shape,
                     engine_rows_fn on_row,
                     void *ctx)
{
    struct walk w = {.shape = shape, .on_row = on_row, .ctx = ctx, .field = -1};
    struct json_scan scan;

    for (unsigned i = 0; shape->fields[i]; i++)
        BUG_ON(i >= ENGINE_ROWS_FIELDS_MAX);
    wire_json_init(&scan, on_event, &w);
    int rc = wire_json_scan(&scan, body.p, body.n);
    if (rc == 0)
        rc = wire_json_end(&scan);
    if (rc == WEIR_E_PROTO || (rc == WEIR_E_FULL && scan.error))
        return WEIR_E_INVALID;
    return rc == 0 && !w.any_list ? WEIR_E_INVALID : rc;
}
