/* SPDX-License-Identifier: Apache-2.0 */
/** @file Filter memory_total: what the client says it needs is not more than the endpoint has at all. */
#include "sched/plugin.h"

bool sched_memory_never(const struct sched_view *v, uint32_t row)
{
    const struct sched_row *r = &v->rows[row];

    if (!v->need.explicit_bytes)
        return false;
    if (r->total_bytes != 0)
        return v->need.bytes > r->total_bytes;
    /* No device total: then KV memory is compared, as in filter memory, unless free bytes are known. */
    return !(r->flags & SCHED_HAS_BYTES) && (r->flags & SCHED_HAS_KV) &&
           v->need.kv_bytes_per_token != 0 && v->need.tokens > r->total_tokens;
}

uint32_t sched_filter_memory_total(const struct sched_view *v, uint32_t *fit, uint32_t n)
{
    uint32_t kept = 0;

    if (!v->need.explicit_bytes || v->need.bytes <= v->least_total_bytes)
        return n;
    for (uint32_t i = 0; i < n; i++)
        if (!sched_memory_never(v, fit[i]))
            fit[kept++] = fit[i];
    return kept;
}
