/* SPDX-License-Identifier: Apache-2.0 */
/** @file A pool: members from a snapshot, rotation, queue; admit, offer and explain are picks over its rows. */
#include "sched/pool.h"

#include "base/bug.h"
#include "sched/drain.h"
#include "sched/mirror.h"
#include "sched/plugin.h"
#include "sched/quick.h"
#include "sched/slo.h"
#include "sched/steady.h"

enum {
    OFFER_DEPTH = 64,     /* waiters looked at in one offer */
    LATE_DEPTH = 4096,    /* waiters looked at to tell whether a deadline can be met */
    RESERVE_ATTEMPTS = 8, /* picks that may lose their place to another thread */
};

struct sched_pool {
    const struct mem *mem;
    const struct policy *policy;
    struct route_queue options;
    const struct kv *labels; /* members have all of them */
    uint32_t n_labels;
    struct sched_lore *lore;
    bool reads_work;
    bool placed; /* the policy says where we are */
    struct sched_state *state;
    struct sched_candidate *candidates; /* sorted by slot */
    struct sched_memo *memo;            /* beside them */
    struct sched_mirror *mirror;        /* of them */
    bool young; /* a slow start was under way at the last look at all rows */
    uint32_t n;
    bool refreshed;
    uint64_t snapshot_seq;
    struct slice model;   /* borrowed with the candidates; absent: any */
    uint64_t shortest;    /* smallest context of a member; unknown ones count as endless */
    uint64_t longest;     /* largest context of a member; UINT64_MAX when one is unknown */
    uint64_t least_total; /* smallest memory of a member; 0 = one did not say */
    uint32_t tasks;       /* that every member does */
    bool any_loading;     /* some member's engine is still loading a model */
    struct sched_queue queue;
    struct sched_drain drain; /* how fast the queue is served */
    uint64_t seen_ns;         /* the newest time that a caller told */
};

int sched_pool_new(const struct sched_pool_options *o, struct sched_pool **out)
{
    struct sched_pool *p = mem_zalloc(o->mem, sizeof(*p));

    if (!p)
        return WEIR_E_NOMEM;
    p->mem = o->mem;
    p->policy = o->policy;
    p->options = *o->queue;
    p->labels = o->labels;
    p->n_labels = o->n_labels;
    p->lore = o->lore;
    p->reads_work = sched_policy_reads_work(o->policy);
    p->placed = sched_placed(&o->policy->place);
    int rc = sched_queue_init(&p->queue, o->mem);
    p->queue.age_ns = o->queue->age_ns;
    if (rc == 0)
        rc = sched_state_new(o->mem, &p->state);
    if (rc == 0)
        sched_state_policy(p->state, o->policy);
    if (rc == 0)
        rc = sched_queue_reserve(&p->queue, o->queue->size, o->queue->by_tenant);
    if (rc) {
        sched_pool_free(p);
        return rc;
    }
    sched_queue_turn(&p->queue, o->queue->by_tenant);
    *out = p;
    return 0;
}

/* Tell the endpoints' releases that somebody here would like to know. */
static void hint(const struct sched_candidate *c, uint32_t n, bool waiting)
{
    for (uint32_t i = 0; i < n; i++) {
        if (waiting)
            atomic_fetch_add(&c[i].cell->waiting_pools, 1);
        else
            BUG_ON(atomic_fetch_sub(&c[i].cell->waiting_pools, 1) == 0);
    }
}

static void drop_members(struct sched_pool *p)
{
    for (uint32_t i = 0; i < p->n; i++)
        sched_cell_put(p->candidates[i].cell);
    mem_free(p->mem, p->candidates);
    mem_free(p->mem, p->memo);
    sched_mirror_free(p->mirror);
    p->candidates = NULL;
    p->memo = NULL;
    p->mirror = NULL;
    p->n = 0;
}

void sched_pool_free(struct sched_pool *p)
{
    if (!p)
        return;
    BUG_ON(p->queue.n != 0);
    drop_members(p);
    sched_state_free(p->state);
    sched_queue_fini(&p->queue);
    mem_free(p->mem, p);
}

/* Where what is learned of each member stands. Without memory a member is judged by priors. */
static void learn_members(struct sched_pool *p, struct sched_candidate *c, uint32_t n)
{
    for (uint32_t i = 0; p->lore && p->reads_work && i < n; i++) {
        struct slice model = c[i].model ? c[i].model->id : (struct slice){NULL, 0};
        for (uint32_t k = 0; k < SCHED_KINDS; k++) {
            c[i].rates_key[k] = sched_lore_key(c[i].hash, model, k);
            c[i].rates[k] = sched_lore_rates(p->lore, c[i].rates_key[k], c[i].endpoint->gpu_type);
        }
        sched_prefix_expect(&p->lore->prefix, c[i].slot);
    }
}

static int make_mirror(const struct sched_pool *p,
                       const struct policy *policy,
                       const struct sched_candidate *c,
                       uint32_t n,
                       struct sched_mirror **out)
{
    struct sched_mirror_use use = {.work = sched_policy_reads_work(policy),
                                   .peaks = sched_policy_reads_peaks(policy),
                                   .quick = sched_quick_policy(policy),
                                   .steady = sched_steady_policy(policy)};

    return sched_mirror_new(p->mem, c, n, use, out);
}

/* The members as this policy has them. */
static void fill_members(struct sched_pool *p, const struct policy *policy)
{
    p->reads_work = sched_policy_reads_work(policy);
    for (uint32_t i = 0; i < p->n; i++) {
        struct member m = {p->candidates[i].endpoint, p->candidates[i].cell};
        sched_candidate_fill(&m, policy, p->model, &p->candidates[i]);
    }
    learn_members(p, p->candidates, p->n);
}

int sched_pool_reconfigure(struct sched_pool *p,
                           const struct policy *policy,
                           const struct route_queue *queue)
{
    struct sched_mirror *mirror = NULL;
    int rc = sched_queue_reserve(&p->queue, queue->size, queue->by_tenant);
    if (rc == 0)
        rc = make_mirror(p, policy, p->candidates, p->n, &mirror);
    if (rc)
        return rc;
    sched_state_policy(p->state, policy);
    fill_members(p, policy); /* before a table is made by their weights */
    if (p->n)
        rc = sched_state_members(p->state, p->candidates, p->n);
    if (rc) {
        sched_state_policy(p->state, p->policy);
        fill_members(p, p->policy);
        sched_mirror_free(mirror);
        return rc;
    }
    sched_mirror_free(p->mirror);
    p->mirror = mirror;
    p->policy = policy;
    p->options = *queue;
    p->queue.age_ns = queue->age_ns;
    sched_queue_turn(&p->queue, queue->by_tenant);
    p->placed = sched_placed(&policy->place);
    for (uint32_t i = 0; i < p->n; i++)
        p->memo[i].key = 0;
    return 0;
}

/* The members of this pool in a snapshot; for "any model" all enabled ones. @param out NULL: only count them. */
static uint32_t collect(const struct sched_pool *p,
                        const struct snapshot *s,
                        const struct snapshot_model *m,
                        struct slice model,
                        struct sched_candidate *out)
{
    uint32_t all = m ? m->n_members : s->n_members;
    uint32_t n = 0;

    for (uint32_t i = 0; i < all; i++) {
        const struct member *member = &s->members[m ? m->members[i] : i];
        if ((!m && !member->endpoint->enabled) ||
            !model_labelled(member->endpoint, p->labels, p->n_labels))
            continue;
        if (out)
            sched_candidate_fill(member, p->policy, model, &out[n]);
        n++;
    }
    return n;
}

static void contexts(struct sched_pool *p)
{
    p->any_loading = false;
    p->tasks = UINT32_MAX;
    p->least_total = p->n ? UINT64_MAX : 0;
    p->shortest = UINT64_MAX;
    p->longest = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        const struct model_ref *m = p->candidates[i].model;
        uint64_t context = m && m->max_model_len ? m->max_model_len : UINT64_MAX;
        p->shortest = MIN(p->shortest, context);
        p->longest = MAX(p->longest, context);
        p->least_total = MIN(p->least_total, p->candidates[i].total_bytes);
        /* One that says nothing does everything. */
        if (p->candidates[i].endpoint->tasks)
            p->tasks &= p->candidates[i].endpoint->tasks;
        /* Of a pool of any model the filter looks at every model. */
        for (uint32_t k = 0; k < p->candidates[i].endpoint->n_models; k++)
            p->any_loading = p->any_loading || p->candidates[i].endpoint->models[k].loading;
    }
}

static bool
same_members(const struct sched_pool *p, const struct sched_candidate *fresh, uint32_t n)
{
    bool same = n == p->n;

    for (uint32_t i = 0; same && i < n; i++)
        same = p->candidates[i].cell == fresh[i].cell;
    return same;
}

int sched_pool_refresh(struct sched_pool *p, const struct snapshot *s, struct slice model)
{
    const struct snapshot_model *m = model.p ? model_find(s, model) : NULL;
    uint32_t n = 0;

    if (p->refreshed && s->seq <= p->snapshot_seq)
        return 0;
    if (m)
        model = m->id;
    if (m || !model.p)
        n = collect(p, s, m, model, NULL);
    if (n > SCHED_ROWS_MAX)
        return WEIR_E_FULL;
    struct sched_candidate *fresh = NULL;
    if (n) {
        fresh = mem_array(p->mem, n, sizeof(*fresh));
        if (!fresh)
            return WEIR_E_NOMEM;
        BUG_ON(collect(p, s, m, model, fresh) != n);
    }
    struct sched_memo *memo = mem_array(p->mem, n, sizeof(*memo));
    struct sched_mirror *mirror = NULL;
    int rc = memo ? make_mirror(p, p->policy, fresh, n, &mirror) : WEIR_E_NOMEM;
    if (rc == 0)
        rc = sched_state_members(p->state, fresh, n);
    if (rc) {
        sched_mirror_free(mirror);
        mem_free(p->mem, memo);
        mem_free(p->mem, fresh);
        return rc;
    }
    learn_members(p, fresh, n);
    for (uint32_t i = 0; i < n; i++)
        sched_cell_get(fresh[i].cell);
    if (p->queue.n) {
        hint(fresh, n, true);
        hint(p->candidates, p->n, false);
    }
    if (!same_members(p, fresh, n))
        sched_drain_forget(&p->drain, p->seen_ns);
    drop_members(p);
    p->candidates = fresh;
    p->memo = memo;
    p->mirror = mirror;
    p->n = n;
    contexts(p);
    p->model = m ? model : slice_of(NULL, 0);
    p->snapshot_seq = s->seq;
    p->refreshed = true;
    return 0;
}

bool sched_pool_has(const struct sched_pool *p, uint32_t slot, uint32_t generation)
{
    uint32_t at = sched_candidate_find(p->candidates, p->n, slot);

    return at < p->n && p->candidates[at].generation == generation;
}

/* Of rows that are filled. */
static struct sched_view
view(const struct sched_pool *p, const struct features *f, struct sched_scratch *scratch)
{
    return (struct sched_view){
        .policy = p->policy,
        .features = f,
        .candidates = p->candidates,
        .rows = scratch->mirrored ? p->mirror->rows : scratch->rows,
        .common = scratch->common,
        .work = !p->reads_work      ? NULL
                : scratch->mirrored ? p->mirror->work
                                    : scratch->work,
        .n = p->n,
        .model = p->model,
        .memo = p->memo,
        .shortest_context = p->shortest,
        .least_total_bytes = p->least_total,
        .common_tasks = p->tasks,
        .any_loading = p->any_loading,
    };
}

/*
 * A record shows each number as of the moment, and a slow start changes rows of others by the pick: then every row is
 * filled into the scratch. Else the kept ones do.
 */
static void fill_rows(
    struct sched_pool *p, uint64_t now_ns, uint64_t seed, bool begin, struct sched_scratch *scratch)
{
    BUG_ON(p->n > scratch->cap);
    p->seen_ns = now_ns;
    scratch->mirrored = false;
    if (p->mirror && !scratch->record && !p->young) {
        scratch->common = sched_mirror_refresh(p->mirror, now_ns);
        scratch->mirrored = !(scratch->common.any & SCHED_YOUNG);
        if (scratch->mirrored)
            return;
    }
    scratch->common = sched_rows_fill(p->candidates, p->n, now_ns, scratch->rows);
    p->young = scratch->common.any & SCHED_YOUNG;
    if (p->young)
        sched_rows_ramp(p->policy, p->candidates, p->n, now_ns, seed, begin, scratch->rows);
    if (p->reads_work)
        sched_work_fill(p->candidates, scratch->rows, p->n, now_ns, scratch->work);
}

/* One pick, captured when somebody wants to know. @param why NULL, or room for an explanation. */
static void pick(struct sched_pool *p,
                 struct sched_view *v,
                 const struct sched_exclude *exclude,
                 uint64_t now_ns,
                 uint64_t seed,
                 struct sched_scratch *scratch,
                 struct decision *d,
                 struct explain_row *why)
{
    struct sched_record *record = scratch->record;
    bool slo = sched_slo_asked(v->features);

    if (p->reads_work && scratch->mirrored && !why && !slo &&
        sched_quick_pick(p->mirror, p->lore, v, exclude, now_ns, p->state, scratch, d))
        return;
    if (scratch->mirrored && !why && p->mirror->costs.about) {
        sched_steady_pick(p->mirror, v, exclude, p->state, seed, scratch, d);
        return;
    }
    if (p->reads_work && scratch->mirrored)
        sched_mirror_request(p->mirror, p->lore, v->features, now_ns);
    else if (p->reads_work)
        sched_work_request(p->lore, v->features, p->candidates, p->n, now_ns, scratch->ask,
                           scratch->hits, scratch->work);
    if (p->reads_work && slo)
        sched_slo_known(p->candidates, v->rows, p->n, sched_kind_of(v->features), now_ns,
                        scratch->mirrored ? p->mirror->work : scratch->work);
    v->now_ns = now_ns;
    v->hits = record && p->reads_work && p->lore && v->features->n_blocks ? scratch->ask : NULL;
    if (record) {
        sched_record_before(record, v, exclude, p->state, seed);
        if (!why && v->n <= record->cap)
            why = record->why;
    }
    sched_pick(v, exclude, p->state, seed, scratch, d, why);
    if (record)
        sched_record_after(record, v, d, why && why == record->why);
}

/* One row again, which another thread has changed. */
static void refill(struct sched_pool *p,
                   uint32_t i,
                   uint64_t now_ns,
                   struct sched_scratch *scratch,
                   struct sched_common *common)
{
    const struct sched_candidate *c = &p->candidates[i];
    struct sched_row *row = &scratch->rows[i];

    if (scratch->mirrored) {
        *common = sched_mirror_row(p->mirror, i, now_ns);
        return;
    }
    uint16_t ramp = row->ramp;
    struct sched_common changed = sched_rows_fill(c, 1, now_ns, row);
    common->all &= changed.all;
    common->any |= changed.any;
    row->ramp = ramp;
    if (p->reads_work)
        sched_work_fill(c, row, 1, now_ns, &scratch->work[i]);
}

/* Pick and reserve from rows already filled. A place lost to another thread is seen and another pick made. */
static int pick_and_reserve(struct sched_pool *p,
                            const struct features *f,
                            const struct sched_exclude *exclude,
                            uint64_t now_ns,
                            uint64_t seed,
                            struct sched_scratch *scratch,
                            struct reservation *r,
                            struct member *chosen,
                            struct decision *d)
{
    struct sched_view v = view(p, f, scratch);

    for (uint32_t attempt = 0; attempt < RESERVE_ATTEMPTS; attempt++) {
        pick(p, &v, exclude, now_ns, seed, scratch, d, NULL);
        if (d->row == DECISION_NOBODY)
            return d->rejection == REJECT_NONE ? WEIR_E_AGAIN : WEIR_E_NOTFOUND;
        const struct sched_candidate *c = &p->candidates[d->row];
        const struct sched_row *row = &v.rows[d->row];
        int rc = row->flags & SCHED_TRIAL ? sched_reserve_trial(r, c->cell, c->limit, f, now_ns)
                                          : sched_reserve(r, c->cell, c->limit, f);
        if (rc == 0) {
            r->spilled = p->placed && !(row->flags & SCHED_NEAR);
            sched_work_begin(p->lore, r, f, c, row, v.work ? &v.work[d->row] : NULL, now_ns);
            *chosen = (struct member){c->endpoint, c->cell};
            return 0;
        }
        refill(p, d->row, now_ns, scratch, &v.common);
    }
    d->row = DECISION_NOBODY;
    if (scratch->record)
        scratch->record->captured = false; /* none of these picks came true */
    return WEIR_E_AGAIN;
}

static bool any_room(const struct sched_pool *p, const struct sched_scratch *scratch)
{
    const struct sched_row *rows = scratch->mirrored ? p->mirror->rows : scratch->rows;

    for (uint32_t i = 0; i < p->n; i++)
        if ((rows[i].flags & (SCHED_ENABLED | SCHED_FULL)) == SCHED_ENABLED)
            return true;
    return false;
}

/* What one waiter could not get, another with no smaller need and the same other wishes cannot get either. */
struct hopeless {
    const struct features *f; /* NULL: none yet */
    struct sched_need need;
};

/* Beyond the longest context the context filter prefers nobody: there a larger need may find more endpoints. */
static bool within_context(const struct sched_pool *p, const struct features *f)
{
    return sched_context_of(f).likely <= p->longest;
}

static bool
hopeless_too(const struct sched_pool *p, const struct hopeless *h, const struct features *f)
{
    if (!h->f)
        return false;
    struct sched_need need = sched_need_of(f);
    return within_context(p, f) && sched_context_of(f).likely >= sched_context_of(h->f).likely &&
           sched_context_of(f).least >= sched_context_of(h->f).least &&
           f->prompt_tokens + f->output_tokens >= h->f->prompt_tokens + h->f->output_tokens &&
           need.explicit_bytes == h->need.explicit_bytes && need.bytes >= h->need.bytes &&
           need.tokens >= h->need.tokens && need.kv_bytes_per_token == h->need.kv_bytes_per_token &&
           slice_eq(f->model, h->f->model) && slice_eq(f->version, h->f->version) &&
           f->task == h->f->task;
}

struct grant {
    uint64_t now_ns, seed;
    struct member *chosen; /* NULL: only look whether somebody could be served */
};

/* Served, or refused for good: it leaves. */
static bool serve(struct sched_pool *p,
                  struct sched_waiter *w,
                  struct sched_scratch *scratch,
                  const struct grant *g)
{
    struct decision d;

    if (g->chosen) {
        int rc = pick_and_reserve(p, w->features, w->exclude, g->now_ns, g->seed, scratch,
                                  w->reservation, g->chosen, &d);
        if (rc == WEIR_E_NOTFOUND && d.rejection == REJECT_SLO_UNREACHABLE) {
            w->rejection = d.rejection;
            w->late_us = d.late_us;
        }
        return rc == 0 || w->rejection;
    }
    struct sched_view v = view(p, w->features, scratch);
    return sched_fits(&v, w->exclude, scratch);
}

/* The first waiter in order that is served. Those before it are set aside for the length of the look and keep their
 * place, because the order depends on nothing but themselves. */
static struct sched_waiter *
first_served(struct sched_pool *p, struct sched_scratch *scratch, const struct grant *g)
{
    struct sched_waiter *aside[OFFER_DEPTH];
    struct sched_waiter *found = NULL;
    struct hopeless hopeless = {0};
    uint32_t n = 0;

    sched_queue_age(&p->queue, g->now_ns);
    if (!any_room(p, scratch))
        return NULL;
    while (n < OFFER_DEPTH && sched_queue_first(&p->queue)) {
        struct sched_waiter *w = sched_queue_first(&p->queue);
        if (!hopeless_too(p, &hopeless, w->features)) {
            if (serve(p, w, scratch, g)) {
                found = w;
                break;
            }
            if (within_context(p, w->features) && (!w->exclude || w->exclude->n == 0))
                hopeless = (struct hopeless){w->features, sched_need_of(w->features)};
        }
        sched_queue_aside(&p->queue, w);
        aside[n++] = w;
    }
    while (n > 0)
        sched_queue_back(&p->queue, aside[--n]);
    return found;
}

/* It is sent: its tenant pays. */
static void charge(struct sched_pool *p,
                   struct sched_tenant *who,
                   const struct features *f,
                   struct reservation *r)
{
    sched_tenants_charge(&p->queue.tenants, who, f, &r->charge);
    sched_queue_moved(&p->queue, who);
}

void sched_pool_settle(struct sched_pool *p, struct reservation *r, uint64_t input, uint64_t output)
{
    struct sched_tenant *who = r->charge.tenant;

    if (!who)
        return;
    sched_tenants_settle(&p->queue.tenants, &r->charge, input, output);
    sched_queue_moved(&p->queue, who);
}

int sched_pool_admit(struct sched_pool *p,
                     const struct features *f,
                     const struct sched_exclude *exclude,
                     uint64_t now_ns,
                     uint64_t seed,
                     struct sched_scratch *scratch,
                     struct reservation *r,
                     struct member *chosen,
                     struct decision *d)
{
    struct grant look = {now_ns, seed, NULL};

    if (p->reads_work && p->lore)
        sched_prefix_ahead(&p->lore->prefix, f->blocks, f->n_blocks);
    fill_rows(p, now_ns, seed, true, scratch);
    if (p->queue.n && first_served(p, scratch, &look)) {
        *d = (struct decision){.row = DECISION_NOBODY};
        return WEIR_E_AGAIN;
    }
    int rc = pick_and_reserve(p, f, exclude, now_ns, seed, scratch, r, chosen, d);
    if (rc == 0)
        charge(p, sched_tenants_find(&p->queue.tenants, f), f, r);
    return rc;
}

/*
 * Will it not have a place by then? Only waiters that want no more than it does count as standing before it: what a
 * larger one waits for may be of no use to it, and the other way round a smaller one is served first wherever it is.
 */
static bool too_late(const struct sched_pool *p,
                     const struct sched_waiter *w,
                     uint64_t deadline,
                     uint64_t now_ns)
{
    uint64_t ahead = 0;

    if (now_ns >= deadline)
        return true;
    uint64_t places = sched_drain_places(&p->drain, now_ns, deadline - now_ns);
    if (p->queue.n < places)
        return false; /* even the last one is served in time */
    uint32_t looked = 0;
    weir_list_foreach (at, &p->queue.all) {
        const struct sched_waiter *other = container_of(at, struct sched_waiter, all);
        struct hopeless h = {other->features, sched_need_of(other->features)};
        if (ahead >= places || looked++ == LATE_DEPTH)
            break;
        if (sched_slo_left_ns(other->features, now_ns) == 0)
            continue; /* it takes no place any more */
        if (sched_queue_surely_before(&p->queue, other, w, deadline) &&
            (!other->exclude || other->exclude->n == 0) && hopeless_too(p, &h, w->features))
            ahead++;
    }
    return ahead >= places;
}

int sched_pool_enqueue(struct sched_pool *p, struct sched_waiter *w, uint64_t now_ns)
{
    BUG_ON(w->reservation->cell);
    if (p->queue.n >= p->options.size)
        return WEIR_E_FULL;
    sched_queue_prepare(&p->queue, w, now_ns);
    if (!sched_queue_has_place(&p->queue, w, p->options.size))
        return WEIR_E_FULL;
    uint64_t deadline = w->features->deadline_ns;
    uint64_t place_by = sched_slo_place_by_ns(w->features, w->prefill_us, now_ns);
    w->rejection = REJECT_NONE;
    if (deadline && too_late(p, w, deadline, now_ns))
        w->rejection = REJECT_DEADLINE_EXCEEDED;
    else if (place_by != UINT64_MAX && too_late(p, w, place_by, now_ns))
        w->rejection = REJECT_SLO_UNREACHABLE;
    if (w->rejection)
        return WEIR_E_TIMEOUT;
    p->seen_ns = now_ns;
    if (p->queue.n == 0)
        sched_drain_begin(&p->drain, now_ns);
    sched_queue_put(&p->queue, w);
    if (p->queue.n == 1)
        hint(p->candidates, p->n, true);
    return 0;
}

static void leave(struct sched_pool *p, struct sched_waiter *w, bool served, uint64_t now_ns)
{
    sched_queue_take(&p->queue, w, served, now_ns);
    if (p->queue.n == 0) {
        hint(p->candidates, p->n, false);
        sched_drain_end(&p->drain, p->seen_ns);
    }
}

void sched_pool_cancel(struct sched_pool *p, struct sched_waiter *w)
{
    if (w->queued)
        leave(p, w, false, p->seen_ns);
}

struct sched_waiter *sched_pool_offer(struct sched_pool *p,
                                      uint64_t now_ns,
                                      uint64_t seed,
                                      struct sched_scratch *scratch,
                                      struct member *chosen)
{
    struct grant grant = {now_ns, seed, chosen};

    if (p->queue.n == 0)
        return NULL;
    fill_rows(p, now_ns, seed, true, scratch);
    struct sched_waiter *w = first_served(p, scratch, &grant);
    if (w && w->rejection) {
        leave(p, w, false, now_ns);
    } else if (w) {
        sched_drain_served(&p->drain, now_ns);
        charge(p, w->tenant, w->features, w->reservation);
        leave(p, w, true, now_ns);
    }
    return w;
}

bool sched_pool_room(struct sched_pool *p, uint64_t now_ns, struct sched_scratch *scratch)
{
    fill_rows(p, now_ns, 0, false, scratch);
    return any_room(p, scratch);
}

uint32_t sched_pool_retry_after_s(const struct sched_pool *p, uint64_t now_ns)
{
    return sched_drain_retry_after_s(&p->drain, now_ns, p->queue.n);
}

uint32_t sched_pool_waiting(const struct sched_pool *p)
{
    return p->queue.n;
}

uint32_t sched_pool_members(const struct sched_pool *p)
{
    return p->n;
}

struct member sched_pool_member(const struct sched_pool *p, uint32_t i)
{
    BUG_ON(i >= p->n);
    return (struct member){p->candidates[i].endpoint, p->candidates[i].cell};
}

void sched_pool_explain(struct sched_pool *p,
                        const struct features *f,
                        uint64_t now_ns,
                        uint64_t seed,
                        struct sched_scratch *scratch,
                        struct decision *d,
                        struct explain_row *why)
{
    fill_rows(p, now_ns, seed, false, scratch);
    struct sched_view v = view(p, f, scratch);
    struct sched_mark mark = sched_state_save(p->state);
    pick(p, &v, NULL, now_ns, seed, scratch, d, why);
    sched_state_restore(p->state, mark);
}
