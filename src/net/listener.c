/* SPDX-License-Identifier: Apache-2.0 */
#include "net/listener.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

#include "base/num.h"
#include "loop/log.h"

enum { BACKLOG = 4096, ACCEPTS_PER_TURN = 64 };

int net_listen(const struct net_addr *addr, bool reuseport, int *out, struct net_addr *bound)
{
    int on = 1;
    int fd = socket(addr->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return WEIR_E_IO;
    /* What fails here fails again, and visibly, at bind(). */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (addr->any.sa_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    bound->len = sizeof(bound->v6);
    if ((reuseport && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) != 0) ||
        bind(fd, &addr->any, addr->len) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, &bound->any, &bound->len) != 0) {
        int saved = errno;
        close(fd);
        errno = saved;
        return WEIR_E_IO;
    }
    *out = fd;
    return 0;
}

static void on_retry(struct loop_timer *t)
{
    struct net_listener *l = container_of(t, struct net_listener, retry);

    if (l->watch.loop && loop_rewatch(&l->watch, EPOLLIN) != 0)
        log_error("net", "cannot resume accepting: errno=%d", errno);
}

/* Out of descriptors or memory: a level-triggered listener would spin. Rest for 100 ms; the backlog holds the clients. */
static void rest(struct net_listener *l)
{
    static struct log_limit limit;
    uint64_t missed;

    if (log_limit_pass(&limit, loop_now(l->watch.loop), NS_PER_S, &missed))
        log_warn("net", "cannot accept: %s (resting 100 ms; said %llu times less)",
                 errno == EMFILE || errno == ENFILE ? "out of file descriptors" : "out of memory",
                 (unsigned long long)missed);
    if (loop_rewatch(&l->watch, 0) == 0)
        loop_timer_set(l->watch.loop, &l->retry, loop_now(l->watch.loop) + 100 * NS_PER_MS);
}

/* @return false when there is nobody any more, or nobody can be taken now. */
static bool accept_some(struct net_listener *l)
{
    for (int i = 0; i < ACCEPTS_PER_TURN && l->watch.loop; i++) {
        struct net_addr peer = {.len = sizeof(peer.v6)};
        int on = 1;
        int fd = accept4(l->watch.fd, &peer.any, &peer.len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                rest(l);
            else if (errno == ECONNABORTED || errno == EINTR)
                continue;
            return false;
        }
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        l->on_accept(l, fd, &peer);
    }
    return l->watch.loop != NULL;
}

static void on_ready(struct loop_watch *w, uint32_t events)
{
    (void)events;
    (void)accept_some(container_of(w, struct net_listener, watch));
}

int net_listener_start(struct net_listener *l, struct loop *loop, int fd)
{
    l->watch.fd = fd;
    l->watch.on_event = on_ready;
    l->retry.on_timer = on_retry;
    return loop_watch(loop, &l->watch, EPOLLIN);
}

void net_listener_finish(struct net_listener *l)
{
    /* Bounded by what was there: newcomers are few, because this address is on its way out. */
    for (int i = 0; i < BACKLOG / ACCEPTS_PER_TURN && accept_some(l); i++)
        ;
    net_listener_stop(l);
}

void net_listener_stop(struct net_listener *l)
{
    if (!l->watch.loop)
        return;
    loop_timer_cancel(&l->retry);
    loop_unwatch(&l->watch);
    close(l->watch.fd);
}

void net_fd_close(int fd)
{
    close(fd);
}
