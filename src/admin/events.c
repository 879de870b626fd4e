/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/events.h"

#include "base/bug.h"
#include "base/num.h"
#include "loop/alloc.h"
#include "wire/url.h"

enum { CATCH_UP_MAX = EVENTS_KEPT * EVENTS_TEXT_MAX + 4096 };
#define BEAT_NS (15 * NS_PER_S)

struct reader {
    struct list node;
    struct events *events;
    struct http_request *request;
    size_t unread_max; /* raised while what it missed is on its way */
};

static void on_beat(struct loop_timer *t);

void events_init(struct events *e, struct loop *loop)
{
    *e = (struct events){.loop = loop};
    list_init(&e->readers);
    e->beat.on_timer = on_beat;
    /* In microseconds of the wall clock: numbers of an earlier run are older than all of this one, and exact in
     * JavaScript. */
    e->first = e->next = loop_wall_clock() / NS_PER_US;
}

void events_fini(struct events *e)
{
    BUG_ON(!list_empty(&e->readers));
    loop_timer_cancel(&e->beat);
    for (unsigned i = 0; i < EVENTS_KEPT; i++)
        mem_free(loop_mem(), e->ring[i]);
}

static void reader_free(struct reader *v)
{
    list_del(&v->node);
    if (--v->events->n_readers == 0)
        loop_timer_cancel(&v->events->beat);
    mem_free(loop_mem(), v);
}

static void on_gone(struct http_request *r)
{
    reader_free(r->user);
}

static void on_drained(struct http_request *r)
{
    struct reader *v = r->user;

    v->unread_max = EVENTS_UNREAD_MAX;
}

static void send_all(struct events *e, struct slice text)
{
    weir_list_foreach_safe (at, &e->readers) {
        struct reader *v = container_of(at, struct reader, node);
        struct http_request *r = v->request;
        if (http_stream_write(r, text) <= v->unread_max)
            continue;
        /* It does not read. It can come back with the number of the last event that it has. */
        reader_free(v);
        http_abort(r);
    }
}

static void on_beat(struct loop_timer *t)
{
    struct events *e = container_of(t, struct events, beat);

    loop_timer_set(e->loop, t, loop_now(e->loop) + BEAT_NS);
    send_all(e, SLICE(": still here\n\n"));
}

void events_add(struct events *e, const char *type, struct slice json)
{
    struct buf b;

    buf_init(&b, loop_mem(), EVENTS_TEXT_MAX);
    buf_put_str(&b, "id: ");
    buf_put_u64(&b, e->next);
    buf_put_str(&b, "\nevent: ");
    buf_put_str(&b, type);
    buf_put_str(&b, "\ndata: ");
    buf_put_slice(&b, json);
    buf_put_str(&b, "\n\n");
    char *text = b.err ? NULL : mem_strdup(loop_mem(), buf_slice(&b));
    if (text) {
        char **place = &e->ring[e->next % EVENTS_KEPT];
        mem_free(loop_mem(), *place);
        *place = text;
        e->next++;
        if (e->next - e->first > EVENTS_KEPT)
            e->first++;
        send_all(e, buf_slice(&b));
    }
    buf_fini(&b);
}

/* Where it wants to go on: after *since. @return 0 with *resume false when it said nothing. */
static int wanted(const struct http_request *r, uint64_t *since, bool *resume)
{
    struct slice id = slice_trim(wire_http1_value(r->head, SLICE("last-event-id")));
    struct slice rest = r->query;
    struct slice name;
    struct slice value;

    while (wire_query_next(&rest, &name, &value)) {
        if (!slice_eq(name, SLICE("since")))
            return WEIR_E_INVALID;
        if (!id.n)
            id = value;
    }
    *resume = id.n > 0;
    return id.n && num_u64(id, since) != 0 ? WEIR_E_INVALID : 0;
}

static void catch_up(const struct events *e, uint64_t since, struct buf *out)
{
    uint64_t from = since + 1;

    if (since >= e->next || from < e->first) {
        buf_put_str(out, "event: lost\ndata: {\"oldest\":");
        buf_put_u64(out, e->first);
        buf_put_str(out, "}\n\n");
        from = e->first;
    }
    for (; from < e->next; from++)
        buf_put_str(out, e->ring[from % EVENTS_KEPT]);
}

int events_follow(struct events *e, struct http_request *r)
{
    uint64_t since = 0;
    bool resume;
    struct buf out;

    int rc = wanted(r, &since, &resume);
    if (rc)
        return rc;
    if (e->n_readers == EVENTS_READERS_MAX)
        return WEIR_E_FULL;
    struct reader *v = mem_zalloc(loop_mem(), sizeof(*v));
    if (!v)
        return WEIR_E_NOMEM;
    buf_init(&out, loop_mem(), CATCH_UP_MAX);
    buf_put_str(&out, "retry: 1000\n\n");
    if (resume)
        catch_up(e, since, &out);
    if (out.err) {
        buf_fini(&out);
        mem_free(loop_mem(), v);
        return WEIR_E_NOMEM;
    }
    *v =
        (struct reader){.events = e, .request = r, .unread_max = EVENTS_UNREAD_MAX + buf_len(&out)};
    list_add(&e->readers, &v->node);
    if (e->n_readers++ == 0)
        loop_timer_set(e->loop, &e->beat, loop_now(e->loop) + BEAT_NS);
    r->user = v;
    r->on_gone = on_gone;
    r->on_drained = on_drained;
    http_stream_begin(r, 200, "text/event-stream", SLICE("Cache-Control: no-cache\r\n"));
    (void)http_stream_write(r, buf_slice(&out));
    buf_fini(&out);
    return 0;
}
