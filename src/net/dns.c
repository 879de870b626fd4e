/* SPDX-License-Identifier: Apache-2.0 */
#include "net/dns.h"

#include "base/num.h"
#include "loop/alloc.h"

enum { WATCHES_MAX = 16 };

struct dns_watch {
    struct loop_watch watch;
    struct net_dns *dns;
    bool used;
};

struct net_dns {
    struct loop *loop;
    ares_channel channel;
    struct dns_watch watches[WATCHES_MAX];
    struct loop_timer timer;
};

static void set_timer(struct net_dns *d)
{
    struct timeval tv;
    struct timeval *left = ares_timeout(d->channel, NULL, &tv);

    if (left)
        loop_timer_set(d->loop, &d->timer,
                       loop_now(d->loop) + (uint64_t)left->tv_sec * NS_PER_S +
                           (uint64_t)left->tv_usec * NS_PER_US + 1);
    else
        loop_timer_cancel(&d->timer);
}

static void on_timer(struct loop_timer *t)
{
    struct net_dns *d = container_of(t, struct net_dns, timer);

    ares_process_fd(d->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    set_timer(d);
}

static void on_event(struct loop_watch *w, uint32_t events)
{
    struct net_dns *d = container_of(w, struct dns_watch, watch)->dns;

    ares_process_fd(d->channel, events & (EPOLLIN | EPOLLERR | EPOLLHUP) ? w->fd : ARES_SOCKET_BAD,
                    events & EPOLLOUT ? w->fd : ARES_SOCKET_BAD);
    set_timer(d);
}

static void on_socket(void *ctx, ares_socket_t fd, int readable, int writable)
{
    struct net_dns *d = ctx;
    struct dns_watch *free_place = NULL;
    uint32_t mask = (readable ? EPOLLIN : 0u) | (writable ? EPOLLOUT : 0u);

    for (unsigned i = 0; i < WATCHES_MAX; i++) {
        struct dns_watch *w = &d->watches[i];
        if (w->used && w->watch.fd == fd) {
            if (mask && loop_rewatch(&w->watch, mask) == 0)
                return;
            loop_unwatch(&w->watch);
            w->used = false;
            return;
        }
        if (!w->used && !free_place)
            free_place = w;
    }
    if (!mask || !free_place)
        return; /* without a watch the question times out and is asked again */
    free_place->watch.fd = fd;
    free_place->watch.on_event = on_event;
    free_place->dns = d;
    free_place->used = loop_watch(d->loop, &free_place->watch, mask) == 0;
}

ares_channel net_dns_channel(struct net_dns *d)
{
    return d->channel;
}

void net_dns_asked(struct net_dns *d)
{
    set_timer(d);
}

int net_dns_new(struct loop *loop, const struct net_dns_options *o, struct net_dns **out)
{
    struct net_dns *d = mem_zalloc(loop_mem(), sizeof(*d));
    struct ares_options a = {.flags = o->edns ? ARES_FLAG_EDNS : 0,
                             .timeout = 2000,
                             .tries = 2,
                             .ednspsz = 1232,
                             .sock_state_cb = on_socket,
                             .sock_state_cb_data = d};
    int mask = ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB |
               (o->edns ? ARES_OPT_FLAGS | ARES_OPT_EDNSPSZ : 0);

    if (!d)
        return WEIR_E_NOMEM;
    d->loop = loop;
    d->timer.on_timer = on_timer;
    if (ares_library_init(ARES_LIB_INIT_ALL) != 0 ||
        ares_init_options(&d->channel, &a, mask) != ARES_SUCCESS) {
        mem_free(loop_mem(), d);
        return WEIR_E_IO;
    }
    if (o->servers && ares_set_servers_ports_csv(d->channel, o->servers) != ARES_SUCCESS) {
        net_dns_free(d);
        return WEIR_E_INVALID;
    }
    *out = d;
    return 0;
}

void net_dns_free(struct net_dns *d)
{
    if (!d)
        return;
    ares_destroy(d->channel);
    loop_timer_cancel(&d->timer);
    for (unsigned i = 0; i < WATCHES_MAX; i++)
        loop_unwatch(&d->watches[i].watch);
    mem_free(loop_mem(), d);
}

struct dns_question {
    net_dns_fn done;
    void *ctx;
};

static int error_of(int status)
{
    switch (status) {
    case ARES_SUCCESS:
        return 0;
    case ARES_ENOTFOUND:
    case ARES_ENODATA:
        return WEIR_E_NOTFOUND;
    case ARES_ETIMEOUT:
        return WEIR_E_TIMEOUT;
    case ARES_EDESTRUCTION:
        return WEIR_E_CLOSED;
    default:
        return WEIR_E_IO;
    }
}

static void on_answer(void *ctx, int status, int timeouts, unsigned char *p, int n)
{
    struct dns_question q = *(struct dns_question *)ctx;
    int error = error_of(status);

    (void)timeouts;
    mem_free(loop_mem(), ctx);
    q.done(q.ctx, error, error ? (struct slice){NULL, 0} : slice_of((const char *)p, (size_t)n));
}

void net_dns_ask(struct net_dns *d, const char *name, int type, net_dns_fn done, void *ctx)
{
    struct dns_question *q = mem_zalloc(loop_mem(), sizeof(*q));

    if (!q) {
        done(ctx, WEIR_E_NOMEM, (struct slice){NULL, 0});
        return;
    }
    *q = (struct dns_question){done, ctx};
    ares_search(d->channel, name, 1, type, on_answer, q);
    set_timer(d);
}
