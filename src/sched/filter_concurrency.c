/* SPDX-License-Identifier: Apache-2.0 */
/** @file Filter concurrency: fewer requests in flight at the address than its limit. */
#include "sched/plugin.h"

uint32_t sched_filter_concurrency(const struct sched_view *v, uint32_t *fit, uint32_t n)
{
    uint32_t kept = 0;

    if (!(v->common.any & SCHED_FULL))
        return n;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = fit[i];
        fit[kept] = row;
        kept += !(v->rows[row].flags & SCHED_FULL);
    }
    return kept;
}
