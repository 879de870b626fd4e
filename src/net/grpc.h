/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file gRPC over HTTP/2 without TLS, as a server and as a client: calls as streams of whole messages. nghttp2 keeps the
 * frames; resets and CONTINUATION frames are counted here. Not for the data plane. One loop, one thread.
 */
#ifndef WEIR_NET_GRPC_H
#define WEIR_NET_GRPC_H

#include "base/buf.h"
#include "loop/loop.h"
#include "net/addr.h"

enum { GRPC_MESSAGE_MAX = 4 << 20, GRPC_CALLS_MAX = 128, GRPC_QUEUE_MAX = 32 << 20 };

/** Results of calls. */
enum {
    GRPC_OK = 0,
    GRPC_CANCELLED = 1,
    GRPC_UNKNOWN = 2,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_INTERNAL = 13,
    GRPC_UNAVAILABLE = 14,
};

/** One connection. */
struct grpc;

/** One call; valid until on_end returned. */
struct grpc_call;

/** Any of these may close the connection. */
struct grpc_ops {
    /** Server: a call has begun; path is borrowed. @return false: there is no such method. NULL in clients. */
    bool (*on_call)(struct grpc *g, struct grpc_call *c, struct slice path);
    /** Client: the connection stands. NULL in servers. */
    void (*on_connected)(struct grpc *g);
    /** A whole message; borrowed. */
    void (*on_message)(struct grpc_call *c, struct slice message);
    /** Server: the peer sends no more on it. */
    void (*on_half_close)(struct grpc_call *c);
    /** It is over. */
    void (*on_end)(struct grpc_call *c, unsigned status);
    /** Dead, after on_end of all calls; freed when this returns. Not called for grpc_close(). */
    void (*on_closed)(struct grpc *g, int error);
};

/** Serve an accepted descriptor; takes it in any case. @param ops borrowed. */
int grpc_accept(struct loop *loop, int fd, const struct grpc_ops *ops, void *ctx, struct grpc **out)
    MUST_CHECK;
/** @param authority what the server is called ("host:port"); copied. */
int grpc_connect(struct loop *loop,
                 const struct net_addr *to,
                 struct slice authority,
                 uint64_t timeout_ns,
                 const struct grpc_ops *ops,
                 void *ctx,
                 struct grpc **out) MUST_CHECK;
/** Close now; no callback follows. NULL is fine. */
void grpc_close(struct grpc *g);
void *grpc_ctx(const struct grpc *g);

/** Client: begin a call. @param path terminated. */
int grpc_call(struct grpc *g, const char *path, void *user, struct grpc_call **out) MUST_CHECK;
struct grpc *grpc_of(const struct grpc_call *c);
void *grpc_user(const struct grpc_call *c);
void grpc_set_user(struct grpc_call *c, void *user);

/**
 * Send one message. A peer that does not read is cut off once GRPC_QUEUE_MAX wait for it.
 * @return 0, WEIR_E_FULL (message too long), WEIR_E_NOMEM.
 */
int grpc_send(struct grpc_call *c, struct slice message) MUST_CHECK;
/** Client: nothing more is sent. Server: the call ends with this status once all is sent. */
void grpc_finish(struct grpc_call *c, unsigned status);

#endif /* WEIR_NET_GRPC_H */
