/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/sim/report.h"
#include "base/bug.h"

enum { DECIMALS = 6 };

static void key(struct buf *out, const char *before, const char *name)
{
    buf_put_str(out, before);
    buf_put_json(out, slice_str(name));
    buf_put_str(out, ": ");
}

static void number(struct buf *out, const char *before, const char *name, double v)
{
    key(out, before, name);
    buf_put_f64(out, v, DECIMALS);
}

static void whole(struct buf *out, const char *before, const char *name, uint64_t v)
{
    key(out, before, name);
    buf_put_u64(out, v);
}

static void put_inputs(const struct sim_report *r, struct buf *out)
{
    const struct sim_options *o = &r->command->run;

    key(out, "{\n ", "trace");
    buf_put_json(out, slice_str(r->command->trace));
    key(out, ",\n ", "fleet");
    buf_put_json(out, slice_str(r->command->fleet));
    whole(out, ",\n ", "requests", r->trace->n);
    whole(out, ", ", "guessed_answers", r->trace->guessed);
    whole(out, ", ", "workers", r->fleet->n_workers);
    whole(out, ",\n ", "seed", o->seed);
    whole(out, ", ", "seeds", r->command->seeds);
    number(out, ", ", "rate_scale", o->rate_scale);
    whole(out, ", ", "closed", o->closed);
    key(out, ", ", "jitter");
    buf_put_str(out, o->jitter ? "true" : "false");
    key(out, ", ", "oracle");
    buf_put_str(out, o->oracle ? "true" : "false");
    number(out, ",\n ", "report_ms", (double)o->report_ns / 1e6);
    number(out, ", ", "stale_ms", (double)o->stale_ns / 1e6);
    number(out, ", ", "loss", o->loss);
    number(out, ", ", "noise", o->noise);
    number(out, ",\n ", "slo_ttft_ms", (double)r->command->targets.ttft_ns / 1e6);
    number(out, ", ", "slo_tpot_ms", (double)r->command->targets.tpot_ns / 1e6);
}

static void put_metrics(const struct sim_report *r, const struct sim_entry *e, struct buf *out)
{
    buf_put_str(out, ",\n   \"metrics\": {");
    for (unsigned m = 0; m < SIM_METRIC_COUNT; m++) {
        struct sim_mean v = sim_metric_mean(e->summaries, r->command->seeds, (enum sim_metric)m);
        key(out, m ? ",\n    " : "\n    ", sim_metric_words[m].name);
        number(out, "{", "mean", v.mean);
        number(out, ", ", "ci95", v.half);
        buf_put_str(out, ", \"seeds\": [");
        for (uint32_t i = 0; i < r->command->seeds; i++) {
            buf_put_str(out, i ? ", " : "");
            buf_put_f64(out, e->summaries[i].m[m], DECIMALS);
        }
        buf_put_str(out, "]}");
    }
    buf_put_str(out, "}");
}

static void put_tenants(const struct sim_report *r, const struct sim_entry *e, struct buf *out)
{
    buf_put_str(out, ",\n   \"tenants\": [");
    for (uint32_t i = 0; i < r->trace->n_tenants; i++) {
        const struct sim_tenant_summary *t = &e->summaries[0].tenants[i];
        key(out, i ? ",\n    {" : "\n    {", "tenant");
        buf_put_json(out, slice_str(r->trace->tenants[i]));
        whole(out, ", ", "requests", t->requests);
        whole(out, ", ", "ok", t->ok);
        number(out, ", ", "wait_p95", t->wait_p95);
        number(out, ", ", "ttft_p95", t->ttft_p95);
        number(out, ", ", "e2e_p95", t->e2e_p95);
        buf_put_char(out, '}');
    }
    buf_put_str(out, "]");
}

static void put_workers(const struct sim_entry *e, struct buf *out)
{
    buf_put_str(out, ",\n   \"workers\": [");
    for (uint32_t i = 0; i < e->first.n_workers; i++) {
        const struct sim_worker_result *w = &e->first.workers[i];
        key(out, i ? ",\n    {" : "\n    {", "id");
        buf_put_json(out, slice_str(w->id));
        whole(out, ", ", "requests", w->requests);
        whole(out, ", ", "prompt_tokens", w->prompt_tokens);
        whole(out, ", ", "cached_tokens", w->cached_tokens);
        whole(out, ", ", "preemptions", w->preemptions);
        number(out, ", ", "busy", w->present_ns ? (double)w->busy_ns / (double)w->present_ns : 0);
        buf_put_char(out, '}');
    }
    buf_put_str(out, "]");
}

static const char *const rejection_codes[REJECT_COUNT] = {
#define CODE(name, code, status, type) [REJECT_##name] = (code),
    WEIR_REJECTIONS(CODE)
#undef CODE
};

static void put_rejections(const struct sim_entry *e, struct buf *out)
{
    uint64_t n[REJECT_COUNT] = {0};
    bool any = false;

    for (uint32_t i = 0; i < e->first.n; i++)
        if (e->first.outcomes[i].end == SIM_REJECTED)
            n[e->first.outcomes[i].rejection]++;
    buf_put_str(out, ",\n   \"rejections\": {");
    for (unsigned i = 1; i < REJECT_COUNT; i++) {
        if (n[i] == 0)
            continue;
        whole(out, any ? ", " : "", rejection_codes[i], n[i]);
        any = true;
    }
    buf_put_char(out, '}');
}

void sim_report_json(const struct sim_report *r, struct buf *out)
{
    put_inputs(r, out);
    buf_put_str(out, ",\n \"policies\": [");
    for (uint32_t i = 0; i < r->n; i++) {
        const struct sim_entry *e = &r->entries[i];
        key(out, i ? ",\n  {" : "\n  {", "policy");
        buf_put_json(out, e->policy->name);
        put_metrics(r, e, out);
        put_tenants(r, e, out);
        put_rejections(e, out);
        put_workers(e, out);
        buf_put_str(out, "}");
    }
    buf_put_str(out, "]\n}\n");
}
