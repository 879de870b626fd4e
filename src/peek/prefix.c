/* SPDX-License-Identifier: Apache-2.0 */
/* A walk over a JSON text that is here whole: objects are read member by member, what is not wanted is skipped. */
#include "peek/prefix.h"

#include "base/bug.h"
#include "base/hash.h"
#include "base/num.h"
#include "model/endpoint_t.h"
#include "model/prefix.h"
#include "wire/json_scan.h"
#include "wire/scan.h"

enum { KEY_MAX = 32, NUMBER_BYTES = 4 };

struct reader {
    const struct mem *mem;
    struct prefix_chain chain;
    bool stop; /* nothing after this belongs to the chain */
};

/* ---- cursor: from a slice, one thing after another ---- */

static void blanks(struct slice *s)
{
    while (s->n && (*s->p == ' ' || *s->p == '\n' || *s->p == '\t' || *s->p == '\r'))
        *s = slice_from(*s, 1);
}

static bool eat(struct slice *s, char c)
{
    blanks(s);
    if (!s->n || *s->p != c)
        return false;
    *s = slice_from(*s, 1);
    return true;
}

/* Past a string whose quote was eaten. @return what stands between the quotes, escapes and all; absent: it has no end. */
static struct slice string_rest(struct slice *s)
{
    const char *end = s->p + s->n;
    const char *p = s->p;

    while (p < end) {
        p = scan_json_text(p, end);
        if (p == end || (*p == '\\' && end - p < 2))
            break;
        if (*p == '"') {
            struct slice text = slice_of(s->p, (size_t)(p - s->p));
            *s = slice_of(p + 1, (size_t)(end - p - 1));
            return text;
        }
        p += *p == '\\' ? 2 : 1;
    }
    *s = slice_of(end, 0);
    return slice_of(NULL, 0);
}

/* Past any value. @return its text; absent: it has no end. */
static struct slice value(struct slice *s)
{
    blanks(s);
    const char *from = s->p;
    uint32_t depth = 0;

    while (s->n) {
        char c = *s->p;
        if (c == '"') {
            *s = slice_from(*s, 1);
            if (!string_rest(s).p)
                break;
        } else if (c == '{' || c == '[') {
            depth++;
            *s = slice_from(*s, 1);
            continue;
        } else if (c == '}' || c == ']') {
            if (depth == 0)
                return slice_of(from, (size_t)(s->p - from));
            depth--;
            *s = slice_from(*s, 1);
        } else if (c == ',' && depth == 0) {
            return slice_of(from, (size_t)(s->p - from));
        } else {
            *s = slice_from(*s, 1);
            if (depth == 0)
                continue;
        }
        if (depth == 0)
            return slice_of(from, (size_t)(s->p - from));
    }
    return slice_of(depth == 0 ? from : NULL, (size_t)(s->p - from));
}

/* The next member of an object whose brace was eaten. */
static bool member(struct slice *s, bool *first, struct slice *key, struct slice *v)
{
    if (!*first && !eat(s, ','))
        return false;
    *first = false;
    if (!eat(s, '"'))
        return false;
    *key = string_rest(s);
    if (!key->p || !eat(s, ':'))
        return false;
    *v = value(s);
    return v->p && v->n;
}

static bool element(struct slice *s, bool *first, struct slice *v)
{
    if (!*first && !eat(s, ','))
        return false;
    *first = false;
    *v = value(s);
    return v->p && v->n;
}

/* ---- texts ---- */

struct buf_like {
    char *p;
    size_t n, max;
};

static int put_piece(void *ctx, enum json_event event, struct slice text, bool last)
{
    struct buf_like *b = ctx;

    (void)last;
    if (event == JSON_SCAN_STRING && b->n + text.n <= b->max && text.n)
        memcpy(b->p + b->n, text.p, text.n);
    if (event == JSON_SCAN_STRING)
        b->n += text.n;
    return 0;
}

static int feed_piece(void *ctx, enum json_event event, struct slice text, bool last)
{
    struct reader *r = ctx;

    (void)last;
    if (event == JSON_SCAN_STRING)
        model_prefix_feed(&r->chain, text);
    return r->chain.n == r->chain.max;
}

/* Unescape a string, given without its quotes. @return false when it is no string. */
static bool unescape(struct slice raw, json_event_fn on_event, void *ctx)
{
    struct json_scan scan;

    wire_json_init(&scan, on_event, ctx);
    return wire_json_scan(&scan, "\"", 1) == 0 && wire_json_scan(&scan, raw.p, raw.n) == 0 &&
           wire_json_scan(&scan, "\"", 1) == 0;
}

static bool plain(struct slice raw)
{
    return raw.n == 0 || !memchr(raw.p, '\\', raw.n);
}

static void feed(struct reader *r, struct slice raw)
{
    if (r->stop)
        return;
    if (plain(raw))
        model_prefix_feed(&r->chain, raw);
    else if (!unescape(raw, feed_piece, r))
        r->stop = true;
    r->stop = r->stop || r->chain.n == r->chain.max;
}

static void separate(struct reader *r)
{
    if (!r->stop)
        model_prefix_separate(&r->chain);
}

/* The text of a string value without its quotes; absent: it is no string. */
static struct slice string_of(struct slice v)
{
    if (v.n < 2 || *v.p != '"')
        return slice_of(NULL, 0);
    return slice_of(v.p + 1, v.n - 2);
}

static bool key_is(struct slice raw, struct slice name)
{
    char text[KEY_MAX];
    struct buf_like b = {text, 0, sizeof(text)};

    if (plain(raw))
        return slice_eq(raw, name);
    return unescape(raw, put_piece, &b) && b.n <= b.max && slice_eq(slice_of(text, b.n), name);
}

/* Value of a key of an object, the last one if it stands there twice; absent without one. */
static struct slice find(struct slice object, struct slice name)
{
    struct slice found = slice_of(NULL, 0);
    struct slice key, v;
    bool first = true;

    if (!eat(&object, '{'))
        return found;
    while (member(&object, &first, &key, &v))
        if (key_is(key, name))
            found = v;
    return found;
}

/* ---- prompts ---- */

static void feed_media(struct reader *r, struct slice part)
{
    static const char digits[] = "0123456789abcdef";
    struct slice url = string_of(find(find(part, SLICE("image_url")), SLICE("url")));
    struct slice data = string_of(find(find(part, SLICE("input_audio")), SLICE("data")));
    struct slice raw = url.p ? url : data;
    char hex[16];

    if (!raw.p || r->stop)
        return;
    uint64_t hash;
    if (plain(raw)) {
        hash = hash_slice(raw, 0);
    } else {
        struct buf_like b = {mem_alloc(r->mem, raw.n), 0, raw.n};
        bool ok = b.p && unescape(raw, put_piece, &b) && b.n <= b.max;
        hash = ok ? hash_slice(slice_of(b.p, b.n), 0) : 0;
        mem_free(r->mem, b.p);
        if (!ok) {
            r->stop = true;
            return;
        }
    }
    for (int i = 15; i >= 0; i--, hash >>= 4)
        hex[i] = digits[hash & 15];
    model_prefix_feed(&r->chain, slice_of(hex, sizeof(hex)));
}

static void feed_content(struct reader *r, struct slice content)
{
    struct slice text = string_of(content);
    struct slice part;
    bool first = true;

    if (text.p) {
        feed(r, text);
        return;
    }
    if (!eat(&content, '['))
        return;
    while (!r->stop && element(&content, &first, &part)) {
        struct slice of_part = string_of(find(part, SLICE("text")));
        if (of_part.p)
            feed(r, of_part);
        else
            feed_media(r, part);
    }
}

static void feed_messages(struct reader *r, struct slice list)
{
    struct slice message;
    bool first = true;

    if (!eat(&list, '['))
        return;
    while (!r->stop && element(&list, &first, &message)) {
        struct slice role = slice_of(NULL, 0);
        struct slice content = role;
        struct slice key, v;
        bool first_key = true;
        if (!eat(&message, '{'))
            return;
        while (member(&message, &first_key, &key, &v)) {
            if (key_is(key, SLICE("role")))
                role = v;
            else if (key_is(key, SLICE("content")))
                content = v;
        }
        role = string_of(role);
        if (role.p)
            feed(r, role);
        separate(r);
        if (content.p)
            feed_content(r, content);
        separate(r);
    }
}

/* Keys and strings in document order: a string, and whether a colon follows, is all that counts here. */
static void feed_tools(struct reader *r, struct slice tools)
{
    while (tools.n && !r->stop) {
        if (*tools.p != '"') {
            tools = slice_from(tools, 1);
            continue;
        }
        tools = slice_from(tools, 1);
        struct slice text = string_rest(&tools);
        if (!text.p)
            return;
        feed(r, text);
        separate(r);
    }
}

/* A string, token numbers, or a list with one of these. Of several prompts the engine sees several: no chain. */
static void feed_prompt(struct reader *r, struct slice prompt, bool inner)
{
    struct slice text = string_of(prompt);
    struct slice rest = prompt;
    struct slice v;
    bool first = true;
    int64_t token;

    if (text.p) {
        feed(r, text);
        return;
    }
    if (!eat(&rest, '[') || !element(&rest, &first, &v))
        return;
    if (*v.p == '"' || *v.p == '[') {
        struct slice other;
        if (!inner && !element(&rest, &first, &other))
            feed_prompt(r, v, true);
        return;
    }
    do {
        if (num_i64(slice_trim(v), &token) != 0)
            return;
        uint32_t t = (uint32_t)token;
        const char bytes[NUMBER_BYTES] = {(char)t, (char)(t >> 8), (char)(t >> 16),
                                          (char)(t >> 24)};
        model_prefix_feed(&r->chain, slice_of(bytes, sizeof(bytes)));
        r->stop = r->chain.n == r->chain.max;
    } while (!r->stop && element(&rest, &first, &v));
}

/* The top-level keys that count; the last of equal ones, as everywhere. */
struct prompt_keys {
    struct slice salt, tools, system, messages, input, prompt;
};

static void find_keys(struct slice body, struct prompt_keys *k)
{
    struct slice key, v;
    bool first = true;

    *k = (struct prompt_keys){0};
    if (!eat(&body, '{'))
        return;
    while (member(&body, &first, &key, &v)) {
        if (key_is(key, SLICE("messages")))
            k->messages = v;
        else if (key_is(key, SLICE("prompt")))
            k->prompt = v;
        else if (key_is(key, SLICE("input")))
            k->input = v;
        else if (key_is(key, SLICE("tools")))
            k->tools = v;
        else if (key_is(key, SLICE("system")) || key_is(key, SLICE("instructions")))
            k->system = v;
        else if (key_is(key, SLICE("cache_salt")))
            k->salt = v;
    }
}

/* The salt as text; one with escapes, or longer than any, is taken as it is written: it only has to differ. */
static struct slice salt_of(struct slice raw, char *text, size_t cap)
{
    struct buf_like b = {text, 0, cap};

    if (!raw.p || plain(raw))
        return raw;
    return unescape(raw, put_piece, &b) && b.n <= b.max ? slice_of(text, b.n) : raw;
}

uint32_t peek_prefix(struct slice body,
                     uint32_t task,
                     struct slice model,
                     struct slice version,
                     const struct mem *mem,
                     uint64_t *names,
                     uint32_t max)
{
    struct prompt_keys k;
    struct reader r = {.mem = mem};
    char salt[256];

    if (!(task & (TASK_CHAT | TASK_COMPLETION)) || max == 0)
        return 0;
    find_keys(body, &k);
    model_prefix_begin(&r.chain,
                       model_prefix_root(model, version, slice_of(NULL, 0),
                                         salt_of(string_of(k.salt), salt, sizeof(salt))),
                       names, max);
    if (task & TASK_COMPLETION) {
        if (k.prompt.p)
            feed_prompt(&r, k.prompt, false);
        return r.chain.n;
    }
    if (k.tools.p)
        feed_tools(&r, k.tools);
    if (k.system.p) {
        feed_content(&r, k.system);
        separate(&r);
    }
    struct slice turns = k.messages.p ? k.messages : k.input;
    if (turns.p && string_of(turns).p)
        feed(&r, string_of(turns));
    else if (turns.p)
        feed_messages(&r, turns);
    return r.chain.n;
}

/* ---- the first characters ---- */

enum { KEY_CHARS = 100, KEY_BYTES = KEY_CHARS * 4 };

struct beginning {
    char bytes[KEY_BYTES];
    uint32_t n, chars;
};

/* @return true when it is full. */
static bool begin_with(struct beginning *b, struct slice text)
{
    for (size_t i = 0; i < text.n; i++) {
        /* A character of UTF-8 is its first byte and those that go on with 10. */
        bool starts = ((unsigned char)text.p[i] & 0xC0) != 0x80;
        if (b->n == KEY_BYTES || (starts && b->chars == KEY_CHARS))
            return true;
        b->chars += starts;
        b->bytes[b->n++] = text.p[i];
    }
    return false;
}

static int begin_piece(void *ctx, enum json_event event, struct slice text, bool last)
{
    (void)last;
    return event == JSON_SCAN_STRING && begin_with(ctx, text) ? 1 : 0;
}

static uint64_t key_of(struct slice raw)
{
    struct beginning b = {.n = 0};

    if (!raw.p)
        return 0;
    if (plain(raw))
        (void)begin_with(&b, raw);
    else
        (void)unescape(raw, begin_piece, &b);
    return b.n ? hash_slice(slice_of(b.bytes, b.n), 0) : 0;
}

/* A string, or the first string of a list. */
static struct slice first_string(struct slice v, struct slice name)
{
    struct slice text = string_of(v);
    struct slice part;
    bool first = true;

    if (text.p || !eat(&v, '['))
        return text;
    while (!text.p && element(&v, &first, &part))
        text = name.p ? string_of(find(part, name)) : string_of(part);
    return text;
}

uint64_t peek_prefix_key(struct slice body, uint32_t task)
{
    struct slice absent = slice_of(NULL, 0);
    struct slice message;
    struct prompt_keys k;
    bool first = true;

    if (!(task & (TASK_CHAT | TASK_COMPLETION)))
        return 0;
    find_keys(body, &k);
    if (task & TASK_COMPLETION)
        return k.prompt.p ? key_of(first_string(k.prompt, absent)) : 0;
    struct slice turns = k.messages.p ? k.messages : k.input;
    if (!turns.p || string_of(turns).p)
        return turns.p ? key_of(string_of(turns)) : 0;
    if (!eat(&turns, '['))
        return 0;
    while (element(&turns, &first, &message)) {
        struct slice role = string_of(find(message, SLICE("role")));
        if (role.p && key_is(role, SLICE("user")))
            return key_of(first_string(find(message, SLICE("content")), SLICE("text")));
    }
    return 0;
}
