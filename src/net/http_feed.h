/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Readers of one stream of server-sent events: all get the same texts, comments keep idle connections open, and one
 * that does not read is cut off, so nobody's queue grows without bound. Thread: the loop of the server that answers.
 */
#ifndef WEIR_NET_HTTP_FEED_H
#define WEIR_NET_HTTP_FEED_H

#include "base/list.h"
#include "loop/loop.h"
#include "net/http_server.h"

struct http_feed {
    struct loop *loop;
    size_t unread_max; /**< bytes; who has more unread is cut off */
    uint32_t max, n;   /**< readers */
    struct list readers;
    struct loop_timer beat;
};

void http_feed_init(struct http_feed *f, struct loop *loop, uint32_t max, size_t unread_max);
/** No reader may be left: stop the server first. */
void http_feed_fini(struct http_feed *f);

/** Is there no place for one more? Ask before a long `first` is made. */
static inline bool http_feed_full(const struct http_feed *f)
{
    return f->n >= f->max;
}

/**
 * Answer r with the stream, from its request's user, on_gone and on_drained on.
 * @param first what it gets before all else; as much may be unread besides until it has read all.
 * @return 0; WEIR_E_FULL, WEIR_E_NOMEM: not answered.
 */
int http_feed_add(struct http_feed *f, struct http_request *r, struct slice first) MUST_CHECK;

/** To all. Whole events, with their empty line. Cost: a copy for each. */
void http_feed_send(struct http_feed *f, struct slice text);
/** Break all off: they come back. */
void http_feed_cut(struct http_feed *f);

#endif /* WEIR_NET_HTTP_FEED_H */
