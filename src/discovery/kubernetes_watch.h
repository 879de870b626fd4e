/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file All objects of one kind in a namespace, followed: a list in pieces, then a watch from its version on, which is taken
 * up where it broke off and begun anew with a list when the server no longer knows that place (410). Internal to discovery.
 * Thread: the control loop.
 */
#ifndef WEIR_DISCOVERY_KUBERNETES_WATCH_H
#define WEIR_DISCOVERY_KUBERNETES_WATCH_H

#include "base/map.h"
#include "discovery/kubernetes_access.h"
#include "discovery/kubernetes_read.h"

/** What the watches of one source share. */
struct kube_client {
    struct remote remote;
    const struct conf_source *given; /**< the configuration as it is */
    struct conf_source conf; /**< the same with the servers that are asked: what remote goes by */
    struct kube_access access;
    uint64_t read_ns;  /**< when access was read */
    uint64_t n_news;   /**< counts lists and events, for their order */
    uint32_t n_tokens; /**< counts tokens: which one was it that was refused? */
};

/** @return 0, or an error that was said in the log. End it with kube_access_fini(&c->access), errors too. */
int kube_client_init(struct kube_client *c,
                     const struct discovery_env *env,
                     const struct conf_source *conf,
                     struct source *source) MUST_CHECK;

struct kube_held {
    struct arena arena;
    struct list node; /**< of those that are being let go */
    struct kube_object o;
    uint32_t round;
    uint64_t news; /**< of client->n_news, when it last changed */
    bool gone;     /**< no longer there, and kept */
};

enum { KUBE_VERSION_MAX = 128 };

struct kube_watch;
struct kube_watch_options {
    struct kube_client *client;
    enum kube_kind kind;
    struct slice selector; /**< of labels; absent: all; borrowed */
    bool keep_gone;        /**< until kube_watch_forget() */
    /** One has come (before == NULL), changed, or gone (now == NULL). */
    void (*changed)(struct kube_watch *w,
                    const struct kube_object *before,
                    const struct kube_object *now);
    /** A list is whole, or the watch said something. */
    void (*heard)(struct kube_watch *w);
    /** The answer is no, with this status. @return whether that is expected: then it is asked again in minutes. */
    bool (*refused)(struct kube_watch *w, unsigned status, struct slice why);
};

struct kube_watch {
    struct kube_watch_options o;
    struct remote_call call;
    struct map objects; /**< name to struct kube_held */
    uint32_t round, n_gone;
    bool listed;      /**< the watch is or will be asked */
    bool listed_once; /**< objects is what was there at some time */
    bool full;        /**< said already */
    char version[KUBE_VERSION_MAX];
    char *more;              /**< token of the next piece of a list under way */
    struct buf stream;       /**< of the watch, not read yet */
    struct kube_frame frame; /**< in it */
    struct loop_timer read;  /**< not inside fetch's callback: the fleet may want to fetch */
    uint64_t asked_ns, list_news;
    uint32_t token; /**< of client->n_tokens, that it was asked with */
    bool heard_any; /**< since it was asked */
};

void kube_watch_init(struct kube_watch *w, const struct kube_watch_options *o);
void kube_watch_begin(struct kube_watch *w);
void kube_watch_end(struct kube_watch *w);
/** One that is gone. Not while objects is walked. */
void kube_watch_forget(struct kube_watch *w, struct kube_held *h);

#endif /* WEIR_DISCOVERY_KUBERNETES_WATCH_H */
