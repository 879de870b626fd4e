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
    bound->len = net_addr_room();
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

bool net_listen_shared(const struct net_listen_at *at)
{
    return at->inherited >= 0 || at->addr.any.sa_family == AF_UNIX;
}

int net_listen_open(const struct net_listen_at *at,
                    bool several,
                    int first,
                    int *fd,
                    struct net_addr *bound,
                    struct net_unix_file *file)
{
    if (!net_listen_shared(at))
        return net_listen(first < 0 ? &at->addr : bound, several, fd, bound);
    if (first >= 0)
        return net_listen_again(first, fd);
    if (at->inherited >= 0) {
        int rc = net_listen_inherit(at->inherited, bound);
        return rc ? rc : net_listen_again(at->inherited, fd);
    }
    *bound = at->addr;
    return net_listen_unix(&at->addr, &at->rights, fd, file);
}

static uint32_t accept_mask(const struct net_listener *l)
{
    return l->shared ? EPOLLIN | EPOLLEXCLUSIVE : EPOLLIN;
}

static void on_retry(struct loop_timer *t)
{
    struct net_listener *l = container_of(t, struct net_listener, retry);

    if (!l->watch.loop && l->resting && loop_watch(l->resting, &l->watch, accept_mask(l)) != 0)
        log_error("net", "cannot resume accepting: errno=%d", errno);
}

/* Out of descriptors or memory: a level-triggered listener would spin. Rest for 100 ms; the backlog holds the clients. */
static void rest(struct net_listener *l)
{
    static struct log_limit limit;
    char more[LOG_MISSED_TEXT];
    uint64_t missed;

    struct loop *loop = l->watch.loop;
    if (log_limit_pass(&limit, loop_now(loop), NS_PER_S, &missed))
        log_warn("net", "cannot accept: %s; resting 100 ms%s",
                 errno == EMFILE || errno == ENFILE ? "out of file descriptors" : "out of memory",
                 log_missed(missed, more));
    /* Out of epoll: an exclusive watch cannot be given another mask. */
    loop_unwatch(&l->watch);
    l->resting = loop;
    loop_timer_set(loop, &l->retry, loop_now(loop) + 100 * NS_PER_MS);
}

/* @return false when there is nobody any more, or nobody can be taken now. */
static bool accept_some(struct net_listener *l)
{
    for (int i = 0; i < ACCEPTS_PER_TURN && l->watch.loop; i++) {
        struct net_addr peer;
        int on = 1;
        peer.len = net_addr_room();
        peer.any.sa_family = AF_UNSPEC;
        int fd = accept4(l->watch.fd, &peer.any, &peer.len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                rest(l);
            else if (errno == ECONNABORTED || errno == EINTR)
                continue;
            return false;
        }
        if (l->addr.any.sa_family != AF_UNIX)
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
    l->resting = NULL;
    return loop_watch(loop, &l->watch, accept_mask(l));
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
    if (!l->watch.loop && !l->resting)
        return;
    l->resting = NULL;
    loop_timer_cancel(&l->retry);
    loop_unwatch(&l->watch);
    close(l->watch.fd);
}

void net_fd_close(int fd)
{
    close(fd);
}
