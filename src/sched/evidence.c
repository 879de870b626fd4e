/* SPDX-License-Identifier: Apache-2.0 */
/** @file Passive evidence, written by loops with the fewest stores that tell it. */
#include "sched/evidence.h"

/* A line that several threads write costs more than it tells: progress is noted once per millisecond. */
enum { PROGRESS_STEP_NS = 1000000 };

void sched_saw_progress(struct cell *c, uint64_t now_ns)
{
    uint64_t last = atomic_load_explicit(&c->last_progress_ns, memory_order_relaxed);

    if (now_ns > last && now_ns - last >= PROGRESS_STEP_NS)
        atomic_store_explicit(&c->last_progress_ns, now_ns, memory_order_relaxed);
    if (atomic_load_explicit(&c->consecutive_failures, memory_order_relaxed) != 0)
        atomic_store_explicit(&c->consecutive_failures, 0, memory_order_relaxed);
    short unknown = HEALTH_UNKNOWN;
    if (atomic_load_explicit(&c->health, memory_order_relaxed) == HEALTH_UNKNOWN &&
        atomic_compare_exchange_strong(&c->health, &unknown, HEALTH_UP)) {
        atomic_fetch_or(&c->health_flags, HEALTH_SEEN_UP);
        cell_changed(c);
    }
}

bool sched_saw_connect_failure(struct cell *c)
{
    atomic_fetch_add_explicit(&c->failures_total, 1, memory_order_relaxed);
    if (atomic_fetch_add(&c->consecutive_failures, 1) + 1 < SCHED_REFUSED_AFTER)
        return false;
    atomic_fetch_or(&c->health_flags, HEALTH_REFUSED);
    bool fell = atomic_exchange(&c->health, HEALTH_DOWN) != HEALTH_DOWN;
    cell_changed(c);
    return fell;
}

void sched_saw_failure(struct cell *c)
{
    atomic_fetch_add_explicit(&c->failures_total, 1, memory_order_relaxed);
}
