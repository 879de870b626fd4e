/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Capture and replay. A capture copies what a pick read: a few cache lines a row, no allocation, because it
 * happens under the pool's lock. Of identities it keeps what a filter may ask (tasks, context, "has this model"),
 * so that a record stays small and names no other models of the endpoint.
 */
#include "sched/record.h"

#include "base/bug.h"
#include "base/hash.h"
#include "base/num.h"
#include "sched/plugin.h"
#include "sched/slo.h"

/* Whoever gives a pick more to read must write it down too: SCHED_RECORD_ROW and _FEATURES, docs/decisions.md. */
_Static_assert(sizeof(struct sched_row) == 40, "list the new number in SCHED_RECORD_ROW");
_Static_assert(sizeof(struct features) == 240, "list the new number in SCHED_RECORD_FEATURES");
_Static_assert(sizeof(struct sched_work) == 68, "list the new number in SCHED_RECORD_WORK");

#define REPLAY_NOW (UINT64_C(1) << 62)

enum { TEXT_FIXED = 2048 /* for the texts of the request */ };

int sched_record_new(const struct mem *mem, uint32_t cap, struct sched_record **out)
{
    struct sched_record *r = mem_zalloc(mem, sizeof(*r));

    if (!r)
        return WEIR_E_NOMEM;
    r->mem = mem;
    r->cap = cap;
    r->text_cap = TEXT_FIXED + (size_t)cap * SCHED_RECORD_ID_MAX / 2;
    r->rows = mem_array(mem, cap, sizeof(*r->rows));
    r->why = mem_array(mem, cap, sizeof(*r->why));
    r->text = mem_alloc(mem, r->text_cap);
    if (!r->rows || !r->why || !r->text) {
        sched_record_free(r);
        return WEIR_E_NOMEM;
    }
    *out = r;
    return 0;
}

void sched_record_free(struct sched_record *r)
{
    if (!r)
        return;
    mem_free(r->mem, r->rows);
    mem_free(r->mem, r->why);
    mem_free(r->mem, r->text);
    mem_free(r->mem, r);
}

/* Cut to the room there is; an absent text stays absent. */
static struct slice keep_text(struct sched_record *r, struct slice s, size_t max)
{
    size_t n = MIN(MIN(s.n, max), r->text_cap - r->text_n);
    char *at = r->text + r->text_n;

    if (!s.p)
        return s;
    if (n)
        memcpy(at, s.p, n);
    r->text_n += n;
    return slice_of(at, n);
}

static uint64_t bounded(uint64_t v)
{
    return MIN(v, (uint64_t)INT64_MAX);
}

/* Of the target to the first byte it keeps what is left, which is all that a pick asks. */
static void keep_features(struct sched_record *r, const struct features *f, uint64_t now_ns)
{
    struct features *k = &r->features;

    *k = *f;
    k->model = keep_text(r, f->model, ENDPOINT_TEXT_MAX);
    k->version = keep_text(r, f->version, ENDPOINT_TEXT_MAX);
    k->required_bytes = bounded(f->required_bytes);
    k->prompt_bytes = bounded(f->prompt_bytes);
    k->prompt_tokens = bounded(f->prompt_tokens);
    k->output_tokens = bounded(f->output_tokens);
    k->kv_bytes_per_token = bounded(f->kv_bytes_per_token);
    k->body_bytes = bounded(f->body_bytes);
    k->slo_ttft_ns = f->slo_ttft_ns ? bounded(MAX(sched_slo_left_ns(f, now_ns), (uint64_t)1)) : 0;
    k->slo_by_ns = 0;
    k->slo_tpot_ns = bounded(f->slo_tpot_ns);
    k->tenant = k->region = k->gpu_type = slice_of(NULL, 0);
    r->n_blocks = f->blocks ? MIN(f->n_blocks, (uint32_t)SCHED_RECORD_BLOCKS) : 0;
    if (r->n_blocks)
        memcpy(r->blocks, f->blocks, r->n_blocks * sizeof(r->blocks[0]));
    k->blocks = r->blocks;
    r->tenant = f->tenant.n ? hash_slice(f->tenant, 0) : 0;
}

static void keep_row(struct sched_record *r, uint32_t to, const struct sched_view *v, uint32_t from)
{
    const struct sched_candidate *c = &v->candidates[from];
    struct sched_record_row *k = &r->rows[to];

    *k = (struct sched_record_row){
        .row = v->rows[from],
        .weight = c->weight,
        .hash = c->hash,
        .slot = c->slot,
        .generation = c->generation,
        .limit = c->limit,
        .context = c->model ? c->model->max_model_len : 0,
        .tasks = c->endpoint->tasks,
        .serves = sched_has_model(c->endpoint, v->features),
        .id = keep_text(r, c->endpoint->id, SCHED_RECORD_ID_MAX),
    };
    if (v->work)
        k->work = v->work[from];
    if (v->hits)
        k->hit_blocks = v->hits[from].hits;
    k->row.free_bytes = bounded(k->row.free_bytes);
    k->row.total_bytes = bounded(k->row.total_bytes);
}

static void keep_probe(struct sched_record_row *k, const struct sched_probe *p, uint64_t now_ns)
{
    if (!p->uses)
        return;
    k->probe.rif = p->rif;
    k->probe.us = p->us;
    k->probe.uses = p->uses;
    k->probe.age_ms =
        (uint32_t)MIN(now_ns > p->at_ns ? (now_ns - p->at_ns) / NS_PER_MS : 0, UINT64_C(1) << 30);
}

void sched_record_before(struct sched_record *r,
                         const struct sched_view *v,
                         const struct sched_exclude *exclude,
                         const struct sched_state *state,
                         uint64_t seed)
{
    bool served = false;

    r->captured = r->explained = false;
    r->works = v->work != NULL;
    r->text_n = 0;
    r->members = v->n;
    r->n = MIN(v->n, r->cap);
    r->policy = v->policy;
    r->seed = seed;
    r->last_slot = state->last_slot;
    r->any_last = state->any_last;
    r->exclude = exclude ? *exclude : (struct sched_exclude){0};
    keep_features(r, v->features, v->now_ns);
    r->pool_model = keep_text(r, v->model, ENDPOINT_TEXT_MAX);
    for (uint32_t i = 0; i < r->n; i++) {
        keep_row(r, i, v, i);
        r->rows[i].credit = state->credit[i];
        if (state->probes)
            keep_probe(&r->rows[i], &state->probes[i], v->now_ns);
        served = served || r->rows[i].serves;
    }
    /* A version that exists is a name of ours; any other is the client's own text. */
    r->version_unknown = v->features->version.p && !served;
    if (r->version_unknown)
        r->features.version = SLICE("?");
}

void sched_record_after(struct sched_record *r,
                        const struct sched_view *v,
                        const struct decision *d,
                        bool explained)
{
    r->decision = *d;
    if (d->row != DECISION_NOBODY && d->row >= r->n) {
        /* The one chosen is worth more than the last of those kept. */
        r->decision.row = r->n - 1;
        keep_row(r, r->n - 1, v, d->row);
    }
    r->explained = explained;
    r->captured = true;
}

/* What stands behind candidates when the fleet is long gone. */
struct stage {
    struct sched_candidate *candidates;
    struct sched_row *rows;
    struct sched_work *work;
    struct endpoint *endpoints;
    struct model_ref *models;
    struct sched_scratch scratch;
    struct sched_state *state;
};

static void stage_fini(struct stage *s, const struct mem *mem)
{
    mem_free(mem, s->candidates);
    mem_free(mem, s->rows);
    mem_free(mem, s->work);
    mem_free(mem, s->endpoints);
    mem_free(mem, s->models);
    sched_scratch_fini(&s->scratch, mem);
    sched_state_free(s->state);
}

static int stage_set(struct stage *s, const struct sched_record *r, const struct mem *mem)
{
    s->candidates = mem_array(mem, r->n + 1, sizeof(*s->candidates));
    s->rows = mem_array(mem, r->n + 1, sizeof(*s->rows));
    s->work = mem_array(mem, r->n + 1, sizeof(*s->work));
    s->endpoints = mem_array(mem, r->n + 1, sizeof(*s->endpoints));
    s->models = mem_array(mem, r->n + 1, sizeof(*s->models));
    if (!s->candidates || !s->rows || !s->work || !s->endpoints || !s->models)
        return WEIR_E_NOMEM;
    for (uint32_t i = 0; i < r->n; i++) {
        const struct sched_record_row *k = &r->rows[i];
        s->models[i] = (struct model_ref){
            .id = r->features.model, .version = r->features.version, .max_model_len = k->context};
        s->endpoints[i] = (struct endpoint){.slot = k->slot,
                                            .generation = k->generation,
                                            .id = k->id,
                                            .models = &s->models[i],
                                            .n_models = k->serves,
                                            .tasks = k->tasks};
        s->candidates[i] =
            (struct sched_candidate){.weight = k->weight,
                                     .hash = k->hash,
                                     .limit = k->limit,
                                     .flags = k->row.flags,
                                     .slot = k->slot,
                                     .generation = k->generation,
                                     .total_bytes = k->row.total_bytes,
                                     .endpoint = &s->endpoints[i],
                                     .model = r->pool_model.p ? &s->models[i] : NULL};
        s->rows[i] = k->row;
        s->work[i] = k->work;
    }
    int rc = sched_state_new(mem, &s->state);
    if (rc == 0)
        sched_state_policy(s->state, r->policy);
    if (rc == 0)
        rc = sched_state_members(s->state, s->candidates, r->n);
    if (rc == 0)
        rc = sched_scratch_reserve(&s->scratch, mem, r->n);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < r->n; i++) {
        const struct sched_record_row *k = &r->rows[i];
        s->state->credit[i] = k->credit;
        if (s->state->probes)
            s->state->probes[i] =
                (struct sched_probe){.at_ns = REPLAY_NOW - k->probe.age_ms * NS_PER_MS,
                                     .rif = k->probe.rif,
                                     .us = k->probe.us,
                                     .uses = k->probe.uses};
    }
    s->state->last_slot = r->last_slot;
    s->state->any_last = r->any_last;
    return 0;
}

int sched_replay(const struct sched_record *r,
                 const struct mem *mem,
                 struct decision *out,
                 struct explain_row *why)
{
    struct stage s = {0};

    if (!sched_record_whole(r))
        return WEIR_E_UNSUPPORTED;
    int rc = stage_set(&s, r, mem);
    if (rc == 0) {
        struct sched_view v = {
            .policy = r->policy,
            .features = &r->features,
            .candidates = s.candidates,
            .rows = s.rows,
            .work = r->works || sched_policy_reads_work(r->policy) ? s.work : NULL,
            .n = r->n,
            .now_ns = REPLAY_NOW,
            .model = r->pool_model,
            /* Then the filter asks every candidate, and each says what it said. */
            .any_loading = true};
        sched_pick(&v, &r->exclude, s.state, r->seed, &s.scratch, out, why);
    }
    stage_fini(&s, mem);
    return rc;
}
