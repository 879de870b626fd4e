/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The request body: unframed as it comes, looked at until the decision can be made, kept as long as it may be sent
 * again (at most REPLAY_MAX once it flows), and passed on byte for byte.
 *
 * Offsets are absolute in the payload: `body` holds [body_base, body_base + len), everything before body_sent went to
 * the present worker. body_base == 0 means it can be replayed from the start.
 */
#include "model/prefix.h"
#include "peek/prefix.h"
#include "proxy/exchange.h"

static struct iovec part(const char *p, size_t n)
{
    return (struct iovec){(void *)(uintptr_t)p, n};
}

void body_charge(struct exchange *x)
{
    uint64_t n = buf_len(&x->body);

    if (x->client)
        n += net_conn_queued(&x->client->conn);
    if (x->up)
        n += net_conn_queued(&x->up->conn);

    if (n > x->charged)
        stat_add(&x->lane->stats.buffered, n - x->charged);
    else
        stat_sub(&x->lane->stats.buffered, x->charged - n);
    x->charged = n;
}

static struct scan *scan_take(struct lane *l)
{
    if (list_empty(&l->scans)) {
        struct scan *s = mem_alloc(loop_mem(), sizeof(*s));
        if (s)
            list_init(&s->node);
        return s;
    }
    struct scan *s = container_of(l->scans.next, struct scan, node);
    list_del(&s->node);
    return s;
}

void body_scanned(struct exchange *x)
{
    if (x->scan)
        list_add(&x->lane->scans, &x->scan->node);
    x->scan = NULL;
}

bool body_begin(struct exchange *x, struct slice content_type)
{
    static const struct slice form = SLICE("multipart/form-data");
    const struct limits *limits = &x->plan->routing->limits;

    if (proxy_over_budget(x->lane->proxy))
        return false;
    buf_init(&x->body, loop_mem(), limits->peek_bytes + LOOP_SCRATCH + REPLAY_MAX);
    if (!x->complete)
        lane_buf_take(x->lane, &x->body, x->body.max);
    if ((x->model_in_header || x->model_in_path) && !x->reads_rest)
        return true;
    x->scan = scan_take(x->lane);
    if (!x->scan)
        return false;
    x->scan->multipart = content_type.n >= form.n &&
                         slice_eq_nocase(slice_of(content_type.p, form.n), form) &&
                         peek_multipart_init(&x->scan->form, content_type) == 0;
    if (!x->scan->multipart)
        peek_init(&x->scan->json);
    return true;
}

/* A scanner that finds something unreadable keeps what it found; the decision goes on from there. */
static void scan_feed(struct exchange *x, struct slice payload)
{
    struct scan *s = x->scan;
    int rc = s->multipart ? peek_multipart_feed(&s->form, payload.p, payload.n)
                          : peek_feed(&s->json, payload.p, payload.n);

    if (rc && s->multipart)
        s->form.complete = true;
}

/* Payload that arrived. @return 0 or WEIR_E_RANGE, WEIR_E_FULL. */
static int payload_in(struct exchange *x, struct slice payload)
{
    const struct limits *limits = &x->plan->routing->limits;
    bool keep = true;

    if (!payload.n)
        return 0;
    if (limits->body_bytes && x->body_seen + payload.n > limits->body_bytes)
        return WEIR_E_RANGE;
    if (x->scan)
        scan_feed(x, payload);
    uint64_t end = x->body_base + buf_len(&x->body);
    if (x->head_sent && x->body_sent == end && (x->body_base > 0 || end + payload.n > REPLAY_MAX)) {
        /* Nothing waits before it and no copy is wanted: straight through. */
        keep = false;
        buf_clear(&x->body);
        x->body_base = x->body_sent = end + payload.n;
    }
    x->body_seen += payload.n;
    if (keep) {
        bool grows = buf_len(&x->body) > LOOP_SCRATCH;
        if ((grows && proxy_over_budget(x->lane->proxy)) || buf_put_slice(&x->body, payload) != 0)
            return WEIR_E_FULL;
    } else if (x->up) {
        char prefix[CHUNKED_PREFIX_MAX];
        struct iovec v[3] = {
            part(prefix, x->up_chunked ? wire_chunked_prefix(prefix, payload.n) : 0),
            part(payload.p, payload.n), part("\r\n", x->up_chunked ? 2 : 0)};
        (void)net_conn_send(&x->up->conn, v, 3);
    }
    body_charge(x);
    return 0;
}

int64_t body_receive(struct exchange *x, const char *p, size_t n)
{
    size_t used = 0;
    int rc = 0;

    while (used < n && !x->complete) {
        struct slice payload;
        if (x->framing == HTTP1_BODY_LENGTH) {
            payload = slice_of(p + used, (size_t)MIN((uint64_t)(n - used), x->body_left));
            x->body_left -= payload.n;
            x->complete = x->body_left == 0;
            used += payload.n;
        } else {
            int64_t took = wire_chunked_read(&x->chunked, p + used, n - used, &payload);
            if (took < 0)
                return took;
            if (took == 0)
                break;
            used += (size_t)took;
            x->complete = x->chunked.done;
        }
        rc = payload_in(x, payload);
        if (rc)
            return rc;
    }
    return (int64_t)used;
}

bool body_decidable(const struct exchange *x)
{
    const struct scan *s = x->scan;

    if (!s || x->complete)
        return true;
    if (buf_len(&x->body) >= x->plan->routing->limits.peek_bytes)
        return true;
    if (s->multipart ? s->form.complete : s->json.complete || s->json.broken)
        return true;
    /* A form says little beyond its model, and its files may be large: they need not be here to decide. */
    if (s->multipart)
        return x->model_in_header || s->form.found.model.present;
    return !x->reads_rest && (x->model_in_header || s->json.found.model.present);
}

void body_found(struct exchange *x)
{
    struct scan *s = x->scan;

    if (!s)
        return;
    const struct peek_found *found = s->multipart ? &s->form.found : &s->json.found;
    if (!s->multipart) {
        if (x->complete && !s->json.broken && peek_end(&s->json) != 0)
            s->json.broken = true;
        peek_features(&s->json, &x->f);
    } else {
        peek_found_features(found, s->form.complete, &x->f);
    }
    /* The scanner goes back to the lane: what is used later must be ours. */
    if (x->f.model.p && x->f.model.p != x->named && x->f.model.n <= sizeof(x->named)) {
        memcpy(x->named, x->f.model.p, x->f.model.n);
        x->f.model.p = x->named;
    }
    route_session_from_body(x, found);
    if (!x->f.body_bytes)
        x->f.body_bytes = x->body_seen;
}

void body_prefix(struct exchange *x)
{
    const struct proxy *p = x->lane->proxy;
    bool whole = x->complete && x->body_base == 0;

    if (!plan_route(x->plan, x->route)->reads_work) {
        /* The tenant pays for the answer that is expected. */
        if (x->route->queue.by_tenant)
            sched_lore_prepare(p->lore, &x->f);
        return;
    }
    /* A second thought about the same request has them already. */
    size_t max = MIN(buf_len(&x->body) / PREFIX_BLOCK_BYTES, (size_t)PEEK_BLOCKS_MAX);
    if (!x->blocks && max && whole && p->lore_pages && x->f.prompt_bytes >= PREFIX_BLOCK_BYTES &&
        !(x->scan && x->scan->multipart)) {
        x->blocks = mem_array(loop_mem(), max, sizeof(*x->blocks));
        if (x->blocks) {
            x->f.blocks = x->blocks;
            x->f.n_blocks = peek_prefix(buf_slice(&x->body), x->f.task, x->f.model, x->f.version,
                                        loop_mem(), x->blocks, (uint32_t)max);
        }
    }
    if (plan_route(x->plan, x->route)->reads_prefix_key && !x->f.prefix_key && whole &&
        !(x->scan && x->scan->multipart))
        x->f.prefix_key = peek_prefix_key(buf_slice(&x->body), x->f.task);
    sched_lore_prepare(p->lore, &x->f);
}

int body_rename_model(struct exchange *x, struct slice model)
{
    struct slice body = buf_slice(&x->body);
    struct buf changed;
    size_t from;
    size_t to;
    const struct multipart *form = x->scan && x->scan->multipart ? &x->scan->form : NULL;

    if (form ? !alias_find_form(body, slice_of(form->delimiter, form->delimiter_len), &from, &to)
             : !alias_find_json(body, &from, &to))
        return WEIR_E_NOTFOUND;
    buf_init(&changed, loop_mem(), x->body.max);
    buf_put(&changed, body.p, from);
    if (form)
        buf_put_slice(&changed, model);
    else
        buf_put_json(&changed, model);
    uint64_t renamed = buf_len(&changed) - from;
    buf_put_slice(&changed, slice_from(body, to));
    if (changed.err) {
        buf_fini(&changed);
        return WEIR_E_NOMEM;
    }
    if (x->f.body_bytes)
        x->f.body_bytes += renamed - (to - from);
    x->body_seen += renamed - (to - from);
    lane_buf_give(x->lane, &x->body);
    x->body = changed;
    body_charge(x);
    return 0;
}

bool body_replayable(const struct exchange *x)
{
    return x->body_base == 0;
}

/* Bytes that went out and are not wanted for a replay. */
static void forget_sent(struct exchange *x)
{
    uint64_t end = x->body_base + buf_len(&x->body);

    if (x->body_base == 0 && end <= REPLAY_MAX)
        return;
    buf_consume(&x->body, (size_t)(x->body_sent - x->body_base));
    x->body_base = x->body_sent;
    if (buf_len(&x->body) == 0)
        lane_buf_give(x->lane, &x->body);
}

void body_push(struct exchange *x, struct slice head, struct slice tail)
{
    char prefix[CHUNKED_PREFIX_MAX];
    struct iovec v[6];
    unsigned k = 0;
    struct slice rest = slice_from(buf_slice(&x->body), (size_t)(x->body_sent - x->body_base));

    if (head.n) {
        v[k++] = part(head.p, head.n);
        v[k++] = part(tail.p, tail.n);
    }
    if (rest.n) {
        if (x->up_chunked)
            v[k++] = part(prefix, wire_chunked_prefix(prefix, rest.n));
        v[k++] = part(rest.p, rest.n);
        if (x->up_chunked)
            v[k++] = part("\r\n", 2);
        x->body_sent += rest.n;
    }
    if (x->complete) {
        x->request_sent = true;
        x->sent_ns = loop_now(x->lane->loop);
        sched_work_sent(&x->reservation, x->sent_ns);
        if (x->up_chunked)
            v[k++] = part("0\r\n\r\n", 5);
    }
    /* A connection that takes no more is told by on_closed. */
    if (k)
        (void)net_conn_send(&x->up->conn, v, k);
    forget_sent(x);
    body_charge(x);
    if (!x->complete && net_conn_queued(&x->up->conn) > HIGH_WATER) {
        x->held = true;
        net_conn_pause(&x->client->conn);
        if (x->state == X_AWAIT && !x->stall_ns) {
            x->stall_ns = loop_now(x->lane->loop);
            x->stall_queued = net_conn_queued(&x->up->conn);
        }
    }
    client_arm(x->client);
}

void body_pump(struct exchange *x)
{
    if (x->translation)
        fastchat_pump(x);
    else if (x->head_sent && x->up && !x->request_sent && !x->discard)
        body_push(x, (struct slice){NULL, 0}, (struct slice){NULL, 0});
}

void body_free(struct exchange *x)
{
    mem_free(loop_mem(), x->blocks);
    x->blocks = NULL;
    x->f.blocks = NULL;
    x->f.n_blocks = 0;
    lane_buf_give(x->lane, &x->body);
    body_charge(x);
    body_scanned(x);
}
