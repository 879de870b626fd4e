/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/serve/tls.h"

#include <stdio.h>

#include "base/bug.h"
#include "base/num.h"
#include "loop/log.h"

enum { SOON_DAYS = 14, DAY_S = 86400 };

static void add_error(struct conf_errors *errors, const char *where, const char *why)
{
    struct conf_place at = {.file = slice_str(where)};
    struct slice text = slice_str(why);

    conf_error_add(errors, &at, &text, 1);
}

static void warn_soon(const char *where, const struct net_tls_context *x)
{
    int64_t left = net_tls_not_after(x) - (int64_t)(loop_wall_clock() / NS_PER_S);

    if (left < SOON_DAYS * DAY_S)
        log_warn("tls", "%s: a certificate ends in %lld days", where, (long long)(left / DAY_S));
}

static int read_server(const struct conf *c,
                       const struct conf_tls *tls,
                       const char *where,
                       struct net_tls_context **out,
                       struct conf_errors *errors)
{
    struct net_tls_pair pairs[NET_TLS_PAIRS_MAX];
    char why[NET_TLS_WHY];

    if (tls->n_pairs == 0)
        return 0;
    BUG_ON(tls->n_pairs > NET_TLS_PAIRS_MAX);
    for (uint32_t i = 0; i < tls->n_pairs; i++)
        pairs[i] = (struct net_tls_pair){tls->pairs[i].cert.p, tls->pairs[i].key.p};
    struct net_tls_server o = {.pairs = pairs,
                               .n_pairs = tls->n_pairs,
                               .client_ca = tls->client_ca.p,
                               .client_optional = tls->client_cert == CONF_CLIENT_CERT_OPTIONAL,
                               .handshake_ns = c->routing.limits.tls_handshake_ns,
                               .handshakes_max = c->routing.limits.tls_handshakes};
    int rc = net_tls_server_new(&o, out, why);
    if (rc == 0)
        warn_soon(where, *out);
    else
        add_error(errors, where, why);
    return rc;
}

static int
read_client(const struct conf *c, struct net_tls_context **out, struct conf_errors *errors)
{
    const struct conf_upstream_tls *u = &c->upstream_tls;
    struct net_tls_client o = {.ca = u->ca.p,
                               .pair = {u->cert.p, u->key.p},
                               .server_name = u->server_name.p,
                               .insecure_skip_verify = u->insecure_skip_verify};
    char why[NET_TLS_WHY];

    int rc = net_tls_client_new(&o, out, why);
    if (rc)
        add_error(errors, "upstream_tls", why);
    else if (u->cert.p)
        warn_soon("upstream_tls", *out);
    return rc;
}

int serve_tls_read(const struct conf *c, struct serve_tls *out, struct conf_errors *errors)
{
    char where[64];
    int rc = 0;

    *out = (struct serve_tls){.admin = NULL};
    BUG_ON(c->n_listeners > SERVE_TLS_LISTENERS);
    for (unsigned i = 0; i < c->n_listeners && rc == 0; i++) {
        snprintf(where, sizeof(where), "listeners[%u].tls", i);
        rc = read_server(c, &c->listeners[i].tls, where, &out->listeners[i], errors);
    }
    if (rc == 0)
        rc = read_server(c, &c->admin.tls, "admin.tls", &out->admin, errors);
    if (rc == 0)
        rc = read_server(c, &c->registry.tls, "registry.tls", &out->registry, errors);
    if (rc == 0)
        rc = read_client(c, &out->upstream, errors);
    if (rc)
        serve_tls_fini(out);
    return rc;
}

void serve_tls_fini(struct serve_tls *t)
{
    for (unsigned i = 0; i < SERVE_TLS_LISTENERS; i++)
        net_tls_put(t->listeners[i]);
    net_tls_put(t->admin);
    net_tls_put(t->registry);
    net_tls_put(t->upstream);
    *t = (struct serve_tls){.admin = NULL};
}

struct fetch_tls serve_tls_fetch(const struct conf *c)
{
    const struct conf_upstream_tls *u = &c->upstream_tls;

    return (struct fetch_tls){.ca = u->ca.p,
                              .cert = u->cert.p,
                              .key = u->key.p,
                              .server_name = u->server_name.p,
                              .insecure_skip_verify = u->insecure_skip_verify};
}
