/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One entry per name: its addresses until they expire, or the queries that wait for them. c-ares' descriptors are
 * watched on the loop, its timeouts by a loop timer. A failed look-up is remembered for one second, so that a burst of
 * requests for a dead name does not become a burst of questions; the last good addresses are kept and used on failure.
 */
#include "net/resolve.h"

#include <ares.h>
#include <netdb.h>

#include "base/map.h"
#include "base/num.h"
#include "loop/alloc.h"
#include "loop/log.h"

enum { NAMES_MAX = 4096, ADDRS_MAX = 16, WATCHES_MAX = 16, NAME_MAX_BYTES = 255 };
#define TTL_MIN_NS (5 * NS_PER_S)
#define TTL_MAX_NS (60 * NS_PER_S)
#define FAILED_NS  NS_PER_S

struct name {
    struct resolver *resolver;
    char *text;
    struct net_addr addrs[ADDRS_MAX];
    uint32_t n_addrs;
    uint32_t turn;
    uint64_t until_ns;
    bool asking;
    struct list waiting;
};

struct resolver_watch {
    struct loop_watch watch;
    struct resolver *resolver;
    bool used;
};

struct resolver {
    struct loop *loop;
    ares_channel channel;
    bool ready;
    struct map names;
    struct resolver_watch watches[WATCHES_MAX];
    struct loop_timer timer;
};

static void set_timer(struct resolver *r)
{
    struct timeval tv;
    struct timeval *left = ares_timeout(r->channel, NULL, &tv);

    if (left)
        loop_timer_set(r->loop, &r->timer,
                       loop_now(r->loop) + (uint64_t)left->tv_sec * NS_PER_S +
                           (uint64_t)left->tv_usec * NS_PER_US + 1);
    else
        loop_timer_cancel(&r->timer);
}

static void on_timer(struct loop_timer *t)
{
    struct resolver *r = container_of(t, struct resolver, timer);

    ares_process_fd(r->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    set_timer(r);
}

static void on_event(struct loop_watch *w, uint32_t events)
{
    struct resolver *r = container_of(w, struct resolver_watch, watch)->resolver;

    ares_process_fd(r->channel, events & (EPOLLIN | EPOLLERR | EPOLLHUP) ? w->fd : ARES_SOCKET_BAD,
                    events & EPOLLOUT ? w->fd : ARES_SOCKET_BAD);
    set_timer(r);
}

static void on_socket(void *ctx, ares_socket_t fd, int readable, int writable)
{
    struct resolver *r = ctx;
    struct resolver_watch *free_place = NULL;
    uint32_t mask = (readable ? EPOLLIN : 0u) | (writable ? EPOLLOUT : 0u);

    for (unsigned i = 0; i < WATCHES_MAX; i++) {
        struct resolver_watch *w = &r->watches[i];
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
    free_place->resolver = r;
    free_place->used = loop_watch(r->loop, &free_place->watch, mask) == 0;
}

int resolver_new(struct loop *loop, struct resolver **out)
{
    struct resolver *r = mem_zalloc(loop_mem(), sizeof(*r));

    if (!r)
        return WEIR_E_NOMEM;
    r->loop = loop;
    r->timer.on_timer = on_timer;
    map_init(&r->names, loop_mem());
    *out = r;
    return 0;
}

static void answer(struct name *n, int error)
{
    struct list waiting;

    list_init(&waiting);
    while (!list_empty(&n->waiting)) {
        struct list *node = n->waiting.next;
        list_del(node);
        list_add(&waiting, node);
    }
    while (!list_empty(&waiting)) {
        struct resolve_query *q = container_of(waiting.next, struct resolve_query, node);
        list_del(&q->node);
        if (n->n_addrs == 0) {
            q->done(q, error ? error : WEIR_E_NOTFOUND, NULL);
            continue;
        }
        struct net_addr a = n->addrs[n->turn++ % n->n_addrs];
        if (a.any.sa_family == AF_INET6)
            a.v6.sin6_port = htons(q->port);
        else
            a.v4.sin_port = htons(q->port);
        q->done(q, 0, &a);
    }
}

static void on_answer(void *ctx, int status, int timeouts, struct ares_addrinfo *info)
{
    struct name *n = ctx;
    uint64_t ttl = TTL_MAX_NS;
    uint32_t found = 0;

    (void)timeouts;
    n->asking = false;
    for (struct ares_addrinfo_node *a = info ? info->nodes : NULL; a && found < ADDRS_MAX;
         a = a->ai_next) {
        if (a->ai_addrlen > sizeof(n->addrs[0].v6))
            continue;
        struct net_addr *to = &n->addrs[found++];
        memset(to, 0, sizeof(*to));
        memcpy(&to->any, a->ai_addr, a->ai_addrlen);
        to->len = a->ai_addrlen;
        ttl = MIN(ttl, (uint64_t)MAX(a->ai_ttl, 0) * NS_PER_S);
    }
    if (info)
        ares_freeaddrinfo(info);
    uint64_t now = loop_now(n->resolver->loop);
    if (found) {
        n->n_addrs = found;
        n->until_ns = now + MAX(ttl, TTL_MIN_NS);
    } else {
        n->until_ns = now + FAILED_NS;
        if (status != ARES_EDESTRUCTION)
            log_warn("net", "cannot resolve %s: %s%s", n->text, ares_strerror(status),
                     n->n_addrs ? " (using its last addresses)" : "");
    }
    int error = status == ARES_ETIMEOUT       ? WEIR_E_TIMEOUT
                : status == ARES_EDESTRUCTION ? WEIR_E_IO
                                              : WEIR_E_NOTFOUND;
    answer(n, error);
}

void resolver_free(struct resolver *r)
{
    if (!r)
        return;
    if (r->ready)
        ares_destroy(r->channel); /* answers what is being asked with ARES_EDESTRUCTION */
    loop_timer_cancel(&r->timer);
    for (unsigned i = 0; i < WATCHES_MAX; i++)
        loop_unwatch(&r->watches[i].watch);
    map_foreach(e, &r->names)
    {
        struct name *n = e->value;
        mem_free(loop_mem(), n->text);
        mem_free(loop_mem(), n);
    }
    map_fini(&r->names);
    mem_free(loop_mem(), r);
}

static int get_name(struct resolver *r, struct slice host, struct name **out)
{
    struct name *n = map_get(&r->names, host);

    if (n) {
        *out = n;
        return 0;
    }
    if (host.n == 0 || host.n > NAME_MAX_BYTES || memchr(host.p, '\0', host.n))
        return WEIR_E_INVALID;
    if (r->names.n >= NAMES_MAX)
        return WEIR_E_FULL;
    n = mem_zalloc(loop_mem(), sizeof(*n));
    if (!n)
        return WEIR_E_NOMEM;
    n->resolver = r;
    list_init(&n->waiting);
    n->text = mem_strdup(loop_mem(), host);
    if (!n->text || map_put(&r->names, slice_str(n->text), n) != 0) {
        mem_free(loop_mem(), n->text);
        mem_free(loop_mem(), n);
        return WEIR_E_NOMEM;
    }
    *out = n;
    return 0;
}

static int open_channel(struct resolver *r)
{
    struct ares_options o = {
        .timeout = 2000, .tries = 2, .sock_state_cb = on_socket, .sock_state_cb_data = r};

    if (r->ready)
        return 0;
    if (ares_library_init(ARES_LIB_INIT_ALL) != 0 ||
        ares_init_options(&r->channel, &o,
                          ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB) !=
            ARES_SUCCESS)
        return WEIR_E_IO;
    r->ready = true;
    return 0;
}

int net_resolve(struct resolver *r,
                struct slice host,
                uint16_t port,
                struct resolve_query *q,
                struct net_addr *now)
{
    struct name *n;

    list_init(&q->node);
    q->port = port;
    if (net_addr_literal(host, port, now) == 0)
        return 0;
    int rc = get_name(r, host, &n);
    if (rc)
        return rc;
    if (!n->asking && loop_now(r->loop) < n->until_ns) {
        if (n->n_addrs == 0)
            return WEIR_E_NOTFOUND;
        *now = n->addrs[n->turn++ % n->n_addrs];
        if (now->any.sa_family == AF_INET6)
            now->v6.sin6_port = htons(port);
        else
            now->v4.sin_port = htons(port);
        return 0;
    }
    rc = open_channel(r);
    if (rc)
        return rc;
    list_add(&n->waiting, &q->node);
    if (!n->asking) {
        struct ares_addrinfo_hints hints = {
            .ai_family = AF_UNSPEC, .ai_flags = ARES_AI_NOSORT, .ai_socktype = SOCK_STREAM};
        n->asking = true;
        /* May answer at once (hosts file): put the query aside so that done is called from the loop only. */
        list_del(&q->node);
        ares_getaddrinfo(r->channel, n->text, NULL, &hints, on_answer, n);
        set_timer(r);
        if (!n->asking)
            return net_resolve(r, host, port, q, now);
        list_add(&n->waiting, &q->node);
    }
    return WEIR_E_AGAIN;
}

void net_resolve_cancel(struct resolve_query *q)
{
    if (q->node.next)
        list_del(&q->node);
}
