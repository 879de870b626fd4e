/* SPDX-License-Identifier: Apache-2.0 */
/* Runs against what queueing theory and published measurements say. Seeds are fixed, so results are too. */
#include "ct.h"

#include <stdbool.h>
#include <string.h>

#include "apps/sim/run.h"
#include "apps/sim/summary.h"
#include "base/bug.h"
#include "base/num.h"
#include "des/draw.h"
#include "heap_mem.h"
#include "model/endpoint_t.h"
#include "sched/pick.h"

/* Millions of jobs say nothing more under a sanitizer, which takes ten times as long for them. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

struct rig {
    struct test_heap heap;
    struct mem mem;
    struct sim_trace t;
    struct sim_fleet fleet;
    struct policy policy;
    struct sim_options o;
    struct sim_result r;
};

static int rig_start(void **state)
{
    static struct rig rig;

    memset(&rig, 0, sizeof(rig));
    rig.mem = test_heap_mem(&rig.heap);
    sim_trace_init(&rig.t, &rig.mem);
    memcpy(rig.fleet.model, "m", 2);
    rig.o = (struct sim_options){
        .mem = &rig.mem,
        .fleet = &rig.fleet,
        .trace = &rig.t,
        .policy = &rig.policy,
        .seed = 1,
        .rate_scale = 1,
        .report_ns = 500 * NS_PER_MS,
        .queue_size = 1000,
        .queue_timeout_ns = 60 * NS_PER_S,
    };
    *state = &rig;
    return 0;
}

static int rig_end(void **state)
{
    struct rig *rig = *state;

    sim_result_fini(&rig->r);
    sim_trace_fini(&rig->t);
    return rig->heap.live == 0 ? 0 : 1;
}

/* Servers without overhead: only the work of their jobs. */
static void add_servers(struct rig *rig, uint32_t count)
{
    struct sim_group g;

    sim_group_init(&g);
    memcpy(g.gpu, "server", 7);
    g.count = count;
    g.fixed_ns = 1;
    assert_int_equal(sim_fleet_add(&rig->fleet, &g), 0);
}

static void add_gpus(struct rig *rig, const char *gpu, uint32_t count)
{
    struct sim_group g;

    sim_group_init(&g);
    memcpy(g.gpu, gpu, strlen(gpu) + 1);
    g.count = count;
    assert_int_equal(sim_fleet_add(&rig->fleet, &g), 0);
}

/* Poisson arrivals, exponential work of 1 ms on average. */
static void draw_jobs(struct rig *rig, uint64_t seed, uint32_t n, double per_ms)
{
    struct prng arrivals = des_stream(seed, 1000);
    struct prng work = des_stream(seed, 1001);
    double at = 0;

    sim_trace_fini(&rig->t);
    sim_trace_init(&rig->t, &rig->mem);
    for (uint32_t i = 0; i < n; i++) {
        at += des_exponential(&arrivals, 1e6 / per_ms);
        struct sim_request r = {
            .at_ns = (uint64_t)at,
            .prompt_tokens = 1,
            .task = TASK_CHAT,
            .extra_ns = (uint64_t)des_exponential(&work, 1e6),
        };
        assert_int_equal(sim_trace_add(&rig->t, &r, NULL, 0), 0);
    }
    assert_int_equal(sim_trace_finish(&rig->t), 0);
}

static void run(struct rig *rig, const char *policy)
{
    assert_int_equal(sched_policy_named(slice_str(policy), &rig->policy), 0);
    sim_result_fini(&rig->r);
    assert_int_equal(sim_run(&rig->o, &rig->r), 0);
}

/* Mean time in the system in service times, of those that come after the first fifth. */
static double mean_stay(const struct rig *rig)
{
    double sum = 0;
    uint32_t from = rig->r.n / 5;

    for (uint32_t i = from; i < rig->r.n; i++) {
        assert_int_equal(rig->r.outcomes[i].end, SIM_OK);
        sum += (double)(rig->r.outcomes[i].end_ns - rig->r.outcomes[i].at_ns) / 1e6;
    }
    return sum / (rig->r.n - from);
}

static void one_server_is_lindleys_recursion_to_the_nanosecond(void **state)
{
    struct rig *rig = *state;
    uint64_t free_at = 0;

    add_servers(rig, 1);
    draw_jobs(rig, 1, 20000, 0.9);
    run(rig, "round_robin");
    for (uint32_t i = 0; i < rig->t.n; i++) {
        const struct sim_request *q = &rig->t.requests[i];
        uint64_t start = MAX(free_at, q->at_ns);
        free_at = start + 1 + q->extra_ns;
        assert_int_equal(rig->r.outcomes[i].at_ns, q->at_ns);
        assert_int_equal(rig->r.outcomes[i].end_ns, free_at);
    }
}

/* M/M/1: 1 / (1 - rho). */
static void a_random_share_of_poisson_arrivals_waits_as_m_m_1(void **state)
{
    struct rig *rig = *state;
    double sum = 0;

    add_servers(rig, 1);
    for (uint64_t seed = 1; seed <= 12 && !SANITIZED; seed++) {
        draw_jobs(rig, seed, 500000, 0.9);
        run(rig, "random");
        sum += mean_stay(rig);
    }
    assert_true(SANITIZED || (sum / 12 > 9.8 && sum / 12 < 10.2));
    draw_jobs(rig, 9, 200000, 0.5);
    run(rig, "random");
    assert_true(mean_stay(rig) > 1.96 && mean_stay(rig) < 2.04);
}

/* Mitzenmacher's limit for many servers: the sum of rho^((2^i - 2) / (2 - 1)), 2.614 at rho 0.9. */
static void power_of_two_waits_as_the_closed_form_says(void **state)
{
    struct rig *rig = *state;

    add_servers(rig, 250);
    draw_jobs(rig, 3, SANITIZED ? 5000 : 250000, 0.9 * 250);
    run(rig, "power_of_two");
    double stay = mean_stay(rig);
    assert_true(SANITIZED || (stay > 2.614 * 0.98 && stay < 2.614 * 1.02));
}

static double mean_tpot(const struct rig *rig)
{
    double sum = 0;
    uint32_t n = 0;

    for (uint32_t i = rig->r.n / 5; i < rig->r.n * 4 / 5; i++, n++)
        sum += sim_tpot(&rig->r.outcomes[i], &rig->t.requests[i]);
    return sum / n;
}

/*
 * KubeAI's benchmark on L4 (reference: 8,000 prompts, 832 tokens in and 76 out on average): 63 streams a replica with
 * prefix hits took 87 ms a token, 90 streams without took 189. One shared block of 512 tokens is a hit rate of 62 %.
 */
static void an_l4_under_kubeais_load_is_as_slow_as_measured(void **state)
{
    struct rig *rig = *state;
    const uint64_t name = 77;

    add_gpus(rig, "l4", 1);
    for (uint32_t i = 0; i < 3000; i++)
        assert_int_equal(sim_trace_add(&rig->t,
                                       &(struct sim_request){.prompt_tokens = 832,
                                                             .output_tokens = 40 + i * 37 % 73,
                                                             .task = TASK_CHAT},
                                       &name, 1),
                         0);
    assert_int_equal(sim_trace_finish(&rig->t), 0);
    rig->o.closed = 63;
    run(rig, "round_robin");
    double with = mean_tpot(rig);
    assert_true(with > 87 * 0.8 && with < 87 * 1.2);
    for (uint32_t i = 0; i < rig->t.n; i++)
        rig->t.requests[i].n_blocks = 0;
    rig->o.closed = 90;
    run(rig, "round_robin");
    double without = mean_tpot(rig);
    assert_true(without > 189 * 0.75 && without < 189 * 1.25);
}

/* --- behaviour --- */

static void
add_chats(struct rig *rig, uint32_t n, uint64_t gap_ns, uint32_t prompt, uint32_t output)
{
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(sim_trace_add(&rig->t,
                                       &(struct sim_request){.at_ns = i * gap_ns,
                                                             .prompt_tokens = prompt,
                                                             .output_tokens = output,
                                                             .task = TASK_CHAT},
                                       NULL, 0),
                         0);
    assert_int_equal(sim_trace_finish(&rig->t), 0);
}

static bool same(const struct sim_result *a, const struct sim_result *b)
{
    return a->n == b->n && memcmp(a->outcomes, b->outcomes, a->n * sizeof(*a->outcomes)) == 0;
}

static void same_inputs_same_run_other_seed_other_run(void **state)
{
    struct rig *rig = *state;
    struct sim_result again;

    add_gpus(rig, "a100", 4);
    add_chats(rig, 2000, 100 * NS_PER_MS, 2000, 200);
    rig->o.stale_ns = 300 * NS_PER_MS;
    rig->o.loss = 0.2;
    rig->o.noise = 0.3;
    rig->o.jitter = true;
    run(rig, "power_of_two");
    assert_int_equal(sim_run(&rig->o, &again), 0);
    assert_true(same(&rig->r, &again));
    sim_result_fini(&again);
    rig->o.seed = 2;
    assert_int_equal(sim_run(&rig->o, &again), 0);
    assert_false(same(&rig->r, &again));
    sim_result_fini(&again);
}

static void every_request_ends_once_and_the_full_queue_refuses(void **state)
{
    struct rig *rig = *state;
    struct sim_group g;
    uint32_t n[4] = {0};

    sim_group_init(&g);
    memcpy(g.gpu, "a100", 5);
    g.max_concurrency = 2;
    assert_int_equal(sim_fleet_add(&rig->fleet, &g), 0);
    add_chats(rig, 50, 0, 1000, 50);
    rig->o.queue_size = 10;
    rig->o.queue_timeout_ns = 2 * NS_PER_S;
    run(rig, "least_request");
    for (uint32_t i = 0; i < rig->r.n; i++) {
        n[rig->r.outcomes[i].end]++;
        if (rig->r.outcomes[i].end == SIM_REJECTED)
            assert_true(rig->r.outcomes[i].rejection ==
                        (rig->r.outcomes[i].end_ns ? REJECT_QUEUE_TIMEOUT : REJECT_QUEUE_FULL));
    }
    assert_int_equal(n[SIM_PENDING], 0);
    /* Two are served and ten wait; a pair takes about 0.7 s, so that in two seconds two or three pairs are through. */
    uint32_t full = 0;
    for (uint32_t i = 0; i < rig->r.n; i++)
        full += rig->r.outcomes[i].rejection == REJECT_QUEUE_FULL;
    assert_int_equal(full, 38);
    assert_true(n[SIM_OK] >= 6 && n[SIM_OK] <= 8);
    assert_int_equal(n[SIM_OK] + n[SIM_REJECTED], 50);
}

static void what_no_worker_can_hold_is_counted(void **state)
{
    struct rig *rig = *state;

    add_gpus(rig, "3090", 1);
    /* 27,900 tokens of prompt fit 28,000 tokens of KV; the answer that nobody announced does not. */
    add_chats(rig, 1, 0, 27900, 200);
    run(rig, "round_robin");
    assert_int_equal(rig->r.outcomes[0].end, SIM_MEMORY);
}

static void a_worker_that_joins_late_serves_from_then_on(void **state)
{
    struct rig *rig = *state;
    struct sim_group g;

    add_gpus(rig, "a100", 1);
    sim_group_init(&g);
    memcpy(g.gpu, "a100", 5);
    g.join_ns = 10 * NS_PER_S;
    g.load_ns = 5 * NS_PER_S;
    assert_int_equal(sim_fleet_add(&rig->fleet, &g), 0);
    add_chats(rig, 40, 500 * NS_PER_MS, 100, 10);
    run(rig, "round_robin");
    for (uint32_t i = 0; i < rig->r.n; i++) {
        const struct sim_outcome *o = &rig->r.outcomes[i];
        assert_int_equal(o->end, SIM_OK);
        if (o->at_ns < 10 * NS_PER_S)
            assert_int_equal(o->worker, 0);
        if (o->worker == 1)
            assert_true(o->first_ns > 15 * NS_PER_S);
    }
    assert_true(rig->r.workers[1].requests > 0);
}

static void closed_loop_keeps_so_many_under_way(void **state)
{
    struct rig *rig = *state;

    add_servers(rig, 3);
    for (uint32_t i = 0; i < 90; i++)
        assert_int_equal(
            sim_trace_add(&rig->t, &(struct sim_request){.prompt_tokens = 1, .extra_ns = 999999},
                          NULL, 0),
            0);
    assert_int_equal(sim_trace_finish(&rig->t), 0);
    rig->o.closed = 6;
    run(rig, "least_request");
    /* Six clients on three servers of 1 ms: each waits for one other, and all are done after 90 / 3 ms. */
    for (uint32_t i = 6; i < rig->r.n; i++)
        assert_int_equal(rig->r.outcomes[i].end_ns - rig->r.outcomes[i].at_ns, 2 * NS_PER_MS);
    assert_int_equal(rig->r.end_ns, 30 * NS_PER_MS);
}

static void no_memory_no_leak(void **state)
{
    struct rig *rig = *state;
    int rc = WEIR_E_NOMEM;

    add_gpus(rig, "a100", 2);
    add_chats(rig, 20, 10 * NS_PER_MS, 100, 10);
    assert_int_equal(sched_policy_named(SLICE("chain"), &rig->policy), 0);
    long before = rig->heap.live;
    for (long at = 1; rc == WEIR_E_NOMEM; at++) {
        assert_true(at < 1000);
        rig->heap.fail_at = at;
        rc = sim_run(&rig->o, &rig->r);
        rig->heap.fail_at = 0;
        if (rc)
            assert_int_equal(rig->heap.live, before);
    }
    assert_int_equal(rc, 0);
}

/* --- numbers --- */

static void a_summary_counts_what_it_says(void **state)
{
    struct rig *rig = *state;
    struct sim_summary s[2];
    struct sim_outcome o[4] = {
        {.at_ns = 0, .sent_ns = 0, .first_ns = NS_PER_S, .end_ns = 2 * NS_PER_S, .end = SIM_OK},
        {.at_ns = 0,
         .sent_ns = NS_PER_S,
         .first_ns = 3 * NS_PER_S,
         .end_ns = 3 * NS_PER_S,
         .end = SIM_OK},
        {.at_ns = NS_PER_S,
         .sent_ns = NS_PER_S,
         .first_ns = 7 * NS_PER_S,
         .end_ns = 8 * NS_PER_S,
         .end = SIM_OK},
        {.at_ns = 0, .end_ns = 0, .end = SIM_REJECTED, .rejection = REJECT_QUEUE_FULL},
    };
    struct sim_worker_result w[2] = {
        {.requests = 3,
         .prompt_tokens = 900,
         .cached_tokens = 300,
         .busy_ns = 50,
         .present_ns = 100},
        {.busy_ns = 10, .present_ns = 100},
    };
    const struct sim_result r = {.mem = &rig->mem,
                                 .outcomes = o,
                                 .n = 4,
                                 .workers = w,
                                 .n_workers = 2,
                                 .end_ns = 10 * NS_PER_S};
    const struct sim_targets targets = {5 * NS_PER_S, 100 * NS_PER_MS};

    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(sim_trace_add(&rig->t,
                                       &(struct sim_request){.prompt_tokens = 300,
                                                             .output_tokens = i == 1 ? 1 : 101},
                                       NULL, 0),
                         0);
    assert_int_equal(sim_summarise(&r, &rig->t, &targets, &s[0]), 0);
#define M(name) s[0].m[SIM_M_##name]
    assert_true(M(requests) == 4 && M(ok) == 3 && M(rejected) == 1);
    /* The third came too late; the refused one counts against it too. */
    assert_true(M(goodput) == 0.5);
    assert_true(M(ttft_mean) == (1.0 + 3.0 + 6.0) / 3);
    assert_true(M(ttft_p50) == 3 && M(ttft_p99) == 6);
    /* One token has no time per token. */
    assert_true(M(tpot_mean) == 10);
    assert_true(M(e2e_p95) == 7);
    assert_true(M(wait_p95) == 1);
    assert_true(M(hit_ratio) == 300.0 / 900);
    assert_true(M(uncached_spread) == 2);
    assert_true(M(busy_mean) == 0.3 && M(busy_min) == 0.1 && M(busy_max) == 0.5);
    assert_true(M(requests_per_s) == 0.3);
    s[1] = s[0];
    s[1].m[SIM_M_goodput] = 0.7;
    struct sim_mean m = sim_metric_mean(s, 2, SIM_M_goodput);
    assert_true(m.mean > 0.5999 && m.mean < 0.6001);
    /* 12.706 x 0.1414 / sqrt(2) */
    assert_true(m.half > 1.2705 && m.half < 1.2707);
#undef M
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, rig_start, rig_end)
        T(one_server_is_lindleys_recursion_to_the_nanosecond),
        T(a_random_share_of_poisson_arrivals_waits_as_m_m_1),
        T(power_of_two_waits_as_the_closed_form_says),
        T(an_l4_under_kubeais_load_is_as_slow_as_measured),
        T(same_inputs_same_run_other_seed_other_run),
        T(every_request_ends_once_and_the_full_queue_refuses),
        T(what_no_worker_can_hold_is_counted),
        T(a_worker_that_joins_late_serves_from_then_on),
        T(closed_loop_keeps_so_many_under_way),
        T(no_memory_no_leak),
        T(a_summary_counts_what_it_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
