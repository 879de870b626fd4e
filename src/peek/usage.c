/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes "usage" between quotes can stand in JSON only as a whole string: inside another string the quotes
 * would be escaped, and the backslash breaks the match. So no structure has to be followed to find the key; only
 * the object behind it is scanned as JSON, by the same code for a body and for every event of a stream.
 */
#include "peek/usage.h"

#include "base/num.h"

enum state { SEARCH = 0, COLON, VALUE, OBJECT };

enum field { F_NONE = 0, F_PROMPT, F_COMPLETION, F_CACHED };

/* Of a key: none of those we know. */
enum { TOO_LONG = 255 };

static const struct slice key = {"\"usage\"", 7};

static struct slice key_text(const struct peek_usage *u)
{
    return u->key_len == TOO_LONG ? SLICE("") : slice_of(u->key, u->key_len);
}

static uint8_t field_of(const struct peek_usage *u)
{
    struct slice name = key_text(u);

    if (u->in_details)
        return slice_eq(name, SLICE("cached_tokens")) ? F_CACHED : F_NONE;
    if (slice_eq(name, SLICE("prompt_tokens")) || slice_eq(name, SLICE("input_tokens")))
        return F_PROMPT;
    if (slice_eq(name, SLICE("completion_tokens")) || slice_eq(name, SLICE("output_tokens")))
        return F_COMPLETION;
    return F_NONE;
}

static bool details_key(const struct peek_usage *u)
{
    struct slice name = key_text(u);

    return slice_eq(name, SLICE("prompt_tokens_details")) ||
           slice_eq(name, SLICE("input_tokens_details"));
}

/* The usage object ended: what it had now counts. */
static void object_done(struct peek_usage *u)
{
    uint64_t *to[3] = {&u->usage.prompt_tokens, &u->usage.completion_tokens,
                       &u->usage.cached_tokens};
    static const uint8_t bits[3] = {USAGE_PROMPT, USAGE_COMPLETION, USAGE_CACHED};

    for (int i = 0; i < 3; i++)
        if (u->has[i]) {
            *to[i] = u->values[i];
            u->usage.known |= bits[i];
        }
}

static void on_key(struct peek_usage *u, struct slice text, bool last)
{
    if (u->key_len + text.n > sizeof(u->key)) {
        u->key_len = TOO_LONG;
    } else {
        memcpy(u->key + u->key_len, text.p, text.n);
        u->key_len = (uint8_t)(u->key_len + text.n);
    }
    if (last)
        u->field = field_of(u);
}

static int on_event(void *ctx, enum json_event event, struct slice text, bool last)
{
    struct peek_usage *u = ctx;
    unsigned depth = u->scan.depth;

    switch (event) {
    case JSON_SCAN_KEY:
        on_key(u, text, last);
        return 0;
    case JSON_SCAN_OBJECT_BEGIN:
        u->in_details = depth == 2 && details_key(u);
        break;
    case JSON_SCAN_OBJECT_END:
        u->in_details = false;
        if (depth == 0)
            return 1;
        break;
    case JSON_SCAN_NUMBER:
        if (u->field != F_NONE && depth == (u->in_details ? 2U : 1U) &&
            num_u64(text, &u->values[u->field - 1]) == 0 &&
            u->values[u->field - 1] <= USAGE_TOKENS_MAX)
            u->has[u->field - 1] = true;
        break;
    case JSON_SCAN_ARRAY_BEGIN:
    case JSON_SCAN_ARRAY_END:
    case JSON_SCAN_STRING:
    case JSON_SCAN_TRUE:
    case JSON_SCAN_FALSE:
    case JSON_SCAN_NULL:
    default:
        break;
    }
    u->key_len = 0;
    return 0;
}

void peek_usage_init(struct peek_usage *u)
{
    *u = (struct peek_usage){0};
}

/* Look for the key. @return bytes used. */
static size_t search(struct peek_usage *u, const char *p, size_t n)
{
    size_t i = 0;

    while (i < n) {
        if (u->matched == 0) {
            /* 'g' is rarer than quotes in what models write and log, so it leads the search. */
            const char *g = memchr(p + i, 'g', n - i);
            size_t at = g ? (size_t)(g - p) : n;
            /* What may be the start of the key and is cut by the end of the bytes is matched step by step. */
            size_t from = at == n ? n - (n - i < 4 ? n - i : 4) : at - (at - i < 4 ? at - i : 4);
            while (from < n && from < at && p[from] != '"')
                from++;
            if (from == at && at < n) {
                i = at + 1;
                continue;
            }
            i = from;
            if (i == n)
                return n;
        }
        char c = p[i++];
        if (c == key.p[u->matched]) {
            if (++u->matched == key.n) {
                u->matched = 0;
                u->state = COLON;
                return i;
            }
        } else {
            u->matched = c == '"';
        }
    }
    return n;
}

static void open_object(struct peek_usage *u)
{
    u->state = OBJECT;
    u->field = F_NONE;
    u->key_len = 0;
    u->in_details = false;
    for (int i = 0; i < 3; i++)
        u->has[i] = false;
    wire_json_init(&u->scan, on_event, u);
}

void peek_usage_feed(struct peek_usage *u, const char *p, size_t n)
{
    size_t i = 0;

    while (i < n) {
        char c = p[i];
        if (u->state == SEARCH) {
            i += search(u, p + i, n - i);
        } else if (u->state == OBJECT) {
            uint64_t before = u->scan.offset;
            int rc = wire_json_scan(&u->scan, p + i, n - i);
            if (rc == 1)
                object_done(u);
            if (rc)
                u->state = SEARCH;
            i += (size_t)(u->scan.offset - before);
        } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
            i++;
        } else if (u->state == COLON && c == ':') {
            u->state = VALUE;
            i++;
        } else if (u->state == VALUE && c == '{') {
            open_object(u);
        } else {
            u->state = SEARCH;
        }
    }
}
