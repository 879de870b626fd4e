/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/1.x heads. One pass over the bytes: each line is taken apart as it is read, the fields that decide
 * framing are noted on the way, and the framing is decided at the empty line. A line is judged only by bytes
 * that are there, so a longer prefix of the same head never turns a refusal into an acceptance.
 */
#include "wire/http1.h"

#include <string.h>

#include "base/bug.h"
#include "base/num.h"
#include "wire/scan.h"

enum { TOKEN = 1, TARGET = 2, HOST = 4 };

#define T  (TOKEN | TARGET | HOST)
#define TT (TOKEN | TARGET)
#define GH (TARGET | HOST)

/* Methods and names are tokens. A target is visible ASCII without "#"; a host what RFC 3986 allows in an authority. */
static const uint8_t class_of[256] = {
    ['0' ... '9'] = T, ['A' ... 'Z'] = T, ['a' ... 'z'] = T, ['!'] = T,      ['#'] = TOKEN,
    ['$'] = T,         ['%'] = T,         ['&'] = T,         ['\''] = T,     ['*'] = T,
    ['+'] = T,         ['-'] = T,         ['.'] = T,         ['^'] = TT,     ['_'] = T,
    ['`'] = TT,        ['|'] = TT,        ['~'] = T,         ['('] = GH,     [')'] = GH,
    [';'] = GH,        ['='] = GH,        [':'] = GH,        ['['] = GH,     [']'] = GH,
    ['"'] = TARGET,    [','] = TARGET,    ['/'] = TARGET,    ['<'] = TARGET, ['>'] = TARGET,
    ['?'] = TARGET,    ['@'] = TARGET,    ['\\'] = TARGET,   ['{'] = TARGET, ['}'] = TARGET,
};

/* The part not read yet, what stood out so far, and why it was refused. */
struct cursor {
    const char *p;
    const char *end;
    struct http1_error *error;
    bool request;
    uint8_t n_host;
    uint8_t n_length;
    uint8_t n_coding;
    bool close;
    bool keep_alive;
    bool upgrade_token;
    bool upgrade_field;
    bool names; /* Connection names other fields */
};

static int refuse(struct cursor *c, unsigned status, const char *message)
{
    *c->error = (struct http1_error){.status = (uint16_t)status, .message = message};
    return WEIR_E_PROTO;
}

static const char *skip(const struct cursor *c, const char *p, unsigned class)
{
    /* What is in every class takes most bytes at a time. */
    p = scan_word(p, c->end);
    while (p < c->end && (class_of[(unsigned char)*p] & class))
        p++;
    return p;
}

/* At the byte that ended a run of text: 1 = CRLF was passed, 0 = more bytes needed, negative = refused. */
static int line_end(struct cursor *c)
{
    if (c->p == c->end)
        return 0;
    if (*c->p == '\n')
        return refuse(c, 400, "line ends with LF alone");
    if (*c->p != '\r')
        return refuse(c, 400, "invalid character in the head");
    if (c->end - c->p < 2)
        return 0;
    if (c->p[1] != '\n')
        return refuse(c, 400, "CR without LF");
    c->p += 2;
    return 1;
}

/* The length is compared by the caller's switch. */
static bool is(struct slice name, const char *lower)
{
    return slice_same_nocase(name.p, lower, name.n);
}

static void note_connection(struct cursor *c, struct slice value)
{
    struct slice piece;

    while (slice_cut(&value, ',', &piece)) {
        piece = slice_trim(piece);
        if (slice_eq_nocase(piece, SLICE("close")))
            c->close = true;
        else if (slice_eq_nocase(piece, SLICE("keep-alive")))
            c->keep_alive = true;
        else if (slice_eq_nocase(piece, SLICE("upgrade")))
            c->upgrade_token = true;
        else if (piece.n)
            c->names = true;
    }
}

static int note_length(struct cursor *c, struct http1_head *head, struct slice value)
{
    if (c->n_length++)
        return refuse(c, 400, "more than one Content-Length");
    if (num_u64(value, &head->content_length))
        return refuse(c, 400, "invalid Content-Length");
    return 0;
}

static int note_coding(struct cursor *c, struct slice value)
{
    if (c->n_coding++)
        return refuse(c, 400, "more than one Transfer-Encoding");
    if (!slice_eq_nocase(value, SLICE("chunked")))
        return refuse(c, 400, "Transfer-Encoding other than chunked");
    return 0;
}

static int note_host(struct cursor *c, struct slice value)
{
    if (!c->request)
        return 0;
    if (c->n_host++)
        return refuse(c, 400, "more than one Host");
    for (size_t i = 0; i < value.n; i++)
        if (!(class_of[(unsigned char)value.p[i]] & HOST))
            return refuse(c, 400, "invalid Host");
    return 0;
}

/*
 * `raw` is the value with the blanks around it: in a request, a framing field with more than the customary one blank
 * before it is refused, as such forms exist only to be read differently by the next server.
 */
static bool odd(const struct cursor *c, const struct http1_field *f, struct slice raw)
{
    return c->request && (raw.n - f->value.n > 1 || (raw.n > f->value.n && raw.p[0] != ' '));
}

/* Look at the fields that decide framing and persistence. */
static int
note(struct cursor *c, struct http1_head *head, const struct http1_field *f, struct slice raw)
{
    switch (f->name.n) {
    case 4:
        return is(f->name, "host") ? note_host(c, f->value) : 0;
    case 6:
        if (is(f->name, "expect") && slice_eq_nocase(f->value, SLICE("100-continue")))
            head->expect_continue = c->request;
        return 0;
    case 7:
        if (is(f->name, "upgrade"))
            c->upgrade_field = true;
        return 0;
    case 10:
        if (is(f->name, "connection"))
            note_connection(c, f->value);
        return 0;
    case 14:
        if (!is(f->name, "content-length"))
            return 0;
        return odd(c, f, raw) ? refuse(c, 400, "blanks around Content-Length")
                              : note_length(c, head, f->value);
    case 17:
        if (!is(f->name, "transfer-encoding"))
            return 0;
        return odd(c, f, raw) ? refuse(c, 400, "blanks around Transfer-Encoding")
                              : note_coding(c, f->value);
    default:
        return 0;
    }
}

/* One "name: value" line; results as line_end(). */
static int field_line(struct cursor *c, unsigned max, struct http1_head *head)
{
    const char *name = c->p;
    const char *colon = skip(c, name, TOKEN);

    if (colon == c->end)
        return 0;
    if (*colon != ':' || colon == name) {
        if (*name == ' ' || *name == '\t')
            return refuse(c, 400, "folded field line");
        if (*colon == ' ' || *colon == '\t')
            return refuse(c, 400, "blank before the colon of a field");
        return refuse(c, 400, "invalid field name");
    }
    const char *raw = colon + 1;
    const char *stop = scan_text(raw, c->end);
    while (stop < c->end && *stop == '\t')
        stop = scan_text(stop + 1, c->end);
    c->p = stop;
    int rc = line_end(c);
    if (rc <= 0)
        return rc;
    if (head->n_fields >= max)
        return refuse(c, 431, "too many header fields");
    struct http1_field *f = &head->fields[head->n_fields++];
    f->name = slice_of(name, (size_t)(colon - name));
    f->value = slice_trim(slice_of(raw, (size_t)(stop - raw)));
    rc = note(c, head, f, slice_of(raw, (size_t)(stop - raw)));
    return rc ? rc : 1;
}

static int field_lines(struct cursor *c, unsigned max, struct http1_head *head)
{
    while (c->p < c->end) {
        if (*c->p == '\r')
            return line_end(c);
        int rc = field_line(c, max, head);
        if (rc <= 0)
            return rc;
    }
    return 0;
}

/* "HTTP/1.0" or "HTTP/1.1"; results as line_end(). */
static int version(struct cursor *c, struct http1_head *head)
{
    size_t have = MIN((size_t)(c->end - c->p), (size_t)5);

    if (memcmp(c->p, "HTTP/", have) != 0)
        return refuse(c, 400, "invalid HTTP version");
    if (c->end - c->p < 8)
        return 0;
    const char *v = c->p + 5;
    if (v[0] < '0' || v[0] > '9' || v[1] != '.' || v[2] < '0' || v[2] > '9')
        return refuse(c, 400, "invalid HTTP version");
    if (v[0] != '1' || v[2] > '1')
        return refuse(c, 505, "HTTP version not supported");
    head->minor = (uint8_t)(v[2] - '0');
    c->p += 8;
    return 1;
}

/*
 * A method that the next server does not know makes it close, or guess. Those in use are known, so what is left of a
 * body that two servers measured differently ("oGET /") ends here.
 */
static bool method_ok(struct slice method)
{
    static const struct slice known[] = {
        SLICE("POST"),  SLICE("GET"),     SLICE("HEAD"),  SLICE("PUT"),     SLICE("DELETE"),
        SLICE("PATCH"), SLICE("OPTIONS"), SLICE("TRACE"), SLICE("CONNECT"),
    };

    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (slice_eq(method, known[i]))
            return true;
    return false;
}

/* The authority behind "http://": a host at least, and nothing that an authority cannot hold; no user either. */
static bool authority_ok(struct slice rest)
{
    size_t n = 0;

    while (n < rest.n && (class_of[(unsigned char)rest.p[n]] & HOST))
        n++;
    return n > 0 && rest.p[0] != ':' && (n == rest.n || rest.p[n] == '/' || rest.p[n] == '?');
}

/* Origin form, absolute form, "*" with OPTIONS, authority with CONNECT. */
static bool target_ok(struct slice method, struct slice target)
{
    if (slice_eq(method, SLICE("CONNECT")))
        return target.p[0] != '/';
    if (target.p[0] == '/')
        return true;
    if (target.n == 1 && target.p[0] == '*')
        return slice_eq(method, SLICE("OPTIONS"));
    if (target.n > 7 && slice_eq_nocase(slice_of(target.p, 7), SLICE("http://")))
        return authority_ok(slice_from(target, 7));
    return target.n > 8 && slice_eq_nocase(slice_of(target.p, 8), SLICE("https://")) &&
           authority_ok(slice_from(target, 8));
}

static int request_line(struct cursor *c, struct http1_head *head)
{
    const char *at = skip(c, c->p, TOKEN);

    if (at == c->end)
        return 0;
    if (*at != ' ' || at == c->p)
        return refuse(c, 400, "invalid method");
    head->method = slice_of(c->p, (size_t)(at - c->p));
    if (!method_ok(head->method))
        return refuse(c, 400, "unknown method");
    const char *target = at + 1;
    at = skip(c, target, TARGET);
    if (at == c->end)
        return 0;
    if (*at != ' ' || at == target)
        return refuse(c, 400, "invalid request target");
    head->target = slice_of(target, (size_t)(at - target));
    if (!target_ok(head->method, head->target))
        return refuse(c, 400, "invalid request target");
    c->p = at + 1;
    int rc = version(c, head);
    return rc <= 0 ? rc : line_end(c);
}

static void start(struct http1_head *head)
{
    head->method = head->target = head->reason = (struct slice){NULL, 0};
    head->status = 0;
    head->minor = 0;
    head->framing = HTTP1_BODY_NONE;
    head->content_length = 0;
    head->keep_alive = head->expect_continue = head->upgrade = head->connection_names = false;
    head->n_fields = 0;
}

/* What requests and responses share once the empty line was read. */
static int settle(struct cursor *c, struct http1_head *head)
{
    if (c->n_coding && c->n_length)
        return refuse(c, 400, "Transfer-Encoding and Content-Length");
    if (c->n_coding && head->minor == 0)
        return refuse(c, 400, "Transfer-Encoding in HTTP/1.0");
    if (c->n_coding)
        head->framing = HTTP1_BODY_CHUNKED;
    else if (c->n_length)
        head->framing = HTTP1_BODY_LENGTH;
    head->keep_alive = !c->close && (head->minor == 1 || c->keep_alive);
    head->upgrade = c->upgrade_token && c->upgrade_field && head->minor == 1;
    head->connection_names = c->names;
    return 0;
}

int64_t wire_http1_request(const char *p,
                           size_t n,
                           unsigned max_fields,
                           struct http1_head *head,
                           struct http1_error *error)
{
    struct cursor c = {.p = p, .end = p + n, .error = error, .request = true};

    for (int i = 0; i < 2 && c.p < c.end && *c.p == '\r'; i++) {
        int rc = line_end(&c);
        if (rc <= 0)
            return rc;
    }
    start(head);
    int rc = request_line(&c, head);
    if (rc <= 0)
        return rc;
    rc = field_lines(&c, MIN(max_fields, (unsigned)HTTP1_FIELDS_MAX), head);
    if (rc <= 0)
        return rc;
    rc = settle(&c, head);
    if (rc)
        return rc;
    if (head->minor == 1 && c.n_host == 0)
        return refuse(&c, 400, "Host is missing");
    head->expect_continue = head->expect_continue && head->minor == 1;
    return c.p - p;
}

static int status_line(struct cursor *c, struct http1_head *head)
{
    int rc = version(c, head);

    if (rc <= 0)
        return rc;
    const char *s = c->p;
    if (s < c->end && s[0] != ' ')
        return refuse(c, 400, "invalid status line");
    for (int i = 1; i < 4; i++) {
        if (s + i >= c->end)
            return 0;
        if (s[i] < '0' || s[i] > '9')
            return refuse(c, 400, "invalid status code");
    }
    head->status = (uint16_t)((s[1] - '0') * 100 + (s[2] - '0') * 10 + (s[3] - '0'));
    if (head->status < 100)
        return refuse(c, 400, "invalid status code");
    c->p = s + 4;
    if (c->p < c->end && *c->p != ' ' && *c->p != '\r')
        return refuse(c, 400, "invalid status line");
    if (c->p < c->end && *c->p == ' ')
        c->p++;
    const char *reason = c->p;
    const char *stop = scan_text(reason, c->end);
    while (stop < c->end && *stop == '\t')
        stop = scan_text(stop + 1, c->end);
    c->p = stop;
    head->reason = slice_of(reason, (size_t)(stop - reason));
    return line_end(c);
}

int64_t wire_http1_response(const char *p,
                            size_t n,
                            struct slice method,
                            struct http1_head *head,
                            struct http1_error *error)
{
    struct cursor c = {.p = p, .end = p + n, .error = error};

    start(head);
    int rc = status_line(&c, head);
    if (rc <= 0)
        return rc;
    rc = field_lines(&c, HTTP1_FIELDS_MAX, head);
    if (rc <= 0)
        return rc;
    rc = settle(&c, head);
    if (rc)
        return rc;
    bool bare = head->status < 200 || head->status == 204;
    /* A body announced where none may be: whether it comes is anyone's guess, so the connection ends with it. */
    if (bare && (head->framing == HTTP1_BODY_CHUNKED || head->content_length > 0))
        head->keep_alive = false;
    if (bare || head->status == 304 || slice_eq(method, SLICE("HEAD")) ||
        (slice_eq(method, SLICE("CONNECT")) && head->status < 300))
        head->framing = HTTP1_BODY_NONE;
    else if (head->framing == HTTP1_BODY_NONE)
        head->framing = HTTP1_BODY_CLOSE;
    if (head->framing == HTTP1_BODY_CLOSE)
        head->keep_alive = false;
    return c.p - p;
}

const struct http1_field *wire_http1_find(const struct http1_head *head, struct slice name)
{
    for (unsigned i = 0; i < head->n_fields; i++)
        if (head->fields[i].name.n == name.n && slice_eq_nocase(head->fields[i].name, name))
            return &head->fields[i];
    return NULL;
}

struct slice wire_http1_value(const struct http1_head *head, struct slice name)
{
    const struct http1_field *f = wire_http1_find(head, name);

    return f ? f->value : (struct slice){NULL, 0};
}

static bool named_in_connection(const struct http1_head *head, struct slice name)
{
    for (unsigned i = 0; i < head->n_fields; i++) {
        struct slice value = head->fields[i].value;
        struct slice piece;
        if (!slice_eq_nocase(head->fields[i].name, SLICE("connection")))
            continue;
        while (slice_cut(&value, ',', &piece))
            if (slice_eq_nocase(slice_trim(piece), name))
                return true;
    }
    return false;
}

bool wire_http1_hop_by_hop(const struct http1_head *head, const struct http1_field *field)
{
    struct slice name = field->name;

    switch (name.n) {
    case 2:
        if (is(name, "te"))
            return true;
        break;
    case 4:
        if (is(name, "host"))
            return false;
        break;
    case 7:
        if (is(name, "trailer") || is(name, "upgrade"))
            return true;
        break;
    case 10:
        if (is(name, "connection") || is(name, "keep-alive"))
            return true;
        break;
    case 14:
        if (is(name, "content-length"))
            return false;
        break;
    case 16:
        if (is(name, "proxy-connection"))
            return true;
        break;
    case 17:
        if (is(name, "transfer-encoding"))
            return true;
        break;
    case 18:
        if (is(name, "proxy-authenticate"))
            return true;
        break;
    case 19:
        if (is(name, "proxy-authorization"))
            return true;
        break;
    default:
        break;
    }
    return head->connection_names && named_in_connection(head, name);
}

const char *wire_http1_reason(unsigned status)
{
    static const struct {
        uint16_t status;
        const char *text;
    } reasons[] = {
        {100, "Continue"},
        {101, "Switching Protocols"},
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {206, "Partial Content"},
        {301, "Moved Permanently"},
        {302, "Found"},
        {303, "See Other"},
        {304, "Not Modified"},
        {307, "Temporary Redirect"},
        {308, "Permanent Redirect"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {406, "Not Acceptable"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {410, "Gone"},
        {411, "Length Required"},
        {412, "Precondition Failed"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {421, "Misdirected Request"},
        {422, "Unprocessable Content"},
        {426, "Upgrade Required"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {499, "Client Closed Request"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };

    for (size_t i = 0; i < ARRAY_LEN(reasons); i++)
        if (reasons[i].status == status)
            return reasons[i].text;
    return "Unknown";
}
