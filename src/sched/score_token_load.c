/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Score token_load, the cost of NVIDIA Dynamo's KV router with prefill_load_scale 1: tokens to compute there with
 * this prompt, its overlap subtracted, and tokens held for answers. In tokens, not blocks, which orders alike.
 */
#include "sched/plugin.h"

void sched_score_token_load(const struct sched_view *v,
                            const uint32_t *fit,
                            uint32_t n,
                            struct sched_cost *costs)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct sched_work *w = &v->work[fit[i]];
        costs[i] = (struct sched_cost){
            w->waiting_tokens + sched_work_uncached(v->features, w) + w->context_tokens, 1};
    }
}
