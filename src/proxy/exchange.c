/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exchange: one request and its answer.
 *
 *   NEW --> PEEK ----------------> CONNECT ---> AWAIT ---> RELAY or TUNNEL (101) ---> ENDED
 *    |       |  \                  ^  ^  |      |  |         (answer whole, broken off,
 *    |       |   +---> QUEUE ------+  |  |      |  |          client gone, timeout)
 *    |       |          |  ^          |  +------+  |
 *    |       |          |  |          |  |  (other endpoint, fresh connection)
 *    |       |          |  +----------+--+         |
 *    +-------+----------+---------------------------+---> ENDED (Weir's own answer or an error)
 *                       |
 *                       +--> ORPHAN (ended while a grant is on its way; the grant frees it)
 *
 * exchange_move() is the one place that changes the state, and checks the step against the table below.
 * exchange_end() is the one door out: it leaves the queue, gives up the connection, releases the reservation, counts,
 * logs, and tells the client connection what to do next.
 */
#include "proxy/exchange.h"

#include "base/num.h"
#include "loop/log.h"
#include "proxy/decision_log.h"
#include "sched/drain.h"

#define TO(state) (1u << (state))
static const struct {
    const char *name;
    unsigned next;
} states[X_STATES] = {
    [X_NEW] = {"new", TO(X_PEEK) | TO(X_ENDED)},
    [X_PEEK] = {"peek", TO(X_QUEUE) | TO(X_CONNECT) | TO(X_ENDED)},
    [X_QUEUE] = {"queue", TO(X_CONNECT) | TO(X_ENDED) | TO(X_ORPHAN)},
    [X_CONNECT] = {"connect", TO(X_CONNECT) | TO(X_QUEUE) | TO(X_AWAIT) | TO(X_ENDED)},
    [X_AWAIT] = {"await", TO(X_CONNECT) | TO(X_QUEUE) | TO(X_RELAY) | TO(X_TUNNEL) | TO(X_ENDED)},
    [X_RELAY] = {"relay", TO(X_ENDED)},
    [X_TUNNEL] = {"tunnel", TO(X_ENDED)},
    [X_ENDED] = {"ended", 0},
    [X_ORPHAN] = {"orphan", TO(X_ENDED)},
};

static const struct slice absent = {NULL, 0};

void exchange_move(struct exchange *x, enum exchange_state to)
{
    BUG_ON(!(states[x->state].next & TO(to)));
    x->state = to;
}

static struct exchange *exchange_new(struct client *c)
{
    struct lane *l = c->lane;
    struct exchange *x;

    if (list_empty(&l->free_exchanges)) {
        x = mem_zalloc(loop_mem(), sizeof(*x));
        if (!x)
            return NULL;
    } else {
        x = container_of(l->free_exchanges.next, struct exchange, node);
        list_del(&x->node);
        l->n_free_exchanges--;
        *x = (struct exchange){0};
    }
    x->lane = l;
    x->client = c;
    x->plan = plan_take(l);
    x->start_ns = loop_now(l->loop);
    x->grant_job.run = exchange_granted;
    list_init(&x->node);
    list_add(&l->exchanges, &x->node);
    stat_add(&l->stats.active, 1);
    c->x = x;
    return x;
}

void exchange_drop_head(struct exchange *x)
{
    lane_buf_give(x->lane, &x->head);
    x->method_len = x->path_len = x->rid_len = 0;
}

void exchange_release(struct exchange *x, struct reservation *r)
{
    tenant_settle(x, r);
    offer_release(&x->lane->asker, r);
}

/* ---- the door out ---- */

void exchange_count(struct exchange *x, enum proxy_outcome outcome)
{
    if (x->counted)
        return;
    x->counted = true;
    struct lane *l = x->lane;
    struct lane_stats *s = &l->stats;
    uint64_t now = loop_now(l->loop);
    uint64_t queued = x->queue_ns + (x->state == X_QUEUE ? now - x->queue_from_ns : 0);
    uint32_t at = x->pool    ? x->pool->series
                  : x->route ? plan_route(x->plan, x->route)->track->series
                             : 0;
    struct stat_series *series = stats_series(s, at);
    bool socket = x->status == 101; /* how long it lived says nothing of how long answers take */

    if (series) {
        stat_add(&series->requests[outcome], 1);
        if (x->first_byte_ns && !socket)
            stats_hist_add(&series->compute, proxy_bounds, now - x->start_ns - queued);
        if ((outcome == OUTCOME_OK && !socket) || x->reader.usage.known)
            stats_usage_add(series, x->f.task, &x->reader.usage);
    }
    if (x->rejection)
        stat_add(&s->rejections[x->rejection], 1);
    if (!socket)
        stats_hist_add(&s->duration, proxy_bounds, now - x->start_ns);
    if (x->first_byte_ns)
        stats_hist_add(&s->first_byte, proxy_bounds, x->first_byte_ns - x->start_ns);
    if (x->pool)
        stats_hist_add(&s->queue, proxy_bounds, queued);
    tenant_leave(x, queued);
}

/* @return false when another thread has granted it already, so that it cannot be freed yet. */
static bool leave_queue(struct exchange *x)
{
    pthread_mutex_lock(&x->pool->lock);
    bool queued = x->waiter.queued;
    if (queued)
        sched_pool_cancel(x->pool->sched, &x->waiter);
    pool_leave(&x->lane->asker, x->pool);
    return queued;
}

void exchange_blame(const struct exchange *x, const char *what)
{
    static struct log_limit limit;
    struct slice id = exchange_request_id(x); /* gone with the head once the answer streams */
    char more[LOG_MISSED_TEXT];
    uint64_t missed;

    if (x->target && log_limit_pass(&limit, loop_now(x->lane->loop), NS_PER_S, &missed))
        log_warn("proxy", "endpoint=%.*s %s%s%.*s%s", SLICE_ARG(x->target->id), what,
                 id.n ? " request_id=" : "", SLICE_ARG(id), log_missed(missed, more));
}

void exchange_end(struct exchange *x, enum proxy_outcome outcome, enum fate fate)
{
    struct lane *l = x->lane;
    struct client *c = x->client;
    struct interrupt *interrupt = outcome == OUTCOME_CLIENT_GONE ? interrupt_for(x) : NULL;
    bool orphan = false;

    if (x->state == X_TUNNEL)
        stat_sub(&l->stats.sockets, 1);
    if (x->state == X_QUEUE) {
        x->queue_ns += loop_now(l->loop) - x->queue_from_ns;
        orphan = !leave_queue(x);
    }
    exchange_move(x, orphan ? X_ORPHAN : X_ENDED);
    if (x->plan->access_log)
        access_log_add(x, outcome);
    exchange_count(x, outcome);
    decision_end(x, outcome);
    if (x->up && x->acks.lazy && x->rsp_whole)
        net_conn_ack_lazily(&x->up->conn, false);
    if (x->up && x->rsp_whole)
        upstream_put(x->up);
    else if (x->up)
        upstream_drop(x->up);
    if (x->target)
        upstream_target_put(l, x->target);
    fastchat_end(x);
    x->target = NULL;
    x->client = NULL;
    c->x = NULL;
    body_free(x);
    exchange_drop_head(x);
    stat_sub(&l->stats.active, 1);
    list_del(&x->node);
    list_add(orphan ? &l->orphans : &l->dead_exchanges, &x->node);
    if (!orphan) {
        if (outcome == OUTCOME_OK)
            sched_work_end(l->proxy->lore, &x->reservation, &x->f, &x->reader.usage,
                           loop_now(l->loop));
        if (interrupt) {
            tenant_settle(x, &x->reservation);
            interrupt_post(interrupt, &x->reservation);
        }
        exchange_release(x, &x->reservation);
    }
    client_after(c, fate);
}

static unsigned retry_after(const struct exchange *x, enum rejection code)
{
    if (code == REJECT_RATE_LIMITED)
        return (unsigned)((x->limit_wait_ns + NS_PER_S - 1) / NS_PER_S);
    /* By then what waits there now is done, if nothing else comes. */
    if (code == REJECT_SLO_UNREACHABLE && x->state != X_QUEUE)
        return (unsigned)MIN(x->waiter.late_us / (NS_PER_S / NS_PER_US) + 1,
                             (uint64_t)DRAIN_RETRY_MAX_S);
    return (code == REJECT_QUEUE_FULL || code == REJECT_SLO_UNREACHABLE) && x->pool
               ? atomic_load_explicit(&x->pool->retry_after_s, memory_order_relaxed)
               : 0;
}

void exchange_reject(struct exchange *x,
                     enum rejection code,
                     const char *param,
                     struct slice detail)
{
    struct lane *l = x->lane;
    bool keep = x->keep_asked && x->complete && !l->draining && !x->client->eof;
    struct error_answer e = {.code = code,
                             .message = code == REJECT_RATE_LIMITED ? x->limit_hit : NULL,
                             .param = param,
                             .detail = detail,
                             .retry_after_s = retry_after(x, code),
                             .request_id = exchange_request_id(x),
                             .explain = slice_of(x->explain, x->explain_len),
                             .close = !keep,
                             .head_only = x->is_head};

    BUG_ON(x->state >= X_RELAY);
    x->rejection = code;
    x->status = (uint16_t)error_status(code);
    exchange_count(x, error_outcome(code));
    buf_clear(&l->out);
    error_write(&l->out, &e);
    if (!l->out.err)
        (void)net_conn_send_slice(&x->client->conn, buf_slice(&l->out));
    exchange_end(x, error_outcome(code), l->out.err ? FATE_ABORT : keep ? FATE_KEEP : FATE_LINGER);
}

/* ---- the way in ---- */

/* A refusal of a short request that is here whole need not cost the client its connection. */
static size_t swallow(struct exchange *x, size_t n)
{
    if (x->complete || x->framing != HTTP1_BODY_LENGTH || x->body_left > n)
        return 0;
    x->complete = true;
    return (size_t)x->body_left;
}

/* Refusals that do not depend on the body. What a header names is looked for before the body is here, too. */
static enum rejection early(struct exchange *x, const char **param, struct slice *detail)
{
    struct proxy *p = x->lane->proxy;
    const struct snapshot *s = x->lane->asker.snap;
    const struct limits *limits = &x->plan->routing->limits;

    if (limits->body_bytes && x->f.body_bytes > limits->body_bytes)
        return REJECT_BODY_TOO_LARGE;
    if (proxy_over_budget(p))
        return REJECT_OVERLOADED;
    if (x->complete)
        return REJECT_NONE;
    struct pool *pool = NULL;
    enum rejection why = REJECT_NONE;
    if (x->model_in_header) {
        why = decide_pool(x, detail);
        if (why == REJECT_MODEL_NOT_FOUND)
            *param = "model";
        if (why)
            return why;
        pool = x->pool;
        const struct snapshot_model *m = s ? model_find(s, pool->model) : NULL;
        if (!m || m->n_members == 0)
            return REJECT_NO_ENDPOINT;
    } else if (s && s->n_live_models == 1 && s->n_models == 1) {
        pool = pool_get(x->lane, x->plan, x->route, s->models[0].id, &why);
    }
    if (!pool || !decide_full(x, pool))
        return REJECT_NONE;
    x->pool = pool;
    return REJECT_QUEUE_FULL;
}

static bool method_is(const struct http1_head *h, const char *name)
{
    return slice_eq(h->method, slice_str(name));
}

size_t exchange_begin(struct client *c, const struct http1_head *h, const char *end, size_t n)
{
    struct exchange *x = exchange_new(c);
    struct request_fields fields;
    const char *param = NULL;
    struct slice detail = absent;

    if (!x) {
        client_close(c, FATE_ABORT);
        return n;
    }
    x->http10 = h->minor == 0;
    x->keep_asked = h->keep_alive && !c->spare;
    x->is_head = method_is(h, "HEAD");
    x->idempotent = x->is_head || method_is(h, "GET") || method_is(h, "OPTIONS") ||
                    method_is(h, "PUT") || method_is(h, "DELETE");
    x->framing = h->framing;
    x->body_left = h->content_length;
    x->complete = h->framing == HTTP1_BODY_NONE ||
                  (h->framing == HTTP1_BODY_LENGTH && h->content_length == 0);
    x->pace_ns = x->start_ns;

    const struct route *route = route_of(x->plan->routing, h);
    enum rejection why = route_head(x, route, h, end, &fields);
    x->explain_asked = explain_asked(x->plan, &fields);
    if (!why && own_answer(x, h))
        return 0;
    retry_count(&x->lane->retry, x->start_ns);
    if (!why && c->spare)
        why = REJECT_OVERLOADED;
    if (!why) {
        x->route = route;
        why = x->route ? route_features(x, h, &fields, &param, &detail) : REJECT_ROUTE_NOT_FOUND;
    }
    if (!why)
        why = tenant_enter(x);
    if (!why)
        why = early(x, &param, &detail);
    if (!why && !body_begin(x, fields.content_type))
        why = REJECT_OVERLOADED;
    if (why == REJECT_INVALID_REQUEST)
        x->keep_asked = false;
    if (why) {
        size_t used = swallow(x, n);
        exchange_reject(x, why, param, detail);
        return used;
    }
    exchange_move(x, X_PEEK);
    x->expect = h->expect_continue && !x->http10 && !x->complete && n == 0;
    x->forward_expect = x->expect && !x->scan;
    if (x->expect && x->scan) {
        /* The decision needs the body, so Weir asks for it; the worker is not asked to expect it. */
        (void)net_conn_send_slice(&c->conn, SLICE("HTTP/1.1 100 Continue\r\n\r\n"));
        x->expect = false;
    }
    return 0;
}

size_t exchange_request_data(struct exchange *x, const char *p, size_t n)
{
    size_t used = 0;

    if (x->state == X_TUNNEL)
        return tunnel_from_client(x, p, n);
    if (x->discard)
        return n;
    if (!x->complete) {
        int64_t took = body_receive(x, p, n);
        if (took < 0) {
            /* Where the next request would begin is not known any more. */
            x->complete = false;
            if (x->state == X_RELAY)
                exchange_end(x, OUTCOME_CLIENT_ERROR, FATE_ABORT);
            else
                exchange_reject(x,
                                took == WEIR_E_RANGE  ? REJECT_BODY_TOO_LARGE
                                : took == WEIR_E_FULL ? REJECT_OVERLOADED
                                                      : REJECT_INVALID_REQUEST,
                                NULL, absent);
            return n;
        }
        used = (size_t)took;
    }
    if (x->state == X_PEEK) {
        if (body_decidable(x)) {
            body_found(x);
            exchange_decide(x);
        }
    } else if (x->state >= X_AWAIT) {
        body_pump(x);
    } else if (!x->complete && buf_len(&x->body) > HIGH_WATER) {
        /* Nowhere to send it yet; on_drained or the first send goes on. */
        x->held = true;
        net_conn_pause(&x->client->conn);
    }
    return used;
}

void exchange_client_eof(struct exchange *x)
{
    bool early = !x->client->eof;

    if (x->state == X_TUNNEL) {
        if (!early)
            tunnel_client_eof(x);
        return;
    }
    /* A FIN means gone, unless the route knows clients that end their whole request so: the rest may be unread yet. */
    if ((x->complete || early) && x->route && x->route->half_close == HALF_CLOSE_KEEP)
        return;
    exchange_end(x, OUTCOME_CLIENT_GONE, FATE_ABORT);
}

/* ---- times ---- */

static void earliest(uint64_t *due, uint64_t from, uint64_t after)
{
    if (after && from && (!*due || from + after < *due))
        *due = from + after;
}

/* The worker takes nothing of the request, so the client is held back. */
static bool upload_stalled(const struct exchange *x)
{
    return x->state == X_AWAIT && !x->request_sent && x->stall_ns && x->client->conn.paused;
}

/* It is the client's turn to send some more of its body. */
static bool receiving(const struct exchange *x)
{
    return !x->complete && !x->discard && !x->client->conn.paused;
}

uint64_t exchange_due(const struct exchange *x)
{
    const struct limits *limits = &x->plan->routing->limits;
    uint64_t due = x->f.deadline_ns;

    if (x->state == X_QUEUE) {
        earliest(&due, x->queue_from_ns, x->route->queue.timeout_ns);
        earliest(&due, x->start_ns, x->f.slo_ttft_ns);
    }
    if (x->state == X_AWAIT && x->request_sent)
        earliest(&due, x->sent_ns, x->route->timeouts.first_byte_ns);
    if (upload_stalled(x))
        earliest(&due, x->stall_ns, x->route->timeouts.first_byte_ns);
    if (receiving(x)) {
        earliest(&due, x->client->since_ns, limits->body_read_ns);
        earliest(&due, x->pace_ns, limits->body_rate ? limits->body_read_ns : 0);
    }
    if (x->state == X_RELAY)
        earliest(&due, x->first_byte_ns, limits->stream_ns);
    if (x->state == X_RELAY && x->up) {
        if (x->up->conn.paused)
            earliest(&due, x->stall_ns, limits->body_read_ns);
        else
            earliest(&due, x->last_rx_ns, x->route->timeouts.between_bytes_ns);
    }
    if (x->state == X_TUNNEL) {
        if (x->up->conn.paused)
            earliest(&due, x->stall_ns, limits->body_read_ns);
        earliest(&due, x->last_rx_ns, x->route->timeouts.between_bytes_ns);
    }
    return due;
}

/* In X_RELAY and X_TUNNEL: the client or the worker stands still. */
static void relay_timeout(struct exchange *x, uint64_t now)
{
    const struct limits *limits = &x->plan->routing->limits;
    size_t queued = net_conn_queued(&x->client->conn);
    uint64_t silence = x->route->timeouts.between_bytes_ns;
    bool silent = silence && now >= x->last_rx_ns + silence;

    if (x->state == X_TUNNEL && silent) {
        exchange_end(x, OUTCOME_TIMEOUT, FATE_ABORT);
        return;
    }
    if (x->up && x->up->conn.paused) {
        if (!limits->body_read_ns || now < x->stall_ns + limits->body_read_ns) {
            client_arm(x->client);
        } else if (queued < x->stall_queued) {
            x->stall_queued = queued;
            x->stall_ns = now;
            client_arm(x->client);
        } else {
            /* It took nothing for a whole silence: nobody is there, and an endpoint is held for it. */
            exchange_end(x, OUTCOME_CLIENT_GONE, FATE_ABORT);
        }
        return;
    }
    if (silent) {
        exchange_blame(x, "fell silent in the middle of its answer (timeouts.between_bytes)");
        exchange_end(x, OUTCOME_TIMEOUT, FATE_ABORT);
    } else {
        client_arm(x->client);
    }
}

/*
 * A body that comes in drops is no silence, and still holds a connection. So in each body_read it has to come at
 * body_rate on average, unless it was held back in that time. Looks when a time is over, and begins the next.
 */
static bool dribbles(struct exchange *x, uint64_t now)
{
    const struct limits *limits = &x->plan->routing->limits;

    if (!receiving(x) || !limits->body_rate || !limits->body_read_ns ||
        now < x->pace_ns + limits->body_read_ns)
        return false;
    uint64_t want = limits->body_rate * ((now - x->pace_ns) / NS_PER_MS) / 1000;
    bool slow = !x->held && x->body_seen - x->pace_seen < want;
    x->pace_ns = now;
    x->pace_seen = x->body_seen;
    x->held = false;
    return slow;
}

/* As long as it takes something, it is only slow. */
static void upload_timeout(struct exchange *x, uint64_t now)
{
    size_t queued = x->up ? net_conn_queued(&x->up->conn) : 0;

    if (queued < x->stall_queued) {
        x->stall_queued = queued;
        x->stall_ns = now;
        client_arm(x->client);
    } else {
        exchange_reject(x, REJECT_FIRST_BYTE_TIMEOUT, NULL, absent);
    }
}

void exchange_timeout(struct exchange *x)
{
    const struct limits *limits = &x->plan->routing->limits;
    uint64_t now = loop_now(x->lane->loop);
    bool silent =
        receiving(x) && limits->body_read_ns && now >= x->client->since_ns + limits->body_read_ns;

    silent = dribbles(x, now) || silent;
    if (x->f.deadline_ns && now >= x->f.deadline_ns) {
        if (x->state < X_RELAY)
            exchange_reject(x, REJECT_DEADLINE_EXCEEDED, NULL, absent);
        else
            exchange_end(x, OUTCOME_TIMEOUT, FATE_ABORT);
    } else if (silent) {
        if (x->state < X_RELAY)
            exchange_reject(x, REJECT_REQUEST_TIMEOUT, NULL, absent);
        else
            exchange_end(x, OUTCOME_CLIENT_GONE, FATE_ABORT);
    } else if (x->state == X_QUEUE && x->route->queue.timeout_ns &&
               now >= x->queue_from_ns + x->route->queue.timeout_ns) {
        exchange_reject(x, REJECT_QUEUE_TIMEOUT, NULL, absent);
    } else if (x->state == X_QUEUE && x->f.slo_by_ns && now >= x->f.slo_by_ns) {
        exchange_reject(x, REJECT_SLO_UNREACHABLE, NULL, absent);
    } else if (x->state == X_AWAIT && x->request_sent && x->route->timeouts.first_byte_ns &&
               now >= x->sent_ns + x->route->timeouts.first_byte_ns) {
        judge_timeout(x);
        exchange_blame(x, "did not begin to answer in time (timeouts.first_byte)");
        exchange_reject(x, REJECT_FIRST_BYTE_TIMEOUT, NULL, absent);
    } else if (upload_stalled(x) && x->route->timeouts.first_byte_ns &&
               now >= x->stall_ns + x->route->timeouts.first_byte_ns) {
        upload_timeout(x, now);
    } else if (x->state == X_RELAY && limits->stream_ns &&
               now >= x->first_byte_ns + limits->stream_ns) {
        exchange_end(x, OUTCOME_TIMEOUT, FATE_ABORT);
    } else if (x->state == X_RELAY || x->state == X_TUNNEL) {
        relay_timeout(x, now);
    } else {
        client_arm(x->client);
    }
}

/* ---- upkeep ---- */

void exchange_sweep(struct lane *l)
{
    weir_list_foreach_safe (n, &l->exchanges) {
        struct exchange *x = container_of(n, struct exchange, node);
        /* While it is queued its reservation belongs to whoever grants it. */
        if (x->state != X_QUEUE) {
            sched_settle(&x->reservation);
            judge_wait(x);
        } else if (atomic_load_explicit(&x->pool->members, memory_order_relaxed) == 0) {
            exchange_reject(x, REJECT_NO_ENDPOINT, NULL, absent);
        }
    }
}

void exchange_fini(struct lane *l)
{
    weir_list_foreach_safe (n, &l->exchanges)
        exchange_end(container_of(n, struct exchange, node), OUTCOME_CLIENT_GONE, FATE_ABORT);
    weir_list_foreach_safe (n, &l->orphans) {
        struct exchange *x = container_of(n, struct exchange, node);
        exchange_release(x, &x->reservation);
        list_del(&x->node);
        list_add(&l->dead_exchanges, &x->node);
    }
}
