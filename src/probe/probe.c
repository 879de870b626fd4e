/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each endpoint generation is a target with a timer and at most one request under way. The first check starts at once;
 * the following ones keep the interval, shifted by a fixed share of it that depends on the slot, so that a fleet that
 * was registered in one burst is not probed in bursts for ever.
 */
#include "probe/probe.h"

#include <stdio.h>

#include "base/buf.h"
#include "base/num.h"
#include "loop/alloc.h"
#include "loop/log.h"
#include "probe/models_list.h"

enum {
    ANSWER_MAX = 8 << 20,
    HEALTH_ANSWER_MAX = 1 << 20,
    URL_MAX = 2048,
    MODELS_EVERY = 6,
    MODELS_MEMORY = 1 << 20
};

struct target {
    struct prober *prober;
    struct list node;
    uint32_t slot, generation;
    char *base; /* http://host:port */
    bool wants_models;
    bool asked;     /* its first model list came, or did not */
    bool ask_again; /* it could not be asked for its models: with the next check, not the sixth */
    bool seen;      /* in the snapshot being followed */
    bool health_is_models; /* /health is unknown there */
    uint32_t rounds;
    struct loop_timer timer;
    struct fetch *health;
    struct fetch *models;
};

struct prober {
    struct probe_options o;
    char *path;
    struct target **by_slot; /* indexed by slot; NULL = none */
    uint32_t n_slots;
    struct list targets;
};

static void drop(struct target *t)
{
    if (t->health)
        fetch_cancel(t->health);
    if (t->models)
        fetch_cancel(t->models);
    loop_timer_cancel(&t->timer);
    list_del(&t->node);
    if (t->prober->by_slot[t->slot] == t)
        t->prober->by_slot[t->slot] = NULL;
    mem_free(loop_mem(), t->base);
    mem_free(loop_mem(), t);
}

int prober_new(const struct probe_options *o, struct prober **out)
{
    struct prober *p = mem_zalloc(loop_mem(), sizeof(*p));

    if (!p)
        return WEIR_E_NOMEM;
    p->o = *o;
    list_init(&p->targets);
    if (o->path.p) {
        p->path = mem_strdup(loop_mem(), o->path);
        if (!p->path) {
            mem_free(loop_mem(), p);
            return WEIR_E_NOMEM;
        }
    }
    *out = p;
    return 0;
}

void prober_free(struct prober *p)
{
    if (!p)
        return;
    while (!list_empty(&p->targets))
        drop(container_of(p->targets.next, struct target, node));
    mem_free(loop_mem(), p->by_slot);
    mem_free(loop_mem(), p->path);
    mem_free(loop_mem(), p);
}

static int start_fetch(
    struct target *t, const char *path, size_t answer_max, fetch_done_fn done, struct fetch **out)
{
    struct buf url;
    int rc;

    buf_init(&url, loop_mem(), URL_MAX);
    buf_put_str(&url, t->base);
    buf_put_str(&url, path);
    buf_put_char(&url, '\0');
    rc = url.err;
    if (rc == 0) {
        struct fetch_options o = {.method = "GET",
                                  .url = buf_slice(&url).p,
                                  .timeout_ns = t->prober->o.timeout_ns,
                                  .body_max = answer_max,
                                  .done = done,
                                  .ctx = t};
        rc = fetch_start(t->prober->o.fetcher, &o, out);
    }
    buf_fini(&url);
    return rc;
}

static void on_models(void *ctx, const struct fetch_result *r)
{
    struct target *t = ctx;
    struct prober *p = t->prober;
    struct arena a;
    struct model_ref *models = NULL;
    uint32_t n = 0;

    t->models = NULL;
    t->asked = true;
    t->ask_again = r->error || r->status >= 500;
    arena_init(&a, loop_mem(), MODELS_MEMORY);
    if (!r->error && r->status == 200) {
        int rc = probe_models_list(r->body, &a, &models, &n);
        if (rc)
            log_warn("probe", "%s/v1/models is no model list: %s", t->base, err_text(rc));
    }
    /* May drop t. */
    p->o.on_models(p->o.ctx, t->slot, t->generation, models, n);
    arena_fini(&a);
}

static bool says_loading(struct slice body)
{
    return memmem(body.p, body.n, "oading", 6) != NULL;
}

static void on_health(void *ctx, const struct fetch_result *r)
{
    struct target *t = ctx;
    struct prober *p = t->prober;
    char why[64];

    t->health = NULL;
    if (!r->error && (r->status == 404 || r->status == 405) && !p->path && !t->health_is_models) {
        t->health_is_models = true;
        loop_timer_set(p->o.loop, &t->timer, 0);
        return;
    }
    if (r->error) {
        p->o.on_health(p->o.ctx, t->slot, t->generation, PROBE_BAD, r->message);
        return;
    }
    enum probe_verdict verdict = PROBE_BAD;
    if (r->status >= 200 && r->status < 300)
        verdict = PROBE_OK;
    else if (r->status == 503 && says_loading(r->body))
        verdict = PROBE_LOADING;
    snprintf(why, sizeof(why), "status %u", r->status);
    p->o.on_health(p->o.ctx, t->slot, t->generation, verdict, why);
}

static void check(struct target *t)
{
    struct prober *p = t->prober;
    const char *path = p->path ? p->path : t->health_is_models ? "/v1/models" : "/health";

    if (!t->health && start_fetch(t, path, HEALTH_ANSWER_MAX, on_health, &t->health) != 0)
        log_warn("probe", "cannot start a health check of %s", t->base);
    /* The list changes rarely (a LoRA loaded): ask for it with every sixth check. One that was down has still to tell. */
    if (t->wants_models && !t->models && (t->ask_again || t->rounds % MODELS_EVERY == 0) &&
        start_fetch(t, "/v1/models", ANSWER_MAX, on_models, &t->models) != 0)
        log_warn("probe", "cannot ask %s for its models", t->base);
    t->rounds++;
}

static void on_timer(struct loop_timer *timer)
{
    struct target *t = container_of(timer, struct target, timer);
    uint64_t interval = t->prober->o.interval_ns;

    check(t);
    /* The second check is shifted by up to a quarter of the interval: golden-ratio steps spread any set of slots. */
    uint64_t shift = t->rounds == 1 ? (interval / 4) * ((t->slot * 2654435761u) >> 22) / 1024 : 0;
    loop_timer_set(t->prober->o.loop, timer, loop_now(t->prober->o.loop) + interval - shift);
}

static int add(struct prober *p, const struct endpoint *e)
{
    struct buf base;

    if (e->slot >= p->n_slots) {
        uint32_t n = MAX(e->slot + 1, p->n_slots * 2);
        struct target **more = mem_resize(loop_mem(), p->by_slot, n, sizeof(struct target *));
        if (!more)
            return WEIR_E_NOMEM;
        memset(more + p->n_slots, 0, (n - p->n_slots) * sizeof(struct target *));
        p->by_slot = more;
        p->n_slots = n;
    }
    struct target *t = mem_zalloc(loop_mem(), sizeof(*t));
    if (!t)
        return WEIR_E_NOMEM;
    buf_init(&base, loop_mem(), URL_MAX);
    buf_put_str(&base, e->tls ? "https://" : "http://");
    buf_put_slice(&base, e->authority);
    t->base = base.err ? NULL : mem_strdup(loop_mem(), buf_slice(&base));
    buf_fini(&base);
    if (!t->base) {
        mem_free(loop_mem(), t);
        return WEIR_E_NOMEM;
    }
    t->prober = p;
    t->slot = e->slot;
    t->generation = e->generation;
    t->timer.on_timer = on_timer;
    list_init(&t->node);
    list_add(&p->targets, &t->node);
    p->by_slot[t->slot] = t;
    loop_timer_set(p->o.loop, &t->timer, 0);
    return 0;
}

uint32_t prober_unasked(const struct prober *p)
{
    uint32_t n = 0;

    weir_list_foreach (node, &p->targets) {
        const struct target *t = container_of(node, struct target, node);
        n += t->wants_models && !t->asked;
    }
    return n;
}

int prober_sync(struct prober *p, const struct snapshot *s)
{
    int rc = 0;

    weir_list_foreach (node, &p->targets)
        container_of(node, struct target, node)->seen = false;
    for (uint32_t i = 0; i < s->n_members; i++) {
        const struct endpoint *e = s->members[i].endpoint;
        struct target *t = e->slot < p->n_slots ? p->by_slot[e->slot] : NULL;
        if (t && t->generation != e->generation) {
            drop(t);
            t = NULL;
        }
        if (!t) {
            rc = add(p, e);
            if (rc)
                break;
            t = p->by_slot[e->slot];
        }
        t->seen = true;
        t->wants_models = e->models_probed || e->n_models == 0;
    }
    weir_list_foreach_safe (node, &p->targets) {
        struct target *t = container_of(node, struct target, node);
        if (!t->seen && rc == 0)
            drop(t);
    }
    return rc;
}
