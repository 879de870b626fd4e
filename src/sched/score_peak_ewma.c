/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Score peak_ewma, as Finagle and tower have it: peak-EWMA of the first byte times requests there and this one. Answers of 400 and above
 * do not count, or an endpoint that refuses at once would look fast. One that was not measured yet counts as fast as the
 * fastest.
 */
#include "base/bug.h"
#include "sched/plugin.h"

void sched_score_peak_ewma(const struct sched_view *v,
                           const uint32_t *fit,
                           uint32_t n,
                           struct sched_cost *costs)
{
    uint32_t fastest = sched_fastest_us(v, fit, n);

    for (uint32_t i = 0; i < n; i++) {
        const struct sched_row *r = &v->rows[fit[i]];
        uint32_t us = v->work[fit[i]].speed.first_byte_us;
        uint64_t time = us ? us : fastest;
        costs[i] =
            (struct sched_cost){MIN(time * (r->load + UINT64_C(1)), UINT64_C(1) << 47),
                                sched_ramped(SCHED_RAMP_FULL, r) * (1000000 / SCHED_RAMP_FULL)};
    }
}
