/* SPDX-License-Identifier: Apache-2.0 */
/* What a listener needs besides its address: TLS, and the rights of a Unix socket. */
#include "conf/parse.h"

enum { SOCKET_MODE_USUAL = 0660 };

/* A key that does nothing is an error: somebody believes that it does. */
static void stray(
    struct build *b, uint32_t node, const char *key, const struct conf_path *path, struct slice why)
{
    if (!node || !conf_child(b, node, key))
        return;
    struct conf_path here = {.up = path, .key = slice_str(key)};
    struct conf_place at = conf_place_option(b, node, key, NULL);
    CONF_FAIL(b, &at, &here, why);
}

void conf_tls_compile(struct build *b,
                      const struct raw_tls *raw,
                      uint32_t node,
                      const struct conf_path *path,
                      struct conf_tls *out)
{
    const struct raw_tls_pair *more = raw->more.items;
    struct conf_path here = {.up = path, .key = SLICE("tls")};

    if (!raw->client_ca.p && node)
        stray(b, conf_child(b, node, "tls"), "client_cert", &here,
              SLICE("does nothing without client_ca, which says whose certificates are good"));
    *out = (struct conf_tls){.client_ca = raw->client_ca, .client_cert = raw->client_cert};
    if (!raw->pair.cert.p)
        return;
    struct conf_tls_pair *pairs = arena_array(b->arena, raw->more.n + 1, sizeof(*pairs));
    if (!pairs) {
        b->nomem = true;
        return;
    }
    pairs[0] = raw->pair;
    for (uint32_t i = 0; i < raw->more.n; i++)
        pairs[i + 1] = more[i].pair;
    out->pairs = pairs;
    out->n_pairs = raw->more.n + 1;
}

static bool octal(struct slice text, uint32_t *out)
{
    uint32_t v = 0;

    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] < '0' || text.p[i] > '7')
            return false;
        v = v * 8 + (uint32_t)(text.p[i] - '0');
    }
    *out = v;
    return text.n > 0 && v <= 0777;
}

void conf_listener_compile(struct build *b,
                           const struct raw_listener *raw,
                           uint32_t i,
                           const struct conf_path *path,
                           struct conf_listener *out)
{
    static const char *const rights[] = {"socket_mode", "socket_user", "socket_group"};
    const struct raw_listener *r = &raw[i];

    conf_tls_compile(b, &r->tls, r->item.node, path, &out->tls);
    out->socket_user = r->socket_user;
    out->socket_group = r->socket_group;
    if (!octal(r->socket_mode, &out->socket_mode)) {
        struct conf_path here = {.up = path, .key = SLICE("socket_mode")};
        struct conf_place at = conf_place_option(b, r->item.node, "socket_mode", NULL);
        CONF_FAIL(b, &at, &here, SLICE("must be octal, from 0000 to 0777, in quotes"));
    } else if (r->listener.address.kind != CONF_ADDRESS_UNIX) {
        /* The usual mode is printed for all of them, and says nothing. */
        for (unsigned k = out->socket_mode == SOCKET_MODE_USUAL; k < 3; k++)
            stray(b, r->item.node, rights[k], path,
                  SLICE("only files of Unix sockets have it: address: unix:PATH"));
    }
    if (r->listener.address.kind == CONF_ADDRESS_TCP)
        return;
    for (uint32_t k = 0; k < i; k++)
        if (raw[k].listener.address.kind == r->listener.address.kind &&
            slice_eq(raw[k].listener.address.host, r->listener.address.host)) {
            struct conf_path here = {.up = path, .key = SLICE("address")};
            struct conf_place at = conf_place_option(b, r->item.node, "address", NULL);
            CONF_FAIL(b, &at, &here, SLICE("is taken already by a listener"));
        }
}

void conf_upstream_tls_compile(struct build *b, struct conf *c)
{
    const struct conf_upstream_tls *raw = &b->raw->upstream_tls;

    c->upstream_tls = *raw;
    if (!raw->cert.p == !raw->key.p)
        return;
    struct conf_path top = {.key = SLICE("upstream_tls")};
    struct conf_path here = {.up = &top, .key = raw->cert.p ? SLICE("key") : SLICE("cert")};
    struct conf_place at = conf_place_option(b, conf_child(b, 0, "upstream_tls"), "", NULL);
    CONF_FAIL(b, &at, &here, SLICE("is missing: a certificate and its key go together"));
}
