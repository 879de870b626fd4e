/* SPDX-License-Identifier: Apache-2.0 */
/** @file Filter model: the endpoint has the model (or LoRA) by name, in the version asked for, ready, and does the task.
 */
#include "sched/plugin.h"

bool sched_has_model(const struct endpoint *e, const struct features *f)
{
    for (uint32_t i = 0; i < e->n_models; i++) {
        const struct model_ref *m = &e->models[i];
        if (!m->loading && (!f->model.p || slice_eq(m->id, f->model)) &&
            (!f->version.p || slice_eq(m->version, f->version)))
            return true;
    }
    return !f->model.p && !f->version.p;
}

uint32_t sched_filter_model(const struct sched_view *v, uint32_t *fit, uint32_t n)
{
    const struct features *f = v->features;
    /* In a pool of this very model every candidate has it: only version and task are left to compare. */
    bool same = v->model.p && (!f->model.p || slice_eq(v->model, f->model));
    bool all_do = f->task == 0 || (v->common_tasks & f->task);
    uint32_t kept = 0;

    if (same && !f->version.p && all_do && !v->any_loading)
        return n;
    for (uint32_t i = 0; i < n; i++) {
        const struct sched_candidate *c = &v->candidates[fit[i]];
        bool ok = c->endpoint->tasks == 0 || f->task == 0 || (c->endpoint->tasks & f->task);
        if (ok && (v->any_loading || !same || f->version.p))
            ok = sched_has_model(c->endpoint, f);
        fit[kept] = fit[i];
        kept += ok;
    }
    return kept;
}
