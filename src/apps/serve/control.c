/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/serve/control.h"

#include <stdio.h>

#include "base/num.h"
#include "loop/alloc.h"
#include "loop/log.h"
#include "sched/breaker.h"
#include "sched/ledger.h"

#define COALESCE_NS   (20 * NS_PER_MS)
#define RECLAIM_NS    (500 * NS_PER_MS)
#define TRIM_QUIET_NS (1 * NS_PER_S)
#define WATCH_NS      (100 * NS_PER_MS)
#define REMEMBER_NS   (24 * 3600 * NS_PER_S)

enum { ENDPOINTS_MAX = 65536, TRIM_GROWTH = 256 };

/* The first change after a quiet time is published at the end of this turn; what follows waits for 20 ms to pass. */
static void schedule_build(struct control *c, uint16_t source)
{
    uint64_t now = loop_now(c->loop);

    if (!c->pending_since_ns[source])
        c->pending_since_ns[source] = now;
    if (fleet_dirty(c->fleet) && !loop_timer_active(&c->build))
        loop_timer_set(c->loop, &c->build,
                       now - c->built_ns >= COALESCE_NS ? 0 : c->built_ns + COALESCE_NS);
}

void control_own(struct control *c, const struct net_addr *addrs, uint32_t n)
{
    for (uint32_t i = 0; i < n && c->n_own < CONTROL_OWN_MAX; i++)
        c->own[c->n_own++] = addrs[i];
}

static bool same_host(const struct net_addr *a, const struct net_addr *b)
{
    if (a->any.sa_family != b->any.sa_family)
        return false;
    if (a->any.sa_family == AF_UNIX)
        return strcmp(a->un.sun_path, b->un.sun_path) == 0;
    if (a->any.sa_family == AF_INET6)
        return memcmp(&a->v6.sin6_addr, &b->v6.sin6_addr, sizeof(a->v6.sin6_addr)) == 0;
    return a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr;
}

static bool any_host(const struct net_addr *a)
{
    if (a->any.sa_family == AF_UNIX)
        return false;
    return a->any.sa_family == AF_INET6 ? IN6_IS_ADDR_UNSPECIFIED(&a->v6.sin6_addr)
                                        : a->v4.sin_addr.s_addr == 0;
}

/* Names are not resolved here: what they hide is caught by the hop header at the first request. */
static bool is_own(const struct control *c, struct slice host, uint16_t port)
{
    struct net_addr a;

    if (net_addr_literal(host, port, &a) != 0)
        return false;
    for (uint32_t i = 0; i < c->n_own; i++) {
        if (net_addr_port(&c->own[i]) != port)
            continue;
        if (same_host(&c->own[i], &a) || any_host(&a) ||
            (any_host(&c->own[i]) && net_addr_loopback(&a)))
            return true;
    }
    return false;
}

/* Who may register may not make Weir speak to what only this machine may speak to. Names are not resolved here. */
static bool is_nobody(struct slice host, uint16_t port)
{
    struct net_addr a;

    return net_addr_literal(host, port, &a) == 0 && net_addr_nobody(&a);
}

static int on_upsert(void *ctx, uint16_t source, const struct instance *instance)
{
    struct control *c = ctx;

    if (is_own(c, instance->host, instance->port)) {
        log_warn("control", "%.*s:%u is this gateway itself: refused", SLICE_ARG(instance->host),
                 instance->port);
        return WEIR_E_DENIED;
    }
    if (source == c->source_registry && is_nobody(instance->host, instance->port)) {
        log_warn("control", "%.*s:%u is no address of a server: refused", SLICE_ARG(instance->host),
                 instance->port);
        return WEIR_E_DENIED;
    }
    int rc = fleet_upsert(c->fleet, source, instance, loop_now(c->loop));

    if (rc == 0)
        schedule_build(c, source);
    return rc;
}

static void on_remove(void *ctx, uint16_t source, struct slice key)
{
    struct control *c = ctx;

    fleet_remove(c->fleet, source, key, loop_now(c->loop));
    schedule_build(c, source);
}

static int on_sample(void *ctx, uint16_t source, struct slice key, const struct sample *sample)
{
    struct control *c = ctx;
    int rc = fleet_sample(c->fleet, source, key, sample, loop_now(c->loop));

    if (rc)
        return rc;
    schedule_build(c, source);
    /* Fresher numbers may show room that waiters can use. */
    struct cell *cell = fleet_cell_of(c->fleet, source, key);
    if (cell && c->proxy)
        proxy_offer(c->proxy, cell);
    return 0;
}

/*
 * A source has told all it has, but a static URL without models says nothing until it was asked: its models could be
 * what a client wants, so "not found" would be wrong. The source counts as synced when all were asked once.
 */
static void settle_synced(struct control *c)
{
    for (uint16_t i = 0; i < c->n_sources; i++) {
        if (!c->told[i] || (i != c->source_registry && c->prober && prober_unasked(c->prober)))
            continue;
        c->told[i] = false;
        fleet_synced(c->fleet, i);
        schedule_build(c, i);
    }
}

static void on_synced(void *ctx, uint16_t source)
{
    struct control *c = ctx;

    control_source_is(c, source, true, NULL);
    c->told[source] = true;
    schedule_build(c, source);
    if (!loop_timer_active(&c->build))
        loop_timer_set(c->loop, &c->build, 0);
}

static void on_silent(void *ctx, uint16_t source, bool silent)
{
    struct control *c = ctx;

    fleet_silent(c->fleet, source, silent, loop_now(c->loop));
}

/* @return false when the last snapshot must stay. */
static bool build_and_swap(struct control *c)
{
    const struct snapshot *s;

    int rc = fleet_build(c->fleet, loop_now(c->loop), &s);
    if (rc) {
        log_error("control", "cannot build a snapshot, the last one stays: %s", err_text(rc));
        loop_timer_set(c->loop, &c->build, loop_now(c->loop) + NS_PER_S);
        return false;
    }
    c->built_ns = loop_now(c->loop);
    if (s == c->snapshot)
        return true;
    c->snapshot = s;
    if (c->proxy)
        proxy_publish(c->proxy, s);
    if (c->prober && prober_sync(c->prober, s) != 0)
        log_error("control", "out of memory: some endpoints are not checked");
    if (c->exporters && exporters_sync(c->exporters, s) != 0)
        log_error("control", "out of memory: some GPU exporters are not asked");
    return true;
}

static bool in_use(void *ctx, const struct snapshot *s)
{
    struct control *c = ctx;

    return s == c->snapshot || (c->proxy && proxy_snapshot_in_use(c->proxy, s));
}

void control_publish(struct control *c)
{
    /* Only when the prober knows the new endpoints can it say whether all were asked; that may change "synced". */
    if (!build_and_swap(c))
        return;
    settle_synced(c);
    if (fleet_dirty(c->fleet) && !build_and_swap(c))
        return;
    loop_timer_cancel(&c->build);
    fleet_reclaim(c->fleet, in_use, c);
    changes_follow(&c->changes, c->snapshot, loop_now(c->loop), c->admin);
    for (uint16_t i = 0; i < c->n_sources; i++) {
        if (c->pending_since_ns[i])
            c->sources[i].delay_seconds = (double)(loop_clock() - c->pending_since_ns[i]) / 1e9;
        c->pending_since_ns[i] = 0;
    }
}

static void on_build(struct loop_timer *t)
{
    control_publish(container_of(t, struct control, build));
}

/* Lists that brought many endpoints were read in memory that lies free between them now. */
static void trim_after_growth(struct control *c)
{
    uint32_t n = c->snapshot->n_members;

    if (n < c->trimmed_at)
        c->trimmed_at = n;
    if (n - c->trimmed_at < TRIM_GROWTH || loop_now(c->loop) - c->built_ns < TRIM_QUIET_NS)
        return;
    c->trimmed_at = n;
    loop_mem_trim();
}

static void on_reclaim(struct loop_timer *t)
{
    struct control *c = container_of(t, struct control, reclaim);

    fleet_reclaim(c->fleet, in_use, c);
    trim_after_growth(c);
    loop_timer_set(c->loop, t, loop_now(c->loop) + RECLAIM_NS);
}

/* A breaker becomes half-open by the passing of time alone: nobody else would tell those that wait for room. */
static void on_watch(struct loop_timer *t)
{
    struct control *c = container_of(t, struct control, watch);
    const struct snapshot *s = c->snapshot;
    uint64_t now = loop_now(c->loop);

    for (uint32_t i = 0; i < s->n_members; i++) {
        struct cell *cell = s->members[i].cell;
        if ((atomic_load_explicit(&cell->gate, memory_order_relaxed) & GATE_BREAKER) &&
            atomic_load_explicit(&cell->waiting_pools, memory_order_relaxed) && c->proxy &&
            sched_breaker_pass(cell, now) != BREAKER_BLOCKED)
            proxy_offer(c->proxy, cell);
    }
    fleet_tick(c->fleet, now);
    changes_look(&c->changes, s, now, c->admin);
    control_look_at_sources(c);
    panic_watch(&c->panic, s, c->conf->health.panic_percent, now);
    loop_timer_set(c->loop, t, now + WATCH_NS);
}

static const struct member *find_member(const struct control *c, uint32_t slot, uint32_t generation)
{
    uint32_t from = 0;
    uint32_t to = c->snapshot ? c->snapshot->n_members : 0;

    while (from < to) {
        uint32_t mid = from + (to - from) / 2;
        const struct endpoint *e = c->snapshot->members[mid].endpoint;
        if (e->slot == slot)
            return e->generation == generation ? &c->snapshot->members[mid] : NULL;
        if (e->slot < slot)
            from = mid + 1;
        else
            to = mid;
    }
    return NULL;
}

/* Without memory there is no note; the log has it. */
static void note(struct control *c, uint32_t slot, uint32_t generation, const char *why)
{
    if (slot >= c->n_notes) {
        uint32_t n = MAX(slot + 1, c->n_notes * 2);
        struct control_note *more =
            *why ? mem_resize(loop_mem(), c->notes, n, sizeof(*more)) : NULL;
        if (!more)
            return;
        memset(more + c->n_notes, 0, (n - c->n_notes) * sizeof(*more));
        c->notes = more;
        c->n_notes = n;
    }
    c->notes[slot].generation = generation;
    snprintf(c->notes[slot].why, sizeof(c->notes[slot].why), "%s", why);
}

struct slice control_why(const struct control *c, const struct endpoint *e)
{
    if (e->slot >= c->n_notes || c->notes[e->slot].generation != e->generation)
        return (struct slice){NULL, 0};
    return slice_str(c->notes[e->slot].why);
}

static void on_health(
    void *ctx, uint32_t slot, uint32_t generation, enum probe_verdict verdict, const char *why)
{
    struct control *c = ctx;
    const struct member *m = find_member(c, slot, generation);

    if (!m)
        return;
    if (verdict == PROBE_OK)
        sched_breaker_reached(m->cell, loop_now(c->loop));
    note(c, slot, generation, verdict == PROBE_OK ? "" : why);
    int before = atomic_load_explicit(&m->cell->health, memory_order_relaxed);
    enum health after =
        fleet_probe(c->fleet, slot, generation, verdict == PROBE_OK, loop_now(c->loop));
    if ((int)after == before)
        return;
    changes_of(&c->changes, m, loop_now(c->loop), c->admin);
    if (after == HEALTH_UP) {
        log_info("control", "endpoint %.*s is up", SLICE_ARG(m->endpoint->id));
        if (c->proxy)
            proxy_offer(c->proxy, m->cell);
    } else {
        log_warn("control", "endpoint %.*s is down: %s url=%s%.*s", SLICE_ARG(m->endpoint->id), why,
                 m->endpoint->tls ? "https://" : "http://", SLICE_ARG(m->endpoint->authority));
    }
}

/* An empty list is a list: an engine that unloaded its last model has none. */
static void on_models(void *ctx,
                      uint32_t slot,
                      uint32_t generation,
                      const struct model_ref *models,
                      uint32_t n,
                      bool told)
{
    struct control *c = ctx;
    const struct member *m = find_member(c, slot, generation);

    settle_synced(c);
    if (!m || !told)
        return;
    int rc = fleet_set_models(c->fleet, slot, generation, models, n);
    if (rc)
        log_warn("control", "models of %.*s are left out: %s", SLICE_ARG(m->endpoint->id),
                 err_text(rc));
    else
        schedule_build(c, m->endpoint->source);
}

static bool wants_sample(void *ctx, uint32_t slot, uint32_t generation)
{
    const struct control *c = ctx;

    return fleet_wants_scrape(c->fleet, slot, generation, loop_now(c->loop));
}

/* An engine that tells nothing, or nothing any more, is routed by our own count: stale never means unhealthy. */
static void on_scraped(void *ctx, uint32_t slot, uint32_t generation, const struct sample *sample)
{
    struct control *c = ctx;
    struct sample s = *sample;

    s.fresh_for_ns = 3 * c->conf->health.scrape_ns;
    if (s.known == 0 || fleet_scraped(c->fleet, slot, generation, &s, loop_now(c->loop)) != 0)
        return;
    const struct member *m = find_member(c, slot, generation);
    if (m && c->proxy)
        proxy_offer(c->proxy, m->cell);
}

static void on_restart(void *ctx, uint32_t slot, uint32_t generation)
{
    struct control *c = ctx;
    const struct member *m = find_member(c, slot, generation);

    if (!m || fleet_restarted(c->fleet, slot, generation, loop_now(c->loop)) != 0)
        return;
    log_info("control", "endpoint=%.*s: its process has a later start time: a new generation",
             SLICE_ARG(m->endpoint->id));
    schedule_build(c, m->endpoint->source);
}

static void on_kind(void *ctx, uint32_t slot, uint32_t generation, enum engine_kind kind)
{
    struct control *c = ctx;
    const struct member *m = find_member(c, slot, generation);

    if (m && fleet_set_engine(c->fleet, slot, generation, kind) == 0)
        schedule_build(c, m->endpoint->source);
}

static void on_gpu_sample(void *ctx, const struct member *m, const struct sample *s)
{
    struct control *c = ctx;
    const struct endpoint *e = m->endpoint;

    if (fleet_device_sample(c->fleet, e->slot, e->generation, s, loop_now(c->loop)) == 0 &&
        s->known && c->proxy)
        proxy_offer(c->proxy, m->cell);
}

static void
on_gpu_devices(void *ctx, const struct member *m, const struct device *devices, uint32_t n)
{
    struct control *c = ctx;
    const struct endpoint *e = m->endpoint;

    if (fleet_set_devices(c->fleet, e->slot, e->generation, devices, n) == 0)
        schedule_build(c, e->source);
}

uint32_t control_current_requests(void *ctx, struct slice host, uint16_t port)
{
    const struct control *c = ctx;

    return fleet_inflight(c->fleet, host, port);
}

void control_endpoints(void *ctx,
                       enum engine_kind kind,
                       void (*one)(void *to, const struct endpoint *e),
                       void *to)
{
    const struct control *c = ctx;

    for (uint32_t i = 0; c->snapshot && i < c->snapshot->n_members; i++)
        if (c->snapshot->members[i].endpoint->engine == kind)
            one(to, c->snapshot->members[i].endpoint);
}

bool control_data_address(void *ctx, struct net_addr *out)
{
    const struct control *c = ctx;

    if (c->n_own)
        *out = c->own[0];
    return c->n_own > 0;
}

static struct health_rules health_rules(const struct conf *conf)
{
    return (struct health_rules){.down_after = conf->health.down_after,
                                 .up_after = conf->health.up_after,
                                 .progress_ns = conf->health.interval_ns};
}

/* Ids of the configured models: an array to be freed, NULL without memory. */
static struct slice *known_models(const struct conf *conf)
{
    struct slice *known = mem_array(loop_mem(), conf->routing.n_models + 1, sizeof(struct slice));

    for (uint32_t i = 0; known && i < conf->routing.n_models; i++)
        known[i] = conf->routing.models[i].id;
    return known;
}

int control_init(struct control *c,
                 struct loop *loop,
                 struct fetcher *fetcher,
                 const struct conf *conf)
{
    *c = (struct control){.loop = loop, .fetcher = fetcher, .tls = c->tls, .conf = conf};
    c->build.on_timer = on_build;
    c->reclaim.on_timer = on_reclaim;
    c->watch.on_timer = on_watch;
    c->n_sources = CONTROL_SOURCES_MAX;
    c->source_registry = CONTROL_CONFIG_SOURCES;
    c->source_workers = CONTROL_CONFIG_SOURCES + 1;
    c->sources[c->source_registry].name = SLICE("registry");
    c->sources[c->source_workers].name = SLICE("workers");
    if (conf->n_sources > CONTROL_CONFIG_SOURCES)
        return WEIR_E_FULL;
    struct slice *known = known_models(conf);
    if (!known)
        return WEIR_E_NOMEM;
    struct fleet_options o = {.mem = loop_mem(),
                              .n_sources = c->n_sources,
                              .endpoints_max = ENDPOINTS_MAX,
                              .remember_ns = REMEMBER_NS,
                              .known_models = known,
                              .n_known_models = conf->routing.n_models,
                              .health = health_rules(conf)};
    int rc = fleet_new(&o, &c->fleet);
    mem_free(loop_mem(), known);
    if (rc)
        return rc;
    c->sink = (struct update_sink){.ctx = c,
                                   .upsert = on_upsert,
                                   .remove = on_remove,
                                   .sample = on_sample,
                                   .synced = on_synced,
                                   .silent = on_silent};
    return 0;
}

static bool same_checks(const struct conf_health *a, const struct conf_health *b)
{
    return a->interval_ns == b->interval_ns && a->timeout_ns == b->timeout_ns &&
           a->scrape_ns == b->scrape_ns && slice_eq(a->path, b->path);
}

static bool same_models(const struct conf *a, const struct conf *b)
{
    bool same = a->routing.n_models == b->routing.n_models;

    for (uint32_t i = 0; same && i < a->routing.n_models; i++)
        same = slice_eq(a->routing.models[i].id, b->routing.models[i].id);
    return same;
}

void control_reload(struct control *c, const struct conf *conf)
{
    struct health_rules rules = health_rules(conf);
    bool checks = !same_checks(&c->conf->health, &conf->health);
    bool models = !same_models(c->conf, conf);
    struct slice *known = models ? known_models(conf) : NULL;

    c->conf = conf;
    control_name_sources(c, conf);
    fleet_set_health_rules(c->fleet, &rules);
    if (models && (!known || fleet_set_known_models(c->fleet, known, conf->routing.n_models) != 0))
        log_error("control", "out of memory: the list of known models stays as it was");
    mem_free(loop_mem(), known);
    /* Before the snapshot that follows: it reads this configuration. */
    if (c->exporters && exporters_reconfigure(c->exporters, &conf->gpu_exporters, c->snapshot) != 0)
        log_error("control", "out of memory: some GPU exporters are not asked");
    control_publish(c);
    if (!checks)
        return;
    struct probe_options o = {.interval_ns = conf->health.interval_ns,
                              .timeout_ns = conf->health.timeout_ns,
                              .scrape_ns = conf->health.scrape_ns,
                              .path = conf->health.path};
    if (prober_reconfigure(c->prober, &o, c->snapshot) != 0)
        log_error("control", "out of memory: some endpoints are checked as before");
}

int control_start(struct control *c)
{
    struct probe_options o = {.loop = c->loop,
                              .fetcher = c->fetcher,
                              .tls = c->tls,
                              .interval_ns = c->conf->health.interval_ns,
                              .timeout_ns = c->conf->health.timeout_ns,
                              .path = c->conf->health.path,
                              .ctx = c,
                              .scrape_ns = c->conf->health.scrape_ns,
                              .wants_sample = wants_sample,
                              .on_sample = on_scraped,
                              .on_restart = on_restart,
                              .on_kind = on_kind,
                              .on_health = on_health,
                              .on_models = on_models};

    /* Nothing is told by hand to this source before it exists: it has synced. */
    fleet_synced(c->fleet, c->source_workers);
    int rc = prober_new(&o, &c->prober);
    if (rc == 0)
        rc = exporters_new(&(struct exporters_options){.loop = c->loop,
                                                       .fetcher = c->fetcher,
                                                       .tls = c->tls,
                                                       .conf = &c->conf->gpu_exporters,
                                                       .on_sample = on_gpu_sample,
                                                       .on_devices = on_gpu_devices,
                                                       .ctx = c},
                           &c->exporters);
    if (rc)
        return rc;
    control_publish(c);
    loop_timer_set(c->loop, &c->reclaim, loop_now(c->loop) + RECLAIM_NS);
    if (c->snapshot)
        loop_timer_set(c->loop, &c->watch, loop_now(c->loop) + WATCH_NS);
    return c->snapshot ? 0 : WEIR_E_NOMEM;
}

void control_fini(struct control *c)
{
    control_end_sources(c);
    prober_free(c->prober);
    exporters_free(c->exporters);
    loop_timer_cancel(&c->build);
    loop_timer_cancel(&c->reclaim);
    loop_timer_cancel(&c->watch);
    panic_watch_fini(&c->panic);
    changes_fini(&c->changes);
    fleet_free(c->fleet);
    mem_free(loop_mem(), c->notes);
    *c = (struct control){0};
}
