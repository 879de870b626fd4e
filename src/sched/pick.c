/* SPDX-License-Identifier: Apache-2.0 */
/** @file The pick: filter by filter, then costs, then one of those left; and the reason when nobody is. */
#include "sched/pick.h"

#include "base/bug.h"
#include "sched/plugin.h"
#include "sched/slo.h"

int sched_state_new(const struct mem *mem, struct sched_state **out)
{
    struct sched_state *s = mem_zalloc(mem, sizeof(*s));

    if (!s)
        return WEIR_E_NOMEM;
    s->mem = mem;
    *out = s;
    return 0;
}

/* What a state holds beside its candidates; what the pick does not want stays NULL. */
static void beside_fini(struct sched_state *s)
{
    mem_free(s->mem, s->credit);
    mem_free(s->mem, s->saved);
    mem_free(s->mem, s->who);
    mem_free(s->mem, s->table);
    mem_free(s->mem, s->ring);
    mem_free(s->mem, s->probes);
    mem_free(s->mem, s->saved_probes);
}

void sched_state_free(struct sched_state *s)
{
    if (!s)
        return;
    beside_fini(s);
    mem_free(s->mem, s);
}

void sched_state_policy(struct sched_state *s, const struct policy *p)
{
    s->wants_table = sched_pickers[p->pick].needs_table;
    s->wants_ring = sched_pickers[p->pick].needs_ring;
    s->wants_probes = sched_pickers[p->pick].needs_probes;
}

struct sched_mark sched_state_save(struct sched_state *s)
{
    if (s->n)
        memcpy(s->saved, s->credit, s->n * sizeof(*s->credit));
    if (s->probes)
        memcpy(s->saved_probes, s->probes, s->n * sizeof(*s->probes));
    return (struct sched_mark){s->last_slot, s->any_last, s->probe_turn};
}

void sched_state_restore(struct sched_state *s, struct sched_mark m)
{
    if (s->n)
        memcpy(s->credit, s->saved, s->n * sizeof(*s->credit));
    if (s->probes)
        memcpy(s->probes, s->saved_probes, s->n * sizeof(*s->probes));
    s->last_slot = m.last_slot;
    s->any_last = m.any_last;
    s->probe_turn = m.probe_turn;
}

static int beside_init(struct sched_state *s, const struct sched_candidate *c, uint32_t n)
{
    s->credit = mem_array(s->mem, n, sizeof(*s->credit));
    s->saved = mem_array(s->mem, n, sizeof(*s->saved));
    s->who = mem_array(s->mem, n, sizeof(*s->who));
    if (!s->credit || !s->saved || !s->who)
        return WEIR_E_NOMEM;
    if (s->wants_probes && n) {
        s->probes = mem_array(s->mem, n, sizeof(*s->probes));
        s->saved_probes = mem_array(s->mem, n, sizeof(*s->saved_probes));
        if (!s->probes || !s->saved_probes)
            return WEIR_E_NOMEM;
    }
    int rc = s->wants_table ? sched_maglev_build(s->mem, c, n, &s->table, &s->table_size) : 0;
    if (rc == 0 && s->wants_ring)
        rc = sched_ring_build(s->mem, c, n, &s->ring, &s->ring_size);
    return rc;
}

int sched_state_members(struct sched_state *s, const struct sched_candidate *c, uint32_t n)
{
    struct sched_state fresh = {.mem = s->mem,
                                .n = n,
                                .last_slot = s->last_slot,
                                .any_last = s->any_last,
                                .wants_table = s->wants_table,
                                .wants_ring = s->wants_ring,
                                .wants_probes = s->wants_probes,
                                .probe_turn = s->probe_turn};

    if (beside_init(&fresh, c, n) != 0) {
        beside_fini(&fresh);
        return WEIR_E_NOMEM;
    }
    uint32_t old = 0;
    for (uint32_t i = 0; i < n; i++) {
        fresh.who[i] = (struct sched_who){c[i].slot, c[i].generation};
        while (old < s->n && s->who[old].slot < c[i].slot)
            old++;
        if (old == s->n || s->who[old].slot != c[i].slot ||
            s->who[old].generation != c[i].generation)
            continue;
        fresh.credit[i] = s->credit[old];
        if (fresh.probes && s->probes)
            fresh.probes[i] = s->probes[old];
    }
    beside_fini(s);
    *s = fresh;
    return 0;
}

int sched_scratch_reserve(struct sched_scratch *s, const struct mem *mem, uint32_t n)
{
    struct sched_scratch bigger = {.cap = n, .record = s->record};

    if (n <= s->cap)
        return 0;
    bigger.rows = mem_array(mem, n, sizeof(*bigger.rows));
    bigger.fit = mem_array(mem, n, sizeof(*bigger.fit));
    bigger.costs = mem_array(mem, n, sizeof(*bigger.costs));
    bigger.work = mem_array(mem, n, sizeof(*bigger.work));
    bigger.ask = mem_array(mem, n, sizeof(*bigger.ask));
    bigger.hits = mem_array(mem, n, sizeof(*bigger.hits));
    if (!bigger.rows || !bigger.fit || !bigger.costs || !bigger.work || !bigger.ask ||
        !bigger.hits) {
        sched_scratch_fini(&bigger, mem);
        return WEIR_E_NOMEM;
    }
    sched_scratch_fini(s, mem);
    *s = bigger;
    return 0;
}

void sched_scratch_fini(struct sched_scratch *s, const struct mem *mem)
{
    mem_free(mem, s->rows);
    mem_free(mem, s->fit);
    mem_free(mem, s->costs);
    mem_free(mem, s->work);
    mem_free(mem, s->ask);
    mem_free(mem, s->hits);
    *s = (struct sched_scratch){0};
}

static bool tried(const struct sched_exclude *x, const struct sched_candidate *c)
{
    for (uint32_t i = 0; x && i < x->n; i++)
        if (x->tried[i].slot == c->slot && x->tried[i].generation == c->generation)
            return true;
    return false;
}

/* A cost in the score's natural unit as fixed point, saturated: how costs of several scores are added. */
static uint64_t fixed(struct sched_cost c, uint64_t unit, unsigned bits)
{
    uint64_t num = MIN(c.num, UINT64_C(1) << 48);
    unsigned __int128 q = (((unsigned __int128)num * unit) << bits) / c.den;

    return q > UINT64_MAX ? UINT64_MAX : (uint64_t)q;
}

static uint64_t saturating_add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* One score keeps its exact fractions. Several are added in fixed point: a sum has no other exact common form of
 * bounded size, and their weights are a matter of taste anyway. */
static void add_costs(const struct sched_view *v,
                      const uint32_t *fit,
                      uint32_t n,
                      struct sched_cost *costs,
                      struct explain_row *why)
{
    const struct policy *p = v->policy;
    struct sched_cost part[64];

    if (p->n_scores == 1) {
        const struct sched_score *only = &sched_scores[p->scores[0].plugin];
        only->cost(v, fit, n, costs);
        for (uint32_t i = 0; why && i < n; i++)
            why[fit[i]].terms[0] = fixed(costs[i], only->unit, 16);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        costs[i] = (struct sched_cost){0, 1};
    for (uint32_t k = 0; k < p->n_scores; k++)
        for (uint32_t from = 0; from < n; from += ARRAY_LEN(part)) {
            uint32_t m = MIN(n - from, (uint32_t)ARRAY_LEN(part));
            const struct sched_score *score = &sched_scores[p->scores[k].plugin];
            score->cost(v, fit + from, m, part);
            for (uint32_t i = 0; i < m; i++) {
                unsigned __int128 term =
                    ((unsigned __int128)fixed(part[i], score->unit, 32) * p->scores[k].q16) >> 16;
                uint64_t q32 = term > UINT64_MAX ? UINT64_MAX : (uint64_t)term;
                costs[from + i].num = saturating_add(costs[from + i].num, q32);
                if (why)
                    why[fit[from + i]].terms[k] = q32 >> 16;
            }
        }
}

static bool has_filter(const struct policy *p, const char *name)
{
    for (uint32_t i = 0; i < p->n_filters; i++)
        if (strcmp(sched_filters[p->filters[i]].name, name) == 0)
            return true;
    return false;
}

/* Why nobody: more than any endpoint has at all, or simply nobody there. */
static enum rejection reason(const struct sched_view *v)
{
    bool all_too_small = v->n > 0;
    bool all_too_short = v->n > 0 && has_filter(v->policy, "context");

    for (uint32_t i = 0; i < v->n && (all_too_small || all_too_short); i++) {
        all_too_small = all_too_small && sched_memory_never(v, i);
        all_too_short = all_too_short && sched_context_never(v, i);
    }
    return all_too_short   ? REJECT_CONTEXT_TOO_LONG
           : all_too_small ? REJECT_EXCEEDS_FLEET_MEMORY
                           : REJECT_NO_ENDPOINT;
}

static void explain_start(const struct sched_view *v, struct explain_row *why)
{
    for (uint32_t i = 0; i < v->n; i++)
        why[i] = (struct explain_row){
            .slot = v->candidates[i].slot,
            .generation = v->candidates[i].generation,
            .dropped_by = EXPLAIN_TRIED,
            .load = v->rows[i].load,
            .weight = v->candidates[i].weight,
            .share =
                sched_ramped(sched_share(v->policy, &v->candidates[i], &v->rows[i]), &v->rows[i]),
        };
}

static void
explain_filter(struct explain_row *why, const uint32_t *fit, uint32_t n, int16_t dropped_by)
{
    for (uint32_t i = 0; i < n; i++)
        why[fit[i]].dropped_by = dropped_by;
}

/* What all rows have in common spares most filters their walk. */
static struct sched_common common_of(const struct sched_view *v)
{
    struct sched_common common = {UINT16_MAX, 0};

    for (uint32_t i = 0; i < v->n; i++) {
        common.all &= v->rows[i].flags;
        common.any |= v->rows[i].flags;
    }
    return common;
}

/* Four at a time: it is done for each pick. */
static void everybody(uint32_t *fit, uint32_t n)
{
    typedef uint32_t quad __attribute__((vector_size(16)));
    quad next = {0, 1, 2, 3};
    uint32_t i = 0;

    for (; i + 4 <= n; i += 4, next += 4)
        memcpy(fit + i, &next, sizeof(next));
    for (; i < n; i++)
        fit[i] = i;
}

/* Everybody not tried before. */
static uint32_t
first_fit(const struct sched_view *v, const struct sched_exclude *exclude, uint32_t *fit)
{
    uint32_t n = 0;

    if (!exclude || !exclude->n) {
        everybody(fit, v->n);
        return v->n;
    }
    for (uint32_t i = 0; i < v->n; i++)
        if (!tried(exclude, &v->candidates[i]))
            fit[n++] = i;
    return n;
}

uint32_t sched_filter_all(struct sched_view *v,
                          const struct sched_exclude *exclude,
                          uint32_t *fit,
                          struct decision *out,
                          struct explain_row *why)
{
    const struct policy *p = v->policy;
    uint32_t n = 0;
    bool may_fit_later = false;
    bool counted = false;

    v->need = sched_need_of(v->features);
    *out = (struct decision){.row = DECISION_NOBODY};
    if (v->common.any == 0)
        v->common = common_of(v);
    n = first_fit(v, exclude, fit);
    for (uint32_t k = 0; k < p->n_filters; k++) {
        const struct sched_filter *filter = &sched_filters[p->filters[k]];
        if (filter->capacity && !counted) {
            out->fit = n;
            counted = true;
        }
        if (why)
            explain_filter(why, fit, n, (int16_t)p->filters[k]);
        uint32_t kept = filter->keep(v, fit, n);
        if (filter->passes && kept < n)
            may_fit_later = true;
        n = kept;
    }
    if (why)
        explain_filter(why, fit, n, EXPLAIN_KEPT);
    if (!counted)
        out->fit = n;
    if (n == 0 && !may_fit_later)
        out->rejection = reason(v);
    return n;
}

bool sched_fits(struct sched_view *v,
                const struct sched_exclude *exclude,
                struct sched_scratch *scratch)
{
    struct decision d;

    BUG_ON(v->n > scratch->cap);
    return sched_filter_all(v, exclude, scratch->fit, &d, NULL) > 0;
}

void sched_pick(struct sched_view *v,
                const struct sched_exclude *exclude,
                struct sched_state *state,
                uint64_t seed,
                struct sched_scratch *scratch,
                struct decision *out,
                struct explain_row *why)
{
    const uint32_t *fit = scratch->fit;

    BUG_ON(v->n > scratch->cap || state->n != v->n);
    if (why)
        explain_start(v, why);
    uint32_t n = sched_filter_all(v, exclude, scratch->fit, out, why);
    if (sched_slo_asked(v->features) && v->work)
        n = n ? sched_slo_keep(v, scratch->fit, n, out, why) : sched_slo_wait(v, out);
    if (n == 0)
        return;
    add_costs(v, fit, n, scratch->costs, why);
    uint32_t chosen = sched_pickers[v->policy->pick].pick(v, fit, n, scratch->costs, state, seed);
    BUG_ON(chosen >= n);
    out->row = fit[chosen];
    for (uint32_t i = 0; why && i < n; i++) {
        why[fit[i]].cost_num = scratch->costs[i].num;
        why[fit[i]].cost_den = scratch->costs[i].den;
        why[fit[i]].chosen = i == chosen;
    }
}
