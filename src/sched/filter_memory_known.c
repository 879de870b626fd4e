/* SPDX-License-Identifier: Apache-2.0 */
/** @file Filter memory_known: endpoints with unknown free memory rank behind those that are known to fit. */
#include "sched/plugin.h"

uint32_t sched_filter_memory_known(const struct sched_view *v, uint32_t *fit, uint32_t n)
{
    uint32_t known = 0;

    if (sched_memory_unknown(v) || sched_memory_all_known(v))
        return n;
    for (uint32_t i = 0; i < n; i++)
        known += sched_memory_room(v, fit[i]) == ROOM_FITS;
    if (known == 0 || known == n)
        return n;
    known = 0;
    for (uint32_t i = 0; i < n; i++)
        if (sched_memory_room(v, fit[i]) == ROOM_FITS)
            fit[known++] = fit[i];
    return known;
}
