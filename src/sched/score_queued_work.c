/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Score queued_work: predicted seconds until this request is answered: what waits before it and its prompt without
 * what is cached there; and a tenth of its answer and of what its prompt costs those who are being answered there.
 * Endpoints that computed more than the others lately count as a little slower, so that a prefix that all share does not
 * keep all its readers in one place. Costs within 3 % of each other count as equal, because no prediction is
 * better than that, and equals take turns.
 */
#include "base/bug.h"
#include "sched/plugin.h"
#include "sched/queued.h"

enum {
    WAIT_WEIGHT =
        16, /* where each job has its server alone, waiting behind one is dearer than a slower server */
};

static uint32_t mean_util(const struct sched_view *v, const uint32_t *fit, uint32_t n)
{
    uint64_t sum = 0;
    uint32_t known = 0;

    for (uint32_t i = 0; i < n; i++)
        if (v->rows[fit[i]].flags & SCHED_HAS_UTIL) {
            sum += v->rows[fit[i]].util_bp;
            known++;
        }
    return known ? (uint32_t)(sum / known) : 0;
}

/* An endpoint that is busier than the mean counts as slower, one that is less busy as faster: by 1 + K d + (K d)^2 / 2,
 * with d its distance in shares of its time. */
static uint64_t levelled(uint64_t us, const struct sched_row *r, uint32_t mean)
{
    enum { K = 4 };

    if (!(r->flags & SCHED_HAS_UTIL))
        return us;
    uint64_t d = (r->util_bp > mean ? r->util_bp - mean : mean - r->util_bp) * (uint64_t)K;
    uint64_t factor = 10000 + d + d * d / 20000;
    return r->util_bp > mean ? us * factor / 10000 : us * 10000 / factor;
}

static uint64_t mean_recent(const struct sched_view *v, const uint32_t *fit, uint32_t n)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += (uint64_t)v->work[fit[i]].recent_tokens * v->work[fit[i]].speed.prefill_ns / 1000;
    return sum / n;
}

void sched_score_queued_work(const struct sched_view *v,
                             const uint32_t *fit,
                             uint32_t n,
                             struct sched_cost *costs)
{
    struct sched_question q = sched_work_question(v->features);
    bool whole = sched_queued_whole(v->features);
    uint32_t mean = whole ? mean_util(v, fit, n) : 0;

    uint64_t fair_us = whole || n == 0 ? 0 : mean_recent(v, fit, n);

    for (uint32_t i = 0; i < n; i++) {
        const struct sched_row *r = &v->rows[fit[i]];
        const struct sched_work *w = &v->work[fit[i]];
        struct sched_forecast s = sched_work_forecast(&q, w);
        uint64_t mine = (uint64_t)w->recent_tokens * w->speed.prefill_ns / 1000;
        uint64_t us = sched_queued_us(&s, w->decoding, whole ? 0 : mine, fair_us);
        if (whole)
            us = levelled(MIN(s.wait_us * WAIT_WEIGHT + s.prefill_us, UINT64_C(1) << 40), r, mean);
        /* A newcomer counts as slower while it starts. */
        costs[i] = (struct sched_cost){sched_queued_rounded(MIN(us, UINT64_C(1) << 47)),
                                       sched_ramped(SCHED_RAMP_FULL, r) *
                                           (QUEUED_SHARE / SCHED_RAMP_FULL)};
    }
}
