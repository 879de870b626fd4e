/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Score reported, how vLLM balances its data-parallel engines: waiting x 4 + running, as last reported, and what was
 * sent since counts as waiting; our own requests in flight where nothing fresh is reported.
 */
#include "sched/plugin.h"

void sched_score_reported(const struct sched_view *v,
                          const uint32_t *fit,
                          uint32_t n,
                          struct sched_cost *costs)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct sched_row *r = &v->rows[fit[i]];
        const struct sched_work *w = &v->work[fit[i]];
        uint64_t known = (uint64_t)w->reported_waiting + w->reported_running;
        uint64_t since = r->load > known ? r->load - known : 0;
        uint64_t cost = (w->reported_waiting + since) * 4 + w->reported_running;
        costs[i] = (struct sched_cost){r->flags & SCHED_FRESH ? cost : r->inflight, 1};
    }
}
