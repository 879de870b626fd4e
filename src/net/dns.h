/* SPDX-License-Identifier: Apache-2.0 */
/** @file A c-ares channel on the loop: its descriptors are watched, its timeouts kept by a timer. One thread. */
#ifndef WEIR_NET_DNS_H
#define WEIR_NET_DNS_H

#include <ares.h>

#include "base/slice.h"
#include "loop/loop.h"

struct net_dns;

struct net_dns_options {
    const char *servers; /**< "host:port,[v6]:port"; NULL: those of the system */
    bool edns;           /**< ask for answers above 512 bytes */
};

/** @return 0, WEIR_E_NOMEM, WEIR_E_IO, WEIR_E_INVALID (servers). */
int net_dns_new(struct loop *loop,
                const struct net_dns_options *o,
                struct net_dns **out) MUST_CHECK;
/** What is being asked is answered with ARES_EDESTRUCTION, inside this call. NULL is fine. */
void net_dns_free(struct net_dns *d);

/** For ares_...() calls; net_dns_asked() after each that asks. */
ares_channel net_dns_channel(struct net_dns *d);
void net_dns_asked(struct net_dns *d);

/** @param answer a whole DNS message; absent when error != 0. Borrowed. */
typedef void (*net_dns_fn)(void *ctx, int error, struct slice answer);

/**
 * Ask for the records of one name and type (a number of the DNS), with the system's search list.
 * @param done called once, maybe inside this call. error: 0; WEIR_E_NOTFOUND: there is no such name, or no such record
 * of it; WEIR_E_TIMEOUT; WEIR_E_CLOSED: net_dns_free(); WEIR_E_IO.
 */
void net_dns_ask(struct net_dns *d, const char *name, int type, net_dns_fn done, void *ctx);

#endif /* WEIR_NET_DNS_H */
