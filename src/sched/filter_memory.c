/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Filter memory: what the request needs is free, or nobody knows (needed <= free fits).
 *
 * Which number decides (design section 3, Memory): an engine that preallocates is judged by its free KV tokens, others
 * by free device bytes. What the client asks for in bytes is compared with free device bytes where those are known,
 * else with the free KV tokens at the model's bytes per token. An estimate never asks for more than the whole KV
 * memory: then the endpoint fits when it is empty, instead of never.
 */
#include "sched/plugin.h"

uint32_t sched_filter_memory(const struct sched_view *v, uint32_t *fit, uint32_t n)
{
    uint32_t kept = 0;

    if (sched_memory_unknown(v))
        return n;
    if (sched_memory_all_known(v) && !v->need.explicit_bytes) {
        for (uint32_t i = 0; i < n; i++) {
            uint32_t row = fit[i];
            fit[kept] = row;
            kept += MIN(v->need.tokens, v->rows[row].total_tokens) <= v->rows[row].free_tokens;
        }
        return kept;
    }
    if (sched_memory_all_known(v)) {
        for (uint32_t i = 0; i < n; i++) {
            uint32_t row = fit[i];
            fit[kept] = row;
            kept += v->need.bytes <= v->rows[row].free_bytes;
        }
        return kept;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = fit[i];
        fit[kept] = row;
        kept += sched_memory_room(v, row) != ROOM_FULL;
    }
    return kept;
}
