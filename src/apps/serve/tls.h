/* SPDX-License-Identifier: Apache-2.0 */
/** @file The TLS of one configuration: what its files hold, for every place that listens and towards endpoints. */
#ifndef WEIR_APPS_SERVE_TLS_H
#define WEIR_APPS_SERVE_TLS_H

#include "conf/conf.h"
#include "net/fetch.h"
#include "net/tls.h"

enum { SERVE_TLS_LISTENERS = 16 };

/** Contexts, with a reference each; NULL = plain. */
struct serve_tls {
    struct net_tls_context *listeners[SERVE_TLS_LISTENERS]; /**< by index in the configuration */
    struct net_tls_context *admin, *registry, *upstream;
};

/**
 * Read all files that this configuration names. Warns of certificates that end soon.
 * @return 0; WEIR_E_INVALID with lines in errors; WEIR_E_NOMEM. Blocks on files.
 */
int serve_tls_read(const struct conf *c,
                   struct serve_tls *out,
                   struct conf_errors *errors) MUST_CHECK;
void serve_tls_fini(struct serve_tls *t);

/** When the certificates end, as a family of Prometheus text. An error sticks in out->err. */
void serve_tls_metrics(const struct serve_tls *t, struct buf *out);

/** What checks of https endpoints go by; borrows the configuration's text. */
struct fetch_tls serve_tls_fetch(const struct conf *c);

#endif /* WEIR_APPS_SERVE_TLS_H */
