/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file One connection's TLS, as net/conn.c uses it. Nothing here waits or reads behind the loop's back: what OpenSSL
 * writes is put into the connection's own queue, and what it reads it takes from the socket, no more than one record
 * ahead. Inside net only.
 */
#ifndef WEIR_NET_TLS_PRIV_H
#define WEIR_NET_TLS_PRIV_H

#include <openssl/ssl.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/buf.h"
#include "net/tls.h"

struct net_tls_context {
    atomic_uint refs;
    uint64_t id; /**< never used twice in a process */
    bool server;
    bool insecure;
    SSL_CTX *ctx[NET_TLS_PAIRS_MAX]; /**< server: one for each pair */
    unsigned n;
    char *server_name; /**< owned; NULL = the peer's host */
    uint64_t handshake_ns;
    uint32_t handshakes_max;
    atomic_uint shaking;
    int64_t not_after;   /**< of the certificate that ends first */
    unsigned ends_first; /**< the pair it is in */
};

/** Settings every context has. @return NULL without memory. */
SSL_CTX *tls_ctx_new(bool server);

struct net_tls;

/**
 * @param peer for a client; borrowed for the life of the connection. NULL for a server.
 * @return 0, WEIR_E_NOMEM, WEIR_E_FULL (too many handshakes under way). Takes its own reference to x.
 */
int tls_new(struct net_tls_context *x, struct net_tls_peer *peer, struct net_tls **out) MUST_CHECK;
void tls_free(struct net_tls *t);
/** Use this descriptor and this queue, which holds plain bytes until the handshake is done and encrypted ones after. */
void tls_attach(struct net_tls *t, int fd, struct buf *out);
uint64_t tls_handshake_ns(const struct net_tls *t);
bool tls_is_server(const struct net_tls *t);

/** @return 0 = done, the queue is encrypted; WEIR_E_AGAIN; WEIR_E_DENIED (certificate), WEIR_E_PROTO, WEIR_E_CLOSED... */
int tls_handshake(struct net_tls *t, uint64_t now_ns) MUST_CHECK;
/** The handshake has bytes that the kernel did not take. */
bool tls_wants_write(const struct net_tls *t);

/** As recv(); 0 is an end that the peer announced, an end without announcement is ECONNRESET. */
ssize_t tls_recv(struct net_tls *t, char *to, size_t room);
/** There is more to be had from tls_recv() than the socket will tell. */
bool tls_pending(const struct net_tls *t);
/** Encrypt into the queue. @return 0, WEIR_E_NOMEM, WEIR_E_CLOSED. */
int tls_send(struct net_tls *t, const struct iovec *parts, unsigned n);
/** Put the announcement of the end into the queue. */
void tls_shutdown(struct net_tls *t);

#endif /* WEIR_NET_TLS_PRIV_H */
