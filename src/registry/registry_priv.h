/* SPDX-License-Identifier: Apache-2.0 */
/** @file What the files of the registry share: the object, one call, answering. */
#ifndef WEIR_REGISTRY_REGISTRY_PRIV_H
#define WEIR_REGISTRY_REGISTRY_PRIV_H

#include "net/http_server.h"
#include "registry/registry.h"
#include "registry/state.h"
#include "registry/store.h"
#include "registry/watch.h"

enum {
    REGISTRY_CALL_MAX = 16 << 20,    /**< arena of one call */
    REGISTRY_ANSWER_MAX = 512 << 20, /**< one answer; 100,000 full endpoints fit */
    REGISTRY_ACCESS_TOKEN = 32,
};

struct registry {
    struct loop *loop;
    struct registry_options o;
    char *token;
    char *state_file;
    char
        access_token[REGISTRY_ACCESS_TOKEN + 1]; /**< what a Nacos login gives; new with each run */
    struct store store;
    struct watch watch;
    struct state state;
    struct http_server *server;
    struct nacos_grpc *grpc; /**< NULL: off */
    uint64_t told_ms;        /**< lastRefTime of the last list over gRPC */
    struct loop_timer lease_timer;
};

/** One request while it is answered. */
struct call {
    struct registry *registry;
    struct http_request *request;
    struct arena arena;
    uint64_t now_ns;
};

/** Handlers: answer before they return (a watch goes on streaming). */
void native_handle(struct call *c);
void nacos_handle(struct call *c);
/** What a login gave, or the token itself? True when none is configured. */
bool nacos_token_ok(const struct registry *r, struct slice given);
void fastchat_handle(struct call *c);
/** Is it a path of FastChat's controller? */
bool fastchat_handles(struct slice path);

/** Answer with the text in out (or 500 when it does not fit). Frees out. */
void call_reply(struct call *c, unsigned status, const char *type, struct buf *out);
void call_out(const struct call *c, struct buf *out);

/** Leases may be due earlier or later than the timer is set for. */
void registry_leases_changed(struct registry *r);

/** Is this the configured token? Takes the same time for any text of one length. True when none is configured. */
bool registry_token_ok(const struct registry *r, struct slice given);
/** The value after "Bearer " of Authorization, or the absent slice. */
struct slice call_bearer(const struct call *c);

/** In flight at the record's address. @return false when unknown. */
bool registry_requests(const struct registry *r, const struct record *record, uint32_t *out);

/** Whole snapshot for a watcher that starts anew: {"seq":N,"endpoints":[...]} appended to out. */
void native_write_all(const struct registry *r,
                      struct buf *out,
                      struct slice service,
                      struct slice model);

#endif /* WEIR_REGISTRY_REGISTRY_PRIV_H */
