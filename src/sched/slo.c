/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/slo.h"

#include "base/bug.h"
#include "sched/plugin.h"

#define RELAXED(field) atomic_load_explicit(&(field), memory_order_relaxed)

struct targets {
    uint64_t first_us, step_us; /* predictions up to here pass */
    struct sched_question question;
};

static uint64_t with_margin(uint64_t ns)
{
    return ns > UINT64_MAX / SLO_MARGIN_PERCENT ? UINT64_MAX : ns * SLO_MARGIN_PERCENT / 100;
}

static struct targets targets_of(const struct sched_view *v)
{
    const struct features *f = v->features;

    return (struct targets){
        .first_us = with_margin(sched_slo_left_ns(f, v->now_ns)) / NS_PER_US,
        .step_us = f->slo_tpot_ns ? with_margin(f->slo_tpot_ns) / NS_PER_US : UINT64_MAX,
        .question = sched_work_question(f),
    };
}

void sched_slo_known(const struct sched_candidate *c,
                     const struct sched_row *rows,
                     uint32_t n,
                     enum sched_kind kind,
                     uint64_t now_ns,
                     struct sched_work *work)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct sched_rates *r = c[i].rates[kind];
        work[i].flags &= ~(uint32_t)(WORK_PREFILL_KNOWN | WORK_STEP_KNOWN);
        if (!r || RELAXED(r->key) != c[i].rates_key[kind])
            continue;
        uint64_t used = RELAXED(r->used_ns);
        if (rows[i].inflight == 0 && now_ns > used && now_ns - used >= SLO_STALE_NS)
            continue;
        if (RELAXED(r->firsts) >= SCHED_RATES_SURE)
            work[i].flags |= WORK_PREFILL_KNOWN;
        if (RELAXED(r->answers) >= SCHED_RATES_SURE)
            work[i].flags |= WORK_STEP_KNOWN;
    }
}

/* @param late_us out: by how much at least. */
static bool misses(const struct sched_view *v,
                   const struct targets *t,
                   const struct sched_work *w,
                   uint64_t *late_us)
{
    struct sched_forecast s = sched_work_forecast(&t->question, w);
    uint64_t first = sched_slo_first_us(v->features, &s);
    /* What has passed already is no prediction. */
    bool late = t->first_us == 0 || ((w->flags & WORK_PREFILL_KNOWN) && first > t->first_us);
    bool slow = (w->flags & WORK_STEP_KNOWN) && sched_slo_step_us(&t->question, w) > t->step_us;

    *late_us = late ? first - t->first_us : 0;
    return late || slow;
}

bool sched_slo_misses(const struct sched_view *v, uint32_t row)
{
    struct targets t = targets_of(v);
    uint64_t late;

    return misses(v, &t, &v->work[row], &late);
}

uint32_t sched_slo_keep(const struct sched_view *v,
                        uint32_t *fit,
                        uint32_t n,
                        struct decision *out,
                        struct explain_row *why)
{
    struct targets t = targets_of(v);
    uint64_t least = UINT64_MAX;
    uint32_t kept = 0;
    uint64_t late;

    for (uint32_t i = 0; i < n; i++) {
        if (!misses(v, &t, &v->work[fit[i]], &late)) {
            fit[kept++] = fit[i];
            continue;
        }
        least = MIN(least, late);
        if (why)
            why[fit[i]].dropped_by = EXPLAIN_SLO;
    }
    if (kept == 0) {
        out->rejection = REJECT_SLO_UNREACHABLE;
        out->late_us = least;
    }
    return kept;
}

uint32_t sched_slo_wait(const struct sched_view *v, struct decision *out)
{
    struct targets t = targets_of(v);
    uint64_t least = UINT64_MAX;
    uint64_t prefill = UINT64_MAX;
    bool hope = false;
    uint64_t late;

    if (out->rejection)
        return 0;
    for (uint32_t i = 0; i < v->n; i++) {
        const struct sched_work *w = &v->work[i];
        bool bad = misses(v, &t, w, &late);
        hope = hope || !bad;
        least = bad ? MIN(least, late) : least;
        struct sched_forecast s = sched_work_forecast(&t.question, w);
        prefill = MIN(prefill, w->flags & WORK_PREFILL_KNOWN ? s.prefill_us : 0);
    }
    if (v->n && !hope) {
        out->rejection = REJECT_SLO_UNREACHABLE;
        out->late_us = least;
    }
    out->prefill_us = v->n ? prefill : 0;
    return 0;
}

uint64_t sched_slo_place_by_ns(const struct features *f, uint64_t prefill_us, uint64_t now_ns)
{
    uint64_t left = sched_slo_left_ns(f, now_ns);

    if (left == UINT64_MAX)
        return UINT64_MAX;
    uint64_t most = with_margin(left);
    uint64_t own = MIN(prefill_us, UINT64_MAX / NS_PER_US) * NS_PER_US;
    return most > own ? now_ns + MIN(most - own, UINT64_MAX - now_ns) : now_ns;
}
