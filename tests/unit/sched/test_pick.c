/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include "base/bug.h"
#include "base/hash.h"
#include "fleet_rig.h"
#include "sched/evidence.h"

static uint64_t session_of(int k)
{
    return hash_pair((uint64_t)k, 7);
}

static void never_the_one_without_memory_and_of_the_rest_the_less_busy(void **state)
{
    (void)state;
    const char *const policies[] = {
        "chain",  "least_request", "round_robin",    "weighted_round_robin",
        "random", "power_of_two",  "consistent_hash"};

    for (size_t p = 0; p < ARRAY_LEN(policies); p++) {
        struct rig r;
        rig_open(&r, policies[p]);
        rig_add(&r, 0, "remaining_memory=12 current_requests=5");
        rig_add(&r, 1, "remaining_memory=6 current_requests=0");
        rig_add(&r, 2, "remaining_memory=9 current_requests=2");
        rig_refresh(&r);
        r.f.required_bytes = UINT64_C(8) * GIB;
        for (int i = 0; i < 1000; i++) {
            r.f.has_session = i % 2;
            r.f.session = (uint64_t)i * 77;
            int slot = rig_once(&r);
            assert_true(slot == 0 || slot == 2);
            if (p == 0 || p == 1)
                assert_int_equal(slot, 2);
        }
        rig_close(&r);
    }
}

static void needed_equal_to_free_fits_and_promises_count(void **state)
{
    (void)state;
    struct rig r;
    struct reservation a = {0};
    struct reservation b = {0};

    rig_open(&r, "chain");
    rig_add(&r, 0, "remaining_memory=8");
    rig_refresh(&r);
    r.f.required_bytes = UINT64_C(8) * GIB;
    assert_int_equal(rig_admit(&r, &a), 0);
    /* The same bytes cannot be promised twice: full now, not too large. */
    r.f.required_bytes = 1;
    assert_int_equal(rig_admit(&r, &b), WEIR_E_AGAIN);
    assert_int_equal(r.d.rejection, REJECT_NONE);
    rig_end(&a);
    assert_int_equal(rig_admit(&r, &b), 0);
    rig_end(&b);
    rig_close(&r);
}

static void above_every_total_is_refused_and_unknown_totals_wait(void **state)
{
    (void)state;
    struct rig r;
    struct rig_host h;
    struct device d = {.memory_total_bytes = UINT64_C(16) * GIB};
    struct reservation res = {0};

    rig_open(&r, "chain");
    rig_host(&h, 0, "remaining_memory=4");
    h.i.devices = &d;
    h.i.n_devices = 1;
    rig_put(&r, &h);
    rig_refresh(&r);
    r.f.required_bytes = UINT64_C(16) * GIB + 1;
    assert_int_equal(rig_admit(&r, &res), WEIR_E_NOTFOUND);
    assert_int_equal(r.d.rejection, REJECT_EXCEEDS_FLEET_MEMORY);
    r.f.required_bytes = UINT64_C(16) * GIB;
    assert_int_equal(rig_admit(&r, &res), WEIR_E_AGAIN);
    /* One endpoint whose total nobody knows: it might be large enough. */
    rig_add(&r, 1, "remaining_memory=4");
    rig_refresh(&r);
    r.f.required_bytes = UINT64_C(16) * GIB + 1;
    assert_int_equal(rig_admit(&r, &res), WEIR_E_AGAIN);
    rig_close(&r);
}

static void unknown_memory_ranks_behind_known_to_fit(void **state)
{
    (void)state;
    struct rig r;
    struct reservation held = {0};

    rig_open(&r, "chain");
    rig_add(&r, 0, "");
    rig_add(&r, 1, "remaining_memory=9 current_requests=7 max_concurrency=1");
    rig_refresh(&r);
    r.f.required_bytes = UINT64_C(8) * GIB;
    assert_int_equal(rig_admit(&r, &held), 0);
    assert_int_equal(r.chosen.endpoint->slot, 1);
    /* The known one is full: then the unknown one is better than waiting. */
    assert_int_equal(rig_once(&r), 0);
    /* Without a need there is no difference in rank. */
    rig_end(&held);
    r.f.required_bytes = 0;
    assert_int_equal(rig_once(&r), 0);
    rig_close(&r);
}

static void kv_tokens_decide_for_engines_that_preallocate(void **state)
{
    (void)state;
    struct rig r;
    struct sample s = {.known = 1u << SAMPLE_KV_CAPACITY | 1u << SAMPLE_KV_USED |
                                1u << SAMPLE_MEMORY_FREE,
                       .fresh_for_ns = NS_PER_S,
                       .kv_capacity_tokens = 1000,
                       .kv_used_tokens = 500,
                       .memory_free_bytes = 1};
    struct reservation res = {0};

    rig_open(&r, "chain");
    rig_add(&r, 0, "engine=vllm");
    RIG_MUST(fleet_sample(r.fleet, 0, SLICE("10.0.0.0"), &s, r.now));
    rig_refresh(&r);
    r.f.prompt_tokens = 400;
    r.f.output_tokens = 100;
    assert_int_equal(rig_once(&r), 0);
    r.f.output_tokens = 101;
    assert_int_equal(rig_admit(&r, &res), WEIR_E_AGAIN);
    /* An estimate above the whole KV memory fits once it is empty. */
    r.f.output_tokens = 5000;
    assert_int_equal(rig_admit(&r, &res), WEIR_E_AGAIN);
    s.kv_used_tokens = 0;
    RIG_MUST(fleet_sample(r.fleet, 0, SLICE("10.0.0.0"), &s, r.now));
    assert_int_equal(rig_once(&r), 0);
    /* Explicit bytes are compared with device bytes, and those are full. */
    r.f.required_bytes = 2;
    assert_int_equal(rig_admit(&r, &res), WEIR_E_AGAIN);
    /* Without device bytes: free tokens at the model's bytes per token, rounded up. */
    s.known = 1u << SAMPLE_KV_CAPACITY | 1u << SAMPLE_KV_USED;
    RIG_MUST(fleet_sample(r.fleet, 0, SLICE("10.0.0.0"), &s, r.now));
    r.f.kv_bytes_per_token = 10;
    r.f.required_bytes = 10000;
    assert_int_equal(rig_once(&r), 0);
    r.f.required_bytes = 10001;
    assert_int_equal(rig_admit(&r, &res), WEIR_E_NOTFOUND);
    assert_int_equal(r.d.rejection, REJECT_EXCEEDS_FLEET_MEMORY);
    rig_close(&r);
}

static void every_point_of_the_curve(void **state)
{
    (void)state;
    struct policy p;
    static const struct {
        uint32_t bp, q16;
    } points[] = {
        {0, 131072},   {1500, 131072}, {3000, 131072}, {3001, 131006}, {3250, 114688},
        {3500, 98304}, {3750, 81920},  {4000, 65536},  {4001, 65536},  {5500, 65536},
        {7000, 65536}, {7250, 57344},  {7500, 49152},  {7750, 40960},  {8000, 32768},
        {8001, 32768}, {10000, 32768},
    };

    assert_int_equal(sched_policy_named(SLICE("chain"), &p), 0);
    for (size_t i = 0; i < ARRAY_LEN(points); i++) {
        uint32_t got = sched_dyn(&p, points[i].bp, true);
        /* 3001: 131072 - 65.536, whose step is rounded towards the earlier point. */
        assert_int_equal(got, points[i].bp == 3001 ? 131007 : points[i].q16);
    }
    assert_int_equal(sched_dyn(&p, 9000, false), 65536);
    uint32_t last = UINT32_MAX;
    for (uint32_t bp = 0; bp <= 10000; bp++) {
        assert_true(sched_dyn(&p, bp, true) <= last);
        last = sched_dyn(&p, bp, true);
    }
}

static void counts_of(struct rig *r, int requests, int *count, int n)
{
    memset(count, 0, (size_t)n * sizeof(*count));
    for (int i = 0; i < requests; i++) {
        int slot = rig_once(r);
        assert_in_range(slot, 0, n - 1);
        count[slot]++;
    }
}

static void sequential_requests_split_by_utilization(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        int a_of_10000;
    } cases[] = {
        {"gpu_util=80", "gpu_util=40", 3333},
        {"gpu_util=80", "gpu_util=30", 2000},
        {"gpu_util=100", "gpu_util=0", 2000},
        {"gpu_util=40", "gpu_util=70", 5000},
        {"gpu_util=35", "gpu_util=70", 6000},
        {"gpu_util=75", "gpu_util=50", 4286},
        {"gpu_util=80", "", 3333},
        {"gpu_util=20", "gpu_util=30", 5000},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig r;
        int count[2];
        rig_open(&r, "chain");
        rig_add(&r, 0, cases[i].a);
        rig_add(&r, 1, cases[i].b);
        rig_refresh(&r);
        counts_of(&r, 10000, count, 2);
        /* Smooth weighted round robin is exact to one turn. */
        assert_in_range(count[0], cases[i].a_of_10000 - 1, cases[i].a_of_10000 + 1);
        rig_close(&r);
    }
}

static void gpu_weights_split_three_to_one(void **state)
{
    (void)state;
    struct rig r;
    int count[2];

    rig_open(&r, "chain");
    r.policy.gpu_weights[0] = (struct gpu_weight){SLICE("a100"), 3000};
    r.policy.gpu_weights[1] = (struct gpu_weight){SLICE("T4"), 1000};
    r.policy.n_gpu_weights = 2;
    rig_add(&r, 0, "gpu_type=A100");
    rig_add(&r, 1, "gpu_type=T4");
    rig_refresh(&r);
    counts_of(&r, 10000, count, 2);
    assert_int_equal(count[0], 7500);
    assert_int_equal(count[1], 2500);
    rig_close(&r);
}

static void loaded_costs_are_exact_fractions(void **state)
{
    (void)state;
    struct rig r;
    int count[2];

    /* 1/(1 x 1.0) and 2/(2 x 1.0) are equal, so the two take turns by their weights, 1:2. */
    rig_open(&r, "chain");
    struct rig_host h;
    rig_add(&r, 0, "current_requests=1");
    rig_host(&h, 1, "current_requests=2");
    h.i.weight = 2000;
    rig_put(&r, &h);
    rig_refresh(&r);
    counts_of(&r, 9999, count, 2);
    assert_int_equal(count[0], 3333);
    assert_int_equal(count[1], 6666);
    rig_close(&r);
    /* Thirds have no exact fixed point: 1/3 against 2/6. */
    assert_false(sched_cost_less((struct sched_cost){1, 3}, (struct sched_cost){2, 6}));
    assert_false(sched_cost_less((struct sched_cost){2, 6}, (struct sched_cost){1, 3}));
    assert_true(sched_cost_less((struct sched_cost){333333, 1000000}, (struct sched_cost){1, 3}));
}

static void equal_endpoints_get_equal_shares(void **state)
{
    (void)state;
    const char *const exact[] = {"chain", "least_request", "round_robin", "weighted_round_robin"};
    const char *const fair[] = {"random", "power_of_two", "consistent_hash"};
    enum { N = 8, PER = 500 };

    for (size_t p = 0; p < ARRAY_LEN(exact) + ARRAY_LEN(fair); p++) {
        struct rig r;
        int count[N];
        bool is_exact = p < ARRAY_LEN(exact);
        rig_open(&r, is_exact ? exact[p] : fair[p - ARRAY_LEN(exact)]);
        for (uint32_t i = 0; i < N; i++)
            rig_add(&r, i, "");
        rig_refresh(&r);
        counts_of(&r, N * PER, count, N);
        for (int i = 0; i < N; i++) {
            if (is_exact)
                assert_int_equal(count[i], PER);
            else
                assert_in_range(count[i], PER - PER / 5, PER + PER / 5);
        }
        /* A burst: nobody ends before all have begun. */
        static struct reservation burst[N * 12];
        int in_burst[N] = {0};
        for (int i = 0; i < N * 12; i++) {
            burst[i] = (struct reservation){0};
            assert_int_equal(rig_admit(&r, &burst[i]), 0);
            in_burst[r.chosen.endpoint->slot]++;
        }
        for (int i = 0; is_exact && i < N; i++)
            assert_int_equal(in_burst[i], 12);
        for (int i = 0; i < N * 12; i++)
            rig_end(&burst[i]);
        rig_close(&r);
    }
}

static void weighted_policies_follow_weights(void **state)
{
    (void)state;
    const char *const policies[] = {"weighted_round_robin", "least_request", "consistent_hash"};

    for (size_t p = 0; p < ARRAY_LEN(policies); p++) {
        struct rig r;
        struct rig_host h;
        int count[3] = {0};
        rig_open(&r, policies[p]);
        for (uint32_t i = 0; i < 3; i++) {
            rig_host(&h, i, "");
            h.i.weight = (i + 1) * 1000;
            rig_put(&r, &h);
        }
        rig_refresh(&r);
        for (int i = 0; i < 12000; i++) {
            r.f.has_session = p == 2;
            r.f.session = session_of(i);
            count[rig_once(&r)]++;
        }
        for (int i = 0; i < 3; i++)
            assert_in_range(count[i], 2000 * (i + 1) - (p == 2 ? 150 : 1),
                            2000 * (i + 1) + (p == 2 ? 150 : 1));
        rig_close(&r);
    }
}

static void sessions_stay_and_few_move(void **state)
{
    (void)state;
    enum { N = 10, KEYS = 10000 };
    static int before[KEYS];
    struct rig r;
    struct rig other;

    rig_open(&r, "consistent_hash");
    for (uint32_t i = 0; i < N; i++)
        rig_add(&r, i, "");
    rig_refresh(&r);
    /* A second instance learns the same endpoints in another order: other slots, same homes. */
    rig_open(&other, "consistent_hash");
    for (uint32_t i = N; i-- > 0;)
        rig_add(&other, i, "");
    rig_refresh(&other);
    r.f.has_session = other.f.has_session = true;
    int share[N] = {0};
    for (int k = 0; k < KEYS; k++) {
        r.f.session = other.f.session = session_of(k);
        before[k] = rig_once(&r);
        share[before[k]]++;
        assert_int_equal(rig_once(&r), before[k]);
        assert_int_equal(rig_once(&other), N - 1 - before[k]);
    }
    for (int i = 0; i < N; i++)
        assert_in_range(share[i], KEYS / N - KEYS / 50, KEYS / N + KEYS / 50);

    fleet_remove(r.fleet, 0, SLICE("10.0.0.3"), r.now);
    rig_refresh(&r);
    int moved = 0;
    for (int k = 0; k < KEYS; k++) {
        r.f.session = session_of(k);
        int now = rig_once(&r);
        moved += now != before[k];
        /* Only those that lived there move. */
        if (before[k] != 3)
            assert_int_equal(now, before[k]);
    }
    assert_int_equal(moved, share[3]);
    rig_add(&r, 3, "");
    rig_refresh(&r);
    for (int k = 0; k < KEYS; k++) {
        r.f.session = session_of(k);
        assert_int_equal(rig_once(&r), before[k]);
    }
    /* The eleventh takes its eleventh, from everybody, and nobody else moves. */
    rig_add(&r, N, "");
    rig_refresh(&r);
    moved = 0;
    for (int k = 0; k < KEYS; k++) {
        r.f.session = session_of(k);
        int now = rig_once(&r);
        assert_true(now == before[k] || now == N);
        moved += now == N;
    }
    assert_in_range(moved, KEYS / (N + 1) - KEYS / 50, KEYS / (N + 1) + KEYS / 50);
    rig_close(&other);
    rig_close(&r);
}

static void a_hot_session_spills_over_at_the_bound(void **state)
{
    (void)state;
    enum { N = 4, HOT = 100 };
    static struct reservation hot[HOT];
    struct rig r;
    int count[N] = {0};

    rig_open(&r, "consistent_hash");
    for (uint32_t i = 0; i < N; i++)
        rig_add(&r, i, "");
    rig_refresh(&r);
    r.f.has_session = true;
    r.f.session = 42;
    for (int i = 0; i < HOT; i++) {
        hot[i] = (struct reservation){0};
        assert_int_equal(rig_admit(&r, &hot[i]), 0);
        count[r.chosen.endpoint->slot]++;
    }
    int most = 0;
    for (int i = 0; i < N; i++)
        most = MAX(most, count[i]);
    /* 1.25 x the mean of 25, rounded up. */
    assert_int_equal(most, 32);
    for (int i = 0; i < HOT; i++)
        rig_end(&hot[i]);
    rig_close(&r);
}

static void filters_say_who_is_usable(void **state)
{
    (void)state;
    struct rig r;
    struct rig_host h;
    struct reservation res = {0};

    rig_open(&r, "chain");
    for (uint32_t i = 0; i < 9; i++) {
        rig_host(&h, i,
                 i == 3   ? "health_status=loading"
                 : i == 4 ? "health_status=unhealthy"
                 : i == 5 ? "health_status=draining"
                 : i == 6 ? "health_status=busy current_requests=3"
                          : "");
        if (i == 0)
            h.i.weight = 0;
        if (i == 1)
            h.i.draining = true;
        if (i == 2)
            h.i.healthy = false;
        if (i == 7)
            h.i.vouched = false;
        if (i == 8)
            h.i.enabled = false;
        rig_put(&r, &h);
    }
    rig_refresh(&r);
    assert_int_equal(sched_pool_members(r.pool), 8);
    for (int i = 0; i < 10; i++)
        assert_int_equal(rig_once(&r), 6);
    /* A first green probe makes the unvouched one usable; being idle it wins. */
    assert_int_equal(fleet_probe(r.fleet, 7, 1, true, r.now), HEALTH_UP);
    assert_int_equal(rig_once(&r), 7);
    /* Nobody left: a rejection, not a wait. */
    fleet_remove(r.fleet, 0, SLICE("10.0.0.6"), r.now);
    fleet_remove(r.fleet, 0, SLICE("10.0.0.7"), r.now);
    rig_refresh(&r);
    assert_int_equal(rig_admit(&r, &res), WEIR_E_NOTFOUND);
    assert_int_equal(r.d.rejection, REJECT_NO_ENDPOINT);
    rig_close(&r);
}

static void when_all_look_down_those_once_up_are_tried(void **state)
{
    (void)state;
    struct rig r;
    struct reservation res = {0};

    rig_open(&r, "chain");
    for (uint32_t i = 0; i < 3; i++)
        rig_add(&r, i, "");
    rig_refresh(&r);
    assert_int_equal(fleet_probe(r.fleet, 1, 1, true, r.now), HEALTH_UP);
    for (uint32_t i = 0; i < 3; i++)
        for (int red = 0; red < 3; red++)
            (void)fleet_probe(r.fleet, i, 1, false, r.now);
    for (int i = 0; i < 5; i++)
        assert_int_equal(rig_once(&r), 1);
    /* Refused connections are no mistake of a probe. */
    for (int i = 0; i < 5; i++)
        (void)sched_saw_connect_failure(r.snapshot->members[1].cell);
    assert_int_equal(rig_admit(&r, &res), WEIR_E_NOTFOUND);
    rig_close(&r);
}

static void versions_tasks_and_context(void **state)
{
    (void)state;
    struct rig r;
    struct rig_host h;
    struct reservation res = {0};

    rig_open(&r, "chain");
    rig_host(&h, 0, "");
    h.model.version = SLICE("v1");
    h.model.max_model_len = 1000;
    h.i.tasks = TASK_CHAT;
    rig_put(&r, &h);
    rig_host(&h, 1, "");
    h.model.version = SLICE("v2");
    h.model.max_model_len = 2000;
    h.i.tasks = TASK_CHAT | TASK_EMBEDDING;
    rig_put(&r, &h);
    rig_refresh(&r);
    r.f.version = SLICE("v1");
    for (int i = 0; i < 4; i++)
        assert_int_equal(rig_once(&r), 0);
    r.f.version = SLICE("v3");
    assert_int_equal(rig_admit(&r, &res), WEIR_E_NOTFOUND);
    assert_int_equal(r.d.rejection, REJECT_NO_ENDPOINT);
    r.f.version = (struct slice){NULL, 0};
    r.f.task = TASK_EMBEDDING;
    for (int i = 0; i < 4; i++)
        assert_int_equal(rig_once(&r), 1);
    r.f.task = TASK_CHAT;
    r.f.prompt_tokens = 900;
    r.f.output_tokens = 101;
    for (int i = 0; i < 4; i++)
        assert_int_equal(rig_once(&r), 1);
    /* Too long for all by our estimate: the longest, and the engine has the last word. */
    r.f.prompt_bytes = 3600;
    r.f.output_tokens = 1500;
    for (int i = 0; i < 4; i++)
        assert_int_equal(rig_once(&r), 1);
    /* 3600 bytes are at least 225 tokens: that is the last answer which may fit, and one more cannot. */
    r.f.output_tokens = 1775;
    assert_int_equal(rig_once(&r), 1);
    r.f.output_tokens = 1776;
    assert_int_equal(rig_admit(&r, &res), WEIR_E_NOTFOUND);
    assert_int_equal(r.d.rejection, REJECT_CONTEXT_TOO_LONG);
    /* A batch of four prompts: each has a context of its own. */
    r.f.n_prompts = 4;
    assert_int_equal(rig_once(&r), 1);
    r.f.output_tokens =
        775; /* 225 tokens each and 775 by the estimate: fits the shorter one, too */
    assert_in_range(rig_once(&r), 0, 1);
    /* Where the engine cuts prompts, only the answer counts. */
    r.f.n_prompts = 0;
    r.f.task = TASK_EMBEDDING;
    r.f.prompt_bytes = 1 << 20;
    r.f.prompt_tokens = 1 << 18;
    r.f.output_tokens = 0;
    assert_int_equal(rig_once(&r), 1);
    rig_close(&r);
}

static void a_model_that_is_loading_is_not_offered(void **state)
{
    (void)state;
    struct rig r;
    struct rig_host h;
    struct reservation res = {0};

    rig_open(&r, "chain");
    rig_host(&h, 0, "");
    h.model.loading = true;
    rig_put(&r, &h);
    rig_add(&r, 1, "");
    rig_refresh(&r);
    for (int i = 0; i < 4; i++)
        assert_int_equal(rig_once(&r), 1);
    rig_host(&h, 1, "");
    h.model.loading = true;
    rig_put(&r, &h);
    rig_refresh(&r);
    assert_int_equal(rig_admit(&r, &res), WEIR_E_NOTFOUND);
    assert_int_equal(r.d.rejection, REJECT_NO_ENDPOINT);
    rig_host(&h, 0, "");
    rig_put(&r, &h);
    rig_refresh(&r);
    for (int i = 0; i < 4; i++)
        assert_int_equal(rig_once(&r), 0);
    rig_close(&r);
}

static void a_report_is_used_by_the_next_pick_until_it_is_stale(void **state)
{
    (void)state;
    struct rig r;
    struct sample s = {.known = 1u << SAMPLE_RUNNING | 1u << SAMPLE_WAITING,
                       .fresh_for_ns = 1500 * NS_PER_MS};
    struct reservation ours[3] = {{0}, {0}, {0}};

    rig_open(&r, "chain");
    rig_add(&r, 0, "");
    rig_add(&r, 1, "");
    rig_refresh(&r);
    s.running = 4;
    s.waiting = 3;
    RIG_MUST(fleet_sample(r.fleet, 0, SLICE("10.0.0.0"), &s, r.now));
    for (int i = 0; i < 10; i++)
        assert_int_equal(rig_once(&r), 1);
    s.running = 20;
    RIG_MUST(fleet_sample(r.fleet, 0, SLICE("10.0.0.1"), &s, r.now));
    for (int i = 0; i < 10; i++)
        assert_int_equal(rig_once(&r), 0);
    /* Both stale: our own ledger decides alone, and equal endpoints take turns. */
    r.now += 1500 * NS_PER_MS;
    int first = rig_once(&r);
    assert_int_equal(rig_once(&r), 1 - first);
    /* What we had there when it reported is not counted twice: 3 of ours, 4 reported, so 1 is foreign. */
    for (int i = 0; i < 3; i++)
        RIG_MUST(sched_reserve(&ours[i], r.snapshot->members[0].cell, 0, &r.f));
    s.running = 4;
    s.waiting = 0;
    RIG_MUST(fleet_sample(r.fleet, 0, SLICE("10.0.0.0"), &s, r.now));
    struct explain_row why[2];
    sched_pool_explain(r.pool, &r.f, r.now, 0, &r.scratch, &r.d, why);
    assert_int_equal(why[0].load, 4);
    assert_int_equal(why[1].load, 0);
    rig_end(&ours[0]);
    sched_pool_explain(r.pool, &r.f, r.now, 0, &r.scratch, &r.d, why);
    assert_int_equal(why[0].load, 3);
    rig_end(&ours[1]);
    rig_end(&ours[2]);
    rig_close(&r);
}

static void explain_names_the_rule_and_takes_no_turn(void **state)
{
    (void)state;
    struct rig r;
    struct explain_row why[4];

    rig_open(&r, "chain");
    rig_add(&r, 0, "remaining_memory=4 gpu_util=80");
    rig_add(&r, 1, "remaining_memory=12 gpu_util=80 current_requests=3");
    rig_add(&r, 2, "health_status=loading");
    rig_add(&r, 3, "");
    rig_refresh(&r);
    r.f.required_bytes = UINT64_C(8) * GIB;
    for (int i = 0; i < 3; i++) {
        sched_pool_explain(r.pool, &r.f, r.now, 5, &r.scratch, &r.d, why);
        assert_int_equal(r.d.row, 1);
        assert_string_equal(sched_filters[why[0].dropped_by].name, "memory");
        assert_int_equal(why[1].dropped_by, EXPLAIN_KEPT);
        assert_true(why[1].chosen);
        assert_int_equal(why[1].cost_num, 3);
        assert_int_equal(why[1].terms[0], 6 * Q16_ONE);
        assert_int_equal(why[1].cost_den, UINT64_C(1000000) * 32768);
        assert_int_equal(why[1].share, UINT64_C(1000000) * 32768);
        assert_string_equal(sched_filters[why[2].dropped_by].name, "usable");
        assert_string_equal(sched_filters[why[3].dropped_by].name, "memory_known");
    }
    /* Equal endpoints: explaining does not move the rotation. */
    r.f.required_bytes = 0;
    for (int i = 0; i < 4; i++) {
        sched_pool_explain(r.pool, &r.f, r.now, 5, &r.scratch, &r.d, why);
        uint32_t promised = r.d.row;
        assert_int_equal(rig_once(&r), (int)promised);
    }
    rig_close(&r);
}

static void tried_endpoints_are_left_out(void **state)
{
    (void)state;
    struct rig r;
    struct reservation res = {0};
    struct sched_exclude x = {.n = 1, .tried = {{0, 1}}};

    rig_open(&r, "round_robin");
    rig_add(&r, 0, "");
    rig_add(&r, 1, "");
    rig_refresh(&r);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(
            sched_pool_admit(r.pool, &r.f, &x, r.now, 0, &r.scratch, &res, &r.chosen, &r.d), 0);
        assert_int_equal(r.chosen.endpoint->slot, 1);
        rig_end(&res);
    }
    x.tried[1].slot = 1;
    x.tried[1].generation = 1;
    x.n = 2;
    assert_int_equal(
        sched_pool_admit(r.pool, &r.f, &x, r.now, 0, &r.scratch, &res, &r.chosen, &r.d),
        WEIR_E_NOTFOUND);
    assert_int_equal(r.d.rejection, REJECT_NO_ENDPOINT);
    rig_close(&r);
}

static void names_and_synonyms(void **state)
{
    (void)state;
    struct policy a;
    struct policy b;

    for (uint32_t i = 0; sched_policy_name(i); i++) {
        assert_int_equal(sched_policy_named(slice_str(sched_policy_name(i)), &a), 0);
        assert_true(sched_policy_reads_body(&a));
    }
    assert_int_equal(sched_policy_named(SLICE("least_load"), &a), 0);
    assert_int_equal(sched_policy_named(SLICE("least_request"), &b), 0);
    assert_int_equal(a.hash, b.hash);
    assert_int_equal(sched_policy_named(SLICE("consistent_hashing"), &a), 0);
    assert_int_not_equal(a.hash, b.hash);
    const char *const refused[] = {"bucket", "manual", "roundrobin", "", "Chain"};
    for (size_t i = 0; i < ARRAY_LEN(refused); i++)
        assert_int_equal(sched_policy_named(slice_str(refused[i]), &a), WEIR_E_NOTFOUND);
}

static void several_scores_add_up(void **state)
{
    (void)state;
    struct rig r;
    struct explain_row why[2];

    rig_open(&r, "chain");
    r.policy.scores[1] = (struct policy_score){.plugin = 0, .q16 = 2 * Q16_ONE};
    r.policy.n_scores = 2;
    rig_add(&r, 0, "gpu_util=80 current_requests=2");
    rig_add(&r, 1, "gpu_util=20 current_requests=3");
    rig_refresh(&r);
    sched_pool_explain(r.pool, &r.f, r.now, 0, &r.scratch, &r.d, why);
    /* Per millionth of weight: 2/0.5 + 2 x 2 = 8 against 3/2 + 2 x 3 = 7.5. */
    assert_int_equal(r.d.row, 1);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_the_one_without_memory_and_of_the_rest_the_less_busy),
        cmocka_unit_test(needed_equal_to_free_fits_and_promises_count),
        cmocka_unit_test(above_every_total_is_refused_and_unknown_totals_wait),
        cmocka_unit_test(unknown_memory_ranks_behind_known_to_fit),
        cmocka_unit_test(kv_tokens_decide_for_engines_that_preallocate),
        cmocka_unit_test(every_point_of_the_curve),
        cmocka_unit_test(sequential_requests_split_by_utilization),
        cmocka_unit_test(gpu_weights_split_three_to_one),
        cmocka_unit_test(loaded_costs_are_exact_fractions),
        cmocka_unit_test(equal_endpoints_get_equal_shares),
        cmocka_unit_test(weighted_policies_follow_weights),
        cmocka_unit_test(sessions_stay_and_few_move),
        cmocka_unit_test(a_hot_session_spills_over_at_the_bound),
        cmocka_unit_test(filters_say_who_is_usable),
        cmocka_unit_test(when_all_look_down_those_once_up_are_tried),
        cmocka_unit_test(versions_tasks_and_context),
        cmocka_unit_test(a_model_that_is_loading_is_not_offered),
        cmocka_unit_test(a_report_is_used_by_the_next_pick_until_it_is_stale),
        cmocka_unit_test(explain_names_the_rule_and_takes_no_turn),
        cmocka_unit_test(tried_endpoints_are_left_out),
        cmocka_unit_test(names_and_synonyms),
        cmocka_unit_test(several_scores_add_up),
    };
    return cmocka_run_group_tests_name("pick", tests, NULL, NULL);
}
