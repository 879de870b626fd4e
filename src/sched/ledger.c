/* SPDX-License-Identifier: Apache-2.0 */
/** @file The ledger: atomics raised within the limit and lowered exactly once. See model/cell_t.h for who else looks. */
#include "sched/ledger.h"

#include "base/bug.h"
#include "base/num.h"
#include "sched/breaker.h"
#include "sched/row.h"

/* Whatever a client claims to need, promises must not wrap: 2^40 bytes or tokens are beyond any endpoint already. */
enum { PROMISE_BITS = 40 };
static const uint64_t PROMISE_MAX = UINT64_C(1) << PROMISE_BITS;

static bool raise_within(atomic_uint *count, uint32_t limit)
{
    unsigned now = atomic_load_explicit(count, memory_order_relaxed);

    do {
        if (limit != 0 && now >= limit)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(count, &now, now + 1, memory_order_acq_rel,
                                                    memory_order_relaxed));
    return true;
}

static void lower(atomic_ullong *count, uint64_t by)
{
    if (by != 0)
        BUG_ON(atomic_fetch_sub_explicit(count, by, memory_order_acq_rel) < by);
}

static void raise(atomic_ullong *count, uint64_t by)
{
    if (by != 0)
        atomic_fetch_add_explicit(count, by, memory_order_acq_rel);
}

/* A request needs its share on every device of a tensor-parallel engine; rounded up, so that the sum is enough. */
static uint64_t share_of(const struct device_set *d, uint64_t bytes)
{
    return bytes / d->n + (bytes % d->n != 0);
}

static void promise_on_devices(struct reservation *r, struct device_set *d, bool explicit_bytes)
{
    if (!d || r->bytes == 0 || (d->tokens && !explicit_bytes))
        return;
    for (uint32_t i = 0; i < d->n_list; i++)
        raise(&d->list[i]->promised_bytes, share_of(d, r->bytes));
    r->devices = d;
}

int sched_reserve(struct reservation *r, struct cell *c, uint32_t limit, const struct features *f)
{
    struct sched_need need = sched_need_of(f);

    BUG_ON(r->cell);
    if (!raise_within(&c->address->inflight, limit))
        return WEIR_E_FULL;
    sched_cell_get(c);
    *r = (struct reservation){
        .cell = c,
        .prefill_tokens = MIN(f->prompt_tokens, PROMISE_MAX),
        .bytes = MIN(need.bytes, PROMISE_MAX),
        .tokens = MIN(need.tokens, PROMISE_MAX),
        .sample_count = atomic_load_explicit(&c->sample_count, memory_order_acquire),
    };
    atomic_fetch_add_explicit(&c->inflight, 1, memory_order_acq_rel);
    raise(&c->prefill_tokens, r->prefill_tokens);
    raise(&c->promised_bytes, r->bytes);
    raise(&c->promised_tokens, r->tokens);
    promise_on_devices(r, atomic_load_explicit(&c->devices, memory_order_acquire),
                       need.explicit_bytes);
    atomic_fetch_add_explicit(&c->requests_total, 1, memory_order_relaxed);
    cell_changed(c);
    return 0;
}

int sched_reserve_trial(struct reservation *r,
                        struct cell *c,
                        uint32_t limit,
                        const struct features *f,
                        uint64_t now_ns)
{
    enum breaker_pass pass = sched_breaker_enter(c, now_ns);

    if (pass == BREAKER_BLOCKED)
        return WEIR_E_FULL;
    int rc = sched_reserve(r, c, limit, f);
    if (pass == BREAKER_FREE)
        return rc;
    if (rc)
        sched_breaker_leave(c);
    else
        r->trial = true;
    return rc;
}

void sched_trial_over(struct reservation *r)
{
    if (r->cell && r->trial)
        sched_breaker_leave(r->cell);
    r->trial = false;
}

/* It no longer waits for its first byte. */
static void drop_await(struct reservation *r)
{
    if (!r->counted || !r->awaits || r->first_byte)
        return;
    lower(&r->cell->await_us, r->own_us);
    BUG_ON(atomic_fetch_sub_explicit(&r->cell->await, 1, memory_order_acq_rel) == 0);
}

static void drop_work(struct reservation *r)
{
    struct cell *c = r->cell;

    if (!r->counted)
        return;
    drop_await(r);
    lower(&c->context_tokens, r->context);
    if (!r->awaits)
        BUG_ON(atomic_fetch_sub_explicit(&c->whole, 1, memory_order_acq_rel) == 0);
    if (!r->first_byte) {
        /* It never got its turn, or not to its end: those behind it move up. */
        unsigned long long until = atomic_load_explicit(&c->work_until_ns, memory_order_relaxed);
        while (!atomic_compare_exchange_weak_explicit(
            &c->work_until_ns, &until,
            until > r->own_us * NS_PER_US ? until - r->own_us * NS_PER_US : 0, memory_order_relaxed,
            memory_order_relaxed)) {
        }
    }
    r->counted = false;
}

void sched_first_byte(struct reservation *r)
{
    if (!r->cell || r->first_byte)
        return;
    drop_await(r);
    lower(&r->cell->prefill_tokens, r->prefill_tokens);
    r->prefill_tokens = 0;
    r->first_byte = true;
    cell_changed(r->cell);
}

static void drop_promise(struct reservation *r)
{
    lower(&r->cell->promised_bytes, r->bytes);
    lower(&r->cell->promised_tokens, r->tokens);
    for (uint32_t i = 0; r->devices && i < r->devices->n_list; i++)
        lower(&r->devices->list[i]->promised_bytes, share_of(r->devices, r->bytes));
    r->devices = NULL;
    r->bytes = r->tokens = 0;
}

void sched_settle(struct reservation *r)
{
    if (r->cell && r->first_byte && (r->bytes != 0 || r->tokens != 0) &&
        atomic_load_explicit(&r->cell->sample_count, memory_order_acquire) - r->sample_count >= 2) {
        drop_promise(r);
        cell_changed(r->cell);
    }
}

bool sched_shares_devices(const struct reservation *r)
{
    return r->devices && (atomic_load_explicit(&r->cell->gate, memory_order_relaxed) & GATE_SHARED);
}

struct cell *sched_release(struct reservation *r)
{
    struct cell *c = r->cell;

    if (!c)
        return NULL;
    BUG_ON(r->charge.tenant);
    sched_trial_over(r);
    lower(&c->prefill_tokens, r->prefill_tokens);
    drop_promise(r);
    drop_work(r);
    BUG_ON(atomic_fetch_sub_explicit(&c->inflight, 1, memory_order_acq_rel) == 0);
    /* Last, and sequentially consistent, as the word of it is: whoever releases looks at waiting_pools after this, whoever
     * waits raised it before looking for room. One of the two sees the other. */
    BUG_ON(atomic_fetch_sub(&c->address->inflight, 1) == 0);
    cell_changed(c);
    *r = (struct reservation){0};
    return c;
}

void sched_cell_get(struct cell *c)
{
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
}

void sched_cell_put(struct cell *c)
{
    unsigned before = atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel);

    BUG_ON(before == 0);
    if (before != 1)
        return;
    /* Only pushes and take-alls happen on this stack, so a stale head cannot be mistaken for a fresh one. */
    c->next_dead = atomic_load_explicit(&c->home->dead, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&c->home->dead, &c->next_dead, c,
                                                  memory_order_release, memory_order_relaxed)) {
    }
}
