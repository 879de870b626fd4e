/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker's answer on its way to the client: one read, one writev. Payload bytes are never altered or copied; only
 * framing is: a length stays a length, chunked stays chunked (one chunk per read), an answer delimited by close
 * becomes chunked for HTTP/1.1 clients. Trailers are dropped. What breaks off is never completed: the client's
 * connection is reset, so that a cut answer cannot be taken for a whole one.
 */
#include "proxy/decision_log.h"
#include "proxy/head.h"
#include "sched/evidence.h"

enum {
    RUNS = 10
}; /* payload runs per send; with head and framing below net_conn_send()'s 16 parts */

static struct slice crlf = {"\r\n", 2};
static struct slice last_chunk = {"0\r\n\r\n", 5};

static struct iovec part(struct slice s)
{
    return (struct iovec){(void *)(uintptr_t)s.p, s.n};
}

/* Real traffic moved: passive evidence. */
static void progress(struct exchange *x)
{
    x->last_rx_ns = loop_now(x->lane->loop);
    sched_saw_progress(x->reservation.cell, x->last_rx_ns);
}

/* What is found on the one pass over the fields of an answer. */
struct answer_fields {
    bool keep_length;
    struct slice content_type;
};

static bool drop_field(const struct http1_head *h, const struct http1_field *f, void *ctx)
{
    struct answer_fields *a = ctx;

    switch (f->name.n) {
    case 12:
        if (slice_eq_nocase(f->name, SLICE("Content-Type")))
            a->content_type = f->value;
        return slice_eq_nocase(f->name, SLICE("X-Request-Id"));
    case 14:
        return !a->keep_length && slice_eq_nocase(f->name, SLICE("Content-Length"));
    default:
        return wire_http1_hop_by_hop(h, f);
    }
}

/* Audio and images say nothing of what was used, and need not be looked through. */
static bool may_tell_usage(struct slice content_type)
{
    static const struct slice types[] = {SLICE("application/json"), SLICE("text/event-stream")};

    for (unsigned i = 0; i < ARRAY_LEN(types); i++)
        if (content_type.n >= types[i].n &&
            slice_eq_nocase(slice_of(content_type.p, types[i].n), types[i]))
            return true;
    return false;
}

/* Decide the framing towards the client and write its head into lane.out. */
static void commit(struct exchange *x, const struct http1_head *h, const char *end)
{
    struct buf *out = &x->lane->out;
    /* HEAD and 304 describe a body that does not come. */
    struct answer_fields fields = {.keep_length = h->framing == HTTP1_BODY_NONE &&
                                                  (x->is_head || h->status == 304)};

    x->status = h->status;
    x->rsp_framing = h->framing;
    x->rsp_left = h->content_length;
    x->rsp_keep = h->keep_alive;
    x->rsp_chunked =
        (h->framing == HTTP1_BODY_CHUNKED || h->framing == HTTP1_BODY_CLOSE) && !x->http10;
    x->rsp_close =
        (h->framing == HTTP1_BODY_CHUNKED || h->framing == HTTP1_BODY_CLOSE) && x->http10;
    x->discard = !x->request_sent && h->status >= 300;
    x->keep =
        x->keep_asked && x->complete && !x->rsp_close && !x->lane->draining && !x->client->eof;

    buf_clear(out);
    buf_put_str(out, "HTTP/1.1 ");
    buf_put_u64(out, h->status);
    buf_put_char(out, ' ');
    buf_put_slice(out, h->reason);
    buf_put(out, "\r\n", 2);
    head_copy_fields(out, h, end, drop_field, &fields);
    x->reads_usage = h->status < 300 && may_tell_usage(fields.content_type);
    head_put(out, "X-Request-Id: ", exchange_request_id(x));
    explain_put_header(out, x);
    if (h->framing == HTTP1_BODY_LENGTH) {
        buf_put_str(out, "Content-Length: ");
        buf_put_u64(out, h->content_length);
        buf_put(out, "\r\n", 2);
    }
    if (x->rsp_chunked)
        buf_put_str(out, "Transfer-Encoding: chunked\r\n");
    if (h->status == 426 && h->upgrade) {
        /* It says what to switch to; like any hop, so do we. */
        buf_put_str(out, "Connection: Upgrade\r\n");
        head_put(out, "Upgrade: ", wire_http1_value(h, SLICE("Upgrade")));
    }
    if (!x->keep)
        buf_put_str(out, "Connection: close\r\n");
    else if (x->http10)
        buf_put_str(out, "Connection: keep-alive\r\n");
    buf_put(out, "\r\n", 2);

    x->first_byte_ns = loop_now(x->lane->loop);
    x->stall_ns = 0;
    /* Some engines send the head of a stream at once: its first payload says that the prompt is computed. */
    if (h->status >= 400)
        sched_first_byte(&x->reservation);
    else if (!x->f.stream)
        sched_work_first_byte(&x->reservation, x->first_byte_ns);
    exchange_move(x, X_RELAY);
    /* Other limits count from here, and may be due before those of the wait were. */
    client_arm(x->client);
    /* Nothing can be sent again from here on: an idle stream holds no copy of its request. */
    if (x->request_sent) {
        body_free(x);
        if (!x->plan->access_log)
            exchange_drop_head(x);
    }
}

/*
 * An interim answer: 100 goes to a client that waits for it, 103 to any that may know it. They are only hints, so one
 * that a client is too slow for is dropped: a worker may send any number of them.
 */
static void interim(struct exchange *x, const struct http1_head *h, const char *end)
{
    struct buf *out = &x->lane->out;
    struct answer_fields fields = {0};

    if (x->http10 || (h->status == 100 && !x->expect) ||
        net_conn_queued(&x->client->conn) > HIGH_WATER_TIGHT)
        return;
    if (h->status == 100)
        x->expect = false;
    buf_clear(out);
    buf_put_str(out, "HTTP/1.1 ");
    buf_put_u64(out, h->status);
    buf_put_char(out, ' ');
    buf_put_slice(out, h->reason);
    buf_put(out, "\r\n", 2);
    head_copy_fields(out, h, end, drop_field, &fields);
    buf_put(out, "\r\n", 2);
    if (!out->err)
        (void)net_conn_send_slice(&x->client->conn, buf_slice(out));
    body_charge(x);
}

static enum proxy_outcome outcome(const struct exchange *x)
{
    return x->status >= 500   ? OUTCOME_UPSTREAM_ERROR
           : x->status >= 400 ? OUTCOME_CLIENT_ERROR
                              : OUTCOME_OK;
}

static void read_usage(struct exchange *x, const struct slice *runs, unsigned n)
{
    for (unsigned i = 0; x->reads_usage && i < n; i++)
        peek_usage_feed(&x->reader, runs[i].p, runs[i].n);
}

/* Send what was gathered: [head] [chunk size] payload runs [CRLF] [last chunk]. */
static void
emit(struct exchange *x, struct slice *head, const struct slice *runs, unsigned n, bool last)
{
    char prefix[CHUNKED_PREFIX_MAX];
    struct iovec v[RUNS + 4];
    unsigned k = 0;
    size_t total = 0;

    for (unsigned i = 0; i < n; i++)
        total += runs[i].n;
    if (head->n)
        v[k++] = part(*head);
    *head = (struct slice){NULL, 0};
    if (total) {
        if (x->rsp_chunked)
            v[k++] = (struct iovec){prefix, wire_chunked_prefix(prefix, total)};
        for (unsigned i = 0; i < n; i++)
            v[k++] = part(runs[i]);
        if (x->rsp_chunked && !last)
            v[k++] = part(crlf);
    }
    if (last) {
        read_usage(x, runs, n);
        exchange_count(x, outcome(x));
    }
    if (last && x->rsp_chunked)
        v[k++] = part(total ? slice_of("\r\n0\r\n\r\n", 7) : last_chunk);
    x->rsp_bytes += total;
    if (!k)
        return;
    /* A dead client is told by on_closed, which ends the exchange. */
    (void)net_conn_send(&x->client->conn, v, k);
    if (net_conn_queued(&x->client->conn) > 0)
        relay_throttle(x);
    /* After the bytes are on their way, but for the last ones: an answer is counted before it is whole. */
    if (!last)
        read_usage(x, runs, n);
}

static void finish(struct exchange *x, bool leftover)
{
    x->rsp_whole = x->rsp_keep && !leftover && x->request_sent;
    exchange_end(x, outcome(x), x->keep ? FATE_KEEP : FATE_LINGER);
}

/* @return bytes used; the exchange may be over. */
static size_t payload(struct exchange *x, struct slice head, const char *p, size_t n)
{
    struct slice runs[RUNS];
    unsigned k = 0;
    size_t used = 0;
    bool done = x->rsp_framing == HTTP1_BODY_NONE;
    uint64_t longest = x->plan->routing->limits.stream_bytes;

    if (longest && x->rsp_bytes > longest) {
        exchange_blame(x, "sent more than limits.stream_size");
        exchange_end(x, OUTCOME_REJECTED, FATE_ABORT);
        return n;
    }

    while (!done && used < n) {
        struct slice s = slice_of(p + used, n - used);
        if (x->rsp_framing == HTTP1_BODY_CHUNKED) {
            int64_t took = wire_chunked_read(&x->rsp_dechunk, p + used, n - used, &s);
            if (took < 0) {
                emit(x, &head, runs, k, false);
                relay_end_of_stream(x, false);
                return n;
            }
            if (took == 0)
                break;
            used += (size_t)took;
            done = x->rsp_dechunk.done;
        } else {
            if (x->rsp_framing == HTTP1_BODY_LENGTH) {
                s.n = (size_t)MIN((uint64_t)s.n, x->rsp_left);
                x->rsp_left -= s.n;
                done = x->rsp_left == 0;
            }
            used += s.n;
        }
        if (s.n)
            runs[k++] = s;
        if (k == RUNS) {
            emit(x, &head, runs, k, done);
            k = 0;
            if (done) {
                finish(x, used < n);
                return n;
            }
        }
    }
    if (!done && x->rsp_framing == HTTP1_BODY_LENGTH && x->rsp_left == 0)
        done = true;
    emit(x, &head, runs, k, done);
    if (done) {
        finish(x, used < n);
        return n;
    }
    return used;
}

/* Bytes held for the client count against the process's budget, and slow the worker down. */
void relay_throttle(struct exchange *x)
{
    size_t high = proxy_over_budget(x->lane->proxy) ? HIGH_WATER_TIGHT : HIGH_WATER;

    body_charge(x);
    if (x->up && !x->up->conn.paused && net_conn_queued(&x->client->conn) > high) {
        net_conn_pause(&x->up->conn);
        x->stall_ns = loop_now(x->lane->loop);
        x->stall_queued = net_conn_queued(&x->client->conn);
        client_arm(x->client);
    }
}

size_t relay_data(struct exchange *x, const char *p, size_t n)
{
    struct http1_head *h = &x->lane->head;
    struct http1_error error;
    size_t used = 0;

    uint64_t before_ns = x->last_rx_ns;
    progress(x);
    if (x->state == X_TUNNEL)
        return tunnel_from_worker(x, p, n);
    if (x->state == X_RELAY) {
        /* Answers of a known length are no streams. */
        if (x->rsp_framing != HTTP1_BODY_LENGTH &&
            acks_note(&x->acks, &x->target->acks_held, x->last_rx_ns - before_ns))
            net_conn_ack_lazily(&x->up->conn, true);
        judge_answer(x, true);
        return payload(x, (struct slice){NULL, 0}, p, n);
    }
    BUG_ON(x->state != X_AWAIT);
    for (;;) {
        int64_t took = wire_http1_response(p + used, n - used, exchange_method(x), h, &error);
        x->rsp_started = x->rsp_started || used < n;
        if (took == 0 && n - used < UPSTREAM_HEAD_MAX)
            return used;
        bool switches = took > 0 && h->status == 101;
        if (took <= 0 || (switches && !tunnel_accepts(x, h))) {
            attempt_broke(x);
            return n;
        }
        used += (size_t)took;
        if (switches) {
            tunnel_begin(x, h, p + used, slice_of(p + used, n - used));
            return n;
        }
        if (h->status >= 200)
            break;
        interim(x, h, p + used);
    }
    if ((h->status == 429 || h->status == 503) && attempt_repick(x))
        return n;
    commit(x, h, p + used);
    if (x->lane->out.err) {
        buf_clear(&x->lane->out);
        exchange_end(x, OUTCOME_UPSTREAM_ERROR, FATE_ABORT);
        return n;
    }
    if (h->status >= 500 && h->status != 503)
        judge_failure(x);
    else if (used < n || x->rsp_framing == HTTP1_BODY_NONE ||
             (x->rsp_framing == HTTP1_BODY_LENGTH && x->rsp_left == 0))
        judge_answer(x, false);
    used += payload(x, buf_slice(&x->lane->out), p + used, n - used);
    return used;
}

void relay_end_of_stream(struct exchange *x, bool clean)
{
    if (x->state == X_AWAIT) {
        attempt_broke(x);
        return;
    }
    if (clean && x->state == X_TUNNEL) {
        tunnel_worker_eof(x);
        return;
    }
    if (clean && x->rsp_framing == HTTP1_BODY_CLOSE) {
        struct slice none = {NULL, 0};
        emit(x, &none, NULL, 0, true);
        x->rsp_keep = false;
        finish(x, false);
        return;
    }
    judge_failure(x);
    exchange_blame(x, x->state == X_TUNNEL ? "reset a connection that it had switched"
                                           : "broke off in the middle of its answer");
    exchange_end(x, OUTCOME_UPSTREAM_ABORTED, FATE_ABORT);
}
