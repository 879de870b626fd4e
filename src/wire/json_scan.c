/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A push-down automaton that can stop between any two bytes. Structure goes byte by byte; string runs, nearly
 * all of a prompt, go through scan_json_text() and are lent to the callback where they lie.
 */
#include "wire/json_scan.h"

#include "base/bug.h"
#include "base/utf8.h"
#include "wire/scan.h"

enum state {
    VALUE = 0,    /* a value must follow */
    VALUE_OR_END, /* after "[" */
    KEY,          /* after "," in an object */
    KEY_OR_END,   /* after "{" */
    COLON,
    AFTER,  /* after a value inside an array or object */
    STRING, /* inside a key or string */
    NUMBER,
    LITERAL,
    DONE, /* the top-level value is complete */
};

/* What of a longer string is looked at twice. */
enum { SHORT_STRING = 128 };

enum escape { NO_ESCAPE = 0, AFTER_BACKSLASH, HEX_1, HEX_2, HEX_3, HEX_4 };

static const struct {
    struct slice text;
    enum json_event event;
} literals[] = {
    {{"true", 4}, JSON_SCAN_TRUE}, {{"false", 5}, JSON_SCAN_FALSE}, {{"null", 4}, JSON_SCAN_NULL}};

/* The bytes of one call that are left. */
struct run {
    const char *p;
    const char *end;
};

void wire_json_init(struct json_scan *s, json_event_fn on_event, void *ctx)
{
    *s = (struct json_scan){.on_event = on_event, .ctx = ctx};
}

static int fail(struct json_scan *s, const char *error)
{
    s->error = error;
    return WEIR_E_PROTO;
}

static int emit(struct json_scan *s, enum json_event event, struct slice text, bool last)
{
    return s->on_event(s->ctx, event, text, last);
}

static int emit_plain(struct json_scan *s, enum json_event event)
{
    return emit(s, event, (struct slice){NULL, 0}, true);
}

static int emit_text(struct json_scan *s, struct slice text, bool last)
{
    return emit(s, s->is_key ? JSON_SCAN_KEY : JSON_SCAN_STRING, text, last);
}

static bool in_object(const struct json_scan *s)
{
    unsigned top = s->depth - 1U;

    return s->stack[top / 8] >> (top % 8) & 1;
}

static void value_done(struct json_scan *s)
{
    s->state = s->depth ? AFTER : DONE;
}

static int push(struct json_scan *s, bool object)
{
    if (s->depth == JSON_DEPTH_MAX) {
        s->error = "nested too deep";
        return WEIR_E_FULL;
    }
    uint8_t bit = (uint8_t)(1U << (s->depth % 8));
    uint8_t *byte = &s->stack[s->depth / 8];
    *byte = (uint8_t)(object ? *byte | bit : *byte & ~bit);
    s->depth++;
    s->state = object ? KEY_OR_END : VALUE_OR_END;
    return emit_plain(s, object ? JSON_SCAN_OBJECT_BEGIN : JSON_SCAN_ARRAY_BEGIN);
}

static int pop(struct json_scan *s)
{
    enum json_event event = in_object(s) ? JSON_SCAN_OBJECT_END : JSON_SCAN_ARRAY_END;

    s->depth--;
    value_done(s);
    return emit_plain(s, event);
}

/* A short string that is here whole, without an escape, is handed on at once; any other is begun and goes its way. */
static int string_begin(struct json_scan *s, struct run *r, bool is_key)
{
    const char *from = r->p + 1;
    const char *end = from + MIN((size_t)(r->end - from), (size_t)SHORT_STRING);
    const char *stop = scan_json_text(from, end);

    s->is_key = is_key;
    if (stop == end || *stop != '"') {
        s->state = STRING;
        r->p = from;
        return 0;
    }
    if (is_key)
        s->state = COLON;
    else
        value_done(s);
    r->p = stop;
    int rc = emit_text(s, slice_of(from, (size_t)(stop - from)), true);
    if (rc)
        return rc;
    r->p++;
    if (is_key && r->p < r->end && *r->p == ':') {
        r->p++;
        s->state = VALUE;
    }
    return 0;
}

static int value_begin(struct json_scan *s, struct run *r)
{
    char c = *r->p;

    switch (c) {
    case '{':
    case '[':
        r->p++;
        return push(s, c == '{');
    case '"':
        return string_begin(s, r, false);
    case 't':
    case 'f':
    case 'n':
        s->literal = c == 't' ? 0 : c == 'f' ? 1 : 2;
        s->literal_at = 0;
        s->state = LITERAL;
        return 0;
    default:
        if (c != '-' && (c < '0' || c > '9'))
            return fail(s, "value expected");
        s->number_len = 0;
        s->state = NUMBER;
        return 0;
    }
}

/* A byte of structure that is no blank. */
static int structure_byte(struct json_scan *s, struct run *r)
{
    char c = *r->p;

    switch ((enum state)s->state) {
    case VALUE_OR_END:
        if (c == ']') {
            r->p++;
            return pop(s);
        }
        return value_begin(s, r);
    case VALUE:
        return value_begin(s, r);
    case KEY_OR_END:
    case KEY:
        if (c != '"' && (c != '}' || s->state == KEY))
            return fail(s, "key expected");
        if (c == '"')
            return string_begin(s, r, true);
        r->p++;
        return pop(s);
    case COLON:
        if (c != ':')
            return fail(s, "colon expected");
        r->p++;
        s->state = VALUE;
        return 0;
    case AFTER:
        if (c == ',') {
            r->p++;
            s->state = in_object(s) ? KEY : VALUE;
            return 0;
        }
        if (c != (in_object(s) ? '}' : ']'))
            return fail(s, "comma or end expected");
        r->p++;
        return pop(s);
    case DONE:
        return fail(s, "text after the value");
    case STRING:
    case NUMBER:
    case LITERAL:
    default:
        BUG_ON(true);
    }
    return WEIR_E_PROTO;
}

static bool blank(char c)
{
    return (unsigned char)c <= ' ' && (c == ' ' || c == '\n' || c == '\r' || c == '\t');
}

static int structure(struct json_scan *s, struct run *r)
{
    int rc = 0;

    do {
        while (r->p < r->end && blank(*r->p))
            r->p++;
        if (r->p == r->end)
            break;
        rc = structure_byte(s, r);
    } while (!rc && (s->state < STRING || s->state == DONE));
    return rc;
}

static int emit_code_point(struct json_scan *s, uint32_t c)
{
    char bytes[4];
    size_t n = utf8_put(bytes, c);

    return emit_text(s, slice_of(bytes, n), false);
}

/* A high surrogate whose other half did not come. */
static int flush_surrogate(struct json_scan *s)
{
    if (!s->high_surrogate)
        return 0;
    s->high_surrogate = 0;
    return emit_code_point(s, 0xFFFD);
}

/* The four hex digits of \u are complete. */
static int code_unit(struct json_scan *s)
{
    uint16_t unit = s->code_unit;
    uint16_t high = s->high_surrogate;
    bool low = unit >= 0xDC00 && unit <= 0xDFFF;

    s->escape = NO_ESCAPE;
    if (high && low) {
        s->high_surrogate = 0;
        return emit_code_point(s, 0x10000 + ((high - 0xD800U) << 10) + (unit - 0xDC00U));
    }
    int rc = flush_surrogate(s);
    if (rc)
        return rc;
    if (unit >= 0xD800 && unit <= 0xDBFF) {
        s->high_surrogate = unit;
        return 0;
    }
    return emit_code_point(s, low ? 0xFFFD : unit);
}

static int hex_byte(struct json_scan *s, char c)
{
    char l = ascii_lower(c);
    int digit = c >= '0' && c <= '9' ? c - '0' : l >= 'a' && l <= 'f' ? l - 'a' + 10 : -1;

    if (digit < 0)
        return fail(s, "invalid escape in a string");
    s->code_unit = (uint16_t)(s->code_unit << 4 | digit);
    if (s->escape == HEX_4)
        return code_unit(s);
    s->escape++;
    return 0;
}

/* What an escape of one letter stands for; 0 = it is none. */
static const char plain_of[256] = {
    ['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
    ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t',
};

/* One byte inside an escape. */
static int escape_byte(struct json_scan *s, char c)
{
    if (s->escape != AFTER_BACKSLASH)
        return hex_byte(s, c);
    if (c == 'u') {
        s->escape = HEX_1;
        s->code_unit = 0;
        return 0;
    }
    const char *plain = &plain_of[(unsigned char)c];
    if (!*plain)
        return fail(s, "invalid escape in a string");
    s->escape = NO_ESCAPE;
    int rc = flush_surrogate(s);
    return rc ? rc : emit_text(s, slice_of(plain, 1), false);
}

/*
 * At a backslash: put escapes of one letter and the short runs between them together, so that source code and
 * JSON inside a prompt do not cost two events an escape. Takes nothing at any other escape or at one that is cut.
 */
static int unescape(struct json_scan *s, struct run *r)
{
    char out[512];
    size_t n = 0;

    while (r->end - r->p >= 2 && *r->p == '\\' && n < sizeof(out)) {
        char plain = plain_of[(unsigned char)r->p[1]];
        if (!plain)
            break;
        out[n++] = plain;
        r->p += 2;
        size_t left = (size_t)(r->end - r->p);
        size_t room = sizeof(out) - n;
        size_t len = (size_t)(scan_json_text(r->p, r->p + MIN(left, room)) - r->p);
        /* A copy of fixed size needs no call. */
        if (len <= 16 && left >= 16 && room >= 16)
            memcpy(out + n, r->p, 16);
        else
            memcpy(out + n, r->p, len);
        n += len;
        r->p += len;
    }
    return n ? emit_text(s, slice_of(out, n), false) : 0;
}

static void string_end(struct json_scan *s)
{
    if (s->is_key)
        s->state = COLON;
    else
        value_done(s);
}

/* Inside a string, outside an escape: up to the next backslash, the closing quote or the end of the bytes. */
static int string_run(struct json_scan *s, struct run *r)
{
    const char *stop = scan_json_text(r->p, r->end);
    struct slice text = slice_of(r->p, (size_t)(stop - r->p));
    bool more = stop < r->end;
    bool quote = more && *stop == '"';
    int rc = 0;

    r->p = stop;
    if (s->high_surrogate && (text.n || quote))
        rc = flush_surrogate(s);
    if (!rc && quote)
        string_end(s);
    if (!rc && (text.n || quote))
        rc = emit_text(s, text, quote);
    if (rc || !more)
        return rc;
    if (!quote && *stop != '\\')
        return fail(s, "control character in a string");
    r->p += quote;
    return 0;
}

static int string(struct json_scan *s, struct run *r)
{
    int rc = 0;

    while (!rc && r->p < r->end && s->state == STRING) {
        if (s->escape) {
            rc = escape_byte(s, *r->p);
            r->p += rc != WEIR_E_PROTO;
        } else if (*r->p != '\\') {
            rc = string_run(s, r);
        } else {
            const char *from = r->p;
            rc = s->high_surrogate ? 0 : unescape(s, r);
            if (r->p == from) {
                s->escape = AFTER_BACKSLASH;
                r->p++;
            }
        }
    }
    return rc;
}

static size_t digits(struct slice text, size_t at)
{
    while (at < text.n && text.p[at] >= '0' && text.p[at] <= '9')
        at++;
    return at;
}

/* -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)? */
static bool number_ok(struct slice t)
{
    size_t from = t.n && t.p[0] == '-';
    size_t at = digits(t, from);

    if (at == from || (t.p[from] == '0' && at > from + 1))
        return false;
    if (at < t.n && t.p[at] == '.') {
        from = at + 1;
        at = digits(t, from);
        if (at == from)
            return false;
    }
    if (at < t.n && (t.p[at] == 'e' || t.p[at] == 'E')) {
        from = at + 1;
        if (from < t.n && (t.p[from] == '+' || t.p[from] == '-'))
            from++;
        at = digits(t, from);
        if (at == from)
            return false;
    }
    return at == t.n;
}

static int number_done(struct json_scan *s, struct slice text)
{
    if (!number_ok(text))
        return fail(s, "invalid number");
    value_done(s);
    return emit(s, JSON_SCAN_NUMBER, text, true);
}

static bool number_char(char c)
{
    return (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '+' || c == 'e' || c == 'E';
}

static int number(struct json_scan *s, struct run *r)
{
    const char *from = r->p;

    while (r->p < r->end && number_char(*r->p))
        r->p++;
    struct slice text = slice_of(from, (size_t)(r->p - from));
    if (s->number_len + text.n > JSON_NUMBER_MAX) {
        r->p = from + (JSON_NUMBER_MAX - s->number_len);
        return fail(s, "number too long");
    }
    if (r->p == r->end || s->number_len) {
        memcpy(s->number + s->number_len, text.p, text.n);
        s->number_len = (uint8_t)(s->number_len + text.n);
        text = slice_of(s->number, s->number_len);
    }
    return r->p == r->end ? 0 : number_done(s, text);
}

static int literal(struct json_scan *s, struct run *r)
{
    struct slice text = literals[s->literal].text;

    if (s->literal_at == 0 && (size_t)(r->end - r->p) >= text.n &&
        memcmp(r->p, text.p, text.n) == 0) {
        r->p += text.n;
        s->literal_at = (uint8_t)text.n;
    }
    while (r->p < r->end && s->literal_at < text.n) {
        if (*r->p != text.p[s->literal_at])
            return fail(s, "value expected");
        r->p++;
        s->literal_at++;
    }
    if (s->literal_at < text.n)
        return 0;
    value_done(s);
    return emit_plain(s, literals[s->literal].event);
}

int wire_json_scan(struct json_scan *s, const char *p, size_t n)
{
    struct run r = {.p = p, .end = p + n};

    while (!s->rc && r.p < r.end) {
        if (s->state < STRING || s->state == DONE)
            s->rc = structure(s, &r);
        else if (s->state == STRING)
            s->rc = string(s, &r);
        else if (s->state == NUMBER)
            s->rc = number(s, &r);
        else
            s->rc = literal(s, &r);
    }
    s->offset += (uint64_t)(r.p - p);
    return s->rc;
}

int wire_json_end(struct json_scan *s)
{
    if (!s->rc && s->state == NUMBER && s->depth == 0)
        s->rc = number_done(s, slice_of(s->number, s->number_len));
    if (!s->rc && s->state != DONE)
        s->rc = fail(s, "text ends early");
    return s->rc;
}
