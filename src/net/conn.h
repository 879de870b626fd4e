/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file One stream connection, the transport boundary: above it nobody ever sees would-block.
 *
 * Receiving: bytes are lent to on_data for the length of the call, in the loop's scratch buffer. The callee returns how
 * many it used; the rest is kept and lent again, in front of what comes next, when more arrives or at net_conn_resume().
 * It must use up or refuse once recv_max bytes are kept: then on_data is called with that many and progress is demanded;
 * no progress closes the connection with WEIR_E_FULL.
 * Sending: net_conn_send() takes all it is given: writes at once what the kernel accepts, owns a copy of the rest.
 * Backpressure is the caller's: when net_conn_queued() is high, pause the source until on_drained.
 * Ends: a peer's FIN is seen also while reading is paused (on_eof; told again after bytes that
 * were still unread when reading is resumed). An error or RST ends the connection in any state
 * (on_closed, once, and the last callback). Inside callbacks any function below may be called on any connection,
 * net_conn_close() too; the struct may be freed in or after on_closed, or right after net_conn_close().
 */
#ifndef WEIR_NET_CONN_H
#define WEIR_NET_CONN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/buf.h"
#include "loop/loop.h"
#include "net/addr.h"

struct net_conn;
struct net_tls;
struct net_tls_context;
struct net_tls_peer;

struct net_conn_ops {
    /** The connection asked for by net_conn_connect() stands, with its TLS. NULL where only net_conn_accept() is used. */
    void (*on_connected)(struct net_conn *c);
    /** n > 0 bytes. @return bytes used (<= n). Ignored if the callback closed the connection. */
    size_t (*on_data)(struct net_conn *c, const char *p, size_t n);
    /** The peer sent FIN (TLS: announced its end); sending still works. Bytes received before it come first (unless reading is paused). */
    void (*on_eof)(struct net_conn *c);
    /** Everything queued was written. Only after a send that queued something. */
    void (*on_drained)(struct net_conn *c);
    /**
     * Dead: WEIR_E_CLOSED (reset; TLS: an end that was not announced), WEIR_E_REFUSED, WEIR_E_TIMEOUT, WEIR_E_IO, WEIR_E_FULL,
     * WEIR_E_NOMEM; TLS also WEIR_E_DENIED (a certificate was refused), WEIR_E_PROTO. Not called for net_conn_close().
     */
    void (*on_closed)(struct net_conn *c, int error);
};

/** Embed it; fields are the implementation's. Idle it owns no buffer. */
struct net_conn {
    const struct net_conn_ops *ops;
    struct loop *loop; /**< NULL before connect or accept, and after the end */
    struct loop_watch watch;
    struct buf in;           /**< received and not used yet */
    struct buf out;          /**< taken and not written yet */
    struct net_tls *tls;     /**< NULL = plain */
    struct loop_timer timer; /**< connect timeout; then deferred work ("kick") */
    bool *gone;           /**< set to true when the connection ends inside one of its callbacks */
    int error;            /**< pending on_closed */
    size_t recv_max;      /**< kept bytes at which on_data must make progress */
    bool connecting : 1;  /**< also while TLS shakes hands, on both sides */
    bool shaking : 1;     /**< the second half of connecting */
    bool paused : 1;      /**< not reading */
    bool unlent : 1;      /**< resumed, and what is kept was not lent again yet */
    bool eof_told : 1;    /**< on_eof was called */
    bool read_end : 1;    /**< nothing more can be read */
    bool fin_seen : 1;    /**< RDHUP seen; data may still be unread */
    bool shut_wanted : 1; /**< FIN after the queue */
    bool send_dead : 1;   /**< the peer takes no more; what it sent is still read */
    bool parked : 1;      /**< hung up while paused: out of epoll until resumed */
};

/** Prepare a zeroed struct. @param recv_max most bytes kept for the callee. */
void net_conn_init(struct net_conn *c, const struct net_conn_ops *ops, size_t recv_max);

/** Another recv_max from now on; bytes that are kept already stay. */
void net_conn_recv_max(struct net_conn *c, size_t recv_max);

/**
 * Speak TLS on it, from the start: call it between init and accept or connect. Takes its own reference.
 * @param peer whom a client connects to; borrowed until the connection is closed. NULL for a server's context.
 * @return 0, WEIR_E_FULL (too many handshakes under way), WEIR_E_INVALID (no name that can be asked for), WEIR_E_NOMEM.
 */
int net_conn_tls(struct net_conn *c,
                 struct net_tls_context *x,
                 struct net_tls_peer *peer) MUST_CHECK;

/** Use an accepted descriptor; takes it. */
int net_conn_accept(struct net_conn *c, struct loop *loop, int fd) MUST_CHECK;

/** Start connecting; on_connected or on_closed follows, never inside this call. @param timeout_ns with TLS; 0 = the kernel's. */
int net_conn_connect(struct net_conn *c,
                     struct loop *loop,
                     const struct net_addr *to,
                     uint64_t timeout_ns) MUST_CHECK;

/**
 * @return 0, or WEIR_E_CLOSED / WEIR_E_NOMEM when the peer takes no more: on_closed follows from the loop, after
 * whatever the peer still sent (an early error answer, say) was lent to on_data. Ignoring the result is fine.
 */
int net_conn_send(struct net_conn *c, const struct iovec *parts, unsigned n);
int net_conn_send_slice(struct net_conn *c, struct slice s);

/** Bytes taken and not yet written to the kernel. */
static inline size_t net_conn_queued(const struct net_conn *c)
{
    return buf_len(&c->out);
}

void net_conn_pause(struct net_conn *c);
/** Lends kept bytes again, from the loop, not inside this call. */
void net_conn_resume(struct net_conn *c);

/**
 * Let acknowledgements of what is received wait for a second segment, 40 ms at most, until the kernel finds a reason
 * not to; or not (sends one that is due). TCP only, a hint. Cost: a system call.
 */
void net_conn_ack_lazily(struct net_conn *c, bool lazily);

/** Send FIN after what is queued. */
void net_conn_shutdown(struct net_conn *c);
/** Close now; queued bytes are lost. No callback follows. The struct may be freed. */
void net_conn_close(struct net_conn *c);
/** Close with RST, so the peer cannot take what it got for a complete message. */
void net_conn_abort(struct net_conn *c);
/**
 * Close politely: write what is queued, FIN, then read and drop until the peer's FIN, at most 2 s or 1 MiB (30 s
 * without progress while bytes are queued), so that unread request bytes do not reset the answer away. The descriptor
 * moves into a struct of its own: no callback follows and c may be freed at once.
 */
void net_conn_linger(struct net_conn *c);

static inline bool net_conn_open(const struct net_conn *c)
{
    return c->loop != NULL;
}

#endif /* WEIR_NET_CONN_H */
