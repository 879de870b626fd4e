/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Endpoints from the DNS: "host:port" by A and AAAA, any other name by SRV and then its targets. Each address is an
 * endpoint. A name that is not there is an empty list; a question without an answer leaves the list as it is.
 *
 * SRV: only the lowest priority is used, unless none of it passes our checks and one of the next does; the others are listed
 * with weight 0. Weights count within a priority, the largest being 1.
 */
#include <stdio.h>

#include "base/bug.h"
#include "base/num.h"
#include "discovery/adapter.h"
#include "discovery/dns_codec.h"
#include "loop/alloc.h"
#include "loop/log.h"
#include "net/addr.h"
#include "net/dns.h"

enum { FOUND_BYTES_MAX = 4 << 20, TARGETS_MAX = 512, KEY_SIZE = DNS_ADDR_TEXT + 9, CSV_MAX = 4096 };

static const uint64_t TTL_MOST_NS = 60 * NS_PER_S;
static const uint64_t WAIT_MOST_NS = 5 * NS_PER_S;

/* A host that is looked up; several records may lead to it. */
struct target {
    struct target *next;
    struct look *look;
    const char *host;
    uint16_t port, priority, weight;
    struct address {
        struct address *next;
        char text[DNS_ADDR_TEXT];
    } * addresses;
};

/* One service. */
struct look {
    struct dns *dns;
    struct source_list list;
    struct loop_timer timer;
    struct slice host; /* of host:port */
    uint16_t port;     /* 0: SRV */
    /* of the look-up under way */
    struct arena found;
    struct target *targets;
    uint32_t n_targets;
    uint32_t pending; /* questions */
    uint32_t ttl_s;
    int error;
    int family_error[2]; /* of A, AAAA */
    uint32_t failures;   /* in a row */
    bool absent;         /* that there is no such name was logged */
};

struct dns {
    const struct discovery_env *env;
    const struct conf_source *conf;
    struct source *source;
    struct net_dns *net;
    struct look *looks;
    bool closing;
};

/* --- telling --- */

static struct slice put_key(const struct target *t, const struct address *a, char key[KEY_SIZE])
{
    bool v6 = strchr(a->text, ':') != NULL;
    int n = snprintf(key, KEY_SIZE, v6 ? "[%s]:%u" : "%s:%u", a->text, t->port);

    return slice_of(key, (size_t)n);
}

static bool passes(const struct look *l, const struct target *t)
{
    const struct discovery_env *env = l->dns->env;

    for (const struct address *a = t->addresses; a; a = a->next)
        if (env->passing && env->passing(env->ctx, false, slice_str(a->text), t->port))
            return true;
    return false;
}

/* The priority in use. */
static uint16_t choose(const struct look *l)
{
    uint16_t lowest = UINT16_MAX;
    uint16_t good = UINT16_MAX;
    bool found = false;

    for (const struct target *t = l->targets; t; t = t->next) {
        lowest = MIN(lowest, t->priority);
        if (t->priority > good || !passes(l, t))
            continue;
        good = t->priority;
        found = true;
    }
    return found ? good : lowest;
}

static bool told_before(const struct look *l, const struct target *upto, const struct address *a)
{
    for (const struct target *t = l->targets; t != upto; t = t->next)
        for (const struct address *b = t->port == upto->port ? t->addresses : NULL; b; b = b->next)
            if (strcmp(a->text, b->text) == 0)
                return true;
    return false;
}

static void tell_target(struct look *l, const struct target *t, uint16_t used, uint16_t largest)
{
    char key[KEY_SIZE];

    for (const struct address *a = t->addresses; a; a = a->next) {
        if (told_before(l, t, a))
            continue;
        struct instance i = {
            .key = put_key(t, a, key),
            .services = &l->list.name,
            .n_services = 1,
            .host = slice_str(a->text),
            .port = t->port,
            .weight = t->priority != used ? 0
                      : l->port           ? WEIGHT_ONE
                                          : dns_weight(t->weight, largest),
            .enabled = true,
            .healthy = true,
        };
        int rc = source_list_put(&l->list, &i);
        if (rc)
            log_warn("discovery", "source=%s: %.*s is left out: %s", l->dns->source->o.name,
                     SLICE_ARG(i.key), err_text(rc));
    }
}

/* Where only one family was answered, those of the other stay. */
static void keep_unknown(struct look *l)
{
    map_foreach(e, &l->list.held)
    {
        bool v6 = e->key.p[0] == '[';
        if (l->family_error[v6])
            source_list_keep(&l->list, e->key);
    }
}

/* @return whether there are priorities to choose from. */
static bool tell(struct look *l)
{
    uint16_t used = choose(l);
    uint16_t largest = 0;
    bool others = false;

    for (const struct target *t = l->targets; t; t = t->next) {
        others |= t->priority != used;
        if (t->priority == used)
            largest = MAX(largest, t->weight);
    }
    source_list_begin(&l->list);
    keep_unknown(l);
    /* Those in use first: an address that stands in both counts there. */
    for (int pass = 0; pass < 2; pass++)
        for (const struct target *t = l->targets; t; t = t->next)
            if ((t->priority == used) == (pass == 0))
                tell_target(l, t, used, largest);
    source_list_end(&l->list);
    return others;
}

static void say_absent(struct look *l)
{
    if (!l->targets && !l->absent)
        log_warn("discovery", "source=%s: %.*s has no records", l->dns->source->o.name,
                 SLICE_ARG(l->list.name));
    l->absent = !l->targets;
}

/* Some name servers answer for one family only: then what they answer counts, if that is anything. */
static void judge_families(struct look *l)
{
    bool found = false;

    for (const struct target *t = l->targets; t; t = t->next)
        found |= t->addresses != NULL;
    for (int i = 0; i < 2; i++)
        if (!l->error && l->family_error[i] && (l->family_error[!i] || !found))
            l->error = l->family_error[i];
}

static void end_look(struct look *l)
{
    struct loop *loop = l->dns->env->loop;
    uint64_t wait = l->dns->conf->interval_ns;

    judge_families(l);
    if (l->error) {
        source_failed(l->dns->source, "%.*s: %s", SLICE_ARG(l->list.name),
                      l->error == WEIR_E_IO ? "the name servers cannot answer"
                                            : err_text(l->error));
        wait = MAX(wait, MIN(wait << MIN(l->failures, 10U), WAIT_MOST_NS));
        l->failures++;
    } else {
        say_absent(l);
        uint64_t ttl = MIN(l->ttl_s * NS_PER_S, TTL_MOST_NS);
        l->failures = 0;
        /* With a choice of priorities health counts too, and that changes sooner. */
        if (!tell(l) && l->targets)
            wait = MAX(wait, ttl);
    }
    arena_fini(&l->found);
    l->targets = NULL;
    loop_timer_set(loop, &l->timer, loop_now(loop) + wait);
}

/* --- asking --- */

static void failed(struct look *l, int error)
{
    if (!l->error)
        l->error = error;
}

static void settle(struct look *l)
{
    if (--l->pending == 0 && !l->dns->closing)
        end_look(l);
}

static struct target *add_target(struct look *l, struct slice host, const struct dns_record *srv)
{
    struct target *t = arena_array(&l->found, 1, sizeof(*t));
    struct slice copy;

    if (!t || l->n_targets == TARGETS_MAX || arena_slice(&l->found, host, &copy)) {
        failed(l, t ? WEIR_E_FULL : WEIR_E_NOMEM);
        return NULL;
    }
    t->look = l;
    t->host = copy.p;
    t->port = srv ? srv->port : l->port;
    t->priority = srv ? srv->priority : 0;
    t->weight = srv ? srv->weight : 0;
    t->next = l->targets;
    l->targets = t;
    l->n_targets++;
    return t;
}

static void add_address(struct target *t, const char *text)
{
    struct address *a = arena_array(&t->look->found, 1, sizeof(*a));

    if (!a) {
        failed(t->look, WEIR_E_NOMEM);
        return;
    }
    memcpy(a->text, text, strlen(text) + 1);
    a->next = t->addresses;
    t->addresses = a;
}

static void on_addresses(struct target *t, bool v6, int error, struct slice answer)
{
    struct look *l = t->look;
    struct dns_reader r;
    struct dns_record one;

    if (error == 0)
        error = dns_read(&r, answer);
    while (error == 0 && (error = dns_read_next(&r, &one)) == 0) {
        if (one.additional || one.type != (v6 ? DNS_AAAA : DNS_A))
            continue;
        l->ttl_s = MIN(l->ttl_s, one.ttl_s);
        add_address(t, one.addr);
    }
    if (error != WEIR_E_NOTFOUND && !l->family_error[v6])
        l->family_error[v6] = error;
    settle(l);
}

static void on_v4(void *ctx, int error, struct slice answer)
{
    on_addresses(ctx, false, error, answer);
}

static void on_v6(void *ctx, int error, struct slice answer)
{
    on_addresses(ctx, true, error, answer);
}

static void ask_addresses(struct target *t)
{
    struct net_dns *net = t->look->dns->net;

    t->look->pending += 2;
    net_dns_ask(net, t->host, DNS_A, on_v4, t);
    net_dns_ask(net, t->host, DNS_AAAA, on_v6, t);
}

/* Addresses that came along need no question. */
static int take_additional(struct look *l, struct slice answer)
{
    struct dns_reader r;
    struct dns_record one;
    int rc = dns_read(&r, answer);

    while (rc == 0 && (rc = dns_read_next(&r, &one)) == 0)
        for (struct target *t = one.additional && one.type != DNS_SRV ? l->targets : NULL; t;
             t = t->next)
            if (strcmp(t->host, one.name) == 0) {
                l->ttl_s = MIN(l->ttl_s, one.ttl_s);
                add_address(t, one.addr);
            }
    return rc;
}

static void on_services(void *ctx, int error, struct slice answer)
{
    struct look *l = ctx;
    struct dns_reader r;
    struct dns_record one;
    int rc = error ? error : dns_read(&r, answer);

    while (rc == 0 && (rc = dns_read_next(&r, &one)) == 0) {
        if (one.additional || one.type != DNS_SRV || !one.target[0] || !one.port)
            continue;
        l->ttl_s = MIN(l->ttl_s, one.ttl_s);
        add_target(l, slice_str(one.target), &one);
    }
    if (rc == WEIR_E_NOTFOUND && !error)
        rc = take_additional(l, answer);
    if (rc != WEIR_E_NOTFOUND)
        failed(l, rc);
    for (struct target *t = l->targets; t && !l->dns->closing; t = t->next)
        if (!t->addresses)
            ask_addresses(t);
    settle(l);
}

static void on_time(struct loop_timer *timer)
{
    struct look *l = container_of(timer, struct look, timer);

    arena_init(&l->found, loop_mem(), FOUND_BYTES_MAX);
    l->targets = NULL;
    l->n_targets = 0;
    l->ttl_s = UINT32_MAX;
    l->error = 0;
    l->family_error[0] = l->family_error[1] = 0;
    l->pending = 1; /* until all is asked, whoever answers at once */
    if (!l->port) {
        l->pending++;
        net_dns_ask(l->dns->net, l->list.name.p, DNS_SRV, on_services, l);
    } else {
        struct target *t = add_target(l, l->host, NULL);
        struct net_addr literal;
        if (t && net_addr_literal(l->host, l->port, &literal) == 0)
            add_address(t, slice_eq_nocase(l->host, SLICE("localhost")) ? "127.0.0.1" : t->host);
        else if (t)
            ask_addresses(t);
    }
    settle(l);
}

/* --- life --- */

/* "host:port" has no underscore in front and a port behind; anything else is a name with SRV records. */
static void read_service(struct look *l)
{
    struct slice text = l->list.name;
    size_t colon = text.n;
    uint64_t port = 0;

    while (colon > 0 && text.p[colon - 1] != ':')
        colon--;
    if (colon == 0 || num_u64(slice_from(text, colon), &port) || port == 0 || port > UINT16_MAX)
        return;
    l->port = (uint16_t)port;
    l->host = slice_of(text.p, colon - 1);
    if (l->host.n > 1 && l->host.p[0] == '[' && l->host.p[l->host.n - 1] == ']')
        l->host = slice_of(l->host.p + 1, l->host.n - 2);
}

static int open_net(struct dns *d)
{
    struct net_dns_options o = {.edns = true};
    struct buf csv;

    buf_init(&csv, loop_mem(), CSV_MAX);
    for (uint32_t i = 0; i < d->conf->n_servers; i++) {
        buf_put_str(&csv, i ? "," : "");
        buf_put_slice(&csv, d->conf->servers[i]);
    }
    buf_put_char(&csv, '\0');
    if (d->conf->n_servers)
        o.servers = buf_slice(&csv).p;
    int rc = csv.err ? csv.err : net_dns_new(d->env->loop, &o, &d->net);
    buf_fini(&csv);
    if (rc)
        log_error("discovery", "source=%s: name servers: %s", d->source->o.name, err_text(rc));
    return rc;
}

static void dns_close(void *adapter)
{
    struct dns *d = adapter;

    d->closing = true;
    net_dns_free(d->net);
    for (uint32_t i = 0; d->looks && i < d->conf->n_services; i++) {
        loop_timer_cancel(&d->looks[i].timer);
        arena_fini(&d->looks[i].found);
    }
    mem_free(loop_mem(), d->looks);
    mem_free(loop_mem(), d);
}

static int dns_open(const struct discovery_env *env,
                    const struct conf_source *conf,
                    struct source *source,
                    void **out)
{
    struct dns *d = mem_zalloc(loop_mem(), sizeof(*d));

    if (!d)
        return WEIR_E_NOMEM;
    *d = (struct dns){.env = env, .conf = conf, .source = source};
    d->looks = mem_zalloc(loop_mem(), conf->n_services * sizeof(*d->looks));
    int rc = d->looks ? open_net(d) : WEIR_E_NOMEM;
    if (rc) {
        dns_close(d);
        return rc;
    }
    for (uint32_t i = 0; i < conf->n_services; i++) {
        struct look *l = &d->looks[i];
        l->dns = d;
        l->timer.on_timer = on_time;
        arena_init(&l->found, loop_mem(), FOUND_BYTES_MAX);
        source_list_init(&l->list, source, conf->services[i]);
        read_service(l);
    }
    *out = d;
    return 0;
}

static void dns_begin(void *adapter)
{
    struct dns *d = adapter;

    for (uint32_t i = 0; i < d->conf->n_services; i++)
        loop_timer_set(d->env->loop, &d->looks[i].timer, loop_now(d->env->loop));
}

const struct adapter_kind discovery_dns = {dns_open, dns_begin, dns_close};
