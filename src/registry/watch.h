/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The change log and its event streams. The last events are kept, so a watcher that was away resumes where it was;
 * one that was away too long gets the whole list. Nobody's queue grows without bound: a slow watcher is cut off and resumes.
 */
#ifndef WEIR_REGISTRY_WATCH_H
#define WEIR_REGISTRY_WATCH_H

#include "base/buf.h"
#include "net/http_feed.h"

enum { WATCH_LOG = 4096 };

/** One event as it goes over the wire; owned. */
struct watch_event {
    char *text;
    size_t n;
};

struct watch {
    struct http_feed feed;
    struct watch_event log[WATCH_LOG]; /**< ring: the event with number q stands at q % WATCH_LOG */
    uint64_t first;                    /**< number of the oldest event kept */
    uint64_t next;                     /**< number of the next event */
    size_t bytes;                      /**< of text kept */
    /** Append the whole list as the data of a reset event. */
    void (*write_all)(void *ctx, struct buf *out);
    void *ctx;
};

void watch_init(struct watch *w,
                struct loop *loop,
                void (*write_all)(void *ctx, struct buf *out),
                void *ctx);
/** The server must have been stopped: no watcher is left. */
void watch_fini(struct watch *w);

/** Number of the last event; a list read now stands for everything up to it. */
static inline uint64_t watch_seq(const struct watch *w)
{
    return w->next - 1;
}

/** Log an event and send it to all. @param data one line of JSON. */
void watch_publish(struct watch *w, const char *event, struct slice data);

/** Answer r with the stream after event `since`. @return WEIR_E_FULL when there are too many watchers (not answered then). */
int watch_start(struct watch *w, struct http_request *r, uint64_t since) MUST_CHECK;

#endif /* WEIR_REGISTRY_WATCH_H */
