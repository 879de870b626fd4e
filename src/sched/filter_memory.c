/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Filter memory: what the request needs is free, or nobody knows (needed <= free fits).
 *
 * Which number decides (design section 3, Memory): an engine that preallocates is judged by its free KV tokens, others
 * by free device bytes. What the client asks for in bytes is compared with free device bytes where those are known,
 * else with the free KV tokens at the model's bytes per token. An estimate never asks for more than the whole KV
 * memory: then the endpoint fits when it is empty, instead of never.
 */
#include "base/bug.h"
#include "sched/plugin.h"

static enum sched_room compare(uint64_t need, uint64_t free)
{
    return need <= free ? ROOM_FITS : ROOM_FULL;
}

enum sched_room sched_memory_room(const struct sched_view *v, uint32_t row)
{
    const struct sched_row *r = &v->rows[row];
    const struct sched_need *need = &v->need;

    if (need->explicit_bytes) {
        if (r->flags & SCHED_HAS_BYTES)
            return compare(need->bytes, r->free_bytes);
        if ((r->flags & SCHED_HAS_KV) && need->kv_bytes_per_token)
            return compare(need->tokens, r->free_tokens);
        return ROOM_UNKNOWN;
    }
    if (r->flags & SCHED_TOKENS)
        return (r->flags & SCHED_HAS_KV)
                   ? compare(MIN(need->tokens, r->total_tokens), r->free_tokens)
                   : ROOM_UNKNOWN;
    if (need->bytes && (r->flags & SCHED_HAS_BYTES))
        return compare(need->bytes, r->free_bytes);
    return ROOM_UNKNOWN;
}

uint32_t sched_filter_memory(const struct sched_view *v, uint32_t *fit, uint32_t n)
{
    uint32_t kept = 0;

    if (v->need.bytes == 0 && v->need.tokens == 0)
        return n;
    if (sched_memory_all_known(v) && !v->need.explicit_bytes) {
        for (uint32_t i = 0; i < n; i++) {
            uint32_t row = fit[i];
            fit[kept] = row;
            kept += MIN(v->need.tokens, v->rows[row].total_tokens) <= v->rows[row].free_tokens;
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
