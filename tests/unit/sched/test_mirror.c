/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that are kept are those that would be filled anew. */
#include "ct.h"

#include "base/bug.h"
#include "base/prng.h"
#include "mirror_rig.h"
#include "sched/breaker.h"
#include "sched/evidence.h"

enum { HOSTS = 30, HELD = 64 };

static const struct breaker_rules breaker = {.enabled = true,
                                             .consecutive = 2,
                                             .successes = 1,
                                             .cooldown_ns = NS_PER_S,
                                             .cooldown_max_ns = 4 * NS_PER_S};

struct held {
    struct features f;
    struct reservation r;
    uint64_t blocks[6];
};

static void ask(struct rig *r, struct held *h, struct prng *p)
{
    h->f = (struct features){.model = RIG_MODEL,
                             .task = prng_below(p, 8) ? TASK_CHAT : TASK_EMBEDDING,
                             .stream = prng_below(p, 4) != 0,
                             .prompt_complete = true,
                             .prompt_bytes = prng_below(p, 40000),
                             .output_tokens = prng_below(p, 300),
                             .n_images = prng_below(p, 8) == 0,
                             .has_session = true,
                             .session = prng_below(p, 8),
                             .priority = PRIORITY_DEFAULT,
                             .blocks = h->blocks,
                             .n_blocks = (uint32_t)prng_below(p, 7)};
    uint64_t chat = prng_below(p, 4);
    for (uint32_t i = 0; i < 6; i++)
        h->blocks[i] = i < 2 ? i + 1 : chat * 100 + i;
    sched_lore_prepare(r->lore, &h->f);
}

static void sample(struct rig *r, struct prng *p)
{
    struct rig_host h;
    struct sample s = {.known = (uint32_t)prng_next(p) & ((1u << (SAMPLE_STATE + 1)) - 1),
                       .fresh_for_ns = prng_below(p, 3000) * NS_PER_MS,
                       .gpu_util_bp = (uint32_t)prng_below(p, 10001),
                       .memory_free_bytes = prng_below(p, 80) << 30,
                       .memory_total_bytes = UINT64_C(80) << 30,
                       .kv_capacity_tokens = 100000,
                       .kv_used_tokens = prng_below(p, 100000),
                       .running = (uint32_t)prng_below(p, 9),
                       .waiting = (uint32_t)prng_below(p, 5),
                       .state = prng_below(p, 8) ? REPORTED_HEALTHY : REPORTED_BUSY};

    rig_host(&h, (uint32_t)prng_below(p, HOSTS), "");
    assert_true(fleet_sample(r->fleet, 0, h.i.key, &s, r->now) <= 1);
}

static void outcome(struct rig *r, struct held *h, struct prng *p)
{
    struct usage u = {.known = USAGE_PROMPT | USAGE_COMPLETION | USAGE_CACHED};

    switch (prng_below(p, 8)) {
    case 0:
    case 1:
        sched_work_first_byte(&h->r, r->now);
        break;
    case 2:
        sched_settle(&h->r);
        break;
    case 3:
        (void)sched_saw_connect_failure(h->r.cell);
        break;
    case 4:
        sched_saw_progress(h->r.cell, r->now);
        (void)sched_breaker_answered(h->r.cell, &breaker, 0, r->now);
        sched_trial_over(&h->r);
        break;
    case 5:
        (void)sched_breaker_failed(h->r.cell, &breaker, BREAKER_FAILED, h->r.trial, r->now);
        break;
    default:
        u.prompt_tokens = h->f.prompt_tokens;
        u.cached_tokens = prng_below(p, u.prompt_tokens + 1);
        u.completion_tokens = prng_below(p, 300);
        sched_work_end(r->lore, &h->r, &h->f, &u, r->now);
        rig_end(&h->r);
        break;
    }
}

static void step(struct rig *r, struct held *held, struct prng *p)
{
    struct held *h = &held[prng_below(p, HELD)];

    switch (prng_below(p, 8)) {
    case 0:
        sample(r, p);
        break;
    case 1:
        (void)fleet_probe(r->fleet, (uint32_t)prng_below(p, HOSTS), 1, prng_below(p, 4) != 0,
                          r->now);
        break;
    case 2:
        r->now += prng_below(p, 10) ? prng_below(p, 50 * NS_PER_MS) : prng_below(p, 400 * NS_PER_S);
        break;
    case 3:
    case 4:
    case 5:
        if (h->r.cell)
            break;
        ask(r, h, p);
        r->f = h->f;
        if (rig_admit(r, &h->r) == 0)
            sched_work_sent(&h->r, r->now);
        break;
    default:
        if (h->r.cell)
            outcome(r, h, p);
        break;
    }
}

static void kept_rows_are_as_filled_anew(void **state)
{
    (void)state;
    static struct held held[HELD];
    static struct mirror_rig x;

    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct prng p = {seed};
        struct rig r;
        struct held probe;
        memset(held, 0, sizeof(held));
        rig_open(&r, seed & 1 ? "queued_work" : "response_time");
        for (uint32_t i = 0; i < HOSTS; i++)
            rig_add(&r, i, i % 3 ? "gpu_type=A100 max_concurrency=6" : "gpu_type=L4 engine=vllm");
        rig_refresh(&r);
        mirror_follow(&x, &r);
        for (uint32_t i = 0; i < 4000; i++) {
            step(&r, held, &p);
            if (i % 3)
                continue; /* several changes at once too */
            ask(&r, &probe, &p);
            assert_int_equal(mirror_differs(&x, &r, &probe.f), 0);
        }
        for (uint32_t i = 0; i < HELD; i++)
            rig_end(&held[i].r);
        mirror_close(&x);
        rig_close(&r);
    }
}

static bool between(uint64_t v, uint64_t now, uint64_t then)
{
    return v >= now && v <= then;
}

/* Of a large pool what falls with the time may be as it was SCHED_LAG_NS before, and nothing else. */
static void large_pools_lag_a_little(void **state)
{
    (void)state;
    static struct held held[HELD];
    static struct mirror_rig x;
    struct prng p = {9};
    struct rig r;

    memset(held, 0, sizeof(held));
    rig_open(&r, "queued_work");
    for (uint32_t i = 0; i < MIRROR_ROWS; i++)
        rig_add(&r, i, i % 3 ? "gpu_type=A100 max_concurrency=6" : "gpu_type=H100");
    rig_refresh(&r);
    mirror_follow(&x, &r);
    assert_non_null(x.m->columns);
    for (uint32_t i = 0; i < 4000; i++) {
        step(&r, held, &p);
        struct sched_common kept = sched_mirror_refresh(x.m, r.now);
        struct sched_common now = sched_rows_fill(x.c, x.n, r.now, x.rows);
        assert_int_equal(kept.all, now.all);
        assert_int_equal(kept.any, now.any);
        assert_memory_equal(x.rows, x.m->rows, x.n * sizeof(x.rows[0]));
        sched_work_fill(x.c, x.rows, x.n, r.now, x.work);
        for (uint32_t k = 0; k < x.n; k++) {
            const struct sched_work *was = &x.m->work[k];
            const struct cell *c = x.c[k].cell;
            struct sched_speed then;
            sched_mirror_work(x.m, &r.f, k, 0, 1, r.now);
            (void)sched_work_speed(&x.c[k], x.m->kind, r.now, &x.work[k].speed);
            (void)sched_work_speed(&x.c[k], x.m->kind, r.now - SCHED_LAG_NS, &then);
            uint64_t recent =
                sched_work_recent(c->recent_tokens, c->recent_at_ns, r.now - SCHED_LAG_NS);
            assert_true(between(was->recent_tokens, x.work[k].recent_tokens, recent));
            assert_true(between(was->speed.fixed_us, x.work[k].speed.fixed_us, then.fixed_us));
            assert_true(
                between(was->speed.prefill_ns, x.work[k].speed.prefill_ns, then.prefill_ns));
            assert_true(between(was->speed.step_us, x.work[k].speed.step_us, then.step_us));
            assert_int_equal(was->speed.trust, x.work[k].speed.trust);
            assert_int_equal(was->backlog_us, x.work[k].backlog_us);
            assert_int_equal(was->decoding, x.work[k].decoding);
            assert_int_equal(was->context_tokens, x.work[k].context_tokens);
            assert_int_equal(was->foreign_waiting, x.work[k].foreign_waiting);
        }
    }
    for (uint32_t i = 0; i < HELD; i++)
        rig_end(&held[i].r);
    mirror_close(&x);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_rows_are_as_filled_anew),
        cmocka_unit_test(large_pools_lag_a_little),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
