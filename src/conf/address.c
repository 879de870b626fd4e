/* SPDX-License-Identifier: Apache-2.0 */
#include "conf/address.h"

#include "base/num.h"
#include "conf/conf.h"

static bool v4_parse(struct slice text, uint8_t out[4])
{
    struct slice piece;
    uint32_t n = 0;

    while (slice_cut(&text, '.', &piece)) {
        uint64_t v;
        if (n == 4 || piece.n > 3 || num_u64(piece, &v) || v > 255)
            return false;
        if (piece.n > 1 && piece.p[0] == '0')
            return false;
        out[n++] = (uint8_t)v;
    }
    return n == 4;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = ascii_lower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* RFC 4291 section 2.2: groups of hex, one "::", the last two groups also as IPv4. */
static bool v6_parse(struct slice text, uint8_t out[16])
{
    uint32_t n = 0;
    uint32_t gap = UINT32_MAX;
    size_t i = 0;

    memset(out, 0, 16);
    if (text.n >= 2 && text.p[0] == ':' && text.p[1] == ':') {
        gap = 0;
        i = 2;
    }
    while (i < text.n) {
        uint32_t v = 0;
        size_t from = i;
        for (; i < text.n && hex_value(text.p[i]) >= 0 && i - from < 5; i++)
            v = v * 16 + (uint32_t)hex_value(text.p[i]);
        if (i < text.n && text.p[i] == '.') {
            if (n > 12 || !v4_parse(slice_from(text, from), out + n))
                return false;
            n += 4;
            break;
        }
        if (i == from || i - from > 4 || n > 14)
            return false;
        out[n++] = (uint8_t)(v >> 8);
        out[n++] = (uint8_t)v;
        if (i == text.n)
            break;
        if (text.p[i++] != ':' || i == text.n)
            return false;
        if (text.p[i] == ':') {
            if (gap != UINT32_MAX)
                return false;
            gap = n;
            i++;
        }
    }
    if (gap == UINT32_MAX)
        return n == 16;
    if (n > 14)
        return false;
    memmove(out + 16 - (n - gap), out + gap, n - gap);
    memset(out + gap, 0, 16 - n);
    return true;
}

int conf_host_parse(struct slice text, struct conf_host *out)
{
    static const uint8_t v4_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    static const uint8_t zero[16];
    static const uint8_t one[16] = {[15] = 1};

    *out = (struct conf_host){.any = false};
    if (slice_eq_nocase(text, SLICE("localhost")))
        text = SLICE("127.0.0.1");
    if (v4_parse(text, out->bytes + 12))
        memcpy(out->bytes, v4_prefix, sizeof(v4_prefix));
    else if (!v6_parse(text, out->bytes))
        return WEIR_E_INVALID;
    if (memcmp(out->bytes, v4_prefix, sizeof(v4_prefix)) == 0) {
        out->loopback = out->bytes[12] == 127;
        out->any = memcmp(out->bytes + 12, zero, 4) == 0;
    } else {
        out->loopback = memcmp(out->bytes, one, sizeof(one)) == 0;
        out->any = memcmp(out->bytes, zero, sizeof(zero)) == 0;
    }
    return 0;
}

static bool is_v4(const struct conf_host *h)
{
    static const uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

    return memcmp(h->bytes, prefix, sizeof(prefix)) == 0;
}

bool conf_host_overlap(const struct conf_host *a, const struct conf_host *b)
{
    /* An IPv6 listener takes IPv6 alone. */
    if (is_v4(a) != is_v4(b))
        return false;
    return a->any || b->any || memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

bool conf_host_reaches(const struct conf_host *to, const struct conf_host *listener)
{
    /* Connecting to 0.0.0.0 means this machine. A wildcard listener has addresses that are not known here. */
    if (to->any || listener->any)
        return (to->any || to->loopback) && (listener->any || listener->loopback);
    return memcmp(to->bytes, listener->bytes, sizeof(to->bytes)) == 0;
}

int conf_host_port_split(struct slice text, struct slice *host, uint16_t *port)
{
    size_t colon;
    uint64_t v;

    if (text.n && text.p[0] == '[') {
        size_t end = slice_find(text, ']');
        if (end + 1 >= text.n || text.p[end + 1] != ':')
            return WEIR_E_INVALID;
        *host = slice_of(text.p + 1, end - 1);
        if (slice_find(*host, ':') == host->n)
            return WEIR_E_INVALID;
        colon = end + 1;
    } else {
        colon = slice_find(text, ':');
        if (colon == text.n || colon == 0 ||
            slice_find(slice_from(text, colon + 1), ':') + colon + 1 < text.n)
            return WEIR_E_INVALID;
        *host = slice_of(text.p, colon);
    }
    if (num_u64(slice_from(text, colon + 1), &v) || v > UINT16_MAX)
        return WEIR_E_RANGE;
    *port = (uint16_t)v;
    return 0;
}

static bool host_name(struct slice s)
{
    if (s.n == 0 || s.n > 253 || s.p[0] == '.' || s.p[0] == '-')
        return false;
    for (size_t i = 0; i < s.n; i++) {
        char c = ascii_lower(s.p[i]);
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_'))
            return false;
    }
    return true;
}

static bool scheme(struct slice text, struct slice want, struct slice *rest)
{
    if (text.n < want.n || !slice_eq_nocase(slice_of(text.p, want.n), want))
        return false;
    *rest = slice_from(text, want.n);
    return true;
}

static int unix_path(struct slice rest, struct slice *host, uint16_t *port, const char **why)
{
    enum { SUN_PATH_MAX = 107 };
    bool bad = rest.n < 2 || rest.n > SUN_PATH_MAX || rest.p[0] != '/';

    for (size_t i = 0; i < rest.n && !bad; i++)
        bad = (unsigned char)rest.p[i] <= 0x20 || rest.p[i] == 0x7f || rest.p[i] == '?' ||
              rest.p[i] == '#' || rest.p[i] == '%';
    if (bad) {
        *why = "has no usable socket path; write http+unix:///path/of/socket, at most 107 bytes";
        return WEIR_E_INVALID;
    }
    *host = rest;
    *port = 0;
    return 0;
}

int conf_url_split(
    struct slice text, bool *tls, struct slice *host, uint16_t *port, const char **why)
{
    struct conf_host literal;
    struct slice rest;

    *tls = false;
    if (scheme(text, SLICE("http+unix://"), &rest))
        return unix_path(rest, host, port, why);
    *tls = scheme(text, SLICE("https://"), &rest);
    if (!*tls && !scheme(text, SLICE("http://"), &rest)) {
        *why = "is not a URL; write http://host:port";
        return WEIR_E_INVALID;
    }
    size_t slash = slice_find(rest, '/');
    if (slash + 1 < rest.n) {
        *why = "must not have a path; write http://host:port";
        return WEIR_E_INVALID;
    }
    rest.n = slash;
    *port = *tls ? 443 : 80;
    bool bracket = rest.n && rest.p[0] == '[';
    bool plain = bracket ? rest.p[rest.n - 1] == ']' : slice_find(rest, ':') == rest.n;
    if (plain) {
        *host = bracket ? slice_of(rest.p + 1, rest.n - 2) : rest;
    } else {
        int rc = conf_host_port_split(rest, host, port);
        if (rc == WEIR_E_RANGE || (rc == 0 && *port == 0)) {
            *why = "must have a port from 1 to 65535";
            return WEIR_E_INVALID;
        }
        if (rc) {
            *why = "has no valid host and port; write http://host:port";
            return WEIR_E_INVALID;
        }
    }
    if (bracket ? conf_host_parse(*host, &literal) != 0 : !host_name(*host)) {
        *why = "has no valid host; write a name, an IPv4 address, or an IPv6 address in brackets";
        return WEIR_E_INVALID;
    }
    return 0;
}

bool conf_address_loopback(const struct conf_address *a)
{
    struct conf_host host;

    return !a->off && conf_host_parse(a->host, &host) == 0 && host.loopback;
}
