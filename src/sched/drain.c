/* SPDX-License-Identifier: Apache-2.0 */
/** @file The measured rate at which a queue is served. */
#include "sched/drain.h"

#include "base/bug.h"

#define INTERVAL_MAX_NS (3600 * NS_PER_S)

static uint64_t busy(const struct sched_drain *d, uint64_t now_ns)
{
    return d->busy_ns + (d->waiting && now_ns > d->turn_ns ? now_ns - d->turn_ns : 0);
}

void sched_drain_forget(struct sched_drain *d, uint64_t now_ns)
{
    d->from_ns = busy(d, now_ns);
    d->served = 0;
    d->first = d->steps = 0;
}

void sched_drain_begin(struct sched_drain *d, uint64_t now_ns)
{
    BUG_ON(d->waiting);
    if (now_ns > d->turn_ns && now_ns - d->turn_ns > DRAIN_FORGET_NS)
        sched_drain_forget(d, now_ns);
    d->waiting = true;
    d->turn_ns = now_ns;
}

void sched_drain_end(struct sched_drain *d, uint64_t now_ns)
{
    d->busy_ns = busy(d, now_ns);
    d->waiting = false;
    d->turn_ns = now_ns;
}

void sched_drain_served(struct sched_drain *d, uint64_t now_ns)
{
    uint64_t at = busy(d, now_ns);

    d->served++;
    if (d->steps) {
        struct sched_drain_step *last = &d->step[(d->first + d->steps - 1) % DRAIN_STEPS];
        if (at < last->at_ns + DRAIN_STEP_NS) {
            last->n++;
            return;
        }
    }
    if (d->steps == DRAIN_STEPS) {
        const struct sched_drain_step *oldest = &d->step[d->first];
        d->from_ns = oldest->at_ns;
        d->served -= oldest->n;
        d->first = (d->first + 1) % DRAIN_STEPS;
        d->steps--;
    }
    d->step[(d->first + d->steps++) % DRAIN_STEPS] = (struct sched_drain_step){at, 1};
}

uint64_t sched_drain_interval(const struct sched_drain *d, uint64_t now_ns)
{
    uint64_t until = busy(d, now_ns);
    /* Lanes look at the clock once a turn, so another one's "now" may be before the moment of a fresh start. */
    uint64_t window = until > d->from_ns ? until - d->from_ns : 0;

    if (!window && !d->served)
        return 0;
    uint64_t each = window / MAX(d->served, (uint64_t)1);
    return MIN(MAX(each, (uint64_t)1), INTERVAL_MAX_NS);
}

uint64_t sched_drain_places(const struct sched_drain *d, uint64_t now_ns, uint64_t left_ns)
{
    if (d->served < DRAIN_SURE)
        return UINT64_MAX;
    return left_ns / sched_drain_interval(d, now_ns);
}

uint32_t sched_drain_retry_after_s(const struct sched_drain *d, uint64_t now_ns, uint32_t waiting)
{
    /* At most 2^32 hours: it fits. */
    uint64_t each = sched_drain_interval(d, now_ns);
    uint64_t s = waiting && each > UINT64_MAX / waiting
                     ? DRAIN_RETRY_MAX_S
                     : (waiting * each + NS_PER_S - 1) / NS_PER_S;

    return (uint32_t)MIN(MAX(s, (uint64_t)1), (uint64_t)DRAIN_RETRY_MAX_S);
}
