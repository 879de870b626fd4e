/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The registry to Nacos SDKs of 2.x and 3.x: gRPC on the port of HTTP + 1000. An instance lives as long as the
 * connection that registered it, and a short while longer, in which its client may come back.
 * nacos_grpc.c keeps connections, nacos_grpc_call.c answers, nacos_grpc_push.c tells subscribers.
 */
#ifndef WEIR_REGISTRY_NACOS_GRPC_H
#define WEIR_REGISTRY_NACOS_GRPC_H

#include "net/grpc.h"
#include "net/listener.h"
#include "registry/nacos_payload_codec.h"
#include "registry/registry_priv.h"

enum {
    NACOS_CLIENTS_MAX = 4096,
    NACOS_SUBSCRIPTIONS_MAX = 4096, /**< of one connection */
    NACOS_REPLY_MAX = GRPC_MESSAGE_MAX,
};

struct nacos_grpc {
    struct registry *registry;
    struct net_listener listener;
    struct list clients;
    uint32_t n_clients;
    uint64_t next_id;
    struct map held;        /**< "ns LF grouped LF address" to struct nacos_held */
    struct list orphans;    /**< held by nobody any more, oldest first */
    struct loop_timer tick; /**< silent clients; orphans */
    struct map topics;      /**< "ns LF grouped" to struct nacos_topic */
    struct list changed;    /**< topics to be told */
    struct loop_timer push;
    uint64_t next_push;
};

/** One connection. */
struct nacos_client {
    struct list node;
    struct nacos_grpc *server;
    struct grpc *grpc;
    struct grpc_call *stream; /**< NULL until it is open */
    uint64_t id;
    uint64_t heard_ns;
    bool asked;        /**< whether it still lives */
    bool set_up;       /**< ConnectionSetupRequest came */
    bool broken;       /**< to be closed at the next tick */
    struct list held;  /**< of struct nacos_held */
    struct list wants; /**< of struct nacos_subscription */
    uint32_t n_wants;
};

/** An instance that a connection stands for. */
struct nacos_held {
    struct list node; /**< in client.held, or in server.orphans */
    struct nacos_client *client;
    char *key;
    uint64_t leave_ns; /**< of an orphan */
    bool again;        /**< in the batch that is being read */
};

struct nacos_topic {
    char *key;
    struct list node; /**< in server.changed while dirty */
    bool dirty;
    struct list subscribers;
};

struct nacos_subscription {
    struct list node; /**< in client.wants */
    struct list topic_node;
    struct nacos_client *client;
    struct nacos_topic *topic;
    char *clusters;
};

/** @param addr of HTTP; the port is taken + 1000. @return 0, WEIR_E_RANGE (there is no such port), WEIR_E_IO, WEIR_E_NOMEM. */
int nacos_grpc_start(struct registry *r,
                     const struct net_addr *addr,
                     struct nacos_grpc **out) MUST_CHECK;
/** NULL is fine. */
void nacos_grpc_stop(struct nacos_grpc *g);
/** As store_options.on_event. */
void nacos_grpc_event(struct nacos_grpc *g, enum store_event event, const struct record *record);

/** The record is this connection's from now on. */
int nacos_grpc_hold(struct nacos_client *c, struct record *r) MUST_CHECK;
/** Send a payload on the stream of a client; one that cannot take it is cut off. */
void nacos_grpc_tell(struct nacos_client *c, const char *type, struct slice body);

/** Answer one request on its call. */
void nacos_grpc_answer(struct nacos_client *c,
                       struct grpc_call *call,
                       const struct nacos_payload *p);

/* --- nacos_grpc_push.c --- */

void nacos_push_init(struct nacos_grpc *g);
void nacos_push_fini(struct nacos_grpc *g);
int nacos_push_subscribe(struct nacos_client *c,
                         struct slice ns,
                         struct slice grouped,
                         struct slice clusters) MUST_CHECK;
void nacos_push_unsubscribe(struct nacos_client *c,
                            struct slice ns,
                            struct slice grouped,
                            struct slice clusters);
void nacos_push_forget(struct nacos_client *c);
/** The service of a record has changed. */
void nacos_push_changed(struct nacos_grpc *g, const struct record *record);
/** The ServiceInfo of a service, appended. */
int nacos_push_service(struct registry *r,
                       struct slice ns,
                       struct slice grouped,
                       struct slice clusters,
                       bool healthy_only,
                       struct buf *out) MUST_CHECK;

#endif /* WEIR_REGISTRY_NACOS_GRPC_H */
