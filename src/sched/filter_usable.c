/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Filter usable: enabled, weight above 0, not draining, healthy for its registry, for us and for itself.
 * When health alone would leave nobody, those that probes call down but that were up once are used after all:
 * a probe that fails everywhere says more about the probe, and refusing everything cannot be better than trying.
 */
#include "sched/plugin.h"

static bool willing(const struct sched_view *v, uint32_t row)
{
    uint8_t state = v->rows[row].state;

    return (v->rows[row].flags & SCHED_ENABLED) &&
           (state == REPORTED_HEALTHY || state == REPORTED_BUSY);
}

static bool healthy(const struct sched_row *r)
{
    return r->health == HEALTH_UP || (r->health == HEALTH_UNKNOWN && (r->flags & SCHED_VOUCHED));
}

static uint32_t last_resort(const struct sched_view *v, uint32_t *fit, uint32_t n)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < n; i++)
        if (willing(v, fit[i]) && (v->rows[fit[i]].flags & SCHED_LAST_RESORT))
            fit[kept++] = fit[i];
    return kept;
}

uint32_t sched_filter_usable(const struct sched_view *v, uint32_t *fit, uint32_t n)
{
    bool any = false;

    for (uint32_t i = 0; i < n && !any; i++)
        any = willing(v, fit[i]) && healthy(&v->rows[fit[i]]);
    if (!any)
        return last_resort(v, fit, n);

    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = fit[i];
        fit[kept] = row;
        kept += willing(v, row) && healthy(&v->rows[row]);
    }
    return kept;
}
