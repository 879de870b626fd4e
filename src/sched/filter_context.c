/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Filter context: the model's context there is long enough for prompt and output.
 * Our token count is an estimate, so it only prefers: when nobody is long enough all are kept, and the engine,
 * which counts exactly, has the last word.
 */
#include "sched/plugin.h"

static bool long_enough(const struct sched_view *v, uint32_t row, uint64_t tokens)
{
    const struct model_ref *m = v->candidates[row].model;

    return !m || m->max_model_len == 0 || tokens <= m->max_model_len;
}

uint32_t sched_filter_context(const struct sched_view *v, uint32_t *fit, uint32_t n)
{
    const struct features *f = v->features;
    uint64_t tokens = f->prompt_tokens + f->output_tokens;
    uint32_t kept = 0;

    if (tokens < f->prompt_tokens)
        tokens = UINT64_MAX;
    if (tokens == 0 || !v->model.p || tokens <= v->shortest_context)
        return n;
    for (uint32_t i = 0; i < n; i++)
        kept += long_enough(v, fit[i], tokens);
    if (kept == 0 || kept == n)
        return n;
    kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (long_enough(v, fit[i], tokens))
            fit[kept++] = fit[i];
    return kept;
}
