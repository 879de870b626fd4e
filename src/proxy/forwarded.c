/* SPDX-License-Identifier: Apache-2.0 */
/*
 * X-Forwarded-For, -Proto and -Host: what the worker may know of the client's connection. By default the client's own
 * address is added behind what others said; a route at the edge replaces what the client claims; or nothing is touched.
 */
#include "proxy/exchange.h"
#include "proxy/head.h"

static bool starts(struct slice name, struct slice prefix)
{
    return name.n >= prefix.n && slice_eq_nocase(slice_of(name.p, prefix.n), prefix);
}

bool forwarded_drops(enum forwarded mode, struct slice name)
{
    if (mode == FORWARDED_OFF)
        return false;
    if (mode == FORWARDED_APPEND)
        return slice_eq_nocase(name, SLICE("X-Forwarded-For"));
    return starts(name, SLICE("X-Forwarded-")) || slice_eq_nocase(name, SLICE("Forwarded")) ||
           slice_eq_nocase(name, SLICE("X-Real-IP"));
}

/* An IPv4 address also in its IPv6 form; an IPv6 address without brackets. */
static void put_peer(struct buf *out, const struct net_addr *a)
{
    const uint8_t *v4 = NULL;

    if (a->any.sa_family == AF_INET)
        v4 = (const uint8_t *)&a->v4.sin_addr;
    else if (a->any.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&a->v6.sin6_addr))
        v4 = a->v6.sin6_addr.s6_addr + 12;
    if (v4) {
        char text[16];
        size_t n = 0;
        for (unsigned i = 0; i < 4; i++) {
            unsigned v = v4[i];
            if (v >= 100)
                text[n++] = (char)('0' + v / 100);
            if (v >= 10)
                text[n++] = (char)('0' + v / 10 % 10);
            text[n++] = (char)('0' + v % 10);
            text[n++] = '.';
        }
        buf_put(out, text, n - 1);
    } else if (a->any.sa_family == AF_INET6) {
        char text[NET_ADDR_TEXT];
        struct slice s = slice_str(net_addr_text(a, text));
        buf_put(out, s.p + 1, slice_find(s, ']') - 1);
    } else {
        buf_put_str(out, "unknown"); /* a Unix socket */
    }
}

void forwarded_put(struct buf *out,
                   enum forwarded mode,
                   const struct client *c,
                   const struct http1_head *h,
                   const struct request_fields *f)
{
    bool append = mode == FORWARDED_APPEND;

    if (mode == FORWARDED_OFF)
        return;
    buf_put_str(out, "X-Forwarded-For: ");
    for (unsigned i = 0; append && f->forwarded_for.p && i < h->n_fields; i++)
        if (h->fields[i].value.n && slice_eq_nocase(h->fields[i].name, SLICE("X-Forwarded-For"))) {
            buf_put_slice(out, h->fields[i].value);
            buf_put_str(out, ", ");
        }
    put_peer(out, &c->peer);
    if (!append || !f->forwarded_proto.p)
        buf_put_str(out, c->conn.tls ? "\r\nX-Forwarded-Proto: https\r\n"
                                     : "\r\nX-Forwarded-Proto: http\r\n");
    else
        buf_put(out, "\r\n", 2);
    if (!append || !f->forwarded_host.p)
        head_put(out, "X-Forwarded-Host: ", wire_http1_value(h, SLICE("Host")));
}
