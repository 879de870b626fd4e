/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file What happened, for GET /api/v1/events: a bounded ring of numbered events and the clients that follow it, as
 * server-sent events. Belongs to one thread.
 */
#ifndef WEIR_ADMIN_EVENTS_H
#define WEIR_ADMIN_EVENTS_H

#include "net/http_feed.h"

enum {
    EVENTS_KEPT = 1024,      /**< in the ring */
    EVENTS_TEXT_MAX = 16384, /**< bytes of one; larger ones are dropped */
    EVENTS_READERS_MAX = 64,
    EVENTS_UNREAD_MAX = 256 * 1024, /**< a reader with more bytes unread is cut off */
};

struct events {
    struct http_feed feed;
    uint64_t first, next; /**< numbers in the ring: first <= n < next */
    char *ring[EVENTS_KEPT];
};

void events_init(struct events *e, struct loop *loop);
/** No reader may be left: stop the server first. */
void events_fini(struct events *e);

/** Tell it to all readers and keep it. @param type one word. @param json one line, copied. Without memory it is lost. */
void events_add(struct events *e, const char *type, struct slice json);

/**
 * Answer with the stream, from now on or from what Last-Event-ID (or ?since=) names. Where that is not in the ring any
 * more, an event `lost` comes first. @return 0; WEIR_E_FULL, WEIR_E_INVALID, WEIR_E_NOMEM: not answered.
 */
int events_follow(struct events *e, struct http_request *r) MUST_CHECK;

#endif /* WEIR_ADMIN_EVENTS_H */
