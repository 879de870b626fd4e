/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection that a worker switched to another protocol (101; WebSocket and others): from then on bytes are passed
 * both ways as they come, and the request lasts as long as the socket.
 *
 * Who may switch: only a worker that was asked to, by a request without a body, to a protocol that it names itself in
 * its 101 and that the client offered. HTTP/2 and TLS are not offered on: requests inside them would pass unseen. Any
 * other answer is an ordinary one, and what the client sent after its request is then its next request.
 *
 * How it ends: a FIN of either side ends both after what was sent before it, or with half_close: keep only its own
 * direction. Silence on both sides is judged by timeouts.between_bytes. A side that takes nothing holds the other back.
 */
#include "proxy/decision_log.h"
#include "proxy/head.h"

static struct iovec part(struct slice s)
{
    return (struct iovec){(void *)(uintptr_t)s.p, s.n};
}

/* "name" or "name/version" of a protocol in a list. */
static bool hides_requests(struct slice protocols)
{
    static const struct slice never[] = {SLICE("h2"), SLICE("h2c"), SLICE("h3"), SLICE("http"),
                                         SLICE("tls")};
    struct slice one;

    while (slice_cut(&protocols, ',', &one)) {
        one = slice_trim(one);
        one.n = slice_find(one, '/');
        for (unsigned i = 0; i < ARRAY_LEN(never); i++)
            if (slice_eq_nocase(one, never[i]))
                return true;
    }
    return false;
}

/* The one Upgrade field, or absent. */
static struct slice upgrade_field(const struct http1_head *h)
{
    struct slice found = {NULL, 0};

    for (unsigned i = 0; i < h->n_fields; i++) {
        if (!slice_eq_nocase(h->fields[i].name, SLICE("Upgrade")))
            continue;
        if (found.p)
            return (struct slice){NULL, 0};
        found = h->fields[i].value;
    }
    return found;
}

struct slice tunnel_asked(const struct http1_head *h)
{
    bool bare = h->framing == HTTP1_BODY_NONE ||
                (h->framing == HTTP1_BODY_LENGTH && h->content_length == 0);
    struct slice protocols = h->upgrade && bare ? upgrade_field(h) : (struct slice){NULL, 0};

    return protocols.n && !hides_requests(protocols) ? protocols : (struct slice){NULL, 0};
}

bool tunnel_accepts(const struct exchange *x, const struct http1_head *h)
{
    struct slice got = upgrade_field(h);
    struct slice asked = x->upgrade_len
                             ? slice_of(x->head.p + x->head.from + x->upgrade_at, x->upgrade_len)
                             : (struct slice){NULL, 0};
    struct slice one;

    while (h->upgrade && got.n && slice_cut(&asked, ',', &one))
        if (slice_eq_nocase(slice_trim(one), got))
            return true;
    return false;
}

static bool drop_field(const struct http1_head *h, const struct http1_field *f, void *ctx)
{
    (void)ctx;
    return slice_eq_nocase(f->name, SLICE("X-Request-Id")) ||
           slice_eq_nocase(f->name, SLICE("Content-Length")) || wire_http1_hop_by_hop(h, f);
}

static void moved(struct exchange *x)
{
    x->last_rx_ns = loop_now(x->lane->loop);
}

void tunnel_begin(struct exchange *x,
                  const struct http1_head *h,
                  const char *end,
                  struct slice more)
{
    struct buf *out = &x->lane->out;

    buf_clear(out);
    buf_put_str(out, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ");
    buf_put_slice(out, upgrade_field(h));
    buf_put(out, "\r\n", 2);
    head_copy_fields(out, h, end, drop_field, NULL);
    head_put(out, "X-Request-Id: ", exchange_request_id(x));
    explain_put_header(out, x);
    buf_put(out, "\r\n", 2);
    x->status = 101;
    x->keep = x->rsp_keep = false;
    x->first_byte_ns = loop_now(x->lane->loop);
    x->stall_ns = 0;
    sched_first_byte(&x->reservation);
    exchange_move(x, X_TUNNEL);
    stat_add(&x->lane->stats.sockets, 1);
    if (out->err) {
        exchange_end(x, OUTCOME_UPSTREAM_ERROR, FATE_ABORT);
        return;
    }
    body_free(x);
    struct iovec v[2] = {part(buf_slice(out)), part(more)};
    (void)net_conn_send(&x->client->conn, v, more.n ? 2 : 1);
    x->rsp_bytes += more.n;
    if (x->lane->proxy->access_fd < 0)
        exchange_drop_head(x);
    relay_throttle(x);
    judge_answer(x, false);
    /* What the client sent on is for the worker now. */
    net_conn_resume(&x->client->conn);
    client_arm(x->client);
    /* With half_close: keep it may have ended its side before the 101. */
    if (x->client->eof)
        tunnel_client_eof(x);
}

size_t tunnel_from_worker(struct exchange *x, const char *p, size_t n)
{
    struct iovec v = part(slice_of(p, n));

    moved(x);
    judge_answer(x, true);
    x->rsp_bytes += n;
    (void)net_conn_send(&x->client->conn, &v, 1);
    relay_throttle(x);
    return n;
}

size_t tunnel_from_client(struct exchange *x, const char *p, size_t n)
{
    size_t high = proxy_over_budget(x->lane->proxy) ? HIGH_WATER_TIGHT : HIGH_WATER;
    struct iovec v = part(slice_of(p, n));

    moved(x);
    x->body_seen += n;
    (void)net_conn_send(&x->up->conn, &v, 1);
    body_charge(x);
    if (net_conn_queued(&x->up->conn) > high)
        net_conn_pause(&x->client->conn);
    return n;
}

void tunnel_drained(struct exchange *x)
{
    moved(x);
    body_charge(x);
    net_conn_resume(&x->client->conn);
}

/* @param other the side that is told. */
static void one_way_less(struct exchange *x, struct net_conn *other, bool both)
{
    if (x->route->half_close == HALF_CLOSE_KEEP && !both) {
        net_conn_shutdown(other);
        moved(x);
        client_arm(x->client);
        return;
    }
    upstream_linger(x->up);
    exchange_end(x, OUTCOME_OK, FATE_LINGER);
}

void tunnel_client_eof(struct exchange *x)
{
    x->client_done = true;
    one_way_less(x, &x->up->conn, x->worker_done);
}

void tunnel_worker_eof(struct exchange *x)
{
    x->worker_done = true;
    one_way_less(x, &x->client->conn, x->client_done);
}
