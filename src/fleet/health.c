/* SPDX-License-Identifier: Apache-2.0 */
/** @file The health step: thresholds in a row, and traffic that contradicts a red probe wins. */
#include "fleet/health.h"

struct health_rules fleet_health_rules(const struct health_rules *r)
{
    return (struct health_rules){
        .down_after = r->down_after ? r->down_after : 3,
        .up_after = r->up_after ? r->up_after : 2,
        .progress_ns = r->progress_ns ? r->progress_ns : UINT64_C(5000000000),
    };
}

static enum health go(struct cell *c, enum health to)
{
    if (to == HEALTH_UP) {
        atomic_store(&c->consecutive_failures, 0);
        atomic_store(&c->health_flags, HEALTH_SEEN_UP);
    }
    atomic_store(&c->health, (short)to);
    cell_changed(c);
    return to;
}

enum health fleet_health_probe(struct cell *c,
                               struct health_track *t,
                               const struct health_rules *r,
                               bool green,
                               uint64_t now_ns)
{
    enum health now = (enum health)atomic_load(&c->health);
    bool refused = (atomic_load(&c->health_flags) & HEALTH_REFUSED) != 0;

    if (green) {
        t->reds = 0;
        if (t->greens < UINT32_MAX)
            t->greens++;
        if (now == HEALTH_UP || now == HEALTH_UNKNOWN || refused || t->greens >= r->up_after)
            return go(c, HEALTH_UP);
        return now;
    }
    /* A server that is busy streaming answers may fail a probe's short timeout: it works, so it is up. */
    uint64_t progress = atomic_load(&c->last_progress_ns);
    if (progress != 0 && (now_ns <= progress || now_ns - progress < r->progress_ns))
        return now;
    t->greens = 0;
    if (t->reds < UINT32_MAX)
        t->reds++;
    if (t->reds >= r->down_after && now != HEALTH_DOWN)
        return go(c, HEALTH_DOWN);
    return now;
}
