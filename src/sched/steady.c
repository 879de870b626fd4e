/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/steady.h"

#include "base/bug.h"
#include "sched/plugin.h"

bool sched_steady_policy(const struct policy *p)
{
    return p->n_scores == 1 && sched_scores[p->scores[0].plugin].steady &&
           sched_pickers[p->pick].pick == sched_pick_lowest;
}

static void bring_up_to_date(struct sched_costs *c, const struct sched_view *v)
{
    const struct sched_score *score = &sched_scores[v->policy->scores[0].plugin];

    while (c->n_todo > 0) {
        uint32_t row = c->todo[--c->n_todo];
        struct sched_cost *cost = &c->costs[row];
        score->cost(v, &row, 1, cost);
        c->about[row] = (float)cost->num / (float)cost->den;
    }
}

/* Leave in fit those that may be the lowest or equal to it, still rising. @return how many. */
static uint32_t keep_near(const float *about, uint32_t *fit, uint32_t n)
{
    /* Three roundings of a float make each of two numbers wrong by at most 2^-22 of it. */
    static const float EITHER = 1 + 1.0F / (1 << 20);
    float limit = __FLT_MAX__;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = fit[i];
        if (__builtin_expect(about[row] > limit, 1))
            continue;
        limit = MIN(limit, about[row] * EITHER);
        fit[kept++] = row;
    }
    return kept;
}

void sched_steady_pick(struct sched_mirror *m,
                       struct sched_view *v,
                       const struct sched_exclude *exclude,
                       struct sched_state *state,
                       uint64_t seed,
                       struct sched_scratch *scratch,
                       struct decision *out)
{
    struct sched_costs *c = &m->costs;
    uint32_t *fit = scratch->fit;

    uint32_t n = sched_filter_all(v, exclude, fit, out, NULL);
    if (n == 0)
        return;
    bring_up_to_date(c, v);
    n = keep_near(c->about, fit, n);
    for (uint32_t i = 0; i < n; i++)
        scratch->costs[i] = c->costs[fit[i]];
    out->row = fit[sched_pick_lowest(v, fit, n, scratch->costs, state, seed)];
}
