/* SPDX-License-Identifier: Apache-2.0 */
/** @file Socket addresses from and to text. */
#ifndef WEIR_NET_ADDR_H
#define WEIR_NET_ADDR_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/err.h"
#include "base/slice.h"

struct net_addr {
    socklen_t len;
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_un un;
    };
};

enum { NET_ADDR_TEXT = 128 };

/** Most bytes of a struct net_addr's union, for the kernel to fill. */
static inline socklen_t net_addr_room(void)
{
    return (socklen_t)(sizeof(struct net_addr) - offsetof(struct net_addr, any));
}

/**
 * Literal host (v4, v6 with or without brackets, or "localhost" as 127.0.0.1) and port, or the absolute path of a Unix
 * socket, which has no port; no DNS. WEIR_E_INVALID otherwise.
 */
int net_addr_literal(struct slice host, uint16_t port, struct net_addr *out) MUST_CHECK;
/** "host:port", literal. */
int net_addr_parse(struct slice text, struct net_addr *out) MUST_CHECK;
/** "127.0.0.1:80", "[::1]:80" or "unix:/run/x.sock" ("unix:" for a peer without a name), terminated. @return out. */
const char *net_addr_text(const struct net_addr *a, char out[NET_ADDR_TEXT]);
/** 0 for a Unix socket. */
uint16_t net_addr_port(const struct net_addr *a);
/** This machine talks to itself: a loopback address, or a Unix socket. */
bool net_addr_loopback(const struct net_addr *a);
/**
 * Is it an address where no server of others is: unspecified, link-local (where clouds keep the machine's own
 * credentials, 169.254.169.254), multicast, broadcast, reserved? IPv4 inside IPv6 counts as IPv4.
 */
bool net_addr_nobody(const struct net_addr *a);

#endif /* WEIR_NET_ADDR_H */
