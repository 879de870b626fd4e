/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/watch.h"

#include "base/bug.h"
#include "base/num.h"
#include "loop/alloc.h"
#include "registry/registry.h"

enum { LOG_BYTES_MAX = 16 << 20, EVENT_MAX = 4 << 20, QUEUE_MAX = 4 << 20, RESET_MAX = 512 << 20 };

static const uint64_t BEAT_NS = 15 * NS_PER_S;

struct watcher {
    struct list node;
    struct watch *watch;
    struct http_request *request;
    size_t queue_max; /* raised while a reset event is under way */
};

static void on_beat(struct loop_timer *t);

void watch_init(struct watch *w,
                struct loop *loop,
                void (*write_all)(void *ctx, struct buf *out),
                void *ctx)
{
    *w = (struct watch){.loop = loop, .write_all = write_all, .ctx = ctx};
    list_init(&w->watchers);
    w->beat.on_timer = on_beat;
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
    BUG_ON(!list_empty(&w->watchers));
    loop_timer_cancel(&w->beat);
    while (w->first < w->next)
        drop_oldest(w);
}

static void watcher_free(struct watcher *v)
{
    list_del(&v->node);
    if (--v->watch->n_watchers == 0)
        loop_timer_cancel(&v->watch->beat);
    mem_free(loop_mem(), v);
}

static void on_gone(struct http_request *r)
{
    watcher_free(r->user);
}

static void on_drained(struct http_request *r)
{
    struct watcher *v = r->user;

    v->queue_max = QUEUE_MAX;
}

/* Send, or cut a watcher off that does not read. It resumes after the last event it has. */
static void push(struct watcher *v, struct slice text)
{
    struct http_request *r = v->request;

    if (http_stream_write(r, text) > v->queue_max) {
        watcher_free(v);
        http_abort(r);
    }
}

static void send_all(struct watch *w, struct slice text)
{
    weir_list_foreach_safe (pos, &w->watchers)
        push(container_of(pos, struct watcher, node), text);
}

static void on_beat(struct loop_timer *t)
{
    struct watch *w = container_of(t, struct watch, beat);

    loop_timer_set(w->loop, &w->beat, loop_now(w->loop) + BEAT_NS);
    send_all(w, SLICE(": still here\n\n"));
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
    weir_list_foreach_safe (pos, &w->watchers) {
        struct watcher *v = container_of(pos, struct watcher, node);
        struct http_request *r = v->request;
        watcher_free(v);
        http_abort(r);
    }
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
        send_all(w, buf_slice(&b));
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

    if (w->n_watchers >= REGISTRY_WATCHERS_MAX)
        return WEIR_E_FULL;
    struct watcher *v = mem_zalloc(loop_mem(), sizeof(*v));
    if (!v)
        return WEIR_E_NOMEM;
    buf_init(&out, loop_mem(), RESET_MAX);
    catch_up(w, &out, since);
    if (out.err) {
        int rc = out.err;
        buf_fini(&out);
        mem_free(loop_mem(), v);
        return rc;
    }
    v->watch = w;
    v->request = r;
    v->queue_max = QUEUE_MAX + buf_len(&out);
    list_add(&w->watchers, &v->node);
    if (w->n_watchers++ == 0)
        loop_timer_set(w->loop, &w->beat, loop_now(w->loop) + BEAT_NS);
    r->user = v;
    r->on_gone = on_gone;
    r->on_drained = on_drained;
    http_stream_begin(r, 200, "text/event-stream", SLICE("Cache-Control: no-cache\r\n"));
    (void)http_stream_write(r, buf_slice(&out));
    buf_fini(&out);
    return 0;
}
