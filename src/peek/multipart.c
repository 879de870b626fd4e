/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts are told apart by the delimiter CRLF "--" boundary. CR stands only at its front, so a mismatch never has
 * to look back: what was matched so far is content, and the next try starts at the byte that broke it.
 */
#include "peek/multipart.h"

#include "base/bug.h"

enum state {
    OPENING = 0,     /* the first boundary, which needs no CRLF before it */
    AFTER_DELIMITER, /* CRLF or "--" must follow, blanks allowed */
    DASH,
    DELIMITER_LF,
    HEAD,
    BODY,
    CLOSED,
    BROKEN,
};

enum field { F_NONE = 0, F_MODEL, F_USER, F_STREAM, F_PROMPT };

/* Next "; name=value" of a header value. Quotes are taken off; backslash escapes stay, as no known name has any. */
static bool next_param(struct slice *rest, struct slice *name, struct slice *value)
{
    size_t at = slice_find(*rest, ';');

    if (at == rest->n)
        return false;
    struct slice s = slice_trim(slice_from(*rest, at + 1));
    size_t equals = 0;
    while (equals < s.n && s.p[equals] != '=' && s.p[equals] != ';')
        equals++;
    *name = slice_trim(slice_of(s.p, equals));
    *value = slice_of(s.p + equals, 0);
    if (equals == s.n || s.p[equals] == ';') {
        *rest = slice_from(s, equals);
        return true;
    }
    s = slice_trim(slice_from(s, equals + 1));
    size_t end;
    if (s.n && s.p[0] == '"') {
        for (end = 1; end < s.n && s.p[end] != '"'; end++)
            if (s.p[end] == '\\' && end + 1 < s.n)
                end++;
        *value = slice_of(s.p + 1, end - 1);
    } else {
        end = slice_find(s, ';');
        *value = slice_trim(slice_of(s.p, end));
    }
    *rest = slice_from(s, end);
    return true;
}

static bool boundary_ok(struct slice b)
{
    static const char other[] = "'()+_,-./:=? ";

    if (b.n == 0 || b.n > MULTIPART_BOUNDARY_MAX || b.p[b.n - 1] == ' ')
        return false;
    for (size_t i = 0; i < b.n; i++) {
        char l = ascii_lower(b.p[i]);
        bool known =
            (l >= 'a' && l <= 'z') || (l >= '0' && l <= '9') || memchr(other, l, sizeof(other) - 1);
        if (!known)
            return false;
    }
    return true;
}

int peek_multipart_init(struct multipart *m, struct slice content_type)
{
    struct slice rest = content_type;
    struct slice type = slice_trim(slice_of(rest.p, slice_find(rest, ';')));
    struct slice name;
    struct slice value;

    *m = (struct multipart){.state = BROKEN};
    if (!slice_eq_nocase(type, SLICE("multipart/form-data")))
        return WEIR_E_INVALID;
    while (next_param(&rest, &name, &value)) {
        if (!slice_eq_nocase(name, SLICE("boundary")))
            continue;
        if (!boundary_ok(value))
            return WEIR_E_INVALID;
        memcpy(m->delimiter, "\r\n--", 4);
        memcpy(m->delimiter + 4, value.p, value.n);
        m->delimiter_len = (uint16_t)(value.n + 4);
        m->matched = 2;
        m->state = OPENING;
        return 0;
    }
    return WEIR_E_INVALID;
}

static void note_name(struct multipart *m, struct slice name)
{
    static const struct {
        struct slice name;
        enum field field;
    } known[] = {{{"model", 5}, F_MODEL},
                 {{"user", 4}, F_USER},
                 {{"stream", 6}, F_STREAM},
                 {{"prompt", 6}, F_PROMPT}};

    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (slice_eq(known[i].name, name))
            m->field = (uint8_t)known[i].field;
}

static void note_file(struct multipart *m, struct slice name)
{
    if (slice_eq(name, SLICE("file")))
        m->found.n_audio++;
    else if (slice_eq(name, SLICE("image")) || slice_eq(name, SLICE("image[]")))
        m->found.n_images++;
}

static struct peek_text *text_of(struct multipart *m)
{
    return m->field == F_MODEL ? &m->found.model : m->field == F_USER ? &m->found.user : NULL;
}

bool peek_multipart_name(struct slice head, struct slice *name)
{
    struct slice line;
    bool file = false;

    *name = (struct slice){NULL, 0};
    while (slice_cut(&head, '\n', &line)) {
        size_t colon = slice_find(line, ':');
        struct slice param;
        struct slice value;
        if (line.n && line.p[line.n - 1] == '\r')
            line.n--;
        if (!slice_eq_nocase(slice_of(line.p, MIN(colon, line.n)), SLICE("content-disposition")))
            continue;
        line = slice_from(line, colon + 1);
        while (next_param(&line, &param, &value)) {
            if (slice_eq_nocase(param, SLICE("name")))
                *name = value;
            else if (slice_eq_nocase(param, SLICE("filename")) ||
                     slice_eq_nocase(param, SLICE("filename*")))
                file = true;
        }
    }
    return file;
}

/* A part's head is complete. A field that stands twice: the last one counts. */
static void part_begin(struct multipart *m)
{
    struct slice name;

    m->field = F_NONE;
    if (peek_multipart_name(slice_of(m->head, m->head_len), &name))
        note_file(m, name);
    else
        note_name(m, name);
    struct peek_text *text = text_of(m);
    if (text)
        peek_text_begin(text);
    if (m->field == F_PROMPT)
        m->found.prompt_bytes = 0;
    m->flag_len = 0;
}

static void part_bytes(struct multipart *m, struct slice bytes)
{
    struct peek_text *text = text_of(m);

    if (text) {
        peek_text_put(text, bytes);
    } else if (m->field == F_PROMPT) {
        m->found.prompt_bytes += bytes.n;
    } else if (m->field == F_STREAM) {
        if (m->flag_len + bytes.n > sizeof(m->flag))
            bytes.n = sizeof(m->flag) - m->flag_len;
        memcpy(m->flag + m->flag_len, bytes.p, bytes.n);
        m->flag_len = (uint8_t)(m->flag_len + bytes.n);
    }
}

static void part_end(struct multipart *m)
{
    struct peek_text *text = text_of(m);

    if (text)
        peek_text_done(text);
    if (m->field == F_STREAM) {
        struct slice flag = slice_of(m->flag, m->flag_len);
        m->found.stream = slice_eq_nocase(flag, SLICE("true")) || slice_eq(flag, SLICE("1"));
        m->found.has_stream = true;
    }
    m->field = F_NONE;
}

/* Content up to the end of the bytes or of the delimiter. @return bytes used. */
static size_t body(struct multipart *m, const char *p, size_t n)
{
    size_t i = 0;

    while (i < n) {
        if (m->matched == 0) {
            const char *cr = memchr(p + i, '\r', n - i);
            size_t stop = cr ? (size_t)(cr - p) : n;
            part_bytes(m, slice_of(p + i, stop - i));
            i = stop;
            if (i == n)
                break;
        }
        if (p[i] == m->delimiter[m->matched]) {
            i++;
            if (++m->matched == m->delimiter_len) {
                m->matched = 0;
                m->state = AFTER_DELIMITER;
                part_end(m);
                break;
            }
        } else {
            part_bytes(m, slice_of(m->delimiter, m->matched));
            m->matched = 0;
        }
    }
    return i;
}

/* One byte of a part's head, up to and with its empty line. */
static bool head_byte(struct multipart *m, char c)
{
    static const char end[] = "\r\n\r\n";

    if (m->head_len == MULTIPART_HEAD_MAX)
        return false;
    m->head[m->head_len++] = c;
    m->end_matched = c == end[m->end_matched] ? (uint8_t)(m->end_matched + 1) : c == '\r';
    if (m->end_matched < 4)
        return true;
    part_begin(m);
    m->state = BODY;
    return true;
}

/* One byte between parts. */
static bool framing_byte(struct multipart *m, char c)
{
    switch ((enum state)m->state) {
    case OPENING:
        /* Line ends before the first boundary are all the preamble that senders write. */
        if (m->matched == 2 && (c == '\r' || c == '\n'))
            return true;
        if (c != m->delimiter[m->matched])
            return false;
        if (++m->matched == m->delimiter_len) {
            m->matched = 0;
            m->state = AFTER_DELIMITER;
        }
        return true;
    case AFTER_DELIMITER:
        if (c == ' ' || c == '\t')
            return true;
        m->state = c == '-' ? DASH : DELIMITER_LF;
        return c == '-' || c == '\r';
    case DASH:
        m->state = CLOSED;
        m->complete = true;
        return c == '-';
    case DELIMITER_LF:
        m->state = HEAD;
        m->head_len = 0;
        m->end_matched = 2; /* no header at all: the next CRLF is the empty line */
        return c == '\n';
    case HEAD:
        return head_byte(m, c);
    case BODY:
    case CLOSED:
    case BROKEN:
    default:
        BUG_ON(true);
    }
    return false;
}

int peek_multipart_feed(struct multipart *m, const char *p, size_t n)
{
    size_t i = 0;

    m->bytes += n;
    while (i < n && m->state != CLOSED) {
        if (m->state == BROKEN)
            return WEIR_E_PROTO;
        if (m->state == BODY) {
            i += body(m, p + i, n - i);
        } else if (framing_byte(m, p[i])) {
            i++;
        } else {
            m->state = BROKEN;
            m->complete = false;
        }
    }
    return m->state == BROKEN ? WEIR_E_PROTO : 0;
}
