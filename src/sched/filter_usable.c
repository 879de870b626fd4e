/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Filter usable: enabled, weight above 0, not draining, healthy for its registry, for us and for itself.
 * Panic: when health or breakers leave nobody, or too few (policy.panic_percent of the pool red), those that are red but
 * were up once are used after all. What fails everywhere says more about the probe or the requests than about the
 * endpoints; refusing everything cannot be better than trying, and the few green ones would drown.
 */
#include "sched/breaker.h"
#include "sched/plugin.h"

static uint32_t keep_flag(const struct sched_view *v, uint32_t *fit, uint32_t n, unsigned flag)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = fit[i];
        fit[kept] = row;
        kept += (v->rows[row].flags & flag) != 0;
    }
    return kept;
}

uint32_t sched_filter_usable(const struct sched_view *v, uint32_t *fit, uint32_t n)
{
    uint32_t usable = 0;
    uint32_t red = 0;
    bool any = false;

    if (v->common.all & SCHED_USABLE)
        return n;
    /* Of the whole pool: that a retry leaves out what it tried makes nobody else worse. */
    for (uint32_t i = 0; (v->common.any & SCHED_LAST_RESORT) && i < v->n; i++) {
        usable += (v->rows[i].flags & SCHED_USABLE) != 0;
        red += (v->rows[i].flags & SCHED_LAST_RESORT) != 0;
    }
    if (sched_panic(usable, red, v->policy->panic_percent))
        return keep_flag(v, fit, n, SCHED_USABLE | SCHED_LAST_RESORT);
    for (uint32_t i = 0; i < n && !any; i++)
        any = (v->rows[fit[i]].flags & SCHED_USABLE) != 0;
    return keep_flag(v, fit, n, any ? SCHED_USABLE : SCHED_LAST_RESORT);
}
