/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Host names to addresses: literals and localhost (with what is below it) at once, others by the hosts file and
 * the DNS on the loop (c-ares), cached for their TTL (5..60 s); of the last 4,096.
 */
#ifndef WEIR_NET_RESOLVE_H
#define WEIR_NET_RESOLVE_H

#include "base/list.h"
#include "base/slice.h"
#include "loop/loop.h"
#include "net/addr.h"

struct name;
struct resolver;

/** One question; embed it. Must not move or go before done or net_resolve_cancel(). */
struct resolve_query {
    struct list node;
    struct loop_timer timer; /**< the limit */
    struct name *name;       /**< what is waited for */
    uint16_t port;
    /** @param addr NULL when error != 0 (WEIR_E_NOTFOUND, WEIR_E_TIMEOUT, WEIR_E_IO). */
    void (*done)(struct resolve_query *q, int error, const struct net_addr *addr);
};

/**
 * Creates no c-ares channel until the first name that is not a literal.
 * @param servers "host:port,[v6]:port"; NULL: those of the system. Borrowed, for the resolver's life.
 */
int resolver_new(struct loop *loop, const char *servers, struct resolver **out) MUST_CHECK;
/** Pending queries are answered WEIR_E_IO. */
void resolver_free(struct resolver *r);

/**
 * Ask for one address; several are rotated.
 * @param timeout_ns how long the answer may take: then done gets WEIR_E_TIMEOUT, or after half of it an address that was
 * good before, if there is one. 0 = as long as c-ares asks.
 * @return 0 and *now filled when it is known at once (done is not called),
 * WEIR_E_AGAIN when done will be called from the loop, or another error.
 */
int net_resolve(struct resolver *r,
                struct slice host,
                uint16_t port,
                uint64_t timeout_ns,
                struct resolve_query *q,
                struct net_addr *now) MUST_CHECK;
void net_resolve_cancel(struct resolve_query *q);

#endif /* WEIR_NET_RESOLVE_H */
