/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One entry per name: its addresses until they expire, or the queries that wait for them. A failed look-up is remembered for one second, so that a burst of
 * requests for a dead name does not become a burst of questions; the last good addresses are kept and used on failure.
 */
#include "net/resolve.h"

#include <ares.h>
#include <netdb.h>

#include "base/map.h"
#include "base/num.h"
#include "loop/alloc.h"
#include "loop/log.h"
#include "net/dns.h"

enum { NAMES_MAX = 4096, ADDRS_MAX = 16, NAME_MAX_BYTES = 255 };
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
    bool telling; /* those who waited; what they do then may bring new names */
    struct list waiting;
};

struct resolver {
    struct loop *loop;
    const char *servers;
    struct net_dns *dns; /**< NULL until the first name that is no literal */
    struct map names;
};

int resolver_new(struct loop *loop, const char *servers, struct resolver **out)
{
    struct resolver *r = mem_zalloc(loop_mem(), sizeof(*r));

    if (!r)
        return WEIR_E_NOMEM;
    r->loop = loop;
    r->servers = servers;
    map_init(&r->names, loop_mem());
    *out = r;
    return 0;
}

static void set_port(struct net_addr *a, uint16_t port)
{
    if (a->any.sa_family == AF_INET6)
        a->v6.sin6_port = htons(port);
    else
        a->v4.sin_port = htons(port);
}

/* The end of a query that is in no list any more. */
static void tell(struct name *n, struct resolve_query *q, int error)
{
    if (n->n_addrs == 0) {
        q->done(q, error, NULL);
        return;
    }
    struct net_addr a = n->addrs[n->turn++ % n->n_addrs];
    set_port(&a, q->port);
    q->done(q, 0, &a);
}

/* The question goes on: whoever comes later may have its answer. */
static void on_limit(struct loop_timer *t)
{
    struct resolve_query *q = container_of(t, struct resolve_query, timer);

    list_del(&q->node);
    tell(q->name, q, WEIR_E_TIMEOUT);
}

static void wait_for(struct name *n, struct resolve_query *q, uint64_t timeout_ns)
{
    struct loop *loop = n->resolver->loop;

    q->name = n;
    q->timer = (struct loop_timer){.on_timer = on_limit};
    list_add(&n->waiting, &q->node);
    if (timeout_ns)
        loop_timer_set(loop, &q->timer, loop_now(loop) + timeout_ns / (n->n_addrs ? 2 : 1));
}

static void answer(struct name *n, int error)
{
    struct list waiting;

    list_init(&waiting);
    n->telling = true;
    while (!list_empty(&n->waiting)) {
        struct list *node = n->waiting.next;
        list_del(node);
        list_add(&waiting, node);
    }
    while (!list_empty(&waiting)) {
        struct resolve_query *q = container_of(waiting.next, struct resolve_query, node);
        list_del(&q->node);
        loop_timer_cancel(&q->timer);
        tell(n, q, error);
    }
    n->telling = false;
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

static void name_free(struct name *n)
{
    mem_free(loop_mem(), n->text);
    mem_free(loop_mem(), n);
}

void resolver_free(struct resolver *r)
{
    if (!r)
        return;
    net_dns_free(r->dns); /* answers what is being asked with ARES_EDESTRUCTION */
    map_foreach(e, &r->names) name_free(e->value);
    map_fini(&r->names);
    mem_free(loop_mem(), r);
}

/* Names come and go with the endpoints: the one whose answer ran out first makes room. @return whether one did. */
static bool forget_oldest(struct resolver *r)
{
    struct name *oldest = NULL;

    map_foreach(e, &r->names)
    {
        struct name *n = e->value;
        if (!n->asking && !n->telling && (!oldest || n->until_ns < oldest->until_ns))
            oldest = n;
    }
    if (!oldest)
        return false;
    (void)map_del(&r->names, slice_str(oldest->text));
    name_free(oldest);
    return true;
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
    if (r->names.n >= NAMES_MAX && !forget_oldest(r))
        return WEIR_E_FULL;
    n = mem_zalloc(loop_mem(), sizeof(*n));
    if (!n)
        return WEIR_E_NOMEM;
    n->resolver = r;
    list_init(&n->waiting);
    n->text = mem_strdup(loop_mem(), host);
    if (!n->text || map_put(&r->names, slice_str(n->text), n) != 0) {
        name_free(n);
        return WEIR_E_NOMEM;
    }
    *out = n;
    return 0;
}

int net_resolve(struct resolver *r,
                struct slice host,
                uint16_t port,
                uint64_t timeout_ns,
                struct resolve_query *q,
                struct net_addr *now)
{
    struct name *n;

    list_init(&q->node);
    q->timer = (struct loop_timer){0};
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
        set_port(now, port);
        return 0;
    }
    if (!r->dns)
        rc = net_dns_new(r->loop, &(struct net_dns_options){.servers = r->servers}, &r->dns);
    if (rc)
        return rc;
    if (!n->asking) {
        struct ares_addrinfo_hints hints = {
            .ai_family = AF_UNSPEC, .ai_flags = ARES_AI_NOSORT, .ai_socktype = SOCK_STREAM};
        n->asking = true;
        /* May answer at once (hosts file): the query waits after it, so that done is called from the loop only. */
        ares_getaddrinfo(net_dns_channel(r->dns), n->text, NULL, &hints, on_answer, n);
        net_dns_asked(r->dns);
        if (!n->asking)
            return net_resolve(r, host, port, timeout_ns, q, now);
    }
    wait_for(n, q, timeout_ns);
    return WEIR_E_AGAIN;
}

void net_resolve_cancel(struct resolve_query *q)
{
    if (q->node.next)
        list_del(&q->node);
    loop_timer_cancel(&q->timer);
}
