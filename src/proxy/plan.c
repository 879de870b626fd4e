/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/plan.h"

#include <stdlib.h>
#include <sys/resource.h>

#include "base/bug.h"
#include "base/num.h"
#include "loop/log.h"
#include "proxy/lane.h"
#include "sched/pick.h"

enum { DESCRIPTORS_OWN = 256 };

/* Two descriptors for each connection, one to the worker, and some for ourselves. */
static uint32_t connection_limit(const struct routing *r, uint32_t before)
{
    struct rlimit fds;
    uint64_t want = r->limits.connections;

    if (getrlimit(RLIMIT_NOFILE, &fds) != 0 || fds.rlim_cur == RLIM_INFINITY)
        return (uint32_t)want;
    uint64_t can = fds.rlim_cur > DESCRIPTORS_OWN + 2 ? (fds.rlim_cur - DESCRIPTORS_OWN) / 2 : 1;
    if (can >= want)
        return (uint32_t)want;
    if (can != before)
        log_warn("proxy",
                 "limits.connections is %llu, but %llu file descriptors carry %llu: using that; "
                 "raise the descriptor limit (ulimit -n, LimitNOFILE=) or lower limits.connections",
                 (unsigned long long)want, (unsigned long long)fds.rlim_cur,
                 (unsigned long long)can);
    return (uint32_t)can;
}

static int alias_order(const void *a, const void *b)
{
    return slice_cmp(((const struct alias *)a)->name, ((const struct alias *)b)->name);
}

static int aliases_init(struct plan *n, const struct mem *mem)
{
    const struct routing *r = n->routing;
    uint32_t total = 0;

    for (uint32_t i = 0; i < r->n_models; i++)
        total += r->models[i].n_aliases;
    if (total == 0)
        return 0;
    n->aliases = mem_array(mem, total, sizeof(*n->aliases));
    if (!n->aliases)
        return WEIR_E_NOMEM;
    for (uint32_t i = 0; i < r->n_models; i++)
        for (uint32_t k = 0; k < r->models[i].n_aliases; k++)
            n->aliases[n->n_aliases++] = (struct alias){r->models[i].aliases[k], &r->models[i]};
    qsort(n->aliases, total, sizeof(*n->aliases), alias_order);
    /* Of a name that stands for two models, which the config refuses, one counts. */
    uint32_t kept = 1;
    for (uint32_t i = 1; i < total; i++)
        if (!slice_eq(n->aliases[i].name, n->aliases[kept - 1].name))
            n->aliases[kept++] = n->aliases[i];
    n->n_aliases = kept;
    return 0;
}

const struct model_config *plan_alias(const struct plan *n, struct slice name)
{
    const struct alias key = {.name = name};
    const struct alias *found =
        n->n_aliases ? bsearch(&key, n->aliases, n->n_aliases, sizeof(key), alias_order) : NULL;

    return found ? found->model : NULL;
}

/* ---- tenants ---- */

static int account_get(struct proxy *p, struct slice name, struct tenant_account **out)
{
    uint32_t n = p->n_accounts;

    for (uint32_t i = 0; i < n; i++)
        if (slice_eq(p->accounts[i]->name, name)) {
            *out = p->accounts[i];
            return 0;
        }
    /* When there is no room, the first one gives way that no plan names any more. */
    uint32_t at = n;
    for (uint32_t i = 0; n == ACCOUNTS_MAX && i < n && at == n; i++)
        if (p->accounts[i]->plans == 0)
            at = i;
    if (at == ACCOUNTS_MAX)
        return WEIR_E_FULL;
    struct tenant_account *a = mem_zalloc(p->mem, sizeof(*a) + name.n);
    if (!a)
        return WEIR_E_NOMEM;
    if (name.n)
        memcpy(a + 1, name.p, name.n);
    a->name = slice_of((const char *)(a + 1), name.n);
    if (at < n) {
        BUG_ON(atomic_load_explicit(&p->accounts[at]->inflight, memory_order_relaxed) != 0);
        mem_free(p->mem, p->accounts[at]);
    } else {
        p->n_accounts = n + 1;
    }
    p->accounts[at] = a;
    *out = a;
    return 0;
}

/* Nobody forgets it while this plan is there. */
static int tenant_init(struct proxy *p, struct plan_tenant *t, struct tenant_config config)
{
    int rc = account_get(p, config.name, &t->account);

    t->config = config;
    if (rc == 0)
        t->account->plans++;
    return rc;
}

void plan_accounts_free(struct proxy *p)
{
    for (uint32_t i = 0; i < p->n_accounts; i++)
        mem_free(p->mem, p->accounts[i]);
    mem_free(p->mem, p->accounts);
}

static int tenant_order(const void *a, const void *b)
{
    return slice_cmp(((const struct plan_tenant *)a)->config.name,
                     ((const struct plan_tenant *)b)->config.name);
}

static int tenants_init(struct plan *n, struct proxy *p)
{
    const struct routing *r = n->routing;

    if (!p->accounts)
        p->accounts = mem_array(p->mem, ACCOUNTS_MAX, sizeof(struct tenant_account *));
    n->tenants = mem_array(p->mem, r->n_tenants + 1, sizeof(*n->tenants));
    if (!n->tenants || !p->accounts)
        return WEIR_E_NOMEM;
    n->n_tenants = r->n_tenants;
    int rc = tenant_init(p, &n->tenants[r->n_tenants],
                         (struct tenant_config){.name = SLICE("other"), .weight = WEIGHT_ONE});
    for (uint32_t i = 0; rc == 0 && i < r->n_tenants; i++)
        rc = tenant_init(p, &n->tenants[i], r->tenants[i]);
    if (rc)
        return rc;
    qsort(n->tenants, n->n_tenants, sizeof(*n->tenants), tenant_order);
    return 0;
}

static void
follow(struct sched_allowance *a, atomic_uint *per_minute, uint32_t limit, uint64_t now_ns)
{
    uint32_t was = atomic_exchange_explicit(per_minute, limit, memory_order_relaxed);

    sched_allowance_change(a, was, limit, now_ns);
}

void plan_in_force(struct plan *n)
{
    uint64_t now_ns = loop_clock();

    for (uint32_t i = 0; i < n->n_tenants; i++) {
        const struct tenant_limits *limits = &n->tenants[i].config.limits;
        struct tenant_account *a = n->tenants[i].account;
        follow(&a->request_allowance, &a->requests_a_minute, limits->requests, now_ns);
        follow(&a->token_allowance, &a->tokens_a_minute, limits->tokens, now_ns);
    }
}

const struct plan_tenant *plan_tenant(const struct plan *n, struct slice name)
{
    const struct plan_tenant key = {.config = {.name = name}};
    const struct plan_tenant *found =
        n->n_tenants ? bsearch(&key, n->tenants, n->n_tenants, sizeof(key), tenant_order) : NULL;

    return found ? found : &n->tenants[n->n_tenants];
}

/* ---- tracks ---- */

static int
track_new(struct proxy *p, struct slice match, uint32_t nth, struct slice path, struct track **out)
{
    if (p->n_tracks == TRACKS_MAX)
        return WEIR_E_FULL;
    struct track *t = mem_zalloc(p->mem, sizeof(*t) + match.n + path.n);
    if (!t)
        return WEIR_E_NOMEM;
    char *text = (char *)(t + 1);
    if (match.n)
        memcpy(text, match.p, match.n);
    if (path.n)
        memcpy(text + match.n, path.p, path.n);
    t->match = slice_of(text, match.n);
    t->path = slice_of(text + match.n, path.n);
    t->nth = nth;
    map_init(&t->pools, p->mem);
    t->index = p->n_tracks;
    /* Routes that metrics cannot tell apart share their counters. */
    for (uint32_t i = 0; i < p->n_tracks && !t->series; i++)
        if (slice_eq(p->tracks[i]->path, path))
            t->series = p->tracks[i]->series;
    if (!t->series)
        t->series = p->n_series++;
    p->tracks[p->n_tracks++] = t;
    *out = t;
    return 0;
}

/* The track of route i, by what it matches; of routes that match the same, by their order. */
static int track_get(struct proxy *p, const struct routing *r, uint32_t i, struct track **out)
{
    struct slice match = r->routes[i].match.p ? r->routes[i].match : r->routes[i].path;
    uint32_t nth = 0;

    for (uint32_t k = 0; k < i; k++)
        nth += slice_eq(r->routes[k].match.p ? r->routes[k].match : r->routes[k].path, match);
    for (uint32_t k = 0; k < p->n_tracks; k++)
        if (p->tracks[k]->nth == nth && slice_eq(p->tracks[k]->match, match)) {
            *out = p->tracks[k];
            return 0;
        }
    return track_new(p, match, nth, route_name(&r->routes[i]), out);
}

/* ---- life ---- */

/* Is a session key of use to this policy, so that a body is worth reading for it? */
static bool uses_session(const struct policy *p)
{
    const char *pick = sched_pickers[p->pick].name;

    return strcmp(pick, "consistent_hash") == 0 || strcmp(pick, "maglev") == 0 ||
           sched_policy_reads_work(p);
}

int plan_new(struct proxy *p, const struct proxy_options *o, struct plan **out)
{
    const struct routing *r = o->routing;
    const struct plan *before = plan_now(p);
    struct plan *n = mem_zalloc(p->mem, sizeof(*n));

    if (!n)
        return WEIR_E_NOMEM;
    list_init(&n->node);
    n->proxy = p;
    n->routing = r;
    n->access_log = o->access_fd >= 0;
    n->users = mem_array(p->mem, p->n_lanes, sizeof(*n->users));
    n->leaves = mem_array(p->mem, p->n_lanes, sizeof(*n->leaves));
    n->routes = mem_array(p->mem, MAX(r->n_routes, 1u), sizeof(*n->routes));
    int rc = n->users && n->leaves && n->routes ? 0 : WEIR_E_NOMEM;
    for (uint32_t i = 0; !rc && i < r->n_routes; i++) {
        n->routes[i].reads_body = sched_policy_reads_body(r->routes[i].policy);
        n->routes[i].reads_prefix_key = sched_policy_reads_prefix_key(r->routes[i].policy);
        n->routes[i].reads_work = sched_policy_reads_work(r->routes[i].policy);
        n->routes[i].uses_session = uses_session(r->routes[i].policy);
        rc = track_get(p, r, i, &n->routes[i].track);
    }
    if (!rc)
        rc = aliases_init(n, p->mem);
    if (!rc)
        rc = tenants_init(n, p);
    if (!rc && o->admin_token) {
        n->admin_token = mem_strdup(p->mem, slice_str(o->admin_token));
        rc = n->admin_token ? 0 : WEIR_E_NOMEM;
    }
    if (rc) {
        plan_free(n);
        return rc;
    }
    n->connections_max = connection_limit(r, before ? before->connections_max : 0);
    *out = n;
    return 0;
}

void plan_free(struct plan *n)
{
    if (!n)
        return;
    const struct mem *mem = n->proxy->mem;
    while (n->policies) {
        struct policy_copy *c = n->policies;
        n->policies = c->next;
        mem_free(mem, c);
    }
    if (n->admin_token)
        explicit_bzero(n->admin_token, strlen(n->admin_token));
    mem_free(mem, n->admin_token);
    mem_free(mem, n->aliases);
    for (uint32_t i = 0; n->tenants && i <= n->n_tenants; i++)
        if (n->tenants[i].account)
            n->tenants[i].account->plans--;
    mem_free(mem, n->tenants);
    mem_free(mem, n->routes);
    mem_free(mem, n->users);
    mem_free(mem, n->leaves);
    mem_free(mem, n);
}

const struct plan *plan_now(const struct proxy *p)
{
    return atomic_load_explicit(&p->plan, memory_order_acquire);
}

struct plan *plan_take(struct lane *l)
{
    struct plan *n = atomic_load_explicit(&l->proxy->plan, memory_order_acquire);
    atomic_uint *users = &n->users[l->index].n;

    atomic_store_explicit(users, atomic_load_explicit(users, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    return n;
}

void plan_put(struct lane *l, struct plan *n)
{
    atomic_uint *users = &n->users[l->index].n;

    /* What was read of the plan was read before. */
    atomic_store_explicit(users, atomic_load_explicit(users, memory_order_relaxed) - 1,
                          memory_order_release);
}

/* The i-th text of a policy; NULL past the end. */
static struct slice *policy_text(struct policy *p, uint32_t i)
{
    struct slice *const own[] = {&p->name, &p->place.region, &p->place.zone, &p->place.cluster};

    if (i < (uint32_t)ARRAY_LEN(own))
        return own[i];
    i -= (uint32_t)ARRAY_LEN(own);
    return i < p->n_gpu_weights ? &p->gpu_weights[i].gpu_type : NULL;
}

struct policy_copy *policy_copy_new(const struct mem *mem, const struct policy *from)
{
    struct policy like = *from;
    size_t text = 0;
    struct slice *s;

    for (uint32_t i = 0; (s = policy_text(&like, i)) != NULL; i++)
        text += s->n;
    struct policy_copy *c = mem_zalloc(mem, sizeof(*c) + text);
    if (!c)
        return NULL;
    c->policy = like;
    char *at = (char *)(c + 1);
    for (uint32_t i = 0; (s = policy_text(&c->policy, i)) != NULL; i++) {
        if (s->n)
            memcpy(at, s->p, s->n);
        s->p = at;
        at += s->n;
    }
    return c;
}
