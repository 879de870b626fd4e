/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection is in one of three states: reading a request (bytes pile up in `bytes`), in work (the handler has it,
 * reading is paused but a disconnect is seen), or closing. Received bytes are copied once into the connection's own
 * buffer, so that a request's slices stay valid until it is answered; this server carries control traffic and the
 * emulated worker, where one copy does not matter.
 * A request that follows a later answer (pipelining) is started from the loop, never inside http_reply(): handlers
 * do not nest. It is started once that answer is written, so at most one waits for a client that does not read.
 */
#include "net/http_server.h"

#include "base/num.h"
#include "loop/alloc.h"
#include "loop/log.h"
#include "net/conn.h"
#include "net/listener.h"
#include "wire/chunked.h"

enum { HEAD_MAX = 65536, FIELDS_MAX = 100 };

struct http_server {
    struct loop *loop;
    struct net_listener listener;
    struct http_server_options o;
    struct list conns;
    uint32_t n_conns;
};

struct http_conn {
    struct http_server *server;
    struct list node;
    struct net_conn conn;
    struct loop_timer timer; /* idle; or at once, for a pipelined request */
    struct buf bytes;        /* head and raw body of the current request, then whatever follows */
    struct buf body;         /* decoded chunked body */
    struct chunked chunks;
    size_t head_len; /* 0 = head not complete */
    size_t raw_body; /* bytes of body seen in `bytes` */
    struct http1_head head;
    struct http_request request;
    bool active;    /* the handler has the request */
    bool streaming; /* http_stream_begin() was called */
    bool chunked;   /* the streamed answer's coding */
    bool keep_alive;
    bool in_process; /* inside process(): freeing waits */
    bool dead;
};

static const struct net_conn_ops conn_ops;

static void release(struct http_conn *h)
{
    net_conn_close(&h->conn);
    loop_timer_cancel(&h->timer);
    if (h->dead) /* a second release of one that waits for process() to end */
        return;
    list_del(&h->node);
    h->server->n_conns--;
    buf_fini(&h->bytes);
    buf_fini(&h->body);
    if (h->in_process)
        h->dead = true;
    else
        mem_free(loop_mem(), h);
}

static void set_idle_timer(struct http_conn *h)
{
    loop_timer_set(h->server->loop, &h->timer, loop_now(h->server->loop) + h->server->o.idle_ns);
}

static void write_head(
    struct http_conn *h, struct buf *out, unsigned status, const char *type, struct slice extra)
{
    buf_put_str(out, "HTTP/1.1 ");
    buf_put_u64(out, status);
    buf_put_char(out, ' ');
    buf_put_str(out, wire_http1_reason(status));
    buf_put_str(out, "\r\n");
    if (type) {
        buf_put_str(out, "Content-Type: ");
        buf_put_str(out, type);
        buf_put_str(out, "\r\n");
    }
    buf_put_slice(out, extra);
    if (!h->keep_alive)
        buf_put_str(out, "Connection: close\r\n");
    else if (h->head.minor == 0)
        buf_put_str(out, "Connection: keep-alive\r\n");
}

static void send_buf_and(struct http_conn *h, const struct buf *head, struct slice body)
{
    struct slice s = buf_slice(head);
    struct iovec parts[2] = {{.iov_base = (void *)(uintptr_t)s.p, .iov_len = s.n},
                             {.iov_base = (void *)(uintptr_t)body.p, .iov_len = body.n}};

    /* A client that is gone is told through on_closed. */
    (void)net_conn_send(&h->conn, parts, 2);
}

/* The answer is complete: get ready for the next request, or close. */
static void finish(struct http_conn *h)
{
    h->active = h->streaming = false;
    h->request = (struct http_request){0};
    if (!h->keep_alive) {
        net_conn_linger(&h->conn);
        release(h);
        return;
    }
    list_del(&h->node);
    list_add(&h->server->conns, &h->node);
    buf_consume(&h->bytes, h->head_len + h->raw_body);
    if (buf_len(&h->bytes) == 0)
        buf_fini(&h->bytes);
    buf_fini(&h->body);
    h->head_len = h->raw_body = 0;
    h->chunks = (struct chunked){0};
    set_idle_timer(h);
    /* While the answer is not out, on_drained() goes on. */
    if (h->in_process || net_conn_queued(&h->conn) > 0)
        return;
    if (buf_len(&h->bytes) > 0)
        loop_timer_set(h->server->loop, &h->timer, 0);
    else
        net_conn_resume(&h->conn);
}

void http_reply_with(struct http_request *r,
                     unsigned status,
                     const char *content_type,
                     struct slice extra_headers,
                     struct slice body)
{
    struct http_conn *h = container_of(r, struct http_conn, request);
    struct buf head;

    BUG_ON(!h->active || h->streaming);
    buf_init(&head, loop_mem(), HEAD_MAX);
    write_head(h, &head, status, content_type, extra_headers);
    if (status != 204 && status != 304) {
        buf_put_str(&head, "Content-Length: ");
        buf_put_u64(&head, body.n);
        buf_put_str(&head, "\r\n");
    }
    buf_put_str(&head, "\r\n");
    if (head.err) {
        log_error("net", "answer head does not fit: %s", err_text(head.err));
        h->keep_alive = false;
    } else {
        bool bodyless = slice_eq(h->head.method, SLICE("HEAD")) || status == 204 || status == 304;
        send_buf_and(h, &head, bodyless ? (struct slice){"", 0} : body);
    }
    buf_fini(&head);
    finish(h);
}

void http_reply(struct http_request *r,
                unsigned status,
                const char *content_type,
                struct slice body)
{
    http_reply_with(r, status, content_type, (struct slice){NULL, 0}, body);
}

void http_stream_begin(struct http_request *r,
                       unsigned status,
                       const char *content_type,
                       struct slice extra_headers)
{
    struct http_conn *h = container_of(r, struct http_conn, request);
    struct buf head;

    BUG_ON(!h->active || h->streaming);
    h->streaming = true;
    h->chunked = h->head.minor >= 1;
    if (!h->chunked)
        h->keep_alive = false;
    buf_init(&head, loop_mem(), HEAD_MAX);
    write_head(h, &head, status, content_type, extra_headers);
    if (h->chunked)
        buf_put_str(&head, "Transfer-Encoding: chunked\r\n");
    buf_put_str(&head, "\r\n");
    if (head.err)
        log_error("net", "answer head does not fit: %s", err_text(head.err));
    else
        send_buf_and(h, &head, (struct slice){"", 0});
    buf_fini(&head);
}

size_t http_stream_write(struct http_request *r, struct slice piece)
{
    struct http_conn *h = container_of(r, struct http_conn, request);
    char prefix[CHUNKED_PREFIX_MAX];

    BUG_ON(!h->streaming);
    if (piece.n == 0)
        return net_conn_queued(&h->conn);
    if (!h->chunked) {
        (void)net_conn_send_slice(&h->conn, piece);
        return net_conn_queued(&h->conn);
    }
    static char crlf[2] = {'\r', '\n'};
    struct iovec parts[3] = {{.iov_base = prefix, .iov_len = wire_chunked_prefix(prefix, piece.n)},
                             {.iov_base = (void *)(uintptr_t)piece.p, .iov_len = piece.n},
                             {.iov_base = crlf, .iov_len = sizeof(crlf)}};
    (void)net_conn_send(&h->conn, parts, 3);
    return net_conn_queued(&h->conn);
}

void http_stream_end(struct http_request *r)
{
    struct http_conn *h = container_of(r, struct http_conn, request);

    BUG_ON(!h->streaming);
    if (h->chunked)
        (void)net_conn_send_slice(&h->conn, SLICE("0\r\n\r\n"));
    finish(h);
}

void http_abort(struct http_request *r)
{
    struct http_conn *h = container_of(r, struct http_conn, request);

    h->active = false;
    net_conn_abort(&h->conn);
    release(h);
}

/* Answer an unreadable request in the shape of all errors on these ports, and close. */
static void refuse(struct http_conn *h, unsigned status, const char *message)
{
    const char *code = status == 413   ? "body_too_large"
                       : status == 431 ? "headers_too_large"
                       : status == 503 ? "overloaded"
                                       : "invalid_request";
    char text[256];
    struct buf body = {.p = text, .cap = sizeof(text), .max = sizeof(text)};

    buf_put_str(&body, "{\"error\":{\"code\":\"");
    buf_put_str(&body, code);
    buf_put_str(&body, "\",\"message\":");
    buf_put_json(&body, slice_str(message));
    buf_put_str(&body, ",\"field\":null}}");
    h->keep_alive = false;
    h->active = true;
    h->head.minor = 1;
    h->head.method = (struct slice){NULL, 0};
    http_reply(&h->request, status, "application/json", buf_slice(&body));
}

/* @return 1 = complete, 0 = more bytes needed, -1 = refused. */
static int read_body(struct http_conn *h)
{
    struct slice rest = slice_from(buf_slice(&h->bytes), h->head_len + h->raw_body);

    if (h->head.framing == HTTP1_BODY_NONE)
        return 1;
    if (h->head.framing == HTTP1_BODY_LENGTH) {
        size_t want = (size_t)h->head.content_length;
        h->raw_body = MIN(want, h->raw_body + rest.n);
        return h->raw_body == want;
    }
    while (!h->chunks.done) {
        struct slice payload;
        int64_t n = wire_chunked_read(&h->chunks, rest.p, rest.n, &payload);
        if (n < 0) {
            refuse(h, 400, "malformed chunked body");
            return -1;
        }
        if (n == 0)
            return 0;
        if (buf_put_slice(&h->body, payload) != 0) {
            refuse(h, 413, "body too large");
            return -1;
        }
        h->raw_body += (size_t)n;
        rest = slice_from(rest, (size_t)n);
    }
    return 1;
}

static int parse_head(struct http_conn *h)
{
    struct slice s = buf_slice(&h->bytes);
    struct http1_error error;
    int64_t n = wire_http1_request(s.p, s.n, FIELDS_MAX, &h->head, &error);

    if (n < 0) {
        refuse(h, error.status, error.message);
        return -1;
    }
    if (n == 0) {
        if (s.n < HEAD_MAX)
            return 0;
        refuse(h, 431, "headers too large");
        return -1;
    }
    h->head_len = (size_t)n;
    h->keep_alive = h->head.keep_alive;
    if (h->head.framing == HTTP1_BODY_LENGTH && h->head.content_length > h->server->o.body_max) {
        refuse(h, 413, "body too large");
        return -1;
    }
    if (h->head.expect_continue && h->head.framing != HTTP1_BODY_NONE && s.n == h->head_len)
        (void)net_conn_send_slice(&h->conn, SLICE("HTTP/1.1 100 Continue\r\n\r\n"));
    return 1;
}

static void start_request(struct http_conn *h)
{
    struct slice s = buf_slice(&h->bytes);
    struct http1_error error;

    /* The buffer may have moved while the body arrived: point the slices at where the bytes are now. */
    int64_t n = wire_http1_request(s.p, s.n, FIELDS_MAX, &h->head, &error);
    BUG_ON(n != (int64_t)h->head_len);
    loop_timer_cancel(&h->timer);
    struct http_request *r = &h->request;
    struct net_addr peer = r->peer;
    *r = (struct http_request){.method = h->head.method, .head = &h->head, .peer = peer};
    size_t question = slice_find(h->head.target, '?');
    r->path = slice_of(h->head.target.p, question);
    if (question < h->head.target.n)
        r->query = slice_from(h->head.target, question + 1);
    r->body = h->head.framing == HTTP1_BODY_CHUNKED ? buf_slice(&h->body)
                                                    : slice_of(s.p + n, h->raw_body);
    h->active = true;
    net_conn_pause(&h->conn);
    h->server->o.handler(h->server->o.ctx, r);
}

/* Start every request that is complete and can be started. May free h. */
static void process(struct http_conn *h)
{
    h->in_process = true;
    while (!h->dead && !h->active) {
        if (net_conn_queued(&h->conn) > 0) {
            /* Answers to a client that asks and asks but does not read would pile up here. */
            net_conn_pause(&h->conn);
            break;
        }
        if (buf_len(&h->bytes) == 0) {
            net_conn_resume(&h->conn);
            break;
        }
        int rc = h->head_len ? 1 : parse_head(h);
        if (rc > 0)
            rc = read_body(h);
        if (rc == 0) {
            net_conn_resume(&h->conn);
            break;
        }
        if (rc > 0)
            start_request(h);
    }
    h->in_process = false;
    if (h->dead)
        mem_free(loop_mem(), h);
}

static size_t on_data(struct net_conn *c, const char *p, size_t n)
{
    struct http_conn *h = container_of(c, struct http_conn, conn);

    if (buf_put(&h->bytes, p, n) != 0) {
        refuse(h, h->bytes.err == WEIR_E_FULL ? 413 : 503, "request too large");
        return n;
    }
    if (!h->active)
        process(h);
    return n;
}

static void lost(struct http_conn *h)
{
    if (h->active && h->request.on_gone) {
        h->active = false;
        h->request.on_gone(&h->request);
    }
    release(h);
}

static void on_eof(struct net_conn *c)
{
    lost(container_of(c, struct http_conn, conn));
}

static void on_closed(struct net_conn *c, int error)
{
    (void)error;
    lost(container_of(c, struct http_conn, conn));
}

static void on_drained(struct net_conn *c)
{
    struct http_conn *h = container_of(c, struct http_conn, conn);

    if (h->active) {
        if (h->request.on_drained)
            h->request.on_drained(&h->request);
    } else if (h->conn.paused) {
        set_idle_timer(h);
        process(h);
    }
}

static const struct net_conn_ops conn_ops = {
    .on_data = on_data, .on_eof = on_eof, .on_drained = on_drained, .on_closed = on_closed};

static void on_timer(struct loop_timer *t)
{
    struct http_conn *h = container_of(t, struct http_conn, timer);

    if (buf_len(&h->bytes) > 0 && h->head_len == 0 && h->conn.paused &&
        net_conn_queued(&h->conn) == 0)
        process(h);
    else
        release(h);
}

/* Of those that have asked nothing yet the one that has been quiet longest gives way: heads that never end must not keep
 * everybody out. */
static bool make_room(struct http_server *s)
{
    if (s->n_conns < s->o.connections_max)
        return true;
    weir_list_foreach (at, &s->conns) {
        struct http_conn *h = container_of(at, struct http_conn, node);
        if (h->active || net_conn_queued(&h->conn) > 0)
            continue;
        release(h);
        return true;
    }
    return false;
}

static void on_accept(struct net_listener *l, int fd, const struct net_addr *peer)
{
    struct http_server *s = container_of(l, struct http_server, listener);
    struct http_conn *h = mem_zalloc(loop_mem(), sizeof(*h));

    if (!h || !make_room(s)) {
        mem_free(loop_mem(), h);
        net_fd_close(fd);
        return;
    }
    h->server = s;
    h->request.peer = *peer;
    h->timer.on_timer = on_timer;
    buf_init(&h->bytes, loop_mem(), s->o.body_max + HEAD_MAX + LOOP_SCRATCH);
    buf_init(&h->body, loop_mem(), s->o.body_max);
    net_conn_init(&h->conn, &conn_ops, LOOP_SCRATCH);
    list_init(&h->node);
    struct net_tls_context *tls = s->o.tls ? net_tls_slot_get(s->o.tls) : NULL;
    int rc = tls ? net_conn_tls(&h->conn, tls, NULL) : 0;
    net_tls_put(tls);
    if (rc) {
        net_fd_close(fd);
        mem_free(loop_mem(), h);
        return;
    }
    if (net_conn_accept(&h->conn, s->loop, fd) != 0) {
        mem_free(loop_mem(), h);
        return;
    }
    list_add(&s->conns, &h->node);
    s->n_conns++;
    set_idle_timer(h);
}

int http_server_start(struct loop *loop,
                      const struct http_server_options *o,
                      struct http_server **out,
                      struct net_addr *bound)
{
    struct http_server *s = mem_zalloc(loop_mem(), sizeof(*s));
    int fd;

    if (!s)
        return WEIR_E_NOMEM;
    s->loop = loop;
    s->o = *o;
    list_init(&s->conns);
    s->listener.on_accept = on_accept;
    int rc = net_listen(&o->addr, false, &fd, bound);
    if (rc == 0) {
        rc = net_listener_start(&s->listener, loop, fd);
        if (rc)
            net_fd_close(fd);
    }
    if (rc) {
        mem_free(loop_mem(), s);
        return rc;
    }
    *out = s;
    return 0;
}

void http_server_stop(struct http_server *s)
{
    if (!s)
        return;
    net_listener_stop(&s->listener);
    while (!list_empty(&s->conns))
        lost(container_of(s->conns.next, struct http_conn, node));
    mem_free(loop_mem(), s);
}
