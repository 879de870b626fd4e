/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Client connections: accept, read heads, feed the exchange under way, keep alive. One request at a time; what a
 * client pipelines is left in the connection, with reading paused, until the answer before it is out, to its last byte.
 *
 * One timer per connection, set lazily: it may run too early and is then set again, so that a request costs no timer
 * work as long as nothing is due sooner than before.
 */
#include "base/num.h"
#include "loop/log.h"
#include "proxy/exchange.h"

enum { LINGER_BYTES = 64 << 20, SPARE_MAX = 64 };
/* After the last byte was written; and while a slow reader still takes what is queued, without progress. */
#define LINGER_NS       (2 * NS_PER_S)
#define LINGER_WRITE_NS (30 * NS_PER_S)
/* What a client still sends is dropped for so long: many read an answer only when they have sent all. */
#define LINGER_READ_NS (30 * NS_PER_S)
/* A connection beyond the limit has to say so soon what it wants. */
#define SPARE_NS NS_PER_S

static struct client *client_of(struct net_conn *c)
{
    return container_of(c, struct client, conn);
}

/* What an answer left behind counts against the buffer budget until the client has taken it. */
static void charge(struct client *c, size_t n)
{
    if (n > c->charged)
        stat_add(&c->lane->stats.buffered, n - c->charged);
    else
        stat_sub(&c->lane->stats.buffered, c->charged - n);
    c->charged = n;
}

static void bury(struct client *c)
{
    struct lane *l = c->lane;

    charge(c, 0);
    loop_timer_cancel(&c->timer);
    stat_sub(&l->stats.connections, 1);
    list_del(&c->node);
    list_add(&l->dead_clients, &c->node);
}

/*
 * Close so that the answer gets there: write what is queued, send FIN, then read and drop until the client's FIN, so
 * that request bytes still on their way do not reset the answer. net_conn_linger() would do the same, but out of sight:
 * a drain must know about answers that are not out yet.
 */
static void linger(struct client *c)
{
    c->closing = true;
    c->since_ns = loop_now(c->lane->loop);
    c->linger_until_ns = c->since_ns + LINGER_READ_NS;
    c->linger_queued = net_conn_queued(&c->conn);
    charge(c, c->linger_queued);
    net_conn_shutdown(&c->conn);
    net_conn_resume(&c->conn);
    client_arm(c);
}

/* Nothing more came of it, or a slow reader still takes something. */
static void linger_timeout(struct client *c)
{
    size_t queued = net_conn_queued(&c->conn);

    if (queued && queued < c->linger_queued) {
        c->linger_queued = queued;
        c->since_ns = loop_now(c->lane->loop);
        client_arm(c);
    } else {
        client_close(c, queued ? FATE_ABORT : FATE_KEEP);
    }
}

void client_close(struct client *c, enum fate fate)
{
    size_t queued = net_conn_queued(&c->conn);

    BUG_ON(c->x != NULL);
    if (!net_conn_open(&c->conn)) {
        if (fate != FATE_GONE)
            return; /* on_closed has buried it */
    } else if (!c->closing &&
               ((fate == FATE_LINGER && !c->eof) || (fate != FATE_ABORT && queued))) {
        linger(c);
        return;
    } else if (fate == FATE_ABORT) {
        net_conn_abort(&c->conn);
    } else {
        net_conn_close(&c->conn);
    }
    bury(c);
}

static uint64_t due_at(const struct client *c)
{
    const struct limits *limits = &plan_now(c->lane->proxy)->routing->limits;

    if (c->x)
        return exchange_due(c->x);
    if (c->closing)
        return c->since_ns + (net_conn_queued(&c->conn) ? LINGER_WRITE_NS : LINGER_NS);
    if (c->spare)
        return c->since_ns + SPARE_NS;
    uint64_t after = c->in_head ? limits->header_read_ns : limits->idle_ns;
    return after ? c->since_ns + after : 0;
}

void client_arm(struct client *c)
{
    uint64_t due = due_at(c);

    if (due && (!loop_timer_active(&c->timer) || c->timer.at_ns > due))
        loop_timer_set(c->lane->loop, &c->timer, due);
}

/* An answer to what never became an exchange: it has an identifier all the same. */
static void answer_unread(struct client *c, struct error_answer *e)
{
    struct lane *l = c->lane;
    char text[32];
    struct buf id = {.p = text, .cap = sizeof(text), .max = sizeof(text)};

    buf_put_hex(&id, prng_next(&l->asker.prng), 16);
    buf_put_hex(&id, prng_next(&l->asker.prng), 16);
    e->request_id = buf_slice(&id);
    e->close = true;
    stat_add(&l->stats.rejections[e->code], 1);
    buf_clear(&l->out);
    error_write(&l->out, e);
    (void)net_conn_send_slice(&c->conn, buf_slice(&l->out));
    client_close(c, FATE_LINGER);
}

static void on_timer(struct loop_timer *t)
{
    struct client *c = container_of(t, struct client, timer);
    uint64_t due = due_at(c);

    if (!due || due > loop_now(c->lane->loop)) {
        client_arm(c);
        return;
    }
    if (c->x) {
        exchange_timeout(c->x);
    } else if (c->closing) {
        linger_timeout(c);
    } else if (c->spare) {
        struct error_answer e = {.code = REJECT_OVERLOADED};
        answer_unread(c, &e);
    } else if (c->in_head) {
        struct error_answer e = {.code = REJECT_REQUEST_TIMEOUT};
        answer_unread(c, &e);
    } else {
        client_close(c, FATE_KEEP);
    }
}

void client_after(struct client *c, enum fate fate)
{
    if (fate != FATE_KEEP || c->eof || !net_conn_open(&c->conn)) {
        client_close(c, fate == FATE_KEEP ? FATE_LINGER : fate);
        return;
    }
    c->in_head = false;
    c->scanned = 0;
    c->since_ns = loop_now(c->lane->loop);
    charge(c, net_conn_queued(&c->conn));
    client_arm(c);
    /* Whatever was left unread, pipelined or paused for the sake of a worker, goes on from here. */
    net_conn_resume(&c->conn);
}

/* A head that cannot be used. */
static void refuse(struct client *c, unsigned status, const char *message)
{
    struct lane *l = c->lane;
    enum rejection code = status == 431 ? REJECT_HEADERS_TOO_LARGE : REJECT_INVALID_REQUEST;
    struct error_answer e = {.code = code, .status = status, .message = message};
    struct stat_series *s = stats_series(&l->stats, 0);

    if (s)
        stat_add(&s->requests[OUTCOME_CLIENT_ERROR], 1);
    answer_unread(c, &e);
}

/* @return bytes used: 0 = the head is not complete, or the connection is closed. */
static size_t read_head(struct client *c, const char *p, size_t n)
{
    struct lane *l = c->lane;
    const struct limits *limits = &plan_now(l->proxy)->routing->limits;
    struct http1_error error;

    net_conn_recv_max(&c->conn, (size_t)limits->header_bytes + 1);
    if (!c->in_head) {
        c->in_head = true;
        if (!c->spare)
            c->since_ns = loop_now(l->loop);
    }
    int64_t took = 0;
    /* A head can only be complete when a line has ended since the last look. */
    if (c->scanned > n || memchr(p + c->scanned, '\n', n - c->scanned))
        took = wire_http1_request(p, n, limits->headers, &l->head, &error);
    if (took == 0 && n < limits->header_bytes) {
        c->scanned = (uint32_t)n;
        client_arm(c);
        return 0;
    }
    if (took == 0 || took > (int64_t)limits->header_bytes) {
        refuse(c, 431, NULL);
        return 0;
    }
    if (took < 0) {
        refuse(c, error.status, error.message);
        return 0;
    }
    c->in_head = false;
    c->scanned = 0;
    size_t used = (size_t)took;
    used += exchange_begin(c, &l->head, p + used, n - used);
    /* Also with no byte left: a request without a body is decided here. */
    if (c->x)
        used += exchange_request_data(c->x, p + used, n - used);
    return used;
}

static size_t on_data(struct net_conn *nc, const char *p, size_t n)
{
    struct client *c = client_of(nc);
    size_t used = 0;

    if (c->closing) {
        c->dropped += n;
        if (c->dropped > LINGER_BYTES)
            client_close(c, FATE_KEEP);
        else if (loop_now(c->lane->loop) < c->linger_until_ns && net_conn_queued(nc) == 0)
            c->since_ns = loop_now(c->lane->loop);
        return n;
    }
    if (c->x)
        c->since_ns = loop_now(c->lane->loop);
    while (net_conn_open(nc) && !c->closing) {
        if (c->x && (!c->x->complete || c->x->discard || c->x->state == X_TUNNEL)) {
            if (used == n)
                break;
            used += exchange_request_data(c->x, p + used, n - used);
            if (c->x && !c->x->complete)
                break;
        } else if (c->x) {
            if (used < n)
                net_conn_pause(nc);
            break;
        } else if (net_conn_queued(nc) > 0) {
            /* Answers to a client that asks and asks but does not read would pile up here. */
            if (used < n)
                net_conn_pause(nc);
            break;
        } else {
            size_t took = used < n ? read_head(c, p + used, n - used) : 0;
            if (took == 0)
                break;
            used += took;
        }
    }
    if (c->closing)
        return n;
    if (net_conn_open(nc))
        client_arm(c);
    return used;
}

static void on_eof(struct net_conn *nc)
{
    struct client *c = client_of(nc);

    /* While reading is paused it is told early: bytes before it are unread, and it is told again in its place. */
    c->eof = !nc->paused;
    if (c->x)
        exchange_client_eof(c->x);
    else if (nc->paused)
        return; /* the next request is among those bytes */
    else if (!c->closing || net_conn_queued(nc) == 0)
        client_close(c, FATE_KEEP);
}

static void on_drained(struct net_conn *nc)
{
    struct client *c = client_of(nc);
    struct exchange *x = c->x;

    if (c->closing) {
        charge(c, 0);
        c->since_ns = loop_now(c->lane->loop);
        if (c->eof)
            client_close(c, FATE_KEEP);
    } else if (!x) {
        charge(c, 0);
        net_conn_resume(nc);
    }
    if (!x || !x->up || (x->state != X_RELAY && x->state != X_TUNNEL))
        return;
    x->stall_ns = 0;
    body_charge(x);
    net_conn_resume(&x->up->conn);
    x->last_rx_ns = loop_now(x->lane->loop);
    client_arm(x->client);
}

static void on_closed(struct net_conn *nc, int error)
{
    struct client *c = client_of(nc);

    if (!c->x && error == WEIR_E_FULL)
        stat_add(&c->lane->stats.rejections[REJECT_HEADERS_TOO_LARGE], 1);
    if (c->x)
        exchange_end(c->x, OUTCOME_CLIENT_GONE, FATE_GONE);
    else
        client_close(c, FATE_GONE);
}

static const struct net_conn_ops client_ops = {
    .on_data = on_data,
    .on_eof = on_eof,
    .on_drained = on_drained,
    .on_closed = on_closed,
};

static struct client *client_new(struct lane *l)
{
    struct client *c;

    if (list_empty(&l->free_clients))
        return mem_zalloc(loop_mem(), sizeof(*c));
    c = container_of(l->free_clients.next, struct client, node);
    list_del(&c->node);
    l->n_free_clients--;
    *c = (struct client){0};
    return c;
}

/* @return false: too many handshakes under way, or no memory. */
static bool start_tls(struct client *c, struct net_tls_slot *tls)
{
    static struct log_limit limit;
    char more[LOG_MISSED_TEXT];
    uint64_t missed;

    struct net_tls_context *x = tls ? net_tls_slot_get(tls) : NULL;
    if (!x)
        return true;
    int rc = net_conn_tls(&c->conn, x, NULL);
    net_tls_put(x);
    if (rc && log_limit_pass(&limit, loop_now(c->lane->loop), NS_PER_S, &missed))
        log_warn("proxy", "TLS connection refused: %s%s",
                 rc == WEIR_E_FULL ? "limits.tls_handshakes are under way" : err_text(rc),
                 log_missed(missed, more));
    return rc == 0;
}

void client_accept(struct lane *l, int fd, const struct net_addr *peer, struct net_tls_slot *tls)
{
    static struct log_limit limit;
    const struct plan *plan = plan_now(l->proxy);
    struct client *c = client_new(l);
    uint64_t open = proxy_connections(l->proxy);
    uint64_t max = plan->connections_max;
    char more[LOG_MISSED_TEXT];
    uint64_t missed;

    if (!c) {
        net_fd_close(fd);
        return;
    }
    c->lane = l;
    c->peer = *peer;
    c->since_ns = loop_now(l->loop);
    c->timer.on_timer = on_timer;
    list_init(&c->node);
    list_add(&l->clients, &c->node);
    stat_add(&l->stats.connections, 1);
    net_conn_init(&c->conn, &client_ops, (size_t)plan->routing->limits.header_bytes + 1);
    if (!start_tls(c, tls)) {
        stat_add(&l->stats.refused, 1);
        net_fd_close(fd);
        client_close(c, FATE_GONE);
        return;
    }
    if (net_conn_accept(&c->conn, l->loop, fd) != 0) {
        /* It disposed of the descriptor. */
        client_close(c, FATE_GONE);
        return;
    }
    if (open < max) {
        client_arm(c);
        return;
    }
    stat_add(&l->stats.refused, 1);
    if (log_limit_pass(&limit, loop_now(l->loop), NS_PER_S, &missed))
        log_warn("proxy", "connection limit of %llu reached: refusing%s", (unsigned long long)max,
                 log_missed(missed, more));
    /* Being polite takes a descriptor for a moment: not for everybody in a flood. Whether it is only a probe of our health
     * its head says: one that goes unanswered would have us restarted just when we are full. */
    c->spare = true;
    if (open < max + MIN(max / 8 + 1, (uint64_t)SPARE_MAX))
        client_arm(c);
    else
        client_close(c, FATE_KEEP);
}
