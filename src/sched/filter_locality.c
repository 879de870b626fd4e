/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Filter locality: stay in the region, zone or cluster of this gateway (policy.place) while somebody there fits, is
 * usable and has room; else all are used. It stands behind the filters that say who fits and has room, so that it only
 * ever chooses among those. Of a request with latency targets, who would miss them does not fit.
 */
#include "sched/plugin.h"
#include "sched/slo.h"

static bool holds(const struct sched_view *v, uint32_t row, bool slo)
{
    enum { BOTH = SCHED_NEAR | SCHED_USABLE }; /* one of the last resort holds nobody */

    return (v->rows[row].flags & BOTH) == BOTH && !(slo && sched_slo_misses(v, row));
}

uint32_t sched_filter_locality(const struct sched_view *v, uint32_t *fit, uint32_t n)
{
    bool slo = v->work && sched_slo_asked(v->features);
    bool stays = false;
    uint32_t kept = 0;

    if (!(v->common.any & SCHED_NEAR) || (v->common.all & SCHED_NEAR))
        return n;
    for (uint32_t i = 0; i < n && !stays; i++)
        stays = holds(v, fit[i], slo);
    for (uint32_t i = 0; stays && i < n; i++) {
        uint32_t row = fit[i];
        fit[kept] = row;
        kept += (v->rows[row].flags & SCHED_NEAR) != 0;
    }
    return stays ? kept : n;
}
