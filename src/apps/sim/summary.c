/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/sim/summary.h"

#include <stdlib.h>

#include "base/bug.h"
#include "des/draw.h"

const struct sim_metric_word sim_metric_words[SIM_METRIC_COUNT] = {
#define SIM_METRIC_WORD(name, unit, decimals, words) {#name, unit, words, decimals},
    SIM_METRICS(SIM_METRIC_WORD)
#undef SIM_METRIC_WORD
};

double sim_ttft(const struct sim_outcome *o)
{
    return (double)(o->first_ns - o->at_ns) / 1e9;
}

double sim_e2e(const struct sim_outcome *o)
{
    return (double)(o->end_ns - o->at_ns) / 1e9;
}

double sim_tpot(const struct sim_outcome *o, const struct sim_request *r)
{
    if (r->output_tokens < 2)
        return -1;
    return (double)(o->end_ns - o->first_ns) / (r->output_tokens - 1) / 1e6;
}

bool sim_good(const struct sim_outcome *o, const struct sim_request *r, const struct sim_targets *t)
{
    if (o->end != SIM_OK || (t->ttft_ns && o->first_ns - o->at_ns > t->ttft_ns))
        return false;
    return !t->tpot_ns || sim_tpot(o, r) * 1e6 <= (double)t->tpot_ns;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Values of one kind: collected, then sorted. */
struct column {
    double *v;
    uint32_t n;
    double sum;
};

static void add(struct column *c, double v)
{
    c->v[c->n++] = v;
    c->sum += v;
}

static void sort(struct column *c)
{
    if (c->n)
        qsort(c->v, c->n, sizeof(*c->v), by_value);
}

/* Nearest rank. */
static double at(const struct column *c, uint32_t percent)
{
    if (c->n == 0)
        return 0;
    uint64_t rank = ((uint64_t)c->n * percent + 99) / 100;
    return c->v[rank ? rank - 1 : 0];
}

static double mean(const struct column *c)
{
    return c->n ? c->sum / c->n : 0;
}

enum { TTFT, TPOT, E2E, WAIT, COLUMNS };

static void collect(const struct sim_result *r,
                    const struct sim_trace *t,
                    int tenant,
                    struct column c[COLUMNS],
                    struct sim_tenant_summary *count)
{
    for (uint32_t i = 0; i < r->n; i++) {
        const struct sim_outcome *o = &r->outcomes[i];
        const struct sim_request *q = &t->requests[i];
        if (tenant >= 0 && q->tenant != tenant)
            continue;
        count->requests++;
        if (o->end != SIM_OK) {
            /* Those that waited in vain waited too. */
            if (o->rejection == REJECT_QUEUE_TIMEOUT)
                add(&c[WAIT], (double)(o->end_ns - o->at_ns) / 1e9);
            continue;
        }
        count->ok++;
        add(&c[WAIT], (double)(o->sent_ns - o->at_ns) / 1e9);
        add(&c[TTFT], sim_ttft(o));
        add(&c[E2E], sim_e2e(o));
        if (q->output_tokens > 1)
            add(&c[TPOT], sim_tpot(o, q));
    }
    for (int k = 0; k < COLUMNS; k++)
        sort(&c[k]);
}

static void times(struct sim_summary *s, const struct column c[COLUMNS])
{
    s->m[SIM_M_ttft_mean] = mean(&c[TTFT]);
    s->m[SIM_M_ttft_p50] = at(&c[TTFT], 50);
    s->m[SIM_M_ttft_p90] = at(&c[TTFT], 90);
    s->m[SIM_M_ttft_p95] = at(&c[TTFT], 95);
    s->m[SIM_M_ttft_p99] = at(&c[TTFT], 99);
    s->m[SIM_M_tpot_mean] = mean(&c[TPOT]);
    s->m[SIM_M_tpot_p50] = at(&c[TPOT], 50);
    s->m[SIM_M_tpot_p95] = at(&c[TPOT], 95);
    s->m[SIM_M_tpot_p99] = at(&c[TPOT], 99);
    s->m[SIM_M_e2e_mean] = mean(&c[E2E]);
    s->m[SIM_M_e2e_p50] = at(&c[E2E], 50);
    s->m[SIM_M_e2e_p95] = at(&c[E2E], 95);
    s->m[SIM_M_e2e_p99] = at(&c[E2E], 99);
    s->m[SIM_M_wait_mean] = mean(&c[WAIT]);
    s->m[SIM_M_wait_p95] = at(&c[WAIT], 95);
}

static void counts(struct sim_summary *s,
                   const struct sim_result *r,
                   const struct sim_trace *t,
                   const struct sim_targets *targets)
{
    double good = 0;
    double input = 0;
    double output = 0;
    double seconds = r->end_ns ? (double)r->end_ns / 1e9 : 1;

    s->m[SIM_M_requests] = r->n;
    for (uint32_t i = 0; i < r->n; i++) {
        const struct sim_outcome *o = &r->outcomes[i];
        good += sim_good(o, &t->requests[i], targets);
        s->m[SIM_M_ok] += o->end == SIM_OK;
        s->m[SIM_M_rejected] += o->end == SIM_REJECTED;
        s->m[SIM_M_memory_failures] += o->end == SIM_MEMORY;
        if (o->end != SIM_OK)
            continue;
        input += t->requests[i].prompt_tokens;
        output += t->requests[i].output_tokens;
    }
    s->m[SIM_M_requests_per_s] = s->m[SIM_M_ok] / seconds;
    s->m[SIM_M_input_tokens_per_s] = input / seconds;
    s->m[SIM_M_output_tokens_per_s] = output / seconds;
    s->m[SIM_M_goodput] = r->n ? good / r->n : 0;
    s->m[SIM_M_goodput_per_s] = good / seconds;
}

static void workers(struct sim_summary *s, const struct sim_result *r)
{
    double prompt = 0;
    double cached = 0;
    double most = 0;
    double requests = 0;
    double most_requests = 0;
    double least = 1;
    double busiest = 0;
    double sum = 0;
    uint32_t present = 0;

    for (uint32_t i = 0; i < r->n_workers; i++) {
        const struct sim_worker_result *w = &r->workers[i];
        prompt += (double)w->prompt_tokens;
        cached += (double)w->cached_tokens;
        most = MAX(most, (double)(w->prompt_tokens - w->cached_tokens));
        requests += (double)w->requests;
        most_requests = MAX(most_requests, (double)w->requests);
        s->m[SIM_M_preemptions] += (double)w->preemptions;
        if (w->present_ns == 0)
            continue; /* it never came */
        double busy = (double)w->busy_ns / (double)w->present_ns;
        present++;
        sum += busy;
        least = MIN(least, busy);
        busiest = MAX(busiest, busy);
    }
    double average = present ? sum / present : 0;
    least = MIN(least, average);
    s->m[SIM_M_hit_ratio] = prompt > 0 ? cached / prompt : 0;
    s->m[SIM_M_busy_mean] = average;
    s->m[SIM_M_busy_min] = least;
    s->m[SIM_M_busy_max] = busiest;
    s->m[SIM_M_busy_away] = MAX(busiest - average, average - least);
    s->m[SIM_M_uncached_spread] = prompt > cached ? most * r->n_workers / (prompt - cached) : 0;
    s->m[SIM_M_requests_spread] = requests > 0 ? most_requests * r->n_workers / requests : 0;
}

int sim_summarise(const struct sim_result *r,
                  const struct sim_trace *t,
                  const struct sim_targets *targets,
                  struct sim_summary *out)
{
    double *room = mem_array(r->mem, (size_t)r->n * COLUMNS, sizeof(*room));

    *out = (struct sim_summary){.m = {0}};
    if (!room)
        return WEIR_E_NOMEM;
    counts(out, r, t, targets);
    workers(out, r);
    for (int tenant = -1; tenant < (int)t->n_tenants; tenant++) {
        struct sim_tenant_summary all = {0};
        struct column c[COLUMNS];
        for (uint32_t k = 0; k < COLUMNS; k++)
            c[k] = (struct column){.v = room + (size_t)k * r->n};
        collect(r, t, tenant, c, tenant < 0 ? &all : &out->tenants[tenant]);
        if (tenant < 0) {
            times(out, c);
            continue;
        }
        out->tenants[tenant].wait_p95 = at(&c[WAIT], 95);
        out->tenants[tenant].ttft_p95 = at(&c[TTFT], 95);
        out->tenants[tenant].e2e_p95 = at(&c[E2E], 95);
    }
    mem_free(r->mem, room);
    return 0;
}

struct sim_mean sim_metric_mean(const struct sim_summary *s, uint32_t n, enum sim_metric m)
{
    double sum = 0;
    double squares = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += s[i].m[m];
    double average = sum / n;
    for (uint32_t i = 0; i < n; i++)
        squares += (s[i].m[m] - average) * (s[i].m[m] - average);
    double deviation = n > 1 ? des_sqrt(squares / (n - 1)) : 0;
    return (struct sim_mean){average, des_interval(deviation, n)};
}
