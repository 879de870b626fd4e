/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The data plane: listeners on N loops, HTTP/1.1 exchanges, upstream pools, retries, queueing, relay.
 *
 * Life: proxy_new(), proxy_publish(), proxy_start(), then the loops are run in threads; proxy_drain(), loops stopped
 * and joined, proxy_free(). Each function says on which thread it belongs; "control" is the thread that also owns the
 * fleet table.
 */
#ifndef WEIR_PROXY_PROXY_H
#define WEIR_PROXY_PROXY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"
#include "loop/loop.h"
#include "model/route_t.h"
#include "model/snapshot_t.h"
#include "net/fetch.h"
#include "net/listener.h"

struct proxy;

enum { PROXY_LISTENERS_MAX = 16, PROXY_LOOPS_MAX = 64, PROXY_HOP_ID_MAX = 64 };

struct proxy_options {
    struct loop *control; /**< where drain's callback runs; borrowed */
    struct loop **loops;  /**< the data loops, 1 .. PROXY_LOOPS_MAX, not running yet; borrowed */
    unsigned n_loops;
    const struct net_listen_at *
        listen; /**< copied, TLS contexts with a reference of their own; TCP: one socket per loop */
    unsigned n_listen;
    struct net_tls_slot *
        upstream_tls; /**< for https endpoints; borrowed, the same in every reload; NULL, or empty = none can be used */
    const struct routing
        *routing;        /**< borrowed until proxy_reclaim() names it, or the proxy's end */
    struct slice hop_id; /**< names this instance in X-Weir-Hop; token characters; copied */
    struct fetcher *
        fetcher; /**< of the control loop: jobs whose client left are interrupted with it; borrowed, the
                                same in every reload; NULL = they are not */
    const struct fetch_tls *fetch_tls; /**< for https endpoints; as fetcher */
    int access_fd; /**< access log, one JSON line a request; -1 = none; not owned. It stays
                                 open: requests under way write there */
    uint32_t decisions_per_s; /**< decisions logged a second at most; 0 = none */
    const char
        *admin_token; /**< who sends it may ask why (X-Weir-Explain); NULL = nobody; copied */
};

/** Build everything, bind nothing. WEIR_E_INVALID for options out of range, WEIR_E_NOMEM. Thread: control. */
int proxy_new(const struct proxy_options *o, struct proxy **out) MUST_CHECK;

/**
 * Bind and listen where o->listen says. Call it before the loops run.
 * @param bound out: n_listen addresses with their ports; len is 0 from the first on that could not be bound.
 * @return 0, WEIR_E_IO (errno set), WEIR_E_NOMEM. Thread: control.
 */
int proxy_start(struct proxy *p, const struct proxy_options *o, struct net_addr *bound) MUST_CHECK;

/**
 * Go by another configuration: of `o`, what stands below `n_loops` counts, but not hop_id. New requests go by it when
 * this returns; those under way keep the old one to their end. Listeners that both have are not touched. Pools keep
 * their waiters and their rotation. Not while draining.
 * @param bound as in proxy_start().
 * @return 0; WEIR_E_INVALID; WEIR_E_NOMEM; WEIR_E_IO (a listener, errno set); WEIR_E_FULL (more than 8,192 different routes
 * since the start, or listeners of the last change are still being closed): nothing changed. Thread: control.
 */
int proxy_reload(struct proxy *p, const struct proxy_options *o, struct net_addr *bound) MUST_CHECK;

/** Tell which routings nobody goes by any more; they can be freed. Call it from time to time. Thread: control. */
void proxy_reclaim(struct proxy *p, void (*unused)(void *ctx, const struct routing *r), void *ctx);

/**
 * Use this snapshot from now on; offers capacity to waiters of pools whose members changed.
 * It must live while proxy_snapshot_in_use() says so, and at least until the next one is published. Thread: control.
 */
void proxy_publish(struct proxy *p, const struct snapshot *s);

/** For fleet_reclaim(): may a loop still look at it? @param proxy a struct proxy. Thread: control. */
bool proxy_snapshot_in_use(void *proxy, const struct snapshot *s);

/** This endpoint may have room now (fresher sample, health change, raised limit): grant to waiters. Thread: control. */
void proxy_offer(struct proxy *p, struct cell *cell);

/**
 * Stop listening, answer what is under way and what still comes on open connections with "Connection: close".
 * Connections left at the deadline are reset, so that nobody takes a cut answer for a whole one.
 * @param done called once on the control loop, when no connection is left. Thread: control.
 */
void proxy_drain(struct proxy *p, uint64_t deadline_ns, void (*done)(void *ctx), void *ctx);

/** Reset what is open and free all. The loops must not run any more. Thread: control. */
void proxy_free(struct proxy *p);

#endif /* WEIR_PROXY_PROXY_H */
