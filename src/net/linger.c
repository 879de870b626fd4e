/* SPDX-License-Identifier: Apache-2.0 */
#include "net/linger.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/num.h"
#include "loop/alloc.h"

enum { LINGER_BYTES = 1 << 20 };
/* After the last byte was written; and while a slow reader still takes what is queued, without progress. */
#define LINGER_NS       (2 * NS_PER_S)
#define LINGER_WRITE_NS (30 * NS_PER_S)

/* A descriptor on its way out. */
struct lingering {
    struct loop *loop;
    struct loop_cleanup cleanup; /* the loop may end first */
    struct loop_watch watch;
    struct loop_timer timer;
    struct buf out;
    size_t dropped;
    bool fin;
};

static void linger_end(struct lingering *g)
{
    loop_cleanup_del(&g->cleanup);
    loop_unwatch(&g->watch);
    loop_timer_cancel(&g->timer);
    close(g->watch.fd);
    buf_fini(&g->out);
    mem_free(loop_mem(), g);
}

static void linger_cleanup(struct loop_cleanup *c)
{
    linger_end(container_of(c, struct lingering, cleanup));
}

static void linger_timeout(struct loop_timer *t)
{
    linger_end(container_of(t, struct lingering, timer));
}

/* @return false when g is gone. */
static bool linger_flush(struct lingering *g)
{
    struct slice s = buf_slice(&g->out);
    ssize_t n = s.n ? send(g->watch.fd, s.p, s.n, MSG_NOSIGNAL) : 0;

    if (n < 0) {
        if (errno == EAGAIN || errno == EINTR)
            return true;
        linger_end(g);
        return false;
    }
    buf_consume(&g->out, (size_t)n);
    bool written = buf_len(&g->out) == 0;
    loop_timer_set(g->loop, &g->timer, loop_now(g->loop) + (written ? LINGER_NS : LINGER_WRITE_NS));
    if (!written)
        return true;
    (void)shutdown(g->watch.fd, SHUT_WR);
    if (g->fin || loop_rewatch(&g->watch, EPOLLIN) != 0) {
        linger_end(g);
        return false;
    }
    return true;
}

static void linger_event(struct loop_watch *w, uint32_t events)
{
    struct lingering *g = container_of(w, struct lingering, watch);

    if (events & EPOLLERR) {
        linger_end(g);
        return;
    }
    if ((events & EPOLLOUT) && !linger_flush(g))
        return;
    if (events & (EPOLLIN | EPOLLHUP)) {
        ssize_t n = recv(w->fd, loop_scratch(g->loop), LOOP_SCRATCH, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        g->dropped += n > 0 ? (size_t)n : 0;
        g->fin = g->fin || n == 0;
        if (n < 0 || g->dropped > LINGER_BYTES || (g->fin && buf_len(&g->out) == 0) ||
            (g->fin && loop_rewatch(w, EPOLLOUT) != 0))
            linger_end(g);
    }
}

void linger_start(struct loop *loop, int fd, struct buf *out)
{
    struct lingering *g = mem_zalloc(loop_mem(), sizeof(*g));

    if (!g) {
        close(fd);
        buf_fini(out);
        return;
    }
    g->loop = loop;
    g->out = *out;
    g->watch.fd = fd;
    g->watch.on_event = linger_event;
    g->timer.on_timer = linger_timeout;
    g->cleanup.run = linger_cleanup;
    loop_cleanup_add(loop, &g->cleanup);
    if (buf_len(&g->out) == 0)
        (void)shutdown(fd, SHUT_WR);
    if (loop_watch(loop, &g->watch, buf_len(&g->out) ? EPOLLIN | EPOLLOUT : EPOLLIN) != 0) {
        linger_end(g);
        return;
    }
    loop_timer_set(loop, &g->timer,
                   loop_now(loop) + (buf_len(&g->out) ? LINGER_WRITE_NS : LINGER_NS));
}
