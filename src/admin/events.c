/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/events.h"

#include "base/num.h"
#include "loop/alloc.h"
#include "wire/url.h"

enum { CATCH_UP_MAX = EVENTS_KEPT * EVENTS_TEXT_MAX + 4096 };

void events_init(struct events *e, struct loop *loop)
{
    *e = (struct events){0};
    http_feed_init(&e->feed, loop, EVENTS_READERS_MAX, EVENTS_UNREAD_MAX);
    /* In microseconds of the wall clock: numbers of an earlier run are older than all of this one, and exact in
     * JavaScript. */
    e->first = e->next = loop_wall_clock() / NS_PER_US;
}

void events_fini(struct events *e)
{
    http_feed_fini(&e->feed);
    for (unsigned i = 0; i < EVENTS_KEPT; i++)
        mem_free(loop_mem(), e->ring[i]);
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
        http_feed_send(&e->feed, buf_slice(&b));
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
    if (http_feed_full(&e->feed))
        return WEIR_E_FULL;
    buf_init(&out, loop_mem(), CATCH_UP_MAX);
    buf_put_str(&out, "retry: 1000\n\n");
    if (resume)
        catch_up(e, since, &out);
    rc = out.err ? WEIR_E_NOMEM : http_feed_add(&e->feed, r, buf_slice(&out));
    buf_fini(&out);
    return rc;
}
