/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/allowance.h"

#include "base/bug.h"
#include "base/num.h"

#define MINUTE_NS    (60 * NS_PER_S)
#define OVERDRAFT_NS (24 * 60 * MINUTE_NS)

/* How long it takes to bring so many. Rounded down: a minute brings all of them, one by one. */
static uint64_t brings_ns(uint64_t units, uint64_t per_minute)
{
    unsigned __int128 ns = (unsigned __int128)units * MINUTE_NS / per_minute;

    return ns > OVERDRAFT_NS ? OVERDRAFT_NS : (uint64_t)ns;
}

/* Until there is a whole one: a part of one comes back at once, and would let in one too many. */
static uint64_t wait_ns(uint64_t full_ns, uint64_t per_minute, uint64_t now_ns)
{
    uint64_t empty_ns = now_ns + MINUTE_NS;
    uint64_t less_one_ns = full_ns + MINUTE_NS / per_minute;

    return less_one_ns <= empty_ns ? 0 : less_one_ns - empty_ns;
}

uint64_t
sched_allowance_wait_ns(const struct sched_allowance *a, uint64_t per_minute, uint64_t now_ns)
{
    return per_minute ? wait_ns(atomic_load_explicit(&a->full_ns, memory_order_relaxed), per_minute,
                                now_ns)
                      : 0;
}

static uint64_t later(uint64_t full_ns, uint64_t by_ns, uint64_t now_ns)
{
    uint64_t most = now_ns + MINUTE_NS + OVERDRAFT_NS;

    return MIN(MAX(full_ns, now_ns) + by_ns, most);
}

uint64_t sched_allowance_take(struct sched_allowance *a,
                              uint64_t per_minute,
                              uint64_t units,
                              uint64_t now_ns)
{
    unsigned long long full = atomic_load_explicit(&a->full_ns, memory_order_relaxed);

    if (per_minute == 0)
        return 0;
    uint64_t by = brings_ns(units, per_minute);
    do {
        uint64_t wait = wait_ns(full, per_minute, now_ns);
        if (wait)
            return wait;
    } while (!atomic_compare_exchange_weak_explicit(&a->full_ns, &full, later(full, by, now_ns),
                                                    memory_order_relaxed, memory_order_relaxed));
    return 0;
}

void sched_allowance_correct(
    struct sched_allowance *a, uint64_t per_minute, uint64_t taken, uint64_t used, uint64_t now_ns)
{
    unsigned long long full = atomic_load_explicit(&a->full_ns, memory_order_relaxed);
    unsigned long long next;

    if (per_minute == 0 || taken == used)
        return;
    uint64_t was = brings_ns(taken, per_minute);
    uint64_t is = brings_ns(used, per_minute);
    do {
        next = is > was ? later(full, is - was, now_ns) : full - MIN(full, was - is);
    } while (!atomic_compare_exchange_weak_explicit(&a->full_ns, &full, next, memory_order_relaxed,
                                                    memory_order_relaxed));
}

void sched_allowance_change(struct sched_allowance *a, uint64_t was, uint64_t is, uint64_t now_ns)
{
    unsigned long long full = atomic_load_explicit(&a->full_ns, memory_order_relaxed);
    unsigned long long next;

    if (was == 0 || (is != 0 && is <= was))
        return;
    do {
        uint64_t left = full > now_ns ? full - now_ns : 0;
        next = is ? now_ns + (uint64_t)((unsigned __int128)left * was / is) : 0;
    } while (!atomic_compare_exchange_weak_explicit(&a->full_ns, &full, next, memory_order_relaxed,
                                                    memory_order_relaxed));
}
