/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Filter usable: enabled, weight above 0, not draining, healthy for its registry, for us and for itself.
 * When health alone would leave nobody, those that probes call down but that were up once are used after all:
 * a probe that fails everywhere says more about the probe, and refusing everything cannot be better than trying.
 */
#include "sched/plugin.h"

static uint32_t keep_flag(const struct sched_view *v, uint32_t *fit, uint32_t n, uint16_t flag)
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
    bool any = false;

    if (v->all_flags & SCHED_USABLE)
        return n;
    for (uint32_t i = 0; i < n && !any; i++)
        any = (v->rows[fit[i]].flags & SCHED_USABLE) != 0;
    return keep_flag(v, fit, n, any ? SCHED_USABLE : SCHED_LAST_RESORT);
}
