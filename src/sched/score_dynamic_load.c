/* SPDX-License-Identifier: Apache-2.0 */
/** @file Score dynamic_load: requests there per weight x dyn(GPU utilization), the cost of policy `chain`. */
#include "sched/plugin.h"

void sched_score_dynamic_load(const struct sched_view *v,
                              const uint32_t *fit,
                              uint32_t n,
                              struct sched_cost *costs)
{
    struct sched_memo none = {0, 0};

    for (uint32_t i = 0; i < n; i++) {
        const struct sched_row *r = &v->rows[fit[i]];
        uint32_t key = (r->flags & SCHED_HAS_UTIL) ? r->util_bp + 1u : (uint32_t)SCHED_MEMO_UNKNOWN;
        struct sched_memo *memo = v->memo ? &v->memo[fit[i]] : &none;
        uint64_t share = memo->share;
        if (memo->key != key) {
            share = sched_share(v->policy, &v->candidates[fit[i]], r);
            *memo = (struct sched_memo){share, v->memo ? key : 0};
        }
        share = sched_ramped(share, r);
        /* A curve may go down to 0: such an endpoint is the last choice, not a division by 0. */
        costs[i] = (struct sched_cost){r->load, share ? share : 1};
    }
}
