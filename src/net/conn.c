/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariants:
 * - Callbacks come from the loop only (an event or the kick timer), never from inside a function called from above,
 *   so callbacks of one connection never nest. After each callback the struct may be gone: `gone`, a flag on the
 *   caller's stack, says so.
 * - The epoll mask follows from the state in one place, update_mask().
 * - Bytes are lent from the loop's scratch buffer when nothing is kept; otherwise they are read behind the kept ones.
 * - Kept bytes are lent again by a kick after a resume, or before it (`unlent`) by what reads on first: an end read from
 *   the socket must not be told ahead of them.
 * - EPOLLHUP cannot be masked: a connection that hung up while paused is taken out of epoll ("parked").
 * - TLS is a second half of connecting, on both sides, and then another way to read and to fill the queue: `out` holds
 *   what goes to the socket as it is, encrypted or not. What OpenSSL has read and not handed out is fetched by kicks,
 *   because no event tells of it.
 */
#include "net/conn.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include "base/num.h"
#include "loop/alloc.h"
#include "net/linger.h"
#include "net/tls_priv.h"

enum { READS_PER_TURN = 8, IOV_PARTS_MAX = 16, GATHER_MAX = 2048 };

static void on_watch(struct loop_watch *w, uint32_t events);
static void on_kick(struct loop_timer *t);

static int error_of(int err)
{
    switch (err) {
    case ECONNREFUSED:
        return WEIR_E_REFUSED;
    case ETIMEDOUT:
        return WEIR_E_TIMEOUT;
    case ECONNRESET:
    case EPIPE:
        return WEIR_E_CLOSED;
    case ENOMEM:
    case ENOBUFS:
        return WEIR_E_NOMEM;
    case EMFILE:
    case ENFILE:
    case EADDRNOTAVAIL: /* our own ports are used up */
        return WEIR_E_FULL;
    case EPROTO:
        return WEIR_E_PROTO;
    default:
        return WEIR_E_IO;
    }
}

void net_conn_init(struct net_conn *c, const struct net_conn_ops *ops, size_t recv_max)
{
    *c = (struct net_conn){.ops = ops};
    c->watch.fd = -1;
    c->watch.on_event = on_watch;
    c->timer.on_timer = on_kick;
    c->recv_max = recv_max;
    /* A pause may leave one whole read unused, whatever the callee's own limit is. */
    buf_init(&c->in, loop_mem(), MAX(recv_max, (size_t)LOOP_SCRATCH));
    buf_init(&c->out, loop_mem(), SIZE_MAX / 2);
}

void net_conn_recv_max(struct net_conn *c, size_t recv_max)
{
    c->recv_max = recv_max;
    c->in.max = MAX(recv_max, (size_t)LOOP_SCRATCH);
}

static uint32_t wanted_mask(const struct net_conn *c)
{
    uint32_t mask = 0;

    if (c->connecting)
        return !c->shaking ? EPOLLOUT : tls_wants_write(c->tls) ? EPOLLIN | EPOLLOUT : EPOLLIN;
    if (!c->read_end && !c->paused)
        mask |= EPOLLIN;
    if (!c->read_end && !c->fin_seen)
        mask |= EPOLLRDHUP;
    if (buf_len(&c->out) > 0)
        mask |= EPOLLOUT;
    return mask;
}

static void kick(struct net_conn *c)
{
    loop_timer_set(c->loop, &c->timer, 0);
}

static void update_mask(struct net_conn *c)
{
    if (c->parked || !c->watch.loop)
        return;
    if (loop_rewatch(&c->watch, wanted_mask(c)) != 0) {
        c->error = WEIR_E_IO;
        kick(c);
    }
}

/* Release everything but the struct. */
static void dispose(struct net_conn *c)
{
    loop_unwatch(&c->watch);
    loop_timer_cancel(&c->timer);
    if (c->watch.fd >= 0)
        close(c->watch.fd);
    c->watch.fd = -1;
    c->loop = NULL;
    tls_free(c->tls);
    c->tls = NULL;
    buf_fini(&c->in);
    buf_fini(&c->out);
    if (c->gone)
        *c->gone = true;
    c->gone = NULL;
}

/* Encrypted bytes to the kernel, as far as it takes them. @return false when the peer takes no more. */
static bool push(struct net_conn *c)
{
    struct slice s = buf_slice(&c->out);
    ssize_t n = s.n ? send(c->watch.fd, s.p, s.n, MSG_NOSIGNAL) : 0;

    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    buf_consume(&c->out, (size_t)n);
    if (buf_len(&c->out) == 0)
        buf_fini(&c->out);
    return true;
}

void net_conn_close(struct net_conn *c)
{
    if (!c->loop)
        return;
    /* An end that is meant is announced; one that loses bytes must not look like one. */
    if (c->tls && !c->connecting && !c->send_dead && !c->shut_wanted && buf_len(&c->out) == 0) {
        tls_shutdown(c->tls);
        (void)push(c);
    }
    dispose(c);
}

void net_conn_abort(struct net_conn *c)
{
    struct linger reset = {.l_onoff = 1, .l_linger = 0};

    if (!c->loop)
        return;
    (void)setsockopt(c->watch.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    dispose(c);
}

/* The last callback. c may be freed in it. */
static void end(struct net_conn *c, int error)
{
    dispose(c);
    c->ops->on_closed(c, error);
}

static int start(struct net_conn *c, struct loop *loop, int fd)
{
    c->loop = loop;
    c->watch.fd = fd;
    int rc = loop_watch(loop, &c->watch, wanted_mask(c));
    if (rc)
        dispose(c);
    return rc;
}

int net_conn_tls(struct net_conn *c, struct net_tls_context *x, struct net_tls_peer *peer)
{
    BUG_ON(c->loop != NULL || c->tls != NULL);
    return tls_new(x, peer, &c->tls);
}

int net_conn_accept(struct net_conn *c, struct loop *loop, int fd)
{
    BUG_ON(c->loop != NULL);
    if (c->tls) {
        tls_attach(c->tls, fd, &c->out);
        c->connecting = c->shaking = true;
    }
    int rc = start(c, loop, fd);
    if (rc == 0 && c->tls)
        loop_timer_set(loop, &c->timer, loop_now(loop) + tls_handshake_ns(c->tls));
    return rc;
}

int net_conn_connect(struct net_conn *c,
                     struct loop *loop,
                     const struct net_addr *to,
                     uint64_t timeout_ns)
{
    int on = 1;

    BUG_ON(c->loop != NULL);
    int fd = socket(to->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        tls_free(c->tls);
        c->tls = NULL;
        return error_of(errno);
    }
    if (c->tls)
        tls_attach(c->tls, fd, &c->out);
    if (to->any.sa_family != AF_UNIX)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    int failed = connect(fd, &to->any, to->len) != 0 && errno != EINPROGRESS ? errno : 0;
    c->connecting = true;
    int rc = start(c, loop, fd);
    if (rc)
        return rc;
    if (failed) {
        c->error = error_of(failed);
        kick(c);
    } else if (timeout_ns) {
        loop_timer_set(loop, &c->timer, loop_now(loop) + timeout_ns);
    }
    return 0;
}

/* Lend bytes. They are the kept ones (p == NULL) or fresh ones in the scratch buffer. @return false when c is gone. */
static bool lend(struct net_conn *c, const char *p, size_t n)
{
    bool gone = false;
    bool kept = p == NULL;

    if (kept) {
        p = buf_slice(&c->in).p;
        n = buf_len(&c->in);
    }
    c->unlent = false;
    c->gone = &gone;
    size_t used = c->ops->on_data(c, p, n);
    if (gone)
        return false;
    c->gone = NULL;
    BUG_ON(used > n);
    if (kept) {
        buf_consume(&c->in, used);
        if (buf_len(&c->in) == 0)
            buf_fini(&c->in);
    } else if (used < n && buf_put(&c->in, p + used, n - used) != 0) {
        end(c, c->in.err);
        return false;
    }
    if (used == 0 && buf_len(&c->in) >= c->recv_max && !c->paused) {
        end(c, WEIR_E_FULL);
        return false;
    }
    return true;
}

/* @return false when c is gone. */
static bool tell_eof(struct net_conn *c)
{
    bool gone = false;

    if (c->eof_told)
        return true;
    c->eof_told = true;
    c->gone = &gone;
    c->ops->on_eof(c);
    if (gone)
        return false;
    c->gone = NULL;
    return true;
}

/* Bytes, or an end, that the socket will not tell of. */
static bool hidden(const struct net_conn *c)
{
    return c->tls && tls_pending(c->tls);
}

/* Read until a short read, the budget (then *more), a pause or the end. @return false when c is gone. */
static bool read_some(struct net_conn *c, bool *more)
{
    *more = false;
    /* An end that is read now stands behind what a resume has left to be lent. */
    if (c->unlent && !c->paused && !lend(c, NULL, 0))
        return false;
    for (int i = 0; i < READS_PER_TURN && !c->paused && !c->read_end; i++) {
        char *to = loop_scratch(c->loop);
        size_t room = LOOP_SCRATCH;
        bool kept = buf_len(&c->in) > 0;
        if (kept) {
            room = MIN(c->in.max - buf_len(&c->in), (size_t)LOOP_SCRATCH);
            to = room ? buf_reserve(&c->in, room) : NULL;
            if (!to) {
                end(c, room ? WEIR_E_NOMEM : WEIR_E_FULL);
                return false;
            }
        }
        ssize_t n = c->tls ? tls_recv(c->tls, to, room) : recv(c->watch.fd, to, room, 0);
        if (n < 0) {
            if (errno == EAGAIN || errno == EINTR)
                return true;
            end(c, error_of(errno));
            return false;
        }
        if (n == 0) {
            c->read_end = true;
            if (!tell_eof(c))
                return false;
            break;
        }
        if (kept)
            buf_commit(&c->in, (size_t)n);
        if (!lend(c, kept ? NULL : to, (size_t)n))
            return false;
        if ((size_t)n < room && !c->fin_seen && !c->send_dead && !hidden(c))
            break;
        *more = i + 1 == READS_PER_TURN;
    }
    if (c->send_dead && c->read_end) {
        end(c, WEIR_E_CLOSED);
        return false;
    }
    return true;
}

/* The queue is the last there is: FIN now, or in flush() when it is written. */
static void shut(struct net_conn *c)
{
    if (c->tls) {
        bool idle = buf_len(&c->out) == 0;
        tls_shutdown(c->tls);
        if (idle)
            (void)push(c); /* a peer that takes no more is noticed by its RST */
    }
    if (buf_len(&c->out) == 0)
        (void)shutdown(c->watch.fd, SHUT_WR);
}

/* Write what is queued. @return false when c is gone. */
static bool flush(struct net_conn *c)
{
    while (buf_len(&c->out) > 0) {
        struct slice s = buf_slice(&c->out);
        ssize_t n = send(c->watch.fd, s.p, s.n, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno == EAGAIN || errno == EINTR)
                return true;
            c->send_dead = true;
            buf_fini(&c->out);
            kick(c);
            return true;
        }
        buf_consume(&c->out, (size_t)n);
    }
    buf_fini(&c->out);
    if (c->shut_wanted)
        (void)shutdown(c->watch.fd, SHUT_WR);
    bool gone = false;
    c->gone = &gone;
    c->ops->on_drained(c);
    if (gone)
        return false;
    c->gone = NULL;
    return true;
}

static int socket_error(const struct net_conn *c)
{
    int err = 0;
    socklen_t len = sizeof(err);

    return getsockopt(c->watch.fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0 ? err : errno;
}

/* The outcome of connect(). @return false when c is gone. */
static bool connected(struct net_conn *c)
{
    bool gone = false;
    int err = c->shaking || c->error ? 0 : socket_error(c);

    if (err || c->error) {
        end(c, err ? error_of(err) : c->error);
        return false;
    }
    if (c->tls) {
        c->shaking = true;
        int rc = tls_handshake(c->tls, loop_now(c->loop));
        if (rc == WEIR_E_AGAIN)
            return true;
        if (rc) {
            end(c, rc);
            return false;
        }
        c->shaking = false;
    }
    loop_timer_cancel(&c->timer);
    c->connecting = false;
    if (c->ops->on_connected && !(c->tls && tls_is_server(c->tls))) {
        c->gone = &gone;
        c->ops->on_connected(c);
        if (gone)
            return false;
        c->gone = NULL;
    }
    if (c->shut_wanted)
        shut(c);
    if (hidden(c))
        kick(c);
    return buf_len(&c->out) == 0 || flush(c);
}

static void on_watch(struct loop_watch *w, uint32_t events)
{
    struct net_conn *c = container_of(w, struct net_conn, watch);
    bool more;

    if (c->connecting) {
        if (connected(c))
            update_mask(c);
        return;
    }
    if (events & EPOLLRDHUP)
        c->fin_seen = true;
    if ((events & EPOLLOUT) && buf_len(&c->out) > 0 && !flush(c))
        return;
    if (!c->paused && (events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP))) {
        if (!read_some(c, &more))
            return;
        int err = (events & EPOLLERR) && !more ? socket_error(c) : 0;
        if (err) {
            end(c, error_of(err));
            return;
        }
    } else if (events & EPOLLERR) {
        int err = socket_error(c);
        end(c, error_of(err ? err : ECONNRESET));
        return;
    }
    if (c->paused && c->fin_seen && !tell_eof(c))
        return;
    if (hidden(c) && !c->paused && !c->read_end)
        kick(c);
    if ((events & EPOLLHUP) && (c->paused || c->read_end)) {
        loop_unwatch(w);
        c->parked = true;
    }
    update_mask(c);
}

/* Deferred work: a pending error, a dead sender, or kept bytes after a resume. While connecting: the timeout. */
static void on_kick(struct loop_timer *t)
{
    struct net_conn *c = container_of(t, struct net_conn, timer);

    if (c->connecting) {
        end(c, c->error ? c->error : WEIR_E_TIMEOUT);
        return;
    }
    if (c->error || (c->send_dead && (c->paused || c->read_end))) {
        end(c, c->error ? c->error : WEIR_E_CLOSED);
        return;
    }
    if (c->unlent && !c->paused && !lend(c, NULL, 0))
        return;
    if (c->send_dead || c->fin_seen || hidden(c)) {
        bool more;
        if (!read_some(c, &more))
            return;
        if (c->send_dead && !more) {
            end(c, WEIR_E_CLOSED);
            return;
        }
        if (more || (hidden(c) && !c->paused && !c->read_end))
            kick(c);
    }
    update_mask(c);
}

/* One write. A short message in several parts is put together first: that costs less than the kernel's walk over them. */
static ssize_t write_parts(int fd, const struct iovec *parts, unsigned n, size_t total)
{
    char together[GATHER_MAX];
    struct iovec copy[IOV_PARTS_MAX];
    size_t at = 0;

    if (n == 1)
        return send(fd, parts->iov_base, total, MSG_NOSIGNAL);
    if (total <= sizeof(together)) {
        for (unsigned i = 0; i < n; i++) {
            if (parts[i].iov_len)
                memcpy(together + at, parts[i].iov_base, parts[i].iov_len);
            at += parts[i].iov_len;
        }
        return send(fd, together, total, MSG_NOSIGNAL);
    }
    for (unsigned i = 0; i < n; i++)
        copy[i] = parts[i];
    struct msghdr m = {.msg_iov = copy, .msg_iovlen = n};
    return sendmsg(fd, &m, MSG_NOSIGNAL);
}

/* The peer takes no more; what it has sent is still read. */
static int sender_died(struct net_conn *c)
{
    c->send_dead = true;
    kick(c);
    return WEIR_E_CLOSED;
}

static int send_tls(struct net_conn *c, const struct iovec *parts, unsigned n)
{
    bool idle = buf_len(&c->out) == 0;

    int rc = tls_send(c->tls, parts, n);
    if (rc == WEIR_E_NOMEM) {
        c->error = rc;
        kick(c);
        return rc;
    }
    if (rc || (idle && !push(c))) {
        buf_fini(&c->out);
        return sender_died(c);
    }
    if (buf_len(&c->out) > 0)
        update_mask(c);
    return 0;
}

int net_conn_send(struct net_conn *c, const struct iovec *parts, unsigned n)
{
    size_t skip = 0;
    size_t total = 0;

    if (!c->loop || c->send_dead || c->error)
        return WEIR_E_CLOSED;
    BUG_ON(n > IOV_PARTS_MAX);
    if (c->tls && !c->connecting)
        return send_tls(c, parts, n);
    if (!c->connecting && buf_len(&c->out) == 0) {
        for (unsigned i = 0; i < n; i++)
            total += parts[i].iov_len;
        ssize_t sent = write_parts(c->watch.fd, parts, n, total);
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            return sender_died(c);
        skip = sent > 0 ? (size_t)sent : 0;
        if (skip == total)
            return 0;
    }
    for (unsigned i = 0; i < n; i++) {
        size_t drop = MIN(skip, parts[i].iov_len);
        skip -= drop;
        if (buf_put(&c->out, (const char *)parts[i].iov_base + drop, parts[i].iov_len - drop) !=
            0) {
            c->error = WEIR_E_NOMEM;
            kick(c);
            return WEIR_E_NOMEM;
        }
    }
    if (buf_len(&c->out) > 0)
        update_mask(c);
    return 0;
}

int net_conn_send_slice(struct net_conn *c, struct slice s)
{
    struct iovec part = {.iov_base = (void *)(uintptr_t)s.p, .iov_len = s.n};

    return s.n ? net_conn_send(c, &part, 1) : 0;
}

void net_conn_ack_lazily(struct net_conn *c, bool lazily)
{
    int quick = !lazily;

    if (c->loop)
        (void)setsockopt(c->watch.fd, IPPROTO_TCP, TCP_QUICKACK, &quick, sizeof(quick));
}

void net_conn_pause(struct net_conn *c)
{
    c->paused = true;
    if (c->loop && !c->gone)
        update_mask(c);
}

void net_conn_resume(struct net_conn *c)
{
    if (!c->loop || !c->paused)
        return;
    c->paused = false;
    c->unlent = buf_len(&c->in) > 0;
    /* What was told early, past unread bytes, is told again in its place. */
    if (!c->read_end)
        c->eof_told = false;
    if (c->parked && !c->read_end) {
        c->parked = false;
        if (loop_watch(c->loop, &c->watch, wanted_mask(c)) != 0)
            c->error = WEIR_E_IO;
    }
    if (c->unlent || c->error || c->fin_seen || (hidden(c) && !c->read_end))
        kick(c);
    else if (!c->gone)
        update_mask(c);
}

void net_conn_shutdown(struct net_conn *c)
{
    if (!c->loop || c->shut_wanted)
        return;
    c->shut_wanted = true;
    if (c->connecting || c->send_dead)
        return;
    shut(c);
    if (buf_len(&c->out) > 0)
        update_mask(c);
}

void net_conn_linger(struct net_conn *c)
{
    if (!c->loop)
        return;
    if (c->send_dead || c->error || c->connecting) {
        dispose(c);
        return;
    }
    if (c->tls && !c->shut_wanted)
        shut(c);
    struct loop *loop = c->loop;
    struct buf out = c->out;
    int fd = c->watch.fd;
    loop_unwatch(&c->watch);
    c->watch.fd = -1;
    buf_init(&c->out, loop_mem(), SIZE_MAX / 2);
    dispose(c);
    linger_start(loop, fd, &out);
}
