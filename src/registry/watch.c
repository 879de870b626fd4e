/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/watch.h"

#include "base/num.h"
#include "loop/alloc.h"
#include "registry/registry.h"

enum { LOG_BYTES_MAX = 16 << 20, EVENT_MAX = 4 << 20, QUEUE_MAX = 4 << 20, RESET_MAX = 512 << 20 };

void watch_init(struct watch *w,
                struct loop *loop,
                void (*write_all)(void *ctx, struct buf *out),
                void *ctx)
{
    *w = (struct watch){.write_all = write_all, .ctx = ctx};
    http_feed_init(&w->feed, loop, REGISTRY_WATCHERS_MAX, QUEUE_MAX);
    /* Numbers go on from the wall clock in microseconds: those of an earlier run are older than all of this one,
     * and they stay exact in JavaScript. */
    w->first = w->next = loop_wall_clock() / NS_PER_US;
}

static void drop_oldest(struct watch *w)
{
    struct watch_event *e = &w->log[w->first++ % WATCH_LOG];

    w->bytes -= e->n;
    mem_free(loop_mem(), e->text);
    *e = (struct watch_event){0};
}

void watch_fini(struct watch *w)
{
    http_feed_fini(&w->feed);
    while (w->first < w->next)
        drop_oldest(w);
}

static void event_text(struct buf *out, uint64_t number, const char *event)
{
    buf_put_str(out, "id: ");
    buf_put_u64(out, number);
    buf_put_str(out, "\nevent: ");
    buf_put_str(out, event);
    buf_put_str(out, "\ndata: ");
}

/* A gap in the log that nobody may bridge: what is kept is no longer all that happened. */
static void forget(struct watch *w)
{
    while (w->first < w->next)
        drop_oldest(w);
    w->first = ++w->next;
    http_feed_cut(&w->feed);
}

void watch_publish(struct watch *w, const char *event, struct slice data)
{
    struct buf b;

    buf_init(&b, loop_mem(), EVENT_MAX);
    event_text(&b, w->next, event);
    buf_put_slice(&b, data);
    buf_put_str(&b, "\n\n");
    char *text = b.err ? NULL : mem_strdup(loop_mem(), buf_slice(&b));
    if (!text) {
        forget(w);
    } else {
        if (w->next - w->first == WATCH_LOG)
            drop_oldest(w);
        w->log[w->next % WATCH_LOG] = (struct watch_event){.text = text, .n = buf_len(&b)};
        w->next++;
        w->bytes += buf_len(&b);
        while (w->bytes > LOG_BYTES_MAX && w->next - w->first > 1)
            drop_oldest(w);
        http_feed_send(&w->feed, buf_slice(&b));
    }
    buf_fini(&b);
}

/* Everything this watcher has not seen, as one text. */
static void catch_up(struct watch *w, struct buf *out, uint64_t since)
{
    buf_put_str(out, "retry: 1000\n\n");
    if (since + 1 < w->first || since >= w->next) {
        event_text(out, watch_seq(w), "reset");
        w->write_all(w->ctx, out);
        buf_put_str(out, "\n\n");
        return;
    }
    for (uint64_t q = since + 1; q < w->next; q++) {
        const struct watch_event *e = &w->log[q % WATCH_LOG];
        buf_put(out, e->text, e->n);
    }
}

int watch_start(struct watch *w, struct http_request *r, uint64_t since)
{
    struct buf out;

    if (http_feed_full(&w->feed))
        return WEIR_E_FULL;
    buf_init(&out, loop_mem(), RESET_MAX);
    catch_up(w, &out, since);
    int rc = out.err ? out.err : http_feed_add(&w->feed, r, buf_slice(&out));
    buf_fini(&out);
    return rc;
}
