/* SPDX-License-Identifier: Apache-2.0 */
#include "net/grpc.h"

#include <nghttp2/nghttp2.h>
#include <stdio.h>

#include "base/bug.h"
#include "base/num.h"
#include "loop/alloc.h"
#include "loop/log.h"
#include "net/conn.h"
#include "net/listener.h"

enum {
    PREFIX = 5, /* of a message: compressed, length */
    PATH_MAX_BYTES = 256,
    IN_MAX = 2 * GRPC_MESSAGE_MAX, /* of all calls of one connection */
    WINDOW = 1 << 20,
    RESETS_MAX = 200, /* in RESETS_NS */
    CONTINUATIONS_MAX = 8,
};

static const uint64_t RESETS_NS = 10 * NS_PER_S;

struct grpc {
    struct net_conn conn;
    struct loop *loop;
    nghttp2_session *session;
    const struct grpc_ops *ops;
    void *ctx;
    struct list calls;
    struct buf authority;
    struct loop_timer soon;
    size_t in_bytes;
    uint64_t resets_from_ns;
    uint32_t resets, continuations;
    unsigned busy; /* inside nghttp2 */
    bool server;
    bool closing; /* freed once nghttp2 has returned */
    bool hostile;
};

struct grpc_call {
    struct list node;
    struct grpc *grpc;
    void *user;
    int32_t id;
    struct buf in, out;
    char path[PATH_MAX_BYTES];
    size_t path_n;
    unsigned status; /* as the peer told it, or as we tell it */
    bool told;       /* the peer has told a status */
    bool known;      /* on_call took it */
    bool answered;   /* server: the head is under way */
    bool finished;   /* nothing more to send after out */
    bool bad;        /* what it sends is not read any more */
};

/* --- ends --- */

static void free_call(struct grpc_call *c)
{
    c->grpc->in_bytes -= buf_len(&c->in);
    list_del(&c->node);
    buf_fini(&c->in);
    buf_fini(&c->out);
    mem_free(loop_mem(), c);
}

static void free_grpc(struct grpc *g)
{
    while (!list_empty(&g->calls))
        free_call(container_of(g->calls.next, struct grpc_call, node));
    loop_timer_cancel(&g->soon);
    nghttp2_session_del(g->session);
    buf_fini(&g->authority);
    mem_free(loop_mem(), g);
}

void grpc_close(struct grpc *g)
{
    if (!g || g->closing)
        return;
    g->closing = true;
    if (net_conn_open(&g->conn))
        net_conn_close(&g->conn);
    if (g->busy == 0)
        free_grpc(g);
}

/* Dead by the peer's doing, or by ours. */
static void die(struct grpc *g, int error)
{
    if (g->closing)
        return;
    BUG_ON(g->busy);
    if (net_conn_open(&g->conn))
        net_conn_close(&g->conn);
    g->busy++;
    while (!list_empty(&g->calls) && !g->closing) {
        struct grpc_call *c = container_of(g->calls.next, struct grpc_call, node);
        if (c->known)
            g->ops->on_end(c, GRPC_UNAVAILABLE);
        free_call(c);
    }
    if (!g->closing)
        g->ops->on_closed(g, error);
    free_grpc(g);
}

/* --- sending --- */

/* @return 0, or an error: then die(). May have been closed by a callback. */
static int flush(struct grpc *g)
{
    const uint8_t *p;
    ssize_t n;

    if (g->busy || g->closing || g->conn.connecting)
        return 0;
    g->busy++;
    while (!g->closing && (n = nghttp2_session_mem_send(g->session, &p)) > 0)
        (void)net_conn_send_slice(&g->conn, slice_of((const char *)p, (size_t)n));
    g->busy--;
    if (g->closing) {
        free_grpc(g);
        return 0;
    }
    if (net_conn_queued(&g->conn) > GRPC_QUEUE_MAX)
        return WEIR_E_FULL;
    return nghttp2_session_want_read(g->session) || nghttp2_session_want_write(g->session)
               ? 0
               : WEIR_E_CLOSED;
}

/* Send soon: from the loop, so that a caller never loses its connection under its feet. */
static void flush_soon(struct grpc *g)
{
    if (g->busy == 0)
        loop_timer_set(g->loop, &g->soon, 0);
}

static ssize_t read_out(nghttp2_session *session,
                        int32_t id,
                        uint8_t *p,
                        size_t n,
                        uint32_t *flags,
                        nghttp2_data_source *source,
                        void *ctx)
{
    struct grpc_call *c = source->ptr;
    size_t have = buf_len(&c->out);
    char status[16];

    (void)ctx;
    if (have > 0) {
        n = MIN(n, have);
        memcpy(p, buf_slice(&c->out).p, n);
        buf_consume(&c->out, n);
        have -= n;
    } else {
        n = 0;
    }
    if (have == 0 && c->finished) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (c->grpc->server) {
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            int len = snprintf(status, sizeof(status), "%u", c->status);
            nghttp2_nv nv = {(uint8_t *)(uintptr_t) "grpc-status", (uint8_t *)status, 11,
                             (size_t)len, NGHTTP2_NV_FLAG_NONE};
            if (nghttp2_submit_trailer(session, id, &nv, 1) != 0)
                return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        }
        return (ssize_t)n;
    }
    return n ? (ssize_t)n : NGHTTP2_ERR_DEFERRED;
}

static nghttp2_nv header(const char *name, struct slice value)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value.p, strlen(name),
                        value.n, NGHTTP2_NV_FLAG_NONE};
}

static int send_head(struct grpc_call *c)
{
    nghttp2_data_provider from = {.source.ptr = c, .read_callback = read_out};
    nghttp2_nv nv[] = {header(":status", SLICE("200")),
                       header("content-type", SLICE("application/grpc"))};

    if (c->answered)
        return 0;
    c->answered = true;
    return nghttp2_submit_response(c->grpc->session, c->id, nv, ARRAY_LEN(nv), &from) == 0
               ? 0
               : WEIR_E_NOMEM;
}

int grpc_send(struct grpc_call *c, struct slice message)
{
    char prefix[PREFIX] = {0, (char)(message.n >> 24), (char)(message.n >> 16),
                           (char)(message.n >> 8), (char)message.n};

    if (message.n > GRPC_MESSAGE_MAX || buf_len(&c->out) + message.n + PREFIX > c->out.max)
        return WEIR_E_FULL;
    buf_put(&c->out, prefix, PREFIX);
    int rc = buf_put_slice(&c->out, message);
    if (rc)
        return rc;
    if (c->grpc->server && send_head(c))
        return WEIR_E_NOMEM;
    (void)nghttp2_session_resume_data(c->grpc->session, c->id);
    flush_soon(c->grpc);
    return 0;
}

void grpc_finish(struct grpc_call *c, unsigned status)
{
    if (c->finished)
        return;
    c->finished = true;
    if (c->grpc->server) {
        c->status = status;
        (void)send_head(c);
    }
    (void)nghttp2_session_resume_data(c->grpc->session, c->id);
    flush_soon(c->grpc);
}

/* --- receiving --- */

static struct grpc_call *new_call(struct grpc *g, int32_t id)
{
    struct grpc_call *c = mem_zalloc(loop_mem(), sizeof(*c));

    if (!c)
        return NULL;
    c->grpc = g;
    c->id = id;
    buf_init(&c->in, loop_mem(), GRPC_MESSAGE_MAX + PREFIX);
    buf_init(&c->out, loop_mem(), GRPC_QUEUE_MAX);
    list_add(&g->calls, &c->node);
    return c;
}

static struct grpc_call *call_of(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    struct grpc *g = ctx;

    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct grpc_call *c = new_call(g, frame->hd.stream_id);
    if (!c)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    nghttp2_session_set_stream_user_data(session, c->id, c);
    return 0;
}

static int on_header(nghttp2_session *session,
                     const nghttp2_frame *frame,
                     const uint8_t *name,
                     size_t name_n,
                     const uint8_t *value,
                     size_t value_n,
                     uint8_t flags,
                     void *ctx)
{
    struct grpc_call *c = call_of(session, frame->hd.stream_id);
    struct slice key = slice_of((const char *)name, name_n);
    struct slice text = slice_of((const char *)value, value_n);
    uint64_t status;

    (void)flags;
    (void)ctx;
    if (!c)
        return 0;
    if (slice_eq(key, SLICE(":path")) && text.n <= sizeof(c->path)) {
        memcpy(c->path, text.p, text.n);
        c->path_n = text.n;
    } else if (slice_eq(key, SLICE("grpc-status")) && !c->grpc->server &&
               num_u64(text, &status) == 0) {
        c->told = true;
        c->status = (unsigned)MIN(status, (uint64_t)GRPC_UNAVAILABLE + 2);
    }
    return 0;
}

static int refuse(struct grpc_call *c, unsigned status)
{
    char text[16];
    int n = snprintf(text, sizeof(text), "%u", status);
    nghttp2_nv nv[] = {header(":status", SLICE("200")),
                       header("content-type", SLICE("application/grpc")),
                       header("grpc-status", slice_of(text, (size_t)n))};

    c->answered = c->finished = true;
    return nghttp2_submit_response(c->grpc->session, c->id, nv, ARRAY_LEN(nv), NULL);
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *ctx)
{
    struct grpc *g = ctx;
    struct grpc_call *c = call_of(session, frame->hd.stream_id);
    bool ends = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;

    if (g->closing)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (frame->hd.type == NGHTTP2_RST_STREAM) {
        if (loop_now(g->loop) - g->resets_from_ns > RESETS_NS) {
            g->resets_from_ns = loop_now(g->loop);
            g->resets = 0;
        }
        g->hostile |= ++g->resets > RESETS_MAX;
    }
    if (!c || (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA))
        return 0;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        c->known = g->ops->on_call(g, c, slice_of(c->path, c->path_n));
        if (g->closing)
            return NGHTTP2_ERR_CALLBACK_FAILURE;
        if (!c->known)
            return refuse(c, GRPC_UNIMPLEMENTED);
    }
    if (ends && c->known && g->server)
        g->ops->on_half_close(c);
    return g->closing ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

/* The messages that are whole. @return 0, or a status: the call cannot go on. */
static unsigned take_messages(struct grpc_call *c)
{
    struct grpc *g = c->grpc;

    while (buf_len(&c->in) >= PREFIX && !g->closing) {
        const unsigned char *p = (const unsigned char *)buf_slice(&c->in).p;
        size_t n = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
        if (p[0] != 0)
            return GRPC_UNIMPLEMENTED; /* compressed, which nobody was offered */
        if (n > GRPC_MESSAGE_MAX)
            return GRPC_RESOURCE_EXHAUSTED;
        if (buf_len(&c->in) < PREFIX + n)
            return GRPC_OK;
        g->ops->on_message(c, slice_of((const char *)p + PREFIX, n));
        if (g->closing)
            return GRPC_OK;
        buf_consume(&c->in, PREFIX + n);
        g->in_bytes -= PREFIX + n;
    }
    return GRPC_OK;
}

static int
on_chunk(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p, size_t n, void *ctx)
{
    struct grpc *g = ctx;
    struct grpc_call *c = call_of(session, id);

    (void)flags;
    if (!c || !c->known || c->bad)
        return 0;
    if (g->in_bytes + n > IN_MAX || buf_put(&c->in, p, n) != 0)
        return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id,
                                         NGHTTP2_ENHANCE_YOUR_CALM) == 0
                   ? 0
                   : NGHTTP2_ERR_CALLBACK_FAILURE;
    g->in_bytes += n;
    unsigned bad = take_messages(c);
    if (g->closing)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (bad) {
        c->bad = true;
        if (g->server)
            grpc_finish(c, bad);
        else
            nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
    }
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *ctx)
{
    struct grpc *g = ctx;
    struct grpc_call *c = call_of(session, id);

    if (!c || g->closing)
        return 0;
    nghttp2_session_set_stream_user_data(session, id, NULL);
    unsigned status = g->server || c->told ? c->status : GRPC_UNKNOWN;
    if (code != NGHTTP2_NO_ERROR && !c->told)
        status = GRPC_CANCELLED;
    if (c->known)
        g->ops->on_end(c, status);
    if (!g->closing)
        free_call(c);
    return 0;
}

static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd, void *ctx)
{
    struct grpc *g = ctx;

    (void)session;
    g->continuations = hd->type == NGHTTP2_CONTINUATION ? g->continuations + 1 : 0;
    g->hostile |= g->continuations > CONTINUATIONS_MAX;
    return g->hostile ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

/* --- the connection --- */

static size_t on_data(struct net_conn *conn, const char *p, size_t n)
{
    struct grpc *g = container_of(conn, struct grpc, conn);

    g->busy++;
    ssize_t used = nghttp2_session_mem_recv(g->session, (const uint8_t *)p, n);
    g->busy--;
    if (g->closing) {
        free_grpc(g);
        return n;
    }
    if (used < 0 || g->hostile) {
        if (used != NGHTTP2_ERR_CALLBACK_FAILURE || g->hostile)
            log_debug("net", "gRPC connection ends: %s",
                      g->hostile ? "too many resets or continuations"
                                 : nghttp2_strerror((int)used));
        die(g, WEIR_E_PROTO);
        return n;
    }
    int rc = flush(g);
    if (rc)
        die(g, rc);
    return n;
}

static void on_eof(struct net_conn *conn)
{
    die(container_of(conn, struct grpc, conn), WEIR_E_CLOSED);
}

static void on_drained(struct net_conn *conn)
{
    (void)conn;
}

static void on_closed(struct net_conn *conn, int error)
{
    die(container_of(conn, struct grpc, conn), error);
}

static void on_connected(struct net_conn *conn)
{
    struct grpc *g = container_of(conn, struct grpc, conn);

    g->busy++;
    g->ops->on_connected(g);
    g->busy--;
    if (g->closing) {
        free_grpc(g);
        return;
    }
    int rc = flush(g);
    if (rc)
        die(g, rc);
}

static void on_soon(struct loop_timer *t)
{
    struct grpc *g = container_of(t, struct grpc, soon);
    int rc = flush(g);

    if (rc)
        die(g, rc);
}

static const struct net_conn_ops conn_ops = {.on_connected = on_connected,
                                             .on_data = on_data,
                                             .on_eof = on_eof,
                                             .on_drained = on_drained,
                                             .on_closed = on_closed};

static int new_session(struct grpc *g)
{
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, GRPC_CALLS_MAX},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, 16384},
    };
    nghttp2_session_callbacks *callbacks;

    if (nghttp2_session_callbacks_new(&callbacks) != 0)
        return WEIR_E_NOMEM;
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_chunk);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, on_begin_frame);
    int rc = g->server ? nghttp2_session_server_new(&g->session, callbacks, g)
                       : nghttp2_session_client_new(&g->session, callbacks, g);
    nghttp2_session_callbacks_del(callbacks);
    if (rc != 0 ||
        nghttp2_submit_settings(g->session, NGHTTP2_FLAG_NONE, settings, ARRAY_LEN(settings)) != 0)
        return WEIR_E_NOMEM;
    return nghttp2_session_set_local_window_size(g->session, NGHTTP2_FLAG_NONE, 0,
                                                 GRPC_MESSAGE_MAX) == 0
               ? 0
               : WEIR_E_NOMEM;
}

static int
new_grpc(struct loop *loop, bool server, const struct grpc_ops *ops, void *ctx, struct grpc **out)
{
    struct grpc *g = mem_zalloc(loop_mem(), sizeof(*g));

    if (!g)
        return WEIR_E_NOMEM;
    g->loop = loop;
    g->ops = ops;
    g->ctx = ctx;
    g->server = server;
    g->soon.on_timer = on_soon;
    list_init(&g->calls);
    buf_init(&g->authority, loop_mem(), 1024);
    net_conn_init(&g->conn, &conn_ops, LOOP_SCRATCH);
    int rc = new_session(g);
    if (rc) {
        free_grpc(g);
        return rc;
    }
    *out = g;
    return 0;
}

int grpc_accept(struct loop *loop, int fd, const struct grpc_ops *ops, void *ctx, struct grpc **out)
{
    struct grpc *g = NULL;
    int rc = new_grpc(loop, true, ops, ctx, &g);

    if (rc) {
        net_fd_close(fd);
        return rc;
    }
    rc = net_conn_accept(&g->conn, loop, fd);
    if (rc) {
        free_grpc(g);
        return rc;
    }
    flush_soon(g);
    *out = g;
    return 0;
}

int grpc_connect(struct loop *loop,
                 const struct net_addr *to,
                 struct slice authority,
                 uint64_t timeout_ns,
                 const struct grpc_ops *ops,
                 void *ctx,
                 struct grpc **out)
{
    struct grpc *g = NULL;
    int rc = new_grpc(loop, false, ops, ctx, &g);

    if (rc)
        return rc;
    rc = buf_put_slice(&g->authority, authority);
    if (rc == 0)
        rc = net_conn_connect(&g->conn, loop, to, timeout_ns);
    if (rc) {
        free_grpc(g);
        return rc;
    }
    *out = g;
    return 0;
}

void *grpc_ctx(const struct grpc *g)
{
    return g->ctx;
}

int grpc_call(struct grpc *g, const char *path, void *user, struct grpc_call **out)
{
    struct grpc_call *c = new_call(g, 0);
    nghttp2_data_provider from = {.source.ptr = c, .read_callback = read_out};
    nghttp2_nv nv[] = {header(":method", SLICE("POST")),
                       header(":scheme", SLICE("http")),
                       header(":path", slice_str(path)),
                       header(":authority", buf_slice(&g->authority)),
                       header("content-type", SLICE("application/grpc")),
                       header("te", SLICE("trailers"))};

    if (!c)
        return WEIR_E_NOMEM;
    c->id = nghttp2_submit_request(g->session, NULL, nv, ARRAY_LEN(nv), &from, c);
    if (c->id < 0) {
        free_call(c);
        return WEIR_E_NOMEM;
    }
    c->user = user;
    c->known = true;
    flush_soon(g);
    *out = c;
    return 0;
}

struct grpc *grpc_of(const struct grpc_call *c)
{
    return c->grpc;
}

void *grpc_user(const struct grpc_call *c)
{
    return c->user;
}

void grpc_set_user(struct grpc_call *c, void *user)
{
    c->user = user;
}
