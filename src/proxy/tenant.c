/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose a request is: its weight in the queue, its limit, what it used. Limits and counts are the process's and named in
 * the configuration; the token counters that order a queue belong to each pool (sched/tenants.h).
 */
#include "base/num.h"
#include "proxy/exchange.h"
#include "sched/work.h"

static void add(atomic_ullong *to, uint64_t n)
{
    atomic_fetch_add_explicit(to, n, memory_order_relaxed);
}

static enum rejection
refuse(struct exchange *x, const struct plan_tenant *t, const char *which, uint64_t wait_ns)
{
    add(&t->account->refused, 1);
    x->limit_hit = which;
    x->limit_wait_ns = wait_ns;
    return REJECT_RATE_LIMITED;
}

static const char no_tokens[] =
    "the tenant has used the tokens that it may use in a minute; try again later";

enum rejection tenant_enter(struct exchange *x)
{
    if (!x->route->trust_tenant || !x->f.tenant.n)
        return REJECT_NONE;
    const struct plan_tenant *t = plan_tenant(x->plan, x->f.tenant);
    struct tenant_account *a = t->account;
    const struct tenant_limits *limits = &t->config.limits;
    uint64_t now_ns = loop_now(x->lane->loop);
    /* Before its body is read; whether there is enough for it is seen with the body. */
    uint64_t wait = sched_allowance_wait_ns(&a->token_allowance, limits->tokens, now_ns);
    if (wait)
        return refuse(x, t, no_tokens, wait);
    unsigned now = atomic_load_explicit(&a->inflight, memory_order_relaxed);
    do {
        if (t->config.max_in_flight && now >= t->config.max_in_flight)
            return refuse(x, t,
                          "the tenant has as many requests under way as it may; try again when "
                          "one of them has ended",
                          0);
    } while (!atomic_compare_exchange_weak_explicit(&a->inflight, &now, now + 1,
                                                    memory_order_relaxed, memory_order_relaxed));
    wait = sched_allowance_take(&a->request_allowance, limits->requests, 1, now_ns);
    if (wait) {
        atomic_fetch_sub_explicit(&a->inflight, 1, memory_order_relaxed);
        return refuse(x, t,
                      "the tenant has sent as many requests as it may in a minute; try again later",
                      wait);
    }
    x->tenant_of = t;
    x->f.tenant_weight = t->config.weight;
    return REJECT_NONE;
}

/* At which rate something is given back that was taken at the rate of its plan: at the one of now where that is larger, for
   what was taken before has been made cheaper with it. Without a limit then nothing was taken. */
static uint64_t rate_of(atomic_uint *now, uint32_t then)
{
    return then ? MAX(atomic_load_explicit(now, memory_order_relaxed), then) : 0;
}

enum rejection tenant_take_tokens(struct exchange *x)
{
    const struct plan_tenant *t = x->tenant_of;

    if (!t || !t->config.limits.tokens || x->input_taken)
        return REJECT_NONE;
    struct sched_question q = sched_work_question(&x->f);
    uint64_t input = MAX(q.prompt, UINT64_C(1));
    uint64_t output = q.by_tokens ? q.output : 0;
    uint64_t now_ns = loop_now(x->lane->loop);
    uint64_t wait = sched_allowance_take(&t->account->token_allowance, t->config.limits.tokens,
                                         input + output, now_ns);
    if (wait) {
        /* Others were faster since tenant_enter(): so it was not let in. */
        sched_allowance_correct(&t->account->request_allowance,
                                rate_of(&t->account->requests_a_minute, t->config.limits.requests),
                                1, 0, now_ns);
        return refuse(x, t, no_tokens, wait);
    }
    x->input_taken = input;
    x->output_taken = output;
    return REJECT_NONE;
}

/* Tokens that the present attempt used. An answer that does not say it is taken for what was expected. */
static void used(const struct exchange *x, uint64_t *input, uint64_t *output)
{
    const struct usage *u = &x->reader.usage;

    *input = *output = 0;
    if (x->rsp_started && x->status < 400) {
        *input = usage_has(u, USAGE_PROMPT) ? u->prompt_tokens : UINT64_MAX;
        *output = usage_has(u, USAGE_COMPLETION) ? u->completion_tokens : UINT64_MAX;
    } else if (x->request_sent && !x->rsp_started) {
        *input = UINT64_MAX; /* given up while its prompt was computed */
    }
}

static void correct_tokens(struct exchange *x, const struct plan_tenant *t)
{
    uint64_t input;
    uint64_t output;

    if (!x->input_taken)
        return;
    used(x, &input, &output);
    input = input == UINT64_MAX ? x->input_taken : MIN(input, SCHED_TOKENS_MOST);
    output = output == UINT64_MAX ? x->output_taken : MIN(output, SCHED_TOKENS_MOST);
    sched_allowance_correct(&t->account->token_allowance,
                            rate_of(&t->account->tokens_a_minute, t->config.limits.tokens),
                            x->input_taken + x->output_taken, input + output,
                            loop_now(x->lane->loop));
}

void tenant_leave(struct exchange *x, uint64_t queued_ns)
{
    if (!x->tenant_of)
        return;
    struct tenant_account *a = x->tenant_of->account;
    const struct usage *u = &x->reader.usage;

    correct_tokens(x, x->tenant_of);
    x->tenant_of = NULL;
    add(&a->requests, x->limit_hit ? 0 : 1);
    add(&a->queued_ns, queued_ns);
    add(&a->input, usage_has(u, USAGE_PROMPT) ? u->prompt_tokens : 0);
    add(&a->output, usage_has(u, USAGE_COMPLETION) ? u->completion_tokens : 0);
    BUG_ON(atomic_fetch_sub_explicit(&a->inflight, 1, memory_order_relaxed) == 0);
}

void tenant_settle(struct exchange *x, struct reservation *r)
{
    uint64_t input = 0;
    uint64_t output = 0;

    if (!r->charge.tenant)
        return;
    if (r == &x->reservation)
        used(x, &input, &output);
    pthread_mutex_lock(&x->pool->lock);
    sched_pool_settle(x->pool->sched, r, input, output);
    pthread_mutex_unlock(&x->pool->lock);
}
