/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Score queued_work: predicted seconds until this request's answer is complete: what waits before it, its prompt
 * without what is cached there, its answer. Costs within 3 % of each other count as equal, because no prediction is
 * better than that, and equals take turns.
 */
#include "base/bug.h"
#include "sched/plugin.h"

/* The five leading bits: 3 % steps. */
static uint64_t rounded(uint64_t us)
{
    if (us < 32)
        return us;
    unsigned below = 59 - (unsigned)__builtin_clzll(us);
    return us >> below << below;
}

void sched_score_queued_work(const struct sched_view *v,
                             const uint32_t *fit,
                             uint32_t n,
                             struct sched_cost *costs)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct sched_row *r = &v->rows[fit[i]];
        struct sched_forecast s = sched_work_forecast(v->features, r, &v->work[fit[i]]);
        uint64_t us = s.wait_us + s.prefill_us + s.decode_us;
        /* A newcomer counts as slower while it starts. */
        costs[i] =
            (struct sched_cost){rounded(MIN(us, UINT64_C(1) << 47)),
                                sched_ramped(SCHED_RAMP_FULL, r) * (1000000 / SCHED_RAMP_FULL)};
    }
}
