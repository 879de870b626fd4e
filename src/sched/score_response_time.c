/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Score response_time: peak-EWMA of the first byte times requests there and this one (score peak_ewma), and the
 * expected answer at the decode step that was learned, because a first byte says nothing of how fast the rest comes.
 * Answers of 400 and above do not count, or an endpoint that refuses at once would look fast. One that was
 * not measured yet counts as fast as the fastest.
 */
#include "base/bug.h"
#include "sched/plugin.h"

void sched_score_response_time(const struct sched_view *v,
                               const uint32_t *fit,
                               uint32_t n,
                               struct sched_cost *costs)
{
    struct sched_question q = sched_work_question(v->features);
    uint64_t answer = q.by_tokens ? q.output : 0;
    uint32_t fastest = sched_fastest_us(v, fit, n);

    for (uint32_t i = 0; i < n; i++) {
        const struct sched_row *r = &v->rows[fit[i]];
        uint32_t us = v->work[fit[i]].speed.first_byte_us;
        uint64_t time = us ? us : fastest;
        uint64_t rest = answer * v->work[fit[i]].speed.step_us;
        costs[i] =
            (struct sched_cost){MIN(time * (r->load + UINT64_C(1)) + rest, UINT64_C(1) << 47),
                                sched_ramped(SCHED_RAMP_FULL, r) * (1000000 / SCHED_RAMP_FULL)};
    }
}
