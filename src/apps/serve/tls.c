/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/serve/tls.h"

#include <stdio.h>

#include "base/bug.h"
#include "base/num.h"
#include "loop/log.h"
#include "wire/prom.h"

enum { SOON_DAYS = 14, DAY_S = 86400 };

static void add_error(struct conf_errors *errors, const char *where, const char *why)
{
    struct conf_place at = {.file = slice_str(where)};
    struct slice text = slice_str(why);

    conf_error_add(errors, &at, &text, 1);
}

static void
warn_soon(const char *where, const struct net_tls_context *x, const struct net_tls_pair *pairs)
{
    unsigned pair = 0;
    int64_t left = net_tls_not_after(x, &pair) - (int64_t)(loop_wall_clock() / NS_PER_S);

    if (left < SOON_DAYS * DAY_S)
        log_warn("tls", "%s: %s: the certificate ends in %lld days; renew it and send SIGHUP",
                 where, pairs[pair].cert, (long long)(left / DAY_S));
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
        warn_soon(where, *out, pairs);
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
        warn_soon("upstream_tls", *out, &o.pair);
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

static void put_end(const char *where, const struct net_tls_context *x, struct buf *out)
{
    struct prom_label label = {"where", slice_str(where)};
    int64_t end = x ? net_tls_not_after(x, NULL) : INT64_MAX;

    if (end != INT64_MAX)
        wire_prom_sample(out, "weir_tls_certificate_end_seconds", &label, 1, (double)end);
}

void serve_tls_metrics(const struct serve_tls *t, struct buf *out)
{
    char where[64];

    wire_prom_family(out, "weir_tls_certificate_end_seconds", "gauge",
                     "When the certificate in use there that ends first does so, since 1970.");
    for (unsigned i = 0; i < SERVE_TLS_LISTENERS; i++) {
        snprintf(where, sizeof(where), "listeners[%u].tls", i);
        put_end(where, t->listeners[i], out);
    }
    put_end("admin.tls", t->admin, out);
    put_end("registry.tls", t->registry, out);
    put_end("upstream_tls", t->upstream, out);
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
