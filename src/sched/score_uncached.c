/* SPDX-License-Identifier: Apache-2.0 */
/** @file Score uncached: tokens of the prompt that are not expected in the endpoint's prefix cache. */
#include "sched/plugin.h"

void sched_score_uncached(const struct sched_view *v,
                          const uint32_t *fit,
                          uint32_t n,
                          struct sched_cost *costs)
{
    for (uint32_t i = 0; i < n; i++)
        costs[i] = (struct sched_cost){sched_work_uncached(v->features, &v->work[fit[i]]), 1};
}
