/* SPDX-License-Identifier: Apache-2.0 */
#include "net/http_feed.h"

#include "base/bug.h"
#include "base/num.h"
#include "loop/alloc.h"

static const uint64_t BEAT_NS = 15 * NS_PER_S;

struct reader {
    struct list node;
    struct http_feed *feed;
    struct http_request *request;
    size_t unread_max; /* raised while its first text is on its way */
};

static void reader_free(struct reader *v)
{
    list_del(&v->node);
    if (--v->feed->n == 0)
        loop_timer_cancel(&v->feed->beat);
    mem_free(loop_mem(), v);
}

static void cut(struct reader *v)
{
    struct http_request *r = v->request;

    reader_free(v);
    http_abort(r);
}

static void on_gone(struct http_request *r)
{
    reader_free(r->user);
}

static void on_drained(struct http_request *r)
{
    struct reader *v = r->user;

    v->unread_max = v->feed->unread_max;
}

static void on_beat(struct loop_timer *t)
{
    struct http_feed *f = container_of(t, struct http_feed, beat);

    loop_timer_set(f->loop, t, loop_now(f->loop) + BEAT_NS);
    http_feed_send(f, SLICE(": still here\n\n"));
}

void http_feed_init(struct http_feed *f, struct loop *loop, uint32_t max, size_t unread_max)
{
    *f = (struct http_feed){.loop = loop, .max = max, .unread_max = unread_max};
    list_init(&f->readers);
    f->beat.on_timer = on_beat;
}

void http_feed_fini(struct http_feed *f)
{
    BUG_ON(!list_empty(&f->readers));
    loop_timer_cancel(&f->beat);
}

int http_feed_add(struct http_feed *f, struct http_request *r, struct slice first)
{
    if (http_feed_full(f))
        return WEIR_E_FULL;
    struct reader *v = mem_zalloc(loop_mem(), sizeof(*v));
    if (!v)
        return WEIR_E_NOMEM;
    v->feed = f;
    v->request = r;
    v->unread_max = f->unread_max + first.n;
    list_add(&f->readers, &v->node);
    if (f->n++ == 0)
        loop_timer_set(f->loop, &f->beat, loop_now(f->loop) + BEAT_NS);
    r->user = v;
    r->on_gone = on_gone;
    r->on_drained = on_drained;
    http_stream_begin(r, 200, "text/event-stream", SLICE("Cache-Control: no-cache\r\n"));
    (void)http_stream_write(r, first);
    return 0;
}

void http_feed_send(struct http_feed *f, struct slice text)
{
    weir_list_foreach_safe (at, &f->readers) {
        struct reader *v = container_of(at, struct reader, node);
        if (http_stream_write(v->request, text) > v->unread_max)
            cut(v);
    }
}

void http_feed_cut(struct http_feed *f)
{
    weir_list_foreach_safe (at, &f->readers)
        cut(container_of(at, struct reader, node));
}
