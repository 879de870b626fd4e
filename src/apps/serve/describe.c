/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/serve/describe.h"

#include "base/bug.h"
#include "model/instance.h"
#include "sched/breaker.h"
#include "sched/row.h"

/* Object members with a comma before each but the first. */
static void key(struct buf *out, bool *first, const char *name)
{
    if (!*first)
        buf_put_char(out, ',');
    *first = false;
    buf_put_json(out, slice_str(name));
    buf_put_char(out, ':');
}

static void text(struct buf *out, bool *first, const char *name, struct slice value)
{
    if (!value.p || value.n == 0)
        return;
    key(out, first, name);
    buf_put_json(out, value);
}

static void number(struct buf *out, bool *first, const char *name, double value, unsigned decimals)
{
    key(out, first, name);
    buf_put_f64(out, value, decimals);
}

static void boolean(struct buf *out, bool *first, const char *name, bool value)
{
    key(out, first, name);
    buf_put_str(out, value ? "true" : "false");
}

const char *describe_health(const struct member *m)
{
    int health = atomic_load_explicit(&m->cell->health, memory_order_relaxed);

    return health == HEALTH_UP ? "up" : health == HEALTH_DOWN ? "down" : "unknown";
}

static const char *state_name(enum reported_state s)
{
    static const char *const names[] = {"healthy", "busy", "loading", "unhealthy", "draining"};

    return names[s];
}

static void put_url(const struct endpoint *e, struct buf *out)
{
    bool local = e->host.n && e->host.p[0] == '/';

    buf_put_str(out, local ? "http+unix://" : e->tls ? "https://" : "http://");
    buf_put_slice(out, e->authority);
}

static void put_models(const struct endpoint *e, struct buf *out, bool *first)
{
    key(out, first, "models");
    buf_put_char(out, '[');
    for (uint32_t i = 0; i < e->n_models; i++) {
        bool inner = true;
        buf_put_str(out, i ? ",{" : "{");
        text(out, &inner, "id", e->models[i].id);
        text(out, &inner, "version", e->models[i].version);
        text(out, &inner, "lora_base", e->models[i].lora_base);
        if (e->models[i].max_model_len)
            number(out, &inner, "max_model_len", e->models[i].max_model_len, 0);
        buf_put_char(out, '}');
    }
    buf_put_char(out, ']');
}

static void put_kv(struct buf *out, bool *first, const char *name, const struct kv *kv, uint32_t n)
{
    key(out, first, name);
    model_write_kv(out, kv, n);
}

static void put_sample(const struct sample *s, uint64_t now_ns, struct buf *out)
{
    bool first = true;
    const struct {
        enum sample_field field;
        const char *name;
        double value;
        unsigned decimals;
    } values[] = {
        {SAMPLE_GPU_UTIL, "gpu_util_percent", s->gpu_util_bp / 100.0, 2},
        {SAMPLE_MEMBW_UTIL, "membw_util_percent", s->membw_util_bp / 100.0, 2},
        {SAMPLE_SM_ACTIVE, "sm_active_percent", s->sm_active_bp / 100.0, 2},
        {SAMPLE_MEMORY_FREE, "memory_free_bytes", (double)s->memory_free_bytes, 0},
        {SAMPLE_MEMORY_TOTAL, "memory_total_bytes", (double)s->memory_total_bytes, 0},
        {SAMPLE_KV_CAPACITY, "kv_capacity_tokens", (double)s->kv_capacity_tokens, 0},
        {SAMPLE_KV_USED, "kv_used_tokens", (double)s->kv_used_tokens, 0},
        {SAMPLE_RUNNING, "running", s->running, 0},
        {SAMPLE_WAITING, "waiting", s->waiting, 0},
        {SAMPLE_BATCH, "batch", s->batch, 0},
        {SAMPLE_TOKENS_PER_S, "tokens_per_s", s->tokens_per_s, 0},
    };

    buf_put_char(out, '{');
    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        if (sample_has(s, values[i].field))
            number(out, &first, values[i].name, values[i].value, values[i].decimals);
    if (sample_has(s, SAMPLE_STATE))
        text(out, &first, "state", slice_str(state_name(s->state)));
    number(out, &first, "age_ms", (double)(now_ns - MIN(now_ns, s->received_ns)) / 1e6, 0);
    boolean(out, &first, "fresh", sample_fresh(s, now_ns));
    buf_put_char(out, '}');
}

static void put_breaker(const struct cell *c, uint64_t now_ns, struct buf *out)
{
    static const char *const states[] = {"closed", "half-open", "open"};
    static const char *const causes[BREAKER_CAUSES] = {NULL, "silent", "connect", "failed"};
    struct breaker_look look = sched_breaker_look(c, now_ns);
    bool first = true;

    buf_put_char(out, '{');
    text(out, &first, "state", slice_str(states[look.state]));
    if (look.state != BREAKER_CLOSED) {
        text(out, &first, "cause", slice_str(causes[look.cause]));
        number(out, &first, "cooldown_left_ms", (double)look.left_ns / 1e6, 0);
        number(out, &first, "trips", look.trips, 0);
        boolean(out, &first, "trial", look.trial);
    }
    buf_put_char(out, '}');
}

void describe_endpoint(
    const struct member *m, struct slice source, struct slice why, uint64_t now_ns, struct buf *out)
{
    const struct endpoint *e = m->endpoint;
    const struct cell *c = m->cell;
    struct sample s;
    bool first = true;

    buf_put_char(out, '{');
    text(out, &first, "id", e->id);
    key(out, &first, "url");
    buf_put_char(out, '"');
    put_url(e, out);
    buf_put_char(out, '"');
    text(out, &first, "service", e->service);
    text(out, &first, "source", source);
    number(out, &first, "slot", e->slot, 0);
    number(out, &first, "generation", e->generation, 0);
    put_models(e, out, &first);
    text(out, &first, "gpu_type", e->gpu_type);
    if (e->memory_total_bytes)
        number(out, &first, "memory_total_bytes", (double)e->memory_total_bytes, 0);
    number(out, &first, "weight", e->weight / 1000.0, 3);
    boolean(out, &first, "enabled", e->enabled);
    boolean(out, &first, "draining", e->draining);
    text(out, &first, "health", slice_str(describe_health(m)));
    key(out, &first, "breaker");
    put_breaker(c, now_ns, out);
    text(out, &first, "check_error", why);
    if (!e->registry_healthy)
        boolean(out, &first, "registry_healthy", false);
    /* No lease speaks for it: it is used once a check has passed. */
    if (!e->vouched && atomic_load_explicit(&c->health, memory_order_relaxed) == HEALTH_UNKNOWN)
        boolean(out, &first, "awaits_check", true);
    if (e->max_concurrency)
        number(out, &first, "max_concurrency", e->max_concurrency, 0);
    text(out, &first, "region", e->region);
    text(out, &first, "zone", e->zone);
    text(out, &first, "cluster", e->cluster);
    put_kv(out, &first, "labels", e->labels, e->n_labels);
    put_kv(out, &first, "metadata", e->metadata, e->n_metadata);
    number(out, &first, "inflight", atomic_load_explicit(&c->inflight, memory_order_relaxed), 0);
    number(out, &first, "promised_bytes",
           (double)atomic_load_explicit(&c->promised_bytes, memory_order_relaxed), 0);
    number(out, &first, "promised_tokens",
           (double)atomic_load_explicit(&c->promised_tokens, memory_order_relaxed), 0);
    number(out, &first, "prefill_tokens",
           (double)atomic_load_explicit(&c->prefill_tokens, memory_order_relaxed), 0);
    number(out, &first, "requests_total",
           (double)atomic_load_explicit(&c->requests_total, memory_order_relaxed), 0);
    number(out, &first, "failures_total",
           (double)atomic_load_explicit(&c->failures_total, memory_order_relaxed), 0);
    sched_sample_read(m->cell, &s);
    if (s.known) {
        key(out, &first, "sample");
        put_sample(&s, now_ns, out);
    }
    buf_put_char(out, '}');
}

void describe_worker(const struct member *m, struct buf *out)
{
    const struct endpoint *e = m->endpoint;
    bool first = true;

    buf_put_char(out, '{');
    text(out, &first, "id", e->id);
    key(out, &first, "url");
    buf_put_char(out, '"');
    put_url(e, out);
    buf_put_char(out, '"');
    if (e->n_models)
        text(out, &first, "model_id", e->models[0].id);
    boolean(out, &first, "is_healthy",
            atomic_load_explicit(&m->cell->health, memory_order_relaxed) == HEALTH_UP);
    number(out, &first, "load", atomic_load_explicit(&m->cell->inflight, memory_order_relaxed), 0);
    number(out, &first, "cost", e->weight ? 1000.0 / e->weight : 0, 3);
    put_kv(out, &first, "labels", e->labels, e->n_labels);
    buf_put_char(out, '}');
}
