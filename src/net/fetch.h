/* SPDX-License-Identifier: Apache-2.0 */
/** @file HTTP client of the control plane: libcurl's multi interface on our loop. One thread. */
#ifndef WEIR_NET_FETCH_H
#define WEIR_NET_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"
#include "loop/loop.h"

struct fetcher;
struct fetch;

/** What came back. Borrowed for the length of the callback. */
struct fetch_result {
    int error; /**< 0, or WEIR_E_REFUSED, WEIR_E_TIMEOUT, WEIR_E_FULL (answer above body_max), WEIR_E_IO */
    unsigned status; /**< HTTP status when error is 0 */
    struct slice body;
    const char *message; /**< words for a log line, never NULL */
    uint64_t elapsed_ns;
    struct fetch *fetch; /**< for fetch_header() */
};

typedef void (*fetch_done_fn)(void *ctx, const struct fetch_result *result);

/** PEM files and a name, as in net/tls.h; all borrowed until fetch_start() returns. PEM text beats a file. */
struct fetch_tls {
    const char *ca, *cert, *key, *server_name;
    struct slice ca_pem, cert_pem, key_pem; /**< absent: none */
    bool insecure_skip_verify;
};

struct fetch_options {
    const char *method;    /**< "GET", "PUT", ... */
    const char *url;       /**< http or https */
    const char *unix_path; /**< NULL, or the socket that is connected instead of the URL's host */
    const struct fetch_tls *tls; /**< for https; NULL = what the system trusts */
    struct slice body;           /**< copied; absent = none */
    const char *content_type;    /**< NULL = none */
    const char *accept;          /**< NULL = anything */
    const char *bearer;          /**< Authorization: Bearer; NULL = none */
    const char *authorization;   /**< Authorization, as it is; NULL = none */
    uint64_t connect_ns;         /**< to be connected; 0 = timeout_ns alone counts */
    uint64_t
        timeout_ns;  /**< whole exchange; 0 = no end: a dead peer is noticed by TCP's keep-alive */
    size_t body_max; /**< of the answer, without on_data */
    bool brief;      /**< its usual answer has a few lines: takes less memory while it waits */
    /**
     * Set: the body of an answer with status 200 comes piece by piece as it arrives. Not 0 ends the exchange: done follows
     * with WEIR_E_IO. Must not call fetch_*().
     */
    int (*on_data)(void *ctx, struct slice piece);
    fetch_done_fn done; /**< called once, unless cancelled */
    void *ctx;
};

int fetcher_new(struct loop *loop, struct fetcher **out) MUST_CHECK;
/** Cancels everything that is under way. */
void fetcher_free(struct fetcher *f);

/** @param out may be NULL; else a handle valid until done or cancel. done is never called inside this call. */
int fetch_start(struct fetcher *f, const struct fetch_options *o, struct fetch **out) MUST_CHECK;
void fetch_cancel(struct fetch *t);
/** A header of the answer, absent when it has none; inside done only. */
struct slice fetch_header(const struct fetch_result *r, const char *name);

#endif /* WEIR_NET_FETCH_H */
