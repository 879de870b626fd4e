/* SPDX-License-Identifier: Apache-2.0 */
/** @file A listening socket on a loop: TCP or Unix, bound here or inherited. */
#ifndef WEIR_NET_LISTENER_H
#define WEIR_NET_LISTENER_H

#include <sys/types.h>

#include "loop/loop.h"
#include "net/addr.h"
#include "net/tls.h"

struct net_listener {
    struct loop_watch watch;
    struct net_addr addr; /**< bound: port 0 is resolved */
    bool shared;          /**< other loops accept from the same socket: wake one of them */
    /** A new connection, non-blocking, TCP_NODELAY set; the callee owns fd. */
    void (*on_accept)(struct net_listener *l, int fd, const struct net_addr *peer);
    struct loop_timer retry; /**< pauses accepting when descriptors run out */
    struct loop *resting;    /**< meanwhile out of epoll, and to be watched here again */
};

/**
 * Bind a TCP socket. An IPv6 one takes IPv6 alone, whatever the system's default: [::] and 0.0.0.0 are two listeners.
 * @param reuseport several loops bind the same address, the kernel spreads connections.
 * @param fd out. @return 0, or WEIR_E_IO with errno set.
 */
int net_listen(const struct net_addr *addr, bool reuseport, int *fd, struct net_addr *bound)
    MUST_CHECK;

/** Who may connect to a Unix socket: what connect() asks for is the right to write. */
struct net_unix_rights {
    mode_t mode;
    uid_t uid; /**< (uid_t)-1 = as the process */
    gid_t gid;
};

/** A bound socket file, so that it is removed by whoever made it, and only while it is that file. */
struct net_unix_file {
    struct net_addr addr; /**< len 0 = none */
    int fd;               /**< holds the file, so that no other can have its number */
};

/**
 * Bind a Unix socket. A socket file that nobody listens on is replaced; one that answers, and whatever is no socket, is
 * not (errno EADDRINUSE, EEXIST). It never has more rights than given. @return 0, or WEIR_E_IO with errno set.
 */
int net_listen_unix(const struct net_addr *addr,
                    const struct net_unix_rights *rights,
                    int *fd,
                    struct net_unix_file *file) MUST_CHECK;
/** Remove the file if it is still the one that was bound. */
void net_unix_remove(struct net_unix_file *file);

/** Make a listening descriptor of somebody else's usable. WEIR_E_INVALID: it is not a listening stream socket. */
int net_listen_inherit(int fd, struct net_addr *bound) MUST_CHECK;
/** Another descriptor of the same socket, for another loop. WEIR_E_IO with errno set. */
int net_listen_again(int fd, int *out) MUST_CHECK;

/** Where and how to listen. */
struct net_listen_at {
    struct net_addr addr;
    int inherited; /**< a listening descriptor, borrowed; -1 = bind addr */
    struct net_unix_rights rights;
    struct net_tls_context *tls; /**< borrowed; NULL = plain */
};

/**
 * Open for one of several loops. @param first what this call gave for the first loop, -1 for the first itself; a Unix or
 * inherited socket is shared, a TCP one made anew. @param file of a Unix socket, made by the first.
 * @return 0, WEIR_E_INVALID (what was inherited does not listen), WEIR_E_IO (errno set).
 */
int net_listen_open(const struct net_listen_at *at,
                    bool several,
                    int first,
                    int *fd,
                    struct net_addr *bound,
                    struct net_unix_file *file) MUST_CHECK;
/** Do loops share one socket there? */
bool net_listen_shared(const struct net_listen_at *at);

/** Accept on l->watch.loop's thread. Takes fd. Set on_accept, and shared, first. */
int net_listener_start(struct net_listener *l, struct loop *loop, int fd) MUST_CHECK;
/** Take who is in the backlog already, then stop; harmless when not started. */
void net_listener_finish(struct net_listener *l);
/** Stop accepting and close; harmless when not started. */
void net_listener_stop(struct net_listener *l);

/** Close a descriptor that nobody took. */
void net_fd_close(int fd);

#endif /* WEIR_NET_LISTENER_H */
