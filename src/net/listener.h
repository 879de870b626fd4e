/* SPDX-License-Identifier: Apache-2.0 */
/** @file A listening TCP socket on a loop. */
#ifndef WEIR_NET_LISTENER_H
#define WEIR_NET_LISTENER_H

#include "loop/loop.h"
#include "net/addr.h"

struct net_listener {
    struct loop_watch watch;
    struct net_addr addr; /**< bound: port 0 is resolved */
    /** A new connection, non-blocking, TCP_NODELAY set; the callee owns fd. */
    void (*on_accept)(struct net_listener *l, int fd, const struct net_addr *peer);
    struct loop_timer retry; /**< pauses accepting when descriptors run out */
};

/**
 * Bind a socket. @param reuseport several loops bind the same address, the kernel spreads connections.
 * @param fd out. @return 0, or WEIR_E_IO with errno set.
 */
int net_listen(const struct net_addr *addr, bool reuseport, int *fd, struct net_addr *bound)
    MUST_CHECK;

/** Accept on l->watch.loop's thread. Takes fd. Set on_accept first. */
int net_listener_start(struct net_listener *l, struct loop *loop, int fd) MUST_CHECK;
/** Take who is in the backlog already, then stop; harmless when not started. */
void net_listener_finish(struct net_listener *l);
/** Stop accepting and close; harmless when not started. */
void net_listener_stop(struct net_listener *l);

/** Close a descriptor that nobody took. */
void net_fd_close(int fd);

#endif /* WEIR_NET_LISTENER_H */
