/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The embedded service registry: one store, a native JSON API and a Nacos-compatible one on one port.
 * Everything it learns goes to the sink. One loop, one thread (saving state uses a helper thread of its own).
 */
#ifndef WEIR_REGISTRY_REGISTRY_H
#define WEIR_REGISTRY_REGISTRY_H

#include <stdint.h>

#include "loop/loop.h"
#include "model/update_t.h"
#include "net/addr.h"
#include "net/tls.h"

struct registry;

enum { REGISTRY_INSTANCES_MAX = 100000, REGISTRY_BODY_MAX = 1 << 20, REGISTRY_WATCHERS_MAX = 1000 };

/** What registry_options.current_requests answers for an address it does not know. */
#define REGISTRY_REQUESTS_UNKNOWN UINT32_MAX

/** Text is copied. */
struct registry_options {
    struct net_addr addr;
    struct net_tls_slot *tls; /**< borrowed; NULL, or empty = plain */
    const char *token;        /**< NULL = no authorization asked for */
    const char *state_file;   /**< NULL = nothing is saved */
    struct update_sink sink;  /**< any callback may be NULL */
    uint16_t source;          /**< handed to the sink */
    /** In flight at an address now, or REGISTRY_REQUESTS_UNKNOWN. May be NULL. */
    uint32_t (*current_requests)(void *ctx, struct slice host, uint16_t port);
    /** Hand every endpoint in use of that kind to `one`, borrowed. May be NULL: none. */
    void (*endpoints)(void *ctx,
                      enum engine_kind kind,
                      void (*one)(void *to, const struct endpoint *e),
                      void *to);
    /** The first address that takes requests for models; false: none. May be NULL. */
    bool (*data_address)(void *ctx, struct net_addr *out);
    void *ctx;
    uint32_t instances_max; /**< 0 = REGISTRY_INSTANCES_MAX */
};

/**
 * Load the saved state (told to the sink, then `synced`), bind and serve. A state file that cannot be read is moved aside
 * as FILE.bad with a warning; it never keeps the registry from starting.
 * @param bound may be NULL.
 */
int registry_start(struct loop *loop,
                   const struct registry_options *o,
                   struct registry **out,
                   struct net_addr *bound) MUST_CHECK;

/** Where Nacos' gRPC is served: the port above + 1000. NULL: it is not. */
const struct net_addr *registry_grpc_addr(const struct registry *r);

/** Another token from now on; NULL = none asked; copied. Logins made with the old one end. Failed: the old one stays. */
int registry_set_token(struct registry *r, const char *token) MUST_CHECK;

/** Stop serving, save what is not saved yet, free all. Tells the sink nothing. */
void registry_stop(struct registry *r);

/** Registered now, both kinds. */
uint32_t registry_count(const struct registry *r);

#endif /* WEIR_REGISTRY_REGISTRY_H */
