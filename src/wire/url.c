/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/url.h"

#include "base/bug.h"
#include "base/num.h"

/* Letters, digits and what RFC 3986 allows in a reg-name; "%" too, as names are compared as written. */
static bool host_char(char c)
{
    static const char other[] = "-._~!$&'()*+;=%";
    char l = ascii_lower(c);

    return (l >= 'a' && l <= 'z') || (c >= '0' && c <= '9') ||
           (c && memchr(other, c, sizeof(other) - 1));
}

static bool v6_char(char c)
{
    char l = ascii_lower(c);

    return (c >= '0' && c <= '9') || (l >= 'a' && l <= 'f') || c == ':' || c == '.';
}

static int port_parse(struct slice text, uint16_t *port)
{
    uint64_t v;

    if (text.n > 5 || num_u64(text, &v) || v == 0 || v > UINT16_MAX)
        return WEIR_E_INVALID;
    *port = (uint16_t)v;
    return 0;
}

int wire_authority_parse(struct slice text, struct slice *host, uint16_t *port)
{
    size_t end = 0;
    size_t after;

    if (text.n && text.p[0] == '[') {
        end = slice_find(text, ']');
        if (end == text.n || end < 3)
            return WEIR_E_INVALID;
        for (size_t i = 1; i < end; i++)
            if (!v6_char(text.p[i]))
                return WEIR_E_INVALID;
        *host = slice_of(text.p + 1, end - 1);
        after = end + 1;
    } else {
        while (end < text.n && host_char(text.p[end]))
            end++;
        if (end == 0)
            return WEIR_E_INVALID;
        *host = slice_of(text.p, end);
        after = end;
    }
    *port = 0;
    if (after == text.n)
        return 0;
    if (text.p[after] != ':')
        return WEIR_E_INVALID;
    return port_parse(slice_from(text, after + 1), port);
}

/* Length of "scheme://" at the front, 0 for any other. */
static size_t scheme(struct slice text, bool *tls)
{
    static const struct {
        struct slice text;
        bool tls;
    } known[] = {{{"http://", 7}, false}, {{"https://", 8}, true}};

    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (text.n >= known[i].text.n &&
            slice_eq_nocase(slice_of(text.p, known[i].text.n), known[i].text)) {
            *tls = known[i].tls;
            return known[i].text.n;
        }
    return 0;
}

static size_t authority_len(struct slice text)
{
    size_t n = 0;

    while (n < text.n && text.p[n] != '/' && text.p[n] != '?' && text.p[n] != '#')
        n++;
    return n;
}

int wire_url_parse(struct slice text, struct url *out)
{
    struct url u = {0};
    size_t at = scheme(text, &u.tls);

    if (at == 0)
        return WEIR_E_INVALID;
    for (size_t i = 0; i < text.n; i++)
        if ((unsigned char)text.p[i] <= 0x20 || text.p[i] == 0x7F || text.p[i] == '#')
            return WEIR_E_INVALID;
    struct slice rest = slice_from(text, at);
    u.authority = slice_of(rest.p, authority_len(rest));
    int rc = wire_authority_parse(u.authority, &u.host, &u.port);
    if (rc)
        return rc;
    if (u.port == 0)
        u.port = u.tls ? 443 : 80;
    wire_target_split(slice_from(rest, u.authority.n), &u.path, &u.query);
    *out = u;
    return 0;
}

void wire_target_split(struct slice target, struct slice *path, struct slice *query)
{
    bool tls;
    size_t at = scheme(target, &tls);

    if (at) {
        target = slice_from(target, at);
        target = slice_from(target, authority_len(target));
    }
    at = slice_find(target, '?');
    *path = at ? slice_of(target.p, at) : SLICE("/");
    *query = at < target.n ? slice_from(target, at + 1) : (struct slice){NULL, 0};
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = ascii_lower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int wire_url_decode(struct slice text, bool form, struct buf *out)
{
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if (c == '+' && form) {
            c = ' ';
        } else if (c == '%') {
            int high = text.n - i > 2 ? hex_digit(text.p[i + 1]) : -1;
            int low = text.n - i > 2 ? hex_digit(text.p[i + 2]) : -1;
            if (high < 0 || low < 0)
                return WEIR_E_INVALID;
            c = (char)(high << 4 | low);
            i += 2;
        }
        int rc = buf_put_char(out, c);
        if (rc)
            return rc;
    }
    return 0;
}

bool wire_url_means(struct slice raw, bool form, struct slice text)
{
    size_t n = 0;

    for (size_t i = 0; i < raw.n; i++, n++) {
        char c = raw.p[i] == '+' && form ? ' ' : raw.p[i];
        int high = c == '%' && raw.n - i > 2 ? hex_digit(raw.p[i + 1]) : -1;
        int low = high >= 0 ? hex_digit(raw.p[i + 2]) : -1;
        if (low >= 0) {
            c = (char)(high << 4 | low);
            i += 2;
        }
        if (n == text.n || text.p[n] != c)
            return false;
    }
    return n == text.n;
}

bool wire_query_next(struct slice *rest, struct slice *name, struct slice *value)
{
    struct slice piece;

    while (slice_cut(rest, '&', &piece)) {
        if (piece.n == 0)
            continue;
        size_t at = slice_find(piece, '=');
        *name = slice_of(piece.p, at);
        *value = slice_from(piece, at + 1);
        return true;
    }
    return false;
}

void wire_url_encode(struct slice text, const char *more, struct buf *out)
{
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        char low = ascii_lower(c);
        if ((low >= 'a' && low <= 'z') || (c >= '0' && c <= '9') ||
            (c && (strchr("-._~", c) || strchr(more, c)))) {
            buf_put_char(out, c);
        } else {
            buf_put_char(out, '%');
            buf_put_hex(out, (unsigned char)c, 2);
        }
    }
}
