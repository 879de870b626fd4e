/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The admin API: paths, methods, token, errors. What the answers say comes from hooks, so this room knows
 * neither fleet nor scheduler. One loop, one thread.
 */
#ifndef WEIR_ADMIN_ADMIN_H
#define WEIR_ADMIN_ADMIN_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "loop/loop.h"
#include "net/addr.h"
#include "net/tls.h"

/**
 * All write JSON (metrics: Prometheus text) into out. Results: 0 = 200 with out as the body; WEIR_E_NOTFOUND = 404,
 * WEIR_E_INVALID = 400, WEIR_E_EXISTS and WEIR_E_UNSUPPORTED (needs a restart) = 409, WEIR_E_FULL = 503, each with out as the message (plain words) when it is
 * not empty. None may be NULL.
 */
struct admin_hooks {
    void *ctx;
    int (*metrics)(void *ctx, struct buf *out);
    int (*endpoints)(void *ctx, struct buf *out);
    int (*endpoint)(void *ctx, struct slice id, struct buf *out);
    int (*set_drain)(void *ctx, struct slice id, bool drain, struct buf *out);
    int (*config)(void *ctx, struct buf *out);
    int (*config_validate)(void *ctx, struct slice text, struct buf *out);
    int (*config_apply)(void *ctx, struct slice text, struct buf *out);
    int (*workers)(void *ctx, struct buf *out);
    int (*worker)(void *ctx, struct slice id, struct buf *out);
    int (*worker_add)(void *ctx, struct slice json, struct buf *out);
    int (*worker_remove)(void *ctx, struct slice id, struct buf *out);
    /** @param lines true: one JSON object a line, newest first. */
    int (*decisions)(void *ctx, uint32_t limit, bool lines, struct buf *out);
    int (*explain)(void *ctx, struct slice json, struct buf *out);
};

struct admin_options {
    struct net_addr addr;
    struct net_tls_slot *tls; /**< borrowed; NULL, or empty = plain */
    const char *token;        /**< NULL = none asked; copied */
    struct admin_hooks hooks;
};

struct admin;

/** @param bound out: the address with its port. @return 0, WEIR_E_IO (errno set), WEIR_E_NOMEM. */
int admin_start(struct loop *loop,
                const struct admin_options *o,
                struct admin **out,
                struct net_addr *bound) MUST_CHECK;
/** Another token from now on; NULL = none asked; copied. WEIR_E_NOMEM: the old one stays. */
int admin_set_token(struct admin *a, const char *token) MUST_CHECK;
/** Tell those who follow /api/v1/events. @param a NULL: nobody. @param type one word; @param json one line. */
void admin_event(struct admin *a, const char *type, struct slice json);
void admin_stop(struct admin *a);

#endif /* WEIR_ADMIN_ADMIN_H */
