/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose a request is: its weight in the queue, its limit, what it used. Limits and counts are the process's and named in
 * the configuration; the token counters that order a queue belong to each pool (sched/tenants.h).
 */
#include "proxy/exchange.h"

static void add(atomic_ullong *to, uint64_t n)
{
    atomic_fetch_add_explicit(to, n, memory_order_relaxed);
}

enum rejection tenant_enter(struct exchange *x)
{
    if (!x->route->trust_tenant || !x->f.tenant.n)
        return REJECT_NONE;
    const struct plan_tenant *t = plan_tenant(x->plan, x->f.tenant);
    unsigned now = atomic_load_explicit(&t->account->inflight, memory_order_relaxed);
    do {
        if (t->config.max_in_flight && now >= t->config.max_in_flight) {
            add(&t->account->refused, 1);
            return REJECT_RATE_LIMITED;
        }
    } while (!atomic_compare_exchange_weak_explicit(&t->account->inflight, &now, now + 1,
                                                    memory_order_relaxed, memory_order_relaxed));
    x->tenant_of = t;
    x->f.tenant_weight = t->config.weight;
    return REJECT_NONE;
}

void tenant_leave(struct exchange *x, uint64_t queued_ns)
{
    if (!x->tenant_of)
        return;
    struct tenant_account *a = x->tenant_of->account;
    const struct usage *u = &x->reader.usage;

    x->tenant_of = NULL;
    add(&a->requests, 1);
    add(&a->queued_ns, queued_ns);
    add(&a->input, usage_has(u, USAGE_PROMPT) ? u->prompt_tokens : 0);
    add(&a->output, usage_has(u, USAGE_COMPLETION) ? u->completion_tokens : 0);
    BUG_ON(atomic_fetch_sub_explicit(&a->inflight, 1, memory_order_relaxed) == 0);
}

void tenant_settle(struct exchange *x, struct reservation *r)
{
    const struct usage *u = &x->reader.usage;
    uint64_t input = 0;
    uint64_t output = 0;

    if (!r->charge.tenant)
        return;
    if (r == &x->reservation && x->rsp_started && x->status < 400) {
        /* An answer that does not say what it used is taken for what was expected. */
        input = usage_has(u, USAGE_PROMPT) ? u->prompt_tokens : UINT64_MAX;
        output = usage_has(u, USAGE_COMPLETION) ? u->completion_tokens : UINT64_MAX;
    } else if (r == &x->reservation && x->request_sent && !x->rsp_started) {
        input = UINT64_MAX; /* given up while its prompt was computed */
    }
    pthread_mutex_lock(&x->pool->lock);
    sched_pool_settle(x->pool->sched, r, input, output);
    pthread_mutex_unlock(&x->pool->lock);
}
