/* SPDX-License-Identifier: Apache-2.0 */
/** @file Score load: requests there per weight. */
#include "sched/plugin.h"

void sched_score_load(const struct sched_view *v,
                      const uint32_t *fit,
                      uint32_t n,
                      struct sched_cost *costs)
{
    for (uint32_t i = 0; i < n; i++)
        costs[i] = (struct sched_cost){
            v->rows[fit[i]].load, sched_ramped(v->candidates[fit[i]].weight, &v->rows[fit[i]])};
}
