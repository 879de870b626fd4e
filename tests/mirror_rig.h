/* SPDX-License-Identifier: Apache-2.0 */
/* Rows kept from pick to pick beside rows filled anew: whoever writes a cell and does not say so is found out. */
#ifndef WEIR_TESTS_MIRROR_RIG_H
#define WEIR_TESTS_MIRROR_RIG_H

#include "fleet_rig.h"
#include "sched/mirror.h"
#include "sched/quick.h"
#include "sched/steady.h"

enum { MIRROR_ROWS = 160 };

struct mirror_rig {
    struct sched_candidate c[MIRROR_ROWS];
    struct sched_mirror *m;
    uint32_t n;
    struct sched_row rows[MIRROR_ROWS];
    struct sched_work work[MIRROR_ROWS];
    struct sched_prefix_ask ask[MIRROR_ROWS];
    uint32_t hits[MIRROR_ROWS];
};

static inline void mirror_close(struct mirror_rig *x)
{
    sched_mirror_free(x->m);
    x->m = NULL;
}

/* After rig_refresh(): of all endpoints of the snapshot. */
static inline void mirror_follow(struct mirror_rig *x, struct rig *r)
{
    struct sched_mirror_use use = {.work = true,
                                   .peaks = true,
                                   .quick = sched_quick_policy(&r->policy),
                                   .steady = sched_steady_policy(&r->policy)};

    mirror_close(x);
    x->n = r->snapshot->n_members;
    if (x->n > MIRROR_ROWS)
        abort();
    for (uint32_t i = 0; i < x->n; i++) {
        struct sched_candidate *c = &x->c[i];
        sched_candidate_fill(&r->snapshot->members[i], &r->policy, RIG_MODEL, c);
        for (uint32_t k = 0; k < SCHED_KINDS; k++) {
            c->rates_key[k] = sched_lore_key(c->hash, RIG_MODEL, k);
            c->rates[k] = sched_lore_rates(r->lore, c->rates_key[k], c->endpoint->gpu_type);
        }
        sched_prefix_expect(&r->lore->prefix, c->slot);
    }
    RIG_MUST(sched_mirror_new(&r->mem, x->c, x->n, use, &x->m));
}

/* @return how many rows differ. Numbers of equal rows are equal to the byte: there is no padding in them. */
static inline uint32_t mirror_differs(struct mirror_rig *x, struct rig *r, const struct features *f)
{
    uint32_t wrong = 0;

    if (x->n == 0)
        return 0;
    struct sched_common kept = sched_mirror_refresh(x->m, r->now);
    struct sched_common now = sched_rows_fill(x->c, x->n, r->now, x->rows);
    sched_work_fill(x->c, x->rows, x->n, r->now, x->work);
    sched_work_request(r->lore, f, x->c, x->n, r->now, x->ask, x->hits, x->work);
    sched_mirror_request(x->m, r->lore, f, r->now);
    for (uint32_t i = 0; i < x->n; i++)
        wrong += memcmp(&x->rows[i], &x->m->rows[i], sizeof(x->rows[i])) != 0 ||
                 memcmp(&x->work[i], &x->m->work[i], sizeof(x->work[i])) != 0;
    return wrong + (kept.all != now.all) + (kept.any != now.any);
}

#endif /* WEIR_TESTS_MIRROR_RIG_H */
