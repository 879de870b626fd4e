/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file TLS settings and what they are made from. A context is immutable and reference counted: connections hold the
 * one they began with, so a slot can be given another one (new certificates) while they go on. TLS 1.2 and 1.3 with
 * forward secrecy and AEAD ciphers only, no renegotiation, no compression, no early data; ALPN http/1.1.
 * net/conn.h speaks it: net_conn_tls() before net_conn_accept() or net_conn_connect().
 */
#ifndef WEIR_NET_TLS_H
#define WEIR_NET_TLS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

struct net_tls_context;

enum { NET_TLS_WHY = 512, NET_TLS_PAIRS_MAX = 64 };

/** PEM files: the certificate with its chain behind it, and its key without a passphrase. */
struct net_tls_pair {
    const char *cert, *key;
};

/** For listeners. */
struct net_tls_server {
    const struct net_tls_pair
        *pairs;       /**< the first is for clients that name no host, or one that no other has */
    unsigned n_pairs; /**< 1 .. NET_TLS_PAIRS_MAX */
    const char *client_ca; /**< PEM: whose client certificates are good; NULL = none is asked for */
    bool client_optional;  /**< with client_ca: none at all is fine too */
    uint64_t
        handshake_ns; /**< from accept to the end of the handshake; then the connection is closed */
    uint32_t
        handshakes_max; /**< under way at one time, over all loops; further connections are refused */
};

/** For connections to endpoints. */
struct net_tls_client {
    const char *ca;           /**< PEM: whose certificates are good; NULL = the system's store */
    struct net_tls_pair pair; /**< what we show when asked; NULLs = nothing */
    const char *server_name; /**< the name asked for and checked; NULL = the host of the endpoint */
    bool
        insecure_skip_verify; /**< take any certificate: whoever is in between reads and writes everything */
};

/**
 * Read the files and check them: a key that is not the certificate's, and a certificate that has expired or is not
 * valid yet, are refused.
 * @param why out: on failure, which file and what is wrong with it. @return 0, WEIR_E_INVALID, WEIR_E_NOMEM.
 * Blocks on files. The caller has the one reference.
 */
int net_tls_server_new(const struct net_tls_server *o,
                       struct net_tls_context **out,
                       char why[NET_TLS_WHY]) MUST_CHECK;
int net_tls_client_new(const struct net_tls_client *o,
                       struct net_tls_context **out,
                       char why[NET_TLS_WHY]) MUST_CHECK;

/** Any thread. NULL is fine for both. */
struct net_tls_context *net_tls_get(struct net_tls_context *x);
void net_tls_put(struct net_tls_context *x);

/**
 * When the certificate that ends first does so, seconds since 1970; INT64_MAX when there is none.
 * @param pair out, may be NULL: which of the pairs it is in.
 */
int64_t net_tls_not_after(const struct net_tls_context *x, unsigned *pair);

/** The context in force at one place. Any thread; the lock is held for a moment. */
struct net_tls_slot {
    pthread_mutex_t lock;
    struct net_tls_context *now; /**< NULL = plain */
};
void net_tls_slot_init(struct net_tls_slot *s);
/** A reference to what is in force, NULL = plain; net_tls_put() it. */
struct net_tls_context *net_tls_slot_get(struct net_tls_slot *s);
/** From now on this one; takes the reference. */
void net_tls_slot_set(struct net_tls_slot *s, struct net_tls_context *x);
void net_tls_slot_fini(struct net_tls_slot *s);

struct ssl_session_st;

/** One server as connections to it know it: its name, and the last session, which the next connection resumes. */
struct net_tls_peer {
    struct slice host;              /**< name or literal address; borrowed */
    struct ssl_session_st *session; /**< owned; only good with the context that made it */
    uint64_t context;               /**< which one that was */
};
void net_tls_peer_fini(struct net_tls_peer *p);

/** What happened since the start of the process, on all threads. */
struct net_tls_counts {
    uint64_t done, resumed, failed,
        refused; /**< resumed is part of done; refused: above handshakes_max */
};
void net_tls_count(bool server, struct net_tls_counts *out);

#endif /* WEIR_NET_TLS_H */
