/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each endpoint generation is a target with an engine reader. The first check starts at once; the following ones keep
 * the interval, shifted by a fixed share of it that depends on the slot, so that a fleet that was registered in one
 * burst is not probed in bursts for ever.
 */
#include "probe/probe.h"

#include "base/buf.h"
#include "base/bug.h"
#include "base/list.h"
#include "loop/alloc.h"
#include "probe/engine.h"

enum { URL_MAX = 2048 };

struct target {
    struct prober *prober;
    struct list node;
    uint32_t slot, generation;
    enum engine_kind kind, told;
    bool wants_models;
    bool asked; /* it answered, with its models or without */
    struct engine_reader *reader;
};

struct prober {
    struct probe_options o;
    char *path;
    struct target **by_slot; /* indexed by slot; NULL = none */
    uint32_t n_slots;
    struct list targets;
    uint32_t n_targets;
    uint64_t seq; /* of the snapshot that is followed */
};

static void drop(struct target *t)
{
    engine_reader_free(t->reader);
    list_del(&t->node);
    t->prober->n_targets--;
    if (t->prober->by_slot[t->slot] == t)
        t->prober->by_slot[t->slot] = NULL;
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

static bool wants_sample(void *ctx)
{
    const struct target *t = ctx;
    const struct probe_options *o = &t->prober->o;

    return o->wants_sample(o->ctx, t->slot, t->generation);
}

static enum probe_verdict verdict_of(enum engine_state state)
{
    return state == ENGINE_STATE_READY     ? PROBE_OK
           : state == ENGINE_STATE_LOADING ? PROBE_LOADING
                                           : PROBE_BAD;
}

/* One reading may tell several things, and each of them may drop the target. */
static bool still_there(const struct prober *p, uint32_t slot, uint32_t generation)
{
    return slot < p->n_slots && p->by_slot[slot] && p->by_slot[slot]->generation == generation;
}

static void on_reading(void *ctx, const struct engine_reading *r)
{
    struct target *t = ctx;
    struct prober *p = t->prober;
    const struct probe_options *o = &p->o;
    uint32_t slot = t->slot;
    uint32_t generation = t->generation;
    bool new_kind = t->kind == ENGINE_UNKNOWN && r->detected && r->kind != t->told;

    if (new_kind)
        t->told = r->kind;
    /* One that never answered may have any model: what would be "not found" stays "starting". */
    if ((r->news & ENGINE_NEWS_MODELS) && (r->reachable || r->models_known))
        t->asked = true;
    if (new_kind)
        o->on_kind(o->ctx, slot, generation, r->kind);
    if ((r->news & ENGINE_NEWS_RESTART) && still_there(p, slot, generation))
        o->on_restart(o->ctx, slot, generation);
    if ((r->news & ENGINE_NEWS_SAMPLE) && still_there(p, slot, generation))
        o->on_sample(o->ctx, slot, generation, &r->sample);
    if ((r->news & ENGINE_NEWS_HEALTH) && still_there(p, slot, generation))
        o->on_health(o->ctx, slot, generation, verdict_of(r->state), r->why);
    if ((r->news & ENGINE_NEWS_MODELS) && still_there(p, slot, generation) && t->wants_models)
        o->on_models(o->ctx, slot, generation, r->models, r->n_models, r->models_known);
}

static int start(struct target *t, const struct endpoint *e)
{
    struct prober *p = t->prober;
    struct buf base;

    buf_init(&base, loop_mem(), URL_MAX);
    char path[ENDPOINT_TEXT_MAX + 1];
    bool local = e->host.n && e->host.p[0] == '/';
    if (local) {
        memcpy(path, e->host.p, e->host.n);
        path[e->host.n] = '\0';
    }
    buf_put_str(&base, e->tls ? "https://" : "http://");
    buf_put_slice(&base, local ? SLICE("localhost") : e->authority);
    buf_put_char(&base, '\0');
    int rc = base.err;
    if (rc == 0) {
        struct engine_options o = {
            .loop = p->o.loop,
            .fetcher = p->o.fetcher,
            .base_url = buf_slice(&base).p,
            .unix_path = local ? path : NULL,
            .tls = p->o.tls,
            .kind = t->kind,
            .interval_ns = p->o.scrape_ns,
            .timeout_ns = p->o.timeout_ns,
            .health_ns = p->o.interval_ns,
            .shift_ns = (p->o.interval_ns / 4) * ((t->slot * 2654435761u) >> 22) / 1024,
            .health_path = p->path,
            .no_models = !t->wants_models,
            .model = e->n_models && !e->models_probed ? e->models[0].id : slice_of(NULL, 0),
            .wants_sample = wants_sample,
            .ctx = t,
            .on_reading = on_reading,
        };
        rc = engine_reader_new(&o, &t->reader);
    }
    buf_fini(&base);
    return rc;
}

static int add(struct prober *p, const struct endpoint *e)
{
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
    t->prober = p;
    t->slot = e->slot;
    t->generation = e->generation;
    t->kind = e->engine_probed ? ENGINE_UNKNOWN : e->engine;
    t->wants_models = e->models_probed || e->n_models == 0;
    list_init(&t->node);
    int rc = start(t, e);
    if (rc) {
        mem_free(loop_mem(), t);
        return rc;
    }
    list_add(&p->targets, &t->node);
    p->n_targets++;
    p->by_slot[t->slot] = t;
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

static bool other(const struct target *t, const struct endpoint *e)
{
    return t->generation != e->generation || (!e->engine_probed && e->engine != t->kind);
}

static int follow(struct prober *p, const struct endpoint *e)
{
    struct target *t = e->slot < p->n_slots ? p->by_slot[e->slot] : NULL;

    if (t && other(t, e)) {
        drop(t);
        t = NULL;
    }
    if (!t)
        return add(p, e);
    t->wants_models = e->models_probed || e->n_models == 0;
    engine_reader_want_models(t->reader, t->wants_models);
    return 0;
}

/* Both are in order of slots. */
static void drop_absent(struct prober *p, const struct snapshot *s)
{
    uint32_t m = 0;

    for (uint32_t slot = 0; slot < p->n_slots && p->n_targets > s->n_members; slot++) {
        while (m < s->n_members && s->members[m].endpoint->slot < slot)
            m++;
        if (p->by_slot[slot] && (m == s->n_members || s->members[m].endpoint->slot != slot))
            drop(p->by_slot[slot]);
    }
}

int prober_sync(struct prober *p, const struct snapshot *s)
{
    for (uint32_t i = 0; i < s->n_members; i++) {
        const struct endpoint *e = s->members[i].endpoint;
        int rc = e->seq > p->seq ? follow(p, e) : 0;
        if (rc)
            return rc;
    }
    drop_absent(p, s);
    p->seq = s->seq;
    return 0;
}

int prober_reconfigure(struct prober *p, const struct probe_options *o, const struct snapshot *s)
{
    char *path = o->path.p ? mem_strdup(loop_mem(), o->path) : NULL;
    int rc = 0;

    if (o->path.p && !path)
        return WEIR_E_NOMEM;
    mem_free(loop_mem(), p->path);
    p->path = path;
    p->o.path = o->path.p ? slice_str(path) : (struct slice){NULL, 0};
    p->o.interval_ns = o->interval_ns;
    p->o.timeout_ns = o->timeout_ns;
    p->o.scrape_ns = o->scrape_ns;
    for (uint32_t i = 0; i < s->n_members; i++) {
        const struct endpoint *e = s->members[i].endpoint;
        struct target *t = e->slot < p->n_slots ? p->by_slot[e->slot] : NULL;
        if (!t || t->generation != e->generation)
            continue; /* prober_sync() follows */
        struct engine_reader *before = t->reader;
        int failed = start(t, e);
        if (failed) {
            t->reader = before;
            rc = failed;
        } else {
            engine_reader_free(before);
        }
    }
    return rc;
}
