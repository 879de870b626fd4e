/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file A small HTTP/1.1 server for the control plane (registry, admin) and for the emulated worker.
 * Whole request bodies up to a cap; answers whole or streamed; keep-alive; one request at a time per connection.
 * Not for the data plane. One loop, one thread.
 */
#ifndef WEIR_NET_HTTP_SERVER_H
#define WEIR_NET_HTTP_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "loop/loop.h"
#include "net/addr.h"
#include "net/tls.h"
#include "wire/http1.h"

struct http_server;

/** One request; lives from on_request until its answer is complete or on_gone returned. */
struct http_request {
    struct slice method, path,
        query; /**< raw; query absent when none. Borrowed for the request's life */
    const struct http1_head *head; /**< all fields; borrowed for the request's life */
    struct slice body;             /**< whole; borrowed for the request's life */
    struct net_addr peer;
    void *user; /**< the handler's own */
    /** Must be set by a handler that answers later: the client went away; the request is dead after it. */
    void (*on_gone)(struct http_request *r);
    /** Set it to be told when a streamed answer's queue is empty again. */
    void (*on_drained)(struct http_request *r);
};

/** Must answer, now or later: http_reply(), or http_stream_begin() .. http_stream_end(). */
typedef void (*http_handler_fn)(void *ctx, struct http_request *r);

struct http_server_options {
    struct net_addr addr;
    struct net_tls_slot *tls; /**< borrowed; NULL, or empty = plain */
    size_t body_max;          /**< above: 413, connection closed */
    uint32_t connections_max; /**< then the one that has been without a request longest gives way */
    uint64_t idle_ns;         /**< closes idle and half-sent connections */
    http_handler_fn handler;
    void *ctx;
};

/** Bind and serve on `loop`. @param bound out: the address with its port. */
int http_server_start(struct loop *loop,
                      const struct http_server_options *o,
                      struct http_server **out,
                      struct net_addr *bound) MUST_CHECK;
/** Close the listener and every connection (on_gone is called for requests in work), free all. */
void http_server_stop(struct http_server *s);

/** Answer whole. @param content_type NULL = no body type. The request is over after this call. */
void http_reply(struct http_request *r,
                unsigned status,
                const char *content_type,
                struct slice body);
/** The same with extra header lines, each ending in CRLF; absent = none. */
void http_reply_with(struct http_request *r,
                     unsigned status,
                     const char *content_type,
                     struct slice extra_headers,
                     struct slice body);

/** Start a streamed answer (chunked; close-delimited for HTTP/1.0). */
void http_stream_begin(struct http_request *r,
                       unsigned status,
                       const char *content_type,
                       struct slice extra_headers);
/** One piece, written at once. @return bytes queued for the client; slow readers make it grow. */
size_t http_stream_write(struct http_request *r, struct slice piece);
/** Complete it. The request is over. */
void http_stream_end(struct http_request *r);
/** Break the connection off (RST): for scripted faults, and when a stream cannot be completed. The request is over. */
void http_abort(struct http_request *r);

#endif /* WEIR_NET_HTTP_SERVER_H */
