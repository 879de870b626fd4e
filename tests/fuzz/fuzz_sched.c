/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fleet and scheduler under any sequence of updates, samples, probes, requests, outcomes and time. Whatever comes:
 * counters never go below 0 and end at 0, nobody is sent to an endpoint that is gone or full, nothing leaks, what a pool
 * keeps of its endpoints is as they are, and the same input gives the same decisions.
 */
#include "fuzz.h"

#include "base/bug.h"
#include "mirror_rig.h"
#include "sched/breaker.h"
#include "sched/evidence.h"
#include "sched/slo.h"

/* The ledger is looked at after every few steps and at the end: at every step it took most of the time. */
enum { HOSTS = 12, REQUESTS = 48, STEPS = 2000, QUEUE = 24, LEDGER_STEPS = 16 };

struct request {
    struct features f;
    struct reservation r;
    struct sched_waiter w;
    struct sched_exclude x;
};

struct world {
    struct rig rig;
    struct mirror_rig mirror;
    struct request q[REQUESTS];
    uint64_t trace; /* of all that was decided */
    const uint8_t *p, *end;
};

static uint8_t next(struct world *w)
{
    return w->p < w->end ? *w->p++ : 0;
}

static void note(struct world *w, uint64_t v)
{
    w->trace = fuzz_hash(w->trace, &v, sizeof(v));
}

static bool none_in_use(void *ctx, const struct snapshot *s)
{
    (void)ctx;
    (void)s;
    return false;
}

static void refresh(struct world *w)
{
    rig_refresh(&w->rig);
    mirror_follow(&w->mirror, &w->rig);
    fleet_reclaim(w->rig.fleet, none_in_use, NULL);
}

static void upsert(struct world *w)
{
    static const char *const metadata[] = {
        "",
        "remaining_memory=4 gpu_util=35 max_concurrency=1",
        "remaining_memory=9.5 current_requests=3 queue_length=1 gpu_type=A100",
        "engine=vllm gpu_util=100 max_concurrency=3",
        "health_status=loading",
        "health_status=busy gpu_util=junk remaining_memory=-1 report_time_ms=5",
        "report_time_ms=900 gpu_util=80 max_concurrency=2",
        "model_id=m,other model_version=v2 max_model_len=100 supported_tasks=chat",
    };
    struct rig_host h;

    rig_host(&h, next(w) % HOSTS, metadata[next(w) % ARRAY_LEN(metadata)]);
    uint8_t bits = next(w);
    h.i.enabled = (bits & 7) != 1;
    h.i.draining = (bits & 7) == 2;
    h.i.healthy = (bits & 7) != 3;
    h.i.vouched = (bits & 8) == 0;
    h.i.epoch = (bits >> 4) & 1;
    if (bits & 64)
        h.i.n_models = 0;
    h.i.weight = (bits & 32) ? (uint32_t)next(w) * 100 : WEIGHT_ONE;
    note(w, (uint64_t)fleet_upsert(w->rig.fleet, 0, &h.i, w->rig.now));
}

static struct slice key_of(struct rig_host *h, uint8_t n)
{
    rig_host(h, n % HOSTS, "");
    return h->i.key;
}

static void sample(struct world *w)
{
    struct rig_host h;
    struct slice key = key_of(&h, next(w));
    struct sample s = {.known = (uint32_t)next(w) | (uint32_t)next(w) << 8,
                       .fresh_for_ns = (uint64_t)next(w) * 10 * NS_PER_MS,
                       .epoch = next(w) & 1,
                       .seq = next(w)};

    s.known &= (1u << (SAMPLE_STATE + 1)) - 1;
    s.gpu_util_bp = (uint32_t)next(w) * 50;
    s.memory_free_bytes = (uint64_t)next(w) << 28;
    s.memory_total_bytes = (uint64_t)next(w) << 29;
    s.kv_capacity_tokens = (uint64_t)next(w) * 64;
    s.kv_used_tokens = (uint64_t)next(w) * 64;
    s.running = next(w);
    s.waiting = next(w);
    s.state = (enum reported_state)(next(w) % 5);
    note(w, (uint64_t)fleet_sample(w->rig.fleet, 0, key, &s, w->rig.now));
}

static void check_choice(struct world *w, const struct request *q)
{
    const struct endpoint *e = w->rig.chosen.endpoint;
    struct cell *c = w->rig.chosen.cell;

    FUZZ_CHECK(q->r.cell == c);
    FUZZ_CHECK(sched_pool_has(w->rig.pool, e->slot, e->generation));
    FUZZ_CHECK(c->slot == e->slot && c->generation == e->generation);
    FUZZ_CHECK(e->enabled && e->weight > 0 && !e->draining && e->registry_healthy);
    FUZZ_CHECK(e->max_concurrency == 0 || atomic_load(&c->address->inflight) <= e->max_concurrency);
    FUZZ_CHECK(!(atomic_load(&c->health) == HEALTH_DOWN &&
                 (atomic_load(&c->health_flags) & HEALTH_REFUSED)));
    for (uint32_t i = 0; i < q->x.n; i++)
        FUZZ_CHECK(q->x.tried[i].slot != e->slot || q->x.tried[i].generation != e->generation);
    note(w, (uint64_t)e->slot << 32 | e->generation);
}

/* In so many milliseconds each, or none; every rate counts as measured, or none does. */
static void targets(struct world *w, struct features *f)
{
    uint8_t bits = next(w);

    if (bits & 1)
        f->slo_ttft_ns = (uint64_t)next(w) * 10 * NS_PER_MS;
    if (f->slo_ttft_ns)
        f->slo_by_ns = w->rig.now + f->slo_ttft_ns;
    if (bits & 2)
        f->slo_tpot_ns = (uint64_t)next(w) * NS_PER_MS;
    f->task = bits & 4 ? TASK_CHAT : 0;
    f->stream = (bits & 8) != 0;
    for (uint32_t i = 0; (bits & 16) && i < w->mirror.n; i++)
        for (uint32_t k = 0; k < SCHED_KINDS; k++) {
            struct sched_rates *r = w->mirror.c[i].rates[k];
            atomic_store(&r->firsts, bits & 32 ? SCHED_RATES_SURE : 0);
            atomic_store(&r->answers, bits & 64 ? SCHED_RATES_SURE : 0);
        }
}

static void ask(struct world *w)
{
    struct request *q = &w->q[next(w) % REQUESTS];

    if (q->r.cell || q->w.queued)
        return;
    *q = (struct request){.f = {.model = RIG_MODEL}};
    uint8_t bits = next(w);
    q->f.priority = next(w) % 12;
    if (bits & 1)
        q->f.required_bytes = (uint64_t)next(w) << 28;
    if (bits & 2)
        q->f.prompt_tokens = (uint64_t)next(w) * 16;
    if (bits & 4)
        q->f.output_tokens = bits & 128 ? UINT64_MAX : next(w);
    if (bits & 8)
        q->f.kv_bytes_per_token = (uint64_t)next(w) << 12;
    if (bits & 16) {
        q->f.has_session = true;
        q->f.session = next(w);
    }
    if (bits & 32)
        q->f.version = SLICE("v2");
    if (bits & 64) {
        q->x.n = 1;
        q->x.tried[0].slot = next(w) % HOSTS;
        q->x.tried[0].generation = 1;
    }
    /* None, passed, or in so many milliseconds. */
    q->f.deadline_ns = next(w);
    if (q->f.deadline_ns > 1)
        q->f.deadline_ns = w->rig.now + q->f.deadline_ns * NS_PER_MS;
    static const struct slice tenants[] = {{NULL, 0}, SLICE("a"), SLICE("b"), SLICE("c")};
    uint8_t tenant = next(w);
    q->f.tenant = tenants[tenant & 3];
    q->f.tenant_weight = (tenant >> 2) * 100u;
    targets(w, &q->f);
    q->w = (struct sched_waiter){.features = &q->f, .exclude = &q->x, .reservation = &q->r};
    FUZZ_CHECK(mirror_differs(&w->mirror, &w->rig, &q->f) == 0);
    int rc = sched_pool_admit(w->rig.pool, &q->f, &q->x, w->rig.now, w->rig.seed++, &w->rig.scratch,
                              &q->r, &w->rig.chosen, &w->rig.d);
    note(w, (uint64_t)rc << 8 | (uint64_t)w->rig.d.rejection);
    FUZZ_CHECK((rc == 0) == (q->r.cell != NULL));
    FUZZ_CHECK(w->rig.d.rejection != REJECT_SLO_UNREACHABLE || sched_slo_asked(&q->f));
    q->w.prefill_us = w->rig.d.prefill_us;
    if (rc == 0)
        check_choice(w, q);
    else if (rc == WEIR_E_AGAIN) {
        rc = sched_pool_enqueue(w->rig.pool, &q->w, w->rig.now);
        FUZZ_CHECK((rc == 0) == q->w.queued);
        FUZZ_CHECK(rc == 0 || rc == WEIR_E_FULL ||
                   (rc == WEIR_E_TIMEOUT &&
                    (q->w.rejection == REJECT_DEADLINE_EXCEEDED ? q->f.deadline_ns != 0
                                                                : q->f.slo_ttft_ns != 0)));
    }
}

static void offer(struct world *w)
{
    struct sched_waiter *got =
        sched_pool_offer(w->rig.pool, w->rig.now, w->rig.seed++, &w->rig.scratch, &w->rig.chosen);

    if (!got)
        return;
    struct request *q = container_of(got, struct request, w);
    FUZZ_CHECK(!q->w.queued && q->w.rise.at == 0);
    if (q->w.rejection) {
        FUZZ_CHECK(q->w.rejection == REJECT_SLO_UNREACHABLE && sched_slo_asked(&q->f));
        FUZZ_CHECK(!q->r.cell);
        note(w, q->w.late_us);
        return;
    }
    check_choice(w, q);
}

static const struct breaker_rules breaker = {
    .enabled = true, .consecutive = 2, .cooldown_ns = NS_PER_S, .cooldown_max_ns = 4 * NS_PER_S};

static void touch(struct world *w)
{
    struct request *q = &w->q[next(w) % REQUESTS];

    switch (next(w) % 8) {
    case 0:
        sched_first_byte(&q->r);
        break;
    case 1:
        sched_settle(&q->r);
        break;
    case 2:
        sched_pool_cancel(w->rig.pool, &q->w);
        break;
    case 3:
        if (q->r.cell)
            (void)sched_saw_connect_failure(q->r.cell);
        break;
    case 4:
        if (q->r.cell)
            sched_saw_progress(q->r.cell, w->rig.now);
        break;
    case 5:
        if (q->r.cell)
            (void)sched_breaker_failed(q->r.cell, &breaker, BREAKER_FAILED, q->r.trial, w->rig.now);
        break;
    case 6:
        if (q->r.cell) {
            (void)sched_breaker_answered(q->r.cell, &breaker, 0, w->rig.now);
            sched_trial_over(&q->r);
        }
        break;
    default:
        sched_pool_settle(w->rig.pool, &q->r, next(w), next(w) & 1 ? UINT64_MAX : 0);
        rig_end(&q->r);
        break;
    }
}

static void reconfigure(struct world *w)
{
    uint32_t n = 0;

    while (sched_policy_name(n))
        n++;
    RIG_MUST(sched_policy_named(slice_str(sched_policy_name(next(w) % n)), &w->rig.policy));
    w->rig.queue.size = 1 + next(w) % QUEUE;
    w->rig.queue.age_ns = (uint64_t)next(w) * NS_PER_MS;
    w->rig.queue.by_tenant = w->rig.queue.size & 1;
    RIG_MUST(sched_pool_reconfigure(w->rig.pool, &w->rig.policy, &w->rig.queue));
}

static void step(struct world *w)
{
    struct rig_host h;

    switch (next(w) % 12) {
    case 0:
        upsert(w);
        break;
    case 1:
        fleet_remove(w->rig.fleet, 0, key_of(&h, next(w)), w->rig.now);
        break;
    case 2:
        sample(w);
        break;
    case 3:
    case 4:
    case 5:
        ask(w);
        break;
    case 6:
    case 7:
        touch(w);
        break;
    case 8:
        offer(w);
        break;
    case 9:
        refresh(w);
        break;
    case 10:
        w->rig.now += (uint64_t)next(w) * 20 * NS_PER_MS;
        note(w, (uint64_t)fleet_probe(w->rig.fleet, next(w) % HOSTS, 1, next(w) & 1, w->rig.now));
        break;
    default:
        if (next(w) % 8 == 0)
            reconfigure(w);
        break;
    }
}

/* What is in flight is what requests hold, no more and no less. */
static void check_ledger(struct world *w)
{
    uint32_t held = 0;
    uint32_t counted = 0;
    struct rig_host h;

    for (uint32_t i = 0; i < REQUESTS; i++)
        held += w->q[i].r.cell != NULL;
    for (uint32_t i = 0; i < HOSTS; i++) {
        (void)key_of(&h, (uint8_t)i);
        counted += fleet_inflight(w->rig.fleet, h.i.host, h.i.port);
    }
    FUZZ_CHECK(held == counted);
}

static uint64_t play(const uint8_t *data, size_t size)
{
    static struct world w;

    w = (struct world){.p = data, .end = data + size};
    rig_open(&w.rig, "chain");
    refresh(&w);
    for (int i = 0; i < STEPS && w.p < w.end; i++) {
        step(&w);
        if (i % LEDGER_STEPS == 0)
            check_ledger(&w);
    }
    for (uint32_t i = 0; i < REQUESTS; i++) {
        sched_pool_cancel(w.rig.pool, &w.q[i].w);
        sched_pool_settle(w.rig.pool, &w.q[i].r, UINT64_MAX, 0);
        rig_end(&w.q[i].r);
    }
    check_ledger(&w);
    FUZZ_CHECK(sched_pool_waiting(w.rig.pool) == 0);
    for (uint32_t i = 0; i < w.rig.snapshot->n_members; i++) {
        struct cell *c = w.rig.snapshot->members[i].cell;
        FUZZ_CHECK(atomic_load(&c->inflight) == 0 && atomic_load(&c->prefill_tokens) == 0);
        FUZZ_CHECK(atomic_load(&c->promised_bytes) == 0 && atomic_load(&c->promised_tokens) == 0);
        FUZZ_CHECK(atomic_load(&c->waiting_pools) == 0);
    }
    mirror_close(&w.mirror);
    rig_close(&w.rig);
    return w.trace;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FUZZ_CHECK(play(data, size) == play(data, size));
    return 0;
}
