/* SPDX-License-Identifier: Apache-2.0 */
#include "net/addr.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "wire/url.h"

/* RFC 6761: localhost and all below it are this machine, whatever a DNS server says. */
static bool is_localhost(struct slice host)
{
    static const struct slice name = SLICE("localhost");

    if (host.n && host.p[host.n - 1] == '.')
        host.n--;
    if (host.n < name.n || !slice_eq_nocase(slice_of(host.p + host.n - name.n, name.n), name))
        return false;
    return host.n == name.n || (host.n > name.n + 1 && host.p[host.n - name.n - 1] == '.');
}

int net_addr_literal(struct slice host, uint16_t port, struct net_addr *out)
{
    char text[NET_ADDR_TEXT];

    memset(out, 0, sizeof(*out));
    if (host.n && host.p[0] == '/') {
        if (host.n >= sizeof(out->un.sun_path) || memchr(host.p, '\0', host.n))
            return WEIR_E_INVALID;
        out->un.sun_family = AF_UNIX;
        memcpy(out->un.sun_path, host.p, host.n);
        out->len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + host.n + 1);
        return 0;
    }
    if (is_localhost(host))
        host = SLICE("127.0.0.1");
    if (host.n >= 2 && host.p[0] == '[' && host.p[host.n - 1] == ']')
        host = slice_of(host.p + 1, host.n - 2);
    if (host.n == 0 || host.n >= sizeof(text) || memchr(host.p, '\0', host.n))
        return WEIR_E_INVALID;
    memcpy(text, host.p, host.n);
    text[host.n] = '\0';
    if (inet_pton(AF_INET, text, &out->v4.sin_addr) == 1) {
        out->v4.sin_family = AF_INET;
        out->v4.sin_port = htons(port);
        out->len = sizeof(out->v4);
        return 0;
    }
    if (inet_pton(AF_INET6, text, &out->v6.sin6_addr) == 1) {
        out->v6.sin6_family = AF_INET6;
        out->v6.sin6_port = htons(port);
        out->len = sizeof(out->v6);
        return 0;
    }
    return WEIR_E_INVALID;
}

int net_addr_parse(struct slice text, struct net_addr *out)
{
    struct slice host;
    uint16_t port;

    int rc = wire_authority_parse(text, &host, &port);
    if (rc)
        return rc;
    return net_addr_literal(host, port, out);
}

const char *net_addr_text(const struct net_addr *a, char out[NET_ADDR_TEXT])
{
    char host[INET6_ADDRSTRLEN] = "?";

    if (a->any.sa_family == AF_UNIX) {
        bool named = a->len > offsetof(struct sockaddr_un, sun_path);
        snprintf(out, NET_ADDR_TEXT, "unix:%.108s", named ? a->un.sun_path : "");
    } else if (a->any.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &a->v6.sin6_addr, host, sizeof(host));
        snprintf(out, NET_ADDR_TEXT, "[%s]:%u", host, net_addr_port(a));
    } else {
        inet_ntop(AF_INET, &a->v4.sin_addr, host, sizeof(host));
        snprintf(out, NET_ADDR_TEXT, "%s:%u", host, net_addr_port(a));
    }
    return out;
}

uint16_t net_addr_port(const struct net_addr *a)
{
    if (a->any.sa_family == AF_UNIX)
        return 0;
    return ntohs(a->any.sa_family == AF_INET6 ? a->v6.sin6_port : a->v4.sin_port);
}

bool net_addr_nobody(const struct net_addr *a)
{
    uint32_t v4 = 0;

    if (a->any.sa_family == AF_INET6) {
        const struct in6_addr *six = &a->v6.sin6_addr;
        if (!IN6_IS_ADDR_V4MAPPED(six))
            return IN6_IS_ADDR_UNSPECIFIED(six) || IN6_IS_ADDR_LINKLOCAL(six) ||
                   IN6_IS_ADDR_MULTICAST(six);
        memcpy(&v4, six->s6_addr + 12, sizeof(v4));
    } else {
        v4 = a->v4.sin_addr.s_addr;
    }
    v4 = ntohl(v4);
    return v4 >> 24 == 0 || v4 >> 16 == 0xa9fe || v4 >> 28 >= 14;
}

bool net_addr_loopback(const struct net_addr *a)
{
    if (a->any.sa_family == AF_UNIX)
        return true;
    if (a->any.sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
    return (ntohl(a->v4.sin_addr.s_addr) >> 24) == 127;
}
