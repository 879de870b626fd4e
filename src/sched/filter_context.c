/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Filter context: the model's context there is long enough for prompt and output.
 * Our count of the prompt is an estimate, so it prefers: those that are long enough by it, else the longest of those
 * that may be; and it drops who is too short for sure. The engine, which counts exactly, has the last word.
 */
#include "base/bug.h"
#include "sched/plugin.h"

/* Unknown is endless. */
static uint64_t length(const struct sched_view *v, uint32_t row)
{
    const struct model_ref *m = v->candidates[row].model;

    return m && m->max_model_len ? m->max_model_len : UINT64_MAX;
}

static uint32_t at_least(const struct sched_view *v, uint32_t *fit, uint32_t n, uint64_t tokens)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = fit[i];
        fit[kept] = row;
        kept += length(v, row) >= tokens;
    }
    return kept;
}

bool sched_context_never(const struct sched_view *v, uint32_t row)
{
    return v->model.p && length(v, row) < sched_context_of(v->features).least;
}

uint32_t sched_filter_context(const struct sched_view *v, uint32_t *fit, uint32_t n)
{
    struct sched_context need = sched_context_of(v->features);
    uint64_t longest = 0;

    if (need.likely == 0 || !v->model.p || need.likely <= v->shortest_context)
        return n;
    for (uint32_t i = 0; i < n; i++)
        longest = MAX(longest, length(v, fit[i]));
    if (longest >= need.likely)
        return at_least(v, fit, n, need.likely);
    return at_least(v, fit, n, MAX(longest, need.least));
}
