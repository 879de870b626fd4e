/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OpenSSL between a socket and the connection's queue. Writing goes through a BIO that only appends to the queue, so
 * OpenSSL never meets would-block there and the connection flushes, lingers and counts encrypted bytes as it does plain
 * ones. While the handshake lasts, that queue holds the plain bytes of early senders, and the handshake's own bytes go
 * out beside it.
 */
#include "net/tls_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/bug.h"
#include "base/num.h"
#include "loop/alloc.h"
#include "loop/log.h"
#include "net/addr.h"

enum {
    RECORD_MAX = 16384,
    ANSWERS_MAX =
        16384, /* bytes that the peer can make us queue by what it sends, before it has read some */
    BARREN_MAX = 65536, /* bytes taken that gave no data: more than any record, less than a flood */
    NAME_MAX_BYTES = 255,
    SESSIONS_MAX = 8192, /* kept for TLS 1.2 clients; tickets are kept by the clients */
};

enum tls_end { TLS_OPEN, TLS_ANNOUNCED, TLS_BROKEN };

struct net_tls {
    SSL *ssl;
    struct net_tls_context *context;
    struct net_tls_peer *peer;
    int fd;
    struct buf *out; /* the connection's */
    struct buf wire; /* of the handshake, not taken by the kernel yet */
    size_t answers;
    size_t barren;
    int sys_error; /* of the last recv() */
    int error;     /* errno of a broken end */
    enum tls_end end;
    bool shaking;
    bool reading; /* what is written now is an answer */
    bool counted; /* in context.shaking */
    bool more;
    bool fin;
};

static struct {
    _Atomic uint64_t done, resumed, failed, refused;
} counts[2];

void net_tls_count(bool server, struct net_tls_counts *out)
{
    out->done = counts[server].done;
    out->resumed = counts[server].resumed;
    out->failed = counts[server].failed;
    out->refused = counts[server].refused;
}

/* ---- the BIO ---- */

static int bio_write(BIO *b, const char *p, size_t n, size_t *written)
{
    struct net_tls *t = BIO_get_data(b);

    BIO_clear_retry_flags(b);
    if (t->reading) {
        t->answers += n;
        if (t->answers > ANSWERS_MAX)
            return 0;
    }
    if (buf_put(t->shaking ? &t->wire : t->out, p, n) != 0)
        return 0;
    *written = n;
    return 1;
}

static int bio_read(BIO *b, char *p, size_t n, size_t *got)
{
    struct net_tls *t = BIO_get_data(b);

    BIO_clear_retry_flags(b);
    if (t->barren > BARREN_MAX)
        return 0;
    ssize_t took = recv(t->fd, p, n, 0);
    if (took > 0) {
        t->barren += t->shaking ? 0 : (size_t)took;
        *got = (size_t)took;
        return 1;
    }
    if (took == 0)
        t->fin = true;
    else if (errno == EAGAIN || errno == EINTR)
        BIO_set_retry_read(b);
    else
        t->sys_error = errno;
    return 0;
}

static long bio_ctrl(BIO *b, int command, long number, void *p)
{
    (void)number, (void)p;
    if (command == BIO_CTRL_EOF)
        return ((struct net_tls *)BIO_get_data(b))->fin;
    return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *method;

static void make_method(void)
{
    method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "weir connection");
    if (!method)
        return;
    BIO_meth_set_write_ex(method, bio_write);
    BIO_meth_set_read_ex(method, bio_read);
    BIO_meth_set_ctrl(method, bio_ctrl);
}

static BIO *bio_new(struct net_tls *t)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, make_method);
    BIO *b = method ? BIO_new(method) : NULL;
    if (!b)
        return NULL;
    BIO_set_data(b, t);
    BIO_set_init(b, 1);
    return b;
}

/* ---- sessions of servers we connect to ---- */

static int on_session(SSL *ssl, SSL_SESSION *session)
{
    struct net_tls *t = SSL_get_app_data(ssl);

    if (!t || !t->peer)
        return 0;
    SSL_SESSION_free(t->peer->session);
    t->peer->session = session;
    t->peer->context = t->context->id;
    return 1; /* it is ours now */
}

void net_tls_peer_fini(struct net_tls_peer *p)
{
    SSL_SESSION_free(p->session);
    p->session = NULL;
}

SSL_CTX *tls_ctx_new(bool server)
{
    static const unsigned char protocols[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};
    SSL_CTX *c = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());

    if (!c)
        return NULL;
    SSL_CTX_set_options(c, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
                               SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
    SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_read_ahead(c, 1);
    if (!SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION) ||
        !SSL_CTX_set_cipher_list(c, "ECDHE+AESGCM:ECDHE+CHACHA20") ||
        (!server && SSL_CTX_set_alpn_protos(c, protocols, sizeof(protocols)) != 0)) {
        SSL_CTX_free(c);
        return NULL;
    }
    if (server) {
        static const unsigned char name[] = "weir";
        SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_SERVER);
        SSL_CTX_sess_set_cache_size(c, SESSIONS_MAX);
        if (!SSL_CTX_set_session_id_context(c, name, sizeof(name) - 1)) {
            SSL_CTX_free(c);
            return NULL;
        }
    } else {
        SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
        SSL_CTX_sess_set_new_cb(c, on_session);
    }
    return c;
}

/* ---- one connection ---- */

/* Whom we ask for, and whose certificate has to be shown. */
static bool set_name(struct net_tls *t)
{
    const struct net_tls_context *x = t->context;
    struct slice name = x->server_name ? slice_str(x->server_name) : t->peer->host;
    char text[NAME_MAX_BYTES + 1];
    unsigned char address[sizeof(struct in6_addr)];

    if (name.n == 0 || name.n > NAME_MAX_BYTES)
        return false;
    memcpy(text, name.p, name.n);
    text[name.n] = '\0';
    if (inet_pton(AF_INET, text, address) == 1 || inet_pton(AF_INET6, text, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(t->ssl), text) == 1;
    SSL_set_hostflags(t->ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set_tlsext_host_name(t->ssl, text) == 1 && SSL_set1_host(t->ssl, text) == 1;
}

static void uncount(struct net_tls *t)
{
    if (t->counted)
        atomic_fetch_sub_explicit(&t->context->shaking, 1, memory_order_relaxed);
    t->counted = false;
}

int tls_new(struct net_tls_context *x, struct net_tls_peer *peer, struct net_tls **out)
{
    BUG_ON(x->server != (peer == NULL));
    if (x->server && atomic_load_explicit(&x->shaking, memory_order_relaxed) >= x->handshakes_max) {
        counts[1].refused++;
        return WEIR_E_FULL;
    }
    struct net_tls *t = mem_zalloc(loop_mem(), sizeof(*t));
    if (!t)
        return WEIR_E_NOMEM;
    t->context = net_tls_get(x);
    t->peer = peer;
    t->fd = -1;
    t->shaking = true;
    buf_init(&t->wire, loop_mem(), 1 << 20);
    t->ssl = SSL_new(x->ctx[0]);
    BIO *b = t->ssl ? bio_new(t) : NULL;
    if (!b) {
        tls_free(t);
        return WEIR_E_NOMEM;
    }
    SSL_set_bio(t->ssl, b, b);
    SSL_set_app_data(t->ssl, t);
    if (x->server) {
        SSL_set_accept_state(t->ssl);
        t->counted = true;
        atomic_fetch_add_explicit(&x->shaking, 1, memory_order_relaxed);
    } else {
        SSL_set_connect_state(t->ssl);
        if (!set_name(t)) {
            tls_free(t);
            return WEIR_E_INVALID;
        }
        if (peer->session && peer->context == x->id)
            (void)SSL_set_session(t->ssl, peer->session);
    }
    *out = t;
    return 0;
}

void tls_free(struct net_tls *t)
{
    if (!t)
        return;
    uncount(t);
    SSL_free(t->ssl);
    buf_fini(&t->wire);
    net_tls_put(t->context);
    ERR_clear_error();
    mem_free(loop_mem(), t);
}

void tls_attach(struct net_tls *t, int fd, struct buf *out)
{
    t->fd = fd;
    t->out = out;
}

uint64_t tls_handshake_ns(const struct net_tls *t)
{
    return t->context->handshake_ns;
}

bool tls_is_server(const struct net_tls *t)
{
    return t->context->server;
}

/* ---- handshake ---- */

static void tell(const struct net_tls *t, const char *what, uint64_t now_ns)
{
    static struct log_limit limits[2];
    struct net_addr peer = {.len = net_addr_room()};
    char text[NET_ADDR_TEXT] = "?";
    char more[LOG_MISSED_TEXT];
    uint64_t missed;

    if (!log_limit_pass(&limits[t->context->server], now_ns, NS_PER_S, &missed))
        return;
    if (getpeername(t->fd, &peer.any, &peer.len) == 0)
        net_addr_text(&peer, text);
    if (t->context->server)
        log_info("net", "TLS handshake with client=%s failed: %s%s", text, what,
                 log_missed(missed, more));
    else
        log_warn("net", "TLS handshake with endpoint=%s name=%.*s failed: %s%s", text,
                 SLICE_ARG(t->peer->host), what, log_missed(missed, more));
}

/* @return the error code; says why. */
static int failed(struct net_tls *t, uint64_t now_ns)
{
    unsigned long code = ERR_peek_last_error();
    long verified = SSL_get_verify_result(t->ssl);
    bool plain = ERR_GET_LIB(code) == ERR_LIB_SSL && ERR_GET_REASON(code) == SSL_R_HTTP_REQUEST;
    const char *reason = plain  ? "it speaks plain HTTP, here is https"
                         : code ? ERR_reason_error_string(code)
                                : NULL;
    int rc = WEIR_E_PROTO;
    char what[160];

    counts[t->context->server].failed++;
    if (verified != X509_V_OK && !t->context->insecure) {
        snprintf(what, sizeof(what), "the certificate is refused: %s",
                 X509_verify_cert_error_string(verified));
        rc = WEIR_E_DENIED;
    } else if (t->fin || t->sys_error) {
        snprintf(what, sizeof(what), "%s",
                 t->fin ? "the other side closed the connection" : "the connection broke");
        rc = WEIR_E_CLOSED;
    } else {
        snprintf(what, sizeof(what), "%s", reason ? reason : "no reason given");
    }
    tell(t, what, now_ns);
    return rc;
}

/* @return false when the peer takes no more. */
static bool flush_wire(struct net_tls *t)
{
    while (buf_len(&t->wire) > 0) {
        struct slice s = buf_slice(&t->wire);
        ssize_t n = send(t->fd, s.p, s.n, MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        buf_consume(&t->wire, (size_t)n);
    }
    buf_fini(&t->wire);
    return true;
}

/* What waited in the queue goes out encrypted, behind what is left of the handshake. */
static int established(struct net_tls *t)
{
    struct buf early = *t->out;
    struct slice s = buf_slice(&early);
    struct iovec part = {(void *)(uintptr_t)s.p, s.n};

    *t->out = t->wire;
    t->out->max = early.max;
    buf_init(&t->wire, loop_mem(), 0);
    t->shaking = false;
    uncount(t);
    counts[t->context->server].done++;
    if (SSL_session_reused(t->ssl))
        counts[t->context->server].resumed++;
    t->more = SSL_has_pending(t->ssl);
    int rc = s.n ? tls_send(t, &part, 1) : 0;
    buf_fini(&early);
    return rc;
}

int tls_handshake(struct net_tls *t, uint64_t now_ns)
{
    int rc = WEIR_E_AGAIN;

    ERR_clear_error();
    int done = SSL_do_handshake(t->ssl);
    int error = done == 1 ? SSL_ERROR_NONE : SSL_get_error(t->ssl, done);
    if (error != SSL_ERROR_NONE && error != SSL_ERROR_WANT_READ)
        rc = failed(t, now_ns);
    /* Also after a failure: the alert says why. */
    if (!flush_wire(t) && rc == WEIR_E_AGAIN)
        rc = WEIR_E_CLOSED;
    if (rc != WEIR_E_AGAIN || error != SSL_ERROR_NONE)
        return rc;
    return established(t);
}

bool tls_wants_write(const struct net_tls *t)
{
    return buf_len(&t->wire) > 0;
}

/* ---- data ---- */

static void end_broken(struct net_tls *t, int error)
{
    t->end = TLS_BROKEN;
    t->error = t->fin ? ECONNRESET : t->sys_error ? t->sys_error : error;
}

/*
 * The peer may ask for new keys, and OpenSSL goes on with what comes next inside one SSL_read_ex(). Whoever asks and asks
 * and reads none of the answers, or sends this and nothing else, would hold the loop there: the BIO fails it instead.
 */
ssize_t tls_recv(struct net_tls *t, char *to, size_t room)
{
    size_t got = 0;
    bool dry = false;

    if (buf_len(t->out) == 0)
        t->answers = 0;
    t->reading = true;
    while (got < room && t->end == TLS_OPEN && !dry) {
        size_t n = 0;
        ERR_clear_error();
        int ok = SSL_read_ex(t->ssl, to + got, room - got, &n);
        if (ok) {
            t->barren = 0;
            got += n;
            dry = !SSL_has_pending(t->ssl);
            continue;
        }
        int error = SSL_get_error(t->ssl, ok);
        dry = error == SSL_ERROR_WANT_READ;
        if (error == SSL_ERROR_ZERO_RETURN)
            t->end = TLS_ANNOUNCED;
        else if (!dry)
            end_broken(t, EPROTO);
    }
    t->reading = false;
    t->more = t->end != TLS_OPEN || !dry;
    if (got)
        return (ssize_t)got;
    if (t->end == TLS_ANNOUNCED)
        return 0;
    errno = t->end == TLS_BROKEN ? t->error : EAGAIN;
    return -1;
}

bool tls_pending(const struct net_tls *t)
{
    return t->more;
}

/* One record. */
static bool put_record(struct net_tls *t, const char *p, size_t n)
{
    size_t took = 0;

    ERR_clear_error();
    return SSL_write_ex(t->ssl, p, n, &took) == 1 && took == n;
}

int tls_send(struct net_tls *t, const struct iovec *parts, unsigned n)
{
    char record[RECORD_MAX];
    size_t kept = 0;

    for (unsigned i = 0; i < n; i++) {
        const char *p = parts[i].iov_base;
        size_t left = parts[i].iov_len;
        while (left > 0) {
            size_t piece = MIN(left, RECORD_MAX - kept);
            /* A whole record, or the rest that nothing follows, needs no copy. */
            bool direct = kept == 0 && (piece == RECORD_MAX || i + 1 == n);
            if (direct) {
                if (!put_record(t, p, piece))
                    return t->out->err ? WEIR_E_NOMEM : WEIR_E_CLOSED;
            } else {
                memcpy(record + kept, p, piece);
                kept += piece;
            }
            if (kept == RECORD_MAX) {
                if (!put_record(t, record, kept))
                    return t->out->err ? WEIR_E_NOMEM : WEIR_E_CLOSED;
                kept = 0;
            }
            p += piece;
            left -= piece;
        }
    }
    if (kept && !put_record(t, record, kept))
        return t->out->err ? WEIR_E_NOMEM : WEIR_E_CLOSED;
    return 0;
}

void tls_shutdown(struct net_tls *t)
{
    if (t->shaking || t->end == TLS_BROKEN)
        return;
    ERR_clear_error();
    (void)SSL_shutdown(t->ssl);
}
