/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where in a body the model's name stands, so that an alias can be replaced there and nowhere else. Runs only for
 * requests that use an alias, over the part of the body that is held anyway.
 *
 * JSON: the body is scanned in blocks; the block in which the key "model" ends is scanned again byte by byte from the
 * scanner's saved state, which gives the exact places without the scanner having to know about them.
 */
#include "proxy/exchange.h"

enum { BLOCK = 4096 };

struct finder {
    unsigned depth;
    bool key_is_model; /* so far */
    unsigned key_at;   /* bytes of the key seen */
    bool model_next;   /* the next value is the model's */
    bool done;         /* its string has ended */
    bool other;        /* it is no string */
};

static int on_event(void *ctx, enum json_event event, struct slice text, bool last)
{
    static const char model[] = "model";
    struct finder *f = ctx;

    if (event == JSON_SCAN_KEY) {
        for (size_t i = 0; i < text.n; i++, f->key_at++)
            f->key_is_model =
                f->key_is_model && f->key_at < sizeof(model) - 1 && text.p[i] == model[f->key_at];
        if (last) {
            f->model_next = f->depth == 1 && f->key_is_model && f->key_at == sizeof(model) - 1;
            f->key_at = 0;
            f->key_is_model = true;
        }
        return 0;
    }
    if (f->model_next && (event != JSON_SCAN_STRING || last)) {
        f->done = event == JSON_SCAN_STRING;
        f->other = !f->done;
        f->model_next = false;
    }
    if (event == JSON_SCAN_OBJECT_BEGIN || event == JSON_SCAN_ARRAY_BEGIN)
        f->depth++;
    else if (event == JSON_SCAN_OBJECT_END || event == JSON_SCAN_ARRAY_END)
        f->depth--;
    return 0;
}

/* The next value of "model" from *at on. @return false when there is none, or the rest is no JSON. */
static bool
find_next(struct json_scan *scan, struct finder *f, struct slice body, size_t *at, size_t *from)
{
    f->model_next = f->done = f->other = false;
    for (;;) {
        struct json_scan before = *scan;
        struct finder f_before = *f;
        size_t n = MIN((size_t)BLOCK, body.n - *at);
        if (n == 0)
            return false;
        int rc = wire_json_scan(scan, body.p + *at, n);
        if (f->model_next || f->done || f->other) {
            *scan = before;
            *f = f_before;
            break;
        }
        if (rc)
            return false;
        *at += n;
    }
    /* Byte by byte: to the end of the key, then to the end of its value. */
    while (*at < body.n && !f->model_next)
        if (wire_json_scan(scan, body.p + (*at)++, 1) != 0)
            return false;
    while (*at < body.n && body.p[*at] != '"' && !f->other)
        if (wire_json_scan(scan, body.p + (*at)++, 1) != 0)
            return false;
    *from = *at;
    while (*at < body.n && !f->done && !f->other)
        if (wire_json_scan(scan, body.p + (*at)++, 1) != 0)
            return false;
    return f->done || f->other;
}

bool alias_find_json(struct slice body, size_t *from, size_t *to)
{
    struct finder f = {.key_is_model = true};
    struct json_scan scan;
    size_t at = 0;
    size_t start;
    bool found = false;

    wire_json_init(&scan, on_event, &f);
    /* Of a key that stands twice the last counts. */
    while (find_next(&scan, &f, body, &at, &start)) {
        found = f.done;
        *from = start;
        *to = at;
    }
    return found;
}

/* A file does not count, whatever it is called: peek_multipart_feed() reads it so. */
static bool names_model(struct slice head)
{
    struct slice name;

    return !peek_multipart_name(head, &name) && slice_eq(name, SLICE("model"));
}

bool alias_find_form(struct slice body, struct slice delimiter, size_t *from, size_t *to)
{
    static const struct slice blank = SLICE("\r\n\r\n");
    /* The first delimiter may stand at the very start, without its CR LF. */
    struct slice first = slice_from(delimiter, 2);
    const char *at = body.n >= first.n && memcmp(body.p, first.p, first.n) == 0
                         ? body.p + first.n
                         : memmem(body.p, body.n, delimiter.p, delimiter.n);
    const char *end = body.p + body.n;
    bool found = false;

    if (at && at != body.p + first.n)
        at += delimiter.n;
    while (at) {
        const char *value = memmem(at, (size_t)(end - at), blank.p, blank.n);
        if (!value)
            break;
        struct slice head = slice_of(at, (size_t)(value - at));
        value += blank.n;
        const char *next = memmem(value - 2, (size_t)(end - value) + 2, delimiter.p, delimiter.n);
        if (!next)
            break;
        /* Of a field that stands twice the last counts. */
        if (names_model(head) && next >= value) {
            *from = (size_t)(value - body.p);
            *to = (size_t)(next - body.p);
            found = true;
        }
        at = next + delimiter.n;
    }
    return found;
}
