/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include "base/bug.h"
#include "base/prng.h"
#include "fleet_rig.h"

struct request {
    struct features f;
    struct reservation r;
    struct sched_waiter w;
};

static void ask(struct request *q, uint8_t priority, uint64_t deadline_ns)
{
    *q = (struct request){
        .f = {.model = RIG_MODEL, .priority = priority, .deadline_ns = deadline_ns}};
    q->w = (struct sched_waiter){.features = &q->f, .reservation = &q->r};
}

static struct request *offer(struct rig *r)
{
    struct sched_waiter *w = sched_pool_offer(r->pool, r->now, r->seed++, &r->scratch, &r->chosen);

    return w ? container_of(w, struct request, w) : NULL;
}

/* A pool of one endpoint that takes one request at a time; `busy` holds it. */
static void open_busy(struct rig *r, struct reservation *busy)
{
    rig_open(r, "chain");
    rig_add(r, 0, "max_concurrency=1");
    rig_refresh(r);
    *busy = (struct reservation){0};
    assert_int_equal(rig_admit(r, busy), 0);
}

/* End what runs and see who is next. */
static struct request *next(struct rig *r, struct reservation *running)
{
    rig_end(running);
    struct request *q = offer(r);
    if (q)
        assert_non_null(q->r.cell);
    return q;
}

static void a_pool_with_labels_has_only_members_that_have_them(void **state)
{
    (void)state;
    static const struct kv want[] = {{SLICE("tier"), SLICE("gold")}, {SLICE("zone"), SLICE("a")}};
    static const struct kv gold_b[] = {{SLICE("zone"), SLICE("b")}, {SLICE("tier"), SLICE("gold")}};
    static const struct kv gold_a[] = {
        {SLICE("zone"), SLICE("a")}, {SLICE("more"), SLICE("")}, {SLICE("tier"), SLICE("gold")}};
    const struct kv *labels[] = {NULL, gold_b, gold_a};
    const uint32_t n_labels[] = {0, 2, 3};
    struct sched_pool *pool;
    struct rig r;

    rig_open(&r, "chain");
    for (uint32_t i = 0; i < 3; i++) {
        struct rig_host h;
        rig_host(&h, i, "");
        h.i.labels = labels[i];
        h.i.n_labels = n_labels[i];
        rig_put(&r, &h);
    }
    rig_refresh(&r);
    assert_int_equal(sched_pool_members(r.pool), 3);
    const struct sched_pool_options o = {
        .mem = &r.mem, .policy = &r.policy, .queue = &r.queue, .labels = want, .n_labels = 2};
    assert_int_equal(sched_pool_new(&o, &pool), 0);
    assert_int_equal(sched_pool_refresh(pool, r.snapshot, RIG_MODEL), 0);
    assert_int_equal(sched_pool_members(pool), 1);
    assert_true(sched_pool_has(pool, 2, 1));
    sched_pool_free(pool);
    /* Of a pool of any model likewise. */
    assert_int_equal(sched_pool_new(&o, &pool), 0);
    assert_int_equal(sched_pool_refresh(pool, r.snapshot, slice_of(NULL, 0)), 0);
    assert_int_equal(sched_pool_members(pool), 1);
    sched_pool_free(pool);
    rig_close(&r);
}

static void order_is_class_deadline_arrival(void **state)
{
    (void)state;
    struct rig r;
    struct reservation busy;
    struct request q[5];
    static const int want[] = {3, 2, 1, 0, 4};

    open_busy(&r, &busy);
    ask(&q[0], 5, 0);
    ask(&q[1], 5, r.now + 900);
    ask(&q[2], 5, r.now + 800);
    ask(&q[3], 2, 0);
    ask(&q[4], 5, 0);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(rig_admit(&r, &q[i].r), WEIR_E_AGAIN);
        assert_int_equal(sched_pool_enqueue(r.pool, &q[i].w, r.now), 0);
        assert_null(offer(&r));
    }
    assert_int_equal(sched_pool_waiting(r.pool), 5);
    struct reservation *running = &busy;
    for (int i = 0; i < 5; i++) {
        struct request *got = next(&r, running);
        assert_ptr_equal(got, &q[want[i]]);
        running = &got->r;
    }
    assert_null(next(&r, running));
    assert_int_equal(sched_pool_waiting(r.pool), 0);
    rig_close(&r);
}

static void ageing_ends_starvation(void **state)
{
    (void)state;
    struct rig r;
    struct reservation busy;
    struct request old;
    struct request fresh[200];
    uint64_t begun;

    open_busy(&r, &busy);
    ask(&old, 9, 0);
    assert_int_equal(sched_pool_enqueue(r.pool, &old.w, r.now), 0);
    begun = r.now;
    struct reservation *running = &busy;
    struct request *got = NULL;
    int served = 0;
    /* Every second a new request of class 1 comes and one ends: without ageing class 9 never runs. */
    while (got != &old && served < 200) {
        ask(&fresh[served], 1, 0);
        assert_int_equal(sched_pool_enqueue(r.pool, &fresh[served].w, r.now), 0);
        got = next(&r, running);
        assert_non_null(got);
        running = &got->r;
        served++;
        if (got != &old)
            r.now += NS_PER_S;
    }
    /* Eight classes at 10 s each; then it is the first to have come. */
    assert_ptr_equal(got, &old);
    assert_int_equal(r.now - begun, 80 * NS_PER_S);
    while ((got = next(&r, running)))
        running = &got->r;
    assert_int_equal(sched_pool_waiting(r.pool), 0);
    rig_close(&r);
}

/*
 * Whatever else comes, of any class and deadline: a waiter of class c is served at the latest as the (n + 1)th
 * after c x age, n being how many waited when it came. And as long as none aged to the end, the order is that of classes.
 */
static void nobody_starves(void **state)
{
    (void)state;
    enum { N = 3000 };
    struct rig r;
    struct reservation busy;
    static struct request q[N];
    static struct {
        uint64_t from; /* when it has aged to the end */
        uint32_t left; /* how many may be served from then on before it */
        bool waits;
    } bound[N];
    struct prng random = {.state = 4};
    struct reservation *running = &busy;
    uint32_t came = 0;
    uint32_t served = 0;

    open_busy(&r, &busy);
    while (served < N) {
        /* 120 % load in bursts until all came: the queue grows to hundreds. */
        for (uint64_t burst = prng_next(&random) % 13; burst > 0 && came < N; burst--) {
            uint8_t class = (uint8_t)(came % 10 == 0 ? 9 : 1 + prng_next(&random) % 3);
            bool hurried = class < 9 && prng_next(&random) % 2;
            ask(&q[came], class, hurried ? r.now + 3600 * NS_PER_S : 0);
            bound[came].from = r.now + class * r.queue.age_ns;
            bound[came].left = sched_pool_waiting(r.pool);
            bound[came].waits = true;
            if (sched_pool_enqueue(r.pool, &q[came].w, r.now) != 0)
                bound[came].waits = false, served++; /* full: told at once */
            came++;
        }
        for (int i = 0; i < 5; i++) {
            struct request *got = next(&r, running);
            if (!got)
                break;
            running = &got->r;
            served++;
            bound[got - q].waits = false;
            for (uint32_t k = 0; k < came; k++)
                if (bound[k].waits && r.now >= bound[k].from)
                    assert_true(bound[k].left-- > 0);
            r.now += 50 * NS_PER_MS;
        }
    }
    rig_end(running);
    assert_int_equal(sched_pool_waiting(r.pool), 0);
    rig_close(&r);
}

/* Class 1 with deadlines, for ever: what aged to class 1 without one is not held back by them. */
static void deadlines_of_newcomers_do_not_starve(void **state)
{
    (void)state;
    struct rig r;
    struct reservation busy;
    struct request old;
    static struct request fresh[200];
    struct request *got = NULL;

    open_busy(&r, &busy);
    uint64_t begun = r.now;
    ask(&old, 3, 0);
    assert_int_equal(sched_pool_enqueue(r.pool, &old.w, r.now), 0);
    struct reservation *running = &busy;
    for (int i = 0; i < 200 && got != &old; i++) {
        ask(&fresh[i], 1, r.now + 60 * NS_PER_S);
        assert_int_equal(sched_pool_enqueue(r.pool, &fresh[i].w, r.now), 0);
        got = next(&r, running);
        running = &got->r;
        if (got != &old)
            r.now += NS_PER_S;
    }
    assert_ptr_equal(got, &old);
    assert_int_equal(r.now - begun, 30 * NS_PER_S);
    while ((got = next(&r, running)))
        running = &got->r;
    rig_close(&r);
}

/* Two places a second: who has less time than those before it take is refused at once; with time enough it waits. */
#define HALF (NS_PER_S / 2)
static void what_cannot_be_in_time_is_refused(void **state)
{
    (void)state;
    struct rig r;
    struct reservation busy;
    static struct request q[40];
    struct request late;

    open_busy(&r, &busy);
    struct reservation *running = &busy;
    ask(&late, 5, r.now);
    assert_int_equal(sched_pool_enqueue(r.pool, &late.w, r.now), WEIR_E_TIMEOUT); /* passed */
    for (int i = 0; i < 20; i++) {
        ask(&q[i], 5, r.now + 1);
        q[i].f.deadline_ns = 0;
        assert_int_equal(sched_pool_enqueue(r.pool, &q[i].w, r.now), 0);
    }
    ask(&late, 5, r.now + 1); /* a nanosecond, but nothing is known yet of the rate */
    assert_int_equal(sched_pool_enqueue(r.pool, &late.w, r.now), 0);
    sched_pool_cancel(r.pool, &late.w);
    for (int i = 0; i < 10; i++) {
        r.now += HALF;
        running = &next(&r, running)->r;
    }
    /* Ten wait, without deadline: one that has a deadline stands before them. */
    assert_int_equal(sched_pool_waiting(r.pool), 10);
    assert_int_equal(sched_pool_retry_after_s(r.pool, r.now), 5);
    ask(&late, 5, r.now + HALF - 1);
    assert_int_equal(sched_pool_enqueue(r.pool, &late.w, r.now), WEIR_E_TIMEOUT);
    assert_int_equal(late.w.queued, false);
    ask(&late, 5, r.now + HALF);
    assert_int_equal(sched_pool_enqueue(r.pool, &late.w, r.now), 0);
    sched_pool_cancel(r.pool, &late.w);
    /* In a lower class it is the eleventh. */
    ask(&late, 6, r.now + 11 * HALF - 1);
    assert_int_equal(sched_pool_enqueue(r.pool, &late.w, r.now), WEIR_E_TIMEOUT);
    ask(&late, 6, r.now + 11 * HALF);
    assert_int_equal(sched_pool_enqueue(r.pool, &late.w, r.now), 0);
    sched_pool_cancel(r.pool, &late.w);
    /* Those before it that want more than it does are no reason: it may be served before them. */
    ask(&late, 6, r.now + 11 * HALF - 1);
    for (int i = 10; i < 20; i++)
        q[i].f.output_tokens = 4000;
    assert_int_equal(sched_pool_enqueue(r.pool, &late.w, r.now), 0);
    sched_pool_cancel(r.pool, &late.w);
    for (int i = 10; i < 20; i++)
        q[i].f.output_tokens = 0;
    /* Others will serve it: what was measured is forgotten. */
    rig_add(&r, 1, "max_concurrency=1 health_status=loading");
    rig_refresh(&r);
    ask(&late, 6, r.now + 1);
    assert_int_equal(sched_pool_enqueue(r.pool, &late.w, r.now), 0);
    sched_pool_cancel(r.pool, &late.w);
    for (struct request *got; (got = next(&r, running));)
        running = &got->r;
    rig_close(&r);
}

static void nobody_jumps_the_queue_but_the_unfitting_do_not_block(void **state)
{
    (void)state;
    struct rig r;
    struct request big;
    struct request first;
    struct request late;
    struct reservation held = {0};

    rig_open(&r, "chain");
    rig_add(&r, 0, "remaining_memory=10 max_concurrency=2");
    rig_refresh(&r);
    r.f.required_bytes = 8 * GIB;
    assert_int_equal(rig_admit(&r, &held), 0);
    ask(&big, 1, 0);
    big.f.required_bytes = 8 * GIB;
    assert_int_equal(sched_pool_enqueue(r.pool, &big.w, r.now), 0);
    assert_null(offer(&r));
    /* Memory for the big one is taken, a place is free: a small newcomer passes. */
    ask(&first, 9, 0);
    first.f.required_bytes = GIB;
    assert_int_equal(
        sched_pool_admit(r.pool, &first.f, NULL, r.now, 1, &r.scratch, &first.r, &r.chosen, &r.d),
        0);
    /* Now the small one ends while another small one waits: the newcomer waits behind it. */
    ask(&late, 5, 0);
    late.f.required_bytes = GIB;
    assert_int_equal(sched_pool_enqueue(r.pool, &late.w, r.now), 0);
    rig_end(&first.r);
    ask(&first, 1, 0);
    first.f.required_bytes = GIB;
    assert_int_equal(
        sched_pool_admit(r.pool, &first.f, NULL, r.now, 1, &r.scratch, &first.r, &r.chosen, &r.d),
        WEIR_E_AGAIN);
    /* The offer skips the big one, which keeps its place. */
    assert_ptr_equal(offer(&r), &late);
    assert_null(offer(&r));
    rig_end(&late.r);
    rig_end(&held);
    assert_ptr_equal(offer(&r), &big);
    rig_end(&big.r);
    rig_close(&r);
}

static void offers_look_64_deep_and_keep_places(void **state)
{
    (void)state;
    struct rig r;
    static struct request big[70];
    struct request small;
    struct reservation held = {0};

    rig_open(&r, "chain");
    rig_add(&r, 0, "remaining_memory=10 max_concurrency=2");
    rig_refresh(&r);
    r.f.required_bytes = 8 * GIB;
    assert_int_equal(rig_admit(&r, &held), 0);
    for (int i = 0; i < 70; i++) {
        ask(&big[i], 5, 0);
        /* Rising needs, so that each is judged on its own. */
        big[i].f.required_bytes = 8 * GIB - (uint64_t)i;
        assert_int_equal(sched_pool_enqueue(r.pool, &big[i].w, r.now), 0);
    }
    ask(&small, 5, 0);
    assert_int_equal(sched_pool_enqueue(r.pool, &small.w, r.now), 0);
    assert_null(offer(&r));
    for (int i = 0; i < 7; i++)
        sched_pool_cancel(r.pool, &big[i].w);
    assert_ptr_equal(offer(&r), &small);
    rig_end(&small.r);
    rig_end(&held);
    for (int i = 7; i < 70; i++) {
        assert_ptr_equal(offer(&r), &big[i]);
        rig_end(&big[i].r);
    }
    rig_close(&r);
}

static void cancel_limits_and_hints(void **state)
{
    (void)state;
    struct rig r;
    struct reservation busy;
    struct request q[4];

    open_busy(&r, &busy);
    struct cell *c = r.chosen.cell;
    r.queue.size = 3;
    assert_int_equal(sched_pool_reconfigure(r.pool, &r.policy, &r.queue), 0);
    for (int i = 0; i < 4; i++) {
        ask(&q[i], 5, 0);
        assert_int_equal(sched_pool_enqueue(r.pool, &q[i].w, r.now), i < 3 ? 0 : WEIR_E_FULL);
    }
    assert_int_equal(atomic_load(&c->waiting_pools), 1);
    /* A member that joins while somebody waits gets the hint, one that leaves loses it. */
    rig_add(&r, 1, "max_concurrency=1 health_status=loading");
    rig_refresh(&r);
    assert_int_equal(atomic_load(&r.snapshot->members[1].cell->waiting_pools), 1);
    assert_int_equal(atomic_load(&c->waiting_pools), 1);
    for (int i = 0; i < 4; i++) {
        sched_pool_cancel(r.pool, &q[i].w);
        sched_pool_cancel(r.pool, &q[i].w);
    }
    assert_int_equal(sched_pool_waiting(r.pool), 0);
    assert_int_equal(atomic_load(&c->waiting_pools), 0);
    assert_int_equal(atomic_load(&r.snapshot->members[1].cell->waiting_pools), 0);
    rig_end(&busy);
    assert_null(offer(&r));
    rig_close(&r);
}

static void the_old_generation_counts_against_the_limit(void **state)
{
    (void)state;
    struct rig r;
    struct reservation old = {0};
    struct reservation res = {0};

    rig_open(&r, "chain");
    rig_add(&r, 0, "max_concurrency=2");
    rig_refresh(&r);
    assert_int_equal(rig_admit(&r, &old), 0);
    struct cell *before = r.chosen.cell;
    fleet_remove(r.fleet, 0, SLICE("10.0.0.0"), r.now);
    rig_refresh(&r);
    assert_int_equal(sched_pool_members(r.pool), 0);
    rig_add(&r, 0, "max_concurrency=2");
    rig_refresh(&r);
    assert_true(sched_pool_has(r.pool, 0, 2));
    assert_false(sched_pool_has(r.pool, 0, 1));
    assert_int_equal(rig_admit(&r, &res), 0);
    assert_ptr_not_equal(r.chosen.cell, before);
    assert_int_equal(atomic_load(&before->inflight), 1);
    struct reservation third = {0};
    assert_int_equal(rig_admit(&r, &third), WEIR_E_AGAIN);
    assert_int_equal(fleet_inflight(r.fleet, SLICE("10.0.0.0"), 8000), 2);
    rig_end(&old);
    assert_int_equal(rig_admit(&r, &third), 0);
    rig_end(&third);
    rig_end(&res);
    assert_int_equal(fleet_inflight(r.fleet, SLICE("10.0.0.0"), 8000), 0);
    rig_close(&r);
}

static void members_of_any_model(void **state)
{
    (void)state;
    struct rig r;
    struct rig_host h;
    struct sched_pool *any;

    rig_open(&r, "round_robin");
    rig_add(&r, 0, "");
    rig_host(&h, 1, "");
    h.i.n_models = 0;
    rig_put(&r, &h);
    rig_refresh(&r);
    assert_int_equal(sched_pool_members(r.pool), 1);
    struct sched_pool_options po = {.mem = &r.mem, .policy = &r.policy, .queue = &r.queue};
    assert_int_equal(sched_pool_new(&po, &any), 0);
    assert_int_equal(sched_pool_refresh(any, r.snapshot, (struct slice){NULL, 0}), 0);
    assert_int_equal(sched_pool_members(any), 2);
    /* What a probe found counts, since no source tells any. */
    struct model_ref found = {.id = RIG_MODEL};
    assert_int_equal(fleet_set_models(r.fleet, 1, 1, &found, 1), 0);
    rig_refresh(&r);
    assert_int_equal(sched_pool_members(r.pool), 2);
    sched_pool_free(any);
    rig_close(&r);
}

static void rotation_survives_a_refresh(void **state)
{
    (void)state;
    struct rig r;
    int count[3] = {0};

    rig_open(&r, "weighted_round_robin");
    for (uint32_t i = 0; i < 3; i++)
        rig_add(&r, i, "");
    rig_refresh(&r);
    /* A new snapshot after every pick must not send everybody to the first again. */
    for (int i = 0; i < 30; i++) {
        count[rig_once(&r)]++;
        assert_int_equal(fleet_set_drain(r.fleet, SLICE("10.0.0.9:8000"), true), WEIR_E_NOTFOUND);
        assert_int_equal(fleet_set_known_models(r.fleet, NULL, 0), 0);
        rig_refresh(&r);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(count[i], 10);
    rig_close(&r);
}

static void no_memory_leaves_the_pool_as_it_was(void **state)
{
    (void)state;
    struct rig r;
    struct sched_pool *p = NULL;
    struct sched_pool_options po;

    rig_open(&r, "chain");
    po = (struct sched_pool_options){.mem = &r.mem, .policy = &r.policy, .queue = &r.queue};
    int rc = WEIR_E_NOMEM;
    for (long n = 1; rc; n++) {
        long live = r.heap.live;
        r.heap.fail_at = n;
        rc = sched_pool_new(&po, &p);
        r.heap.fail_at = 0;
        if (rc) {
            assert_int_equal(rc, WEIR_E_NOMEM);
            assert_int_equal(r.heap.live, live);
        }
    }
    sched_pool_free(p);
    rig_add(&r, 0, "");
    rig_refresh(&r);
    rig_add(&r, 1, "");
    assert_int_equal(fleet_build(r.fleet, r.now, &r.snapshot), 0);
    rc = WEIR_E_NOMEM;
    for (long n = 1; rc; n++) {
        long live = r.heap.live;
        r.heap.fail_at = n;
        rc = sched_pool_refresh(r.pool, r.snapshot, RIG_MODEL);
        r.heap.fail_at = 0;
        if (rc) {
            assert_int_equal(r.heap.live, live);
            assert_int_equal(sched_pool_members(r.pool), 1);
            assert_int_equal(rig_once(&r), 0);
        }
    }
    assert_int_equal(sched_pool_members(r.pool), 2);
    rig_close(&r);
}

/* @return a bit for each of some sessions, set when it goes to the first host. */
static uint64_t first_ones(struct rig *r)
{
    uint64_t first = 0;

    r->f.has_session = true;
    for (uint32_t i = 0; i < 64; i++) {
        r->f.session = i * UINT64_C(0x9E3779B97F4A7C15);
        first |= (uint64_t)(rig_once(r) == 0) << i;
    }
    return first;
}

/* Tables of a pick are made by weights, so new weights make new ones: as if it had begun with them. Or nothing is new. */
static void weights_that_change_are_in_tables_too(void **state)
{
    (void)state;
    struct rig r[2];
    struct policy even;
    struct policy heavy;
    int rc = WEIR_E_NOMEM;

    RIG_MUST(sched_policy_named(SLICE("maglev"), &even));
    heavy = even;
    heavy.gpu_weights[0] = (struct gpu_weight){.gpu_type = SLICE("A100"), .weight = 9 * WEIGHT_ONE};
    heavy.n_gpu_weights = 1;
    for (uint32_t k = 0; k < 2; k++) {
        rig_open(&r[k], "maglev");
        RIG_MUST(sched_pool_reconfigure(r[k].pool, k ? &heavy : &even, &r[k].queue));
        rig_add(&r[k], 0, "gpu_type=A100");
        rig_add(&r[k], 1, "");
        rig_refresh(&r[k]);
    }
    uint64_t before = first_ones(&r[0]);
    uint64_t after = first_ones(&r[1]);
    assert_true(__builtin_popcountll(before) < 45 && __builtin_popcountll(after) > 50);
    for (long n = 1; rc; n++) {
        r[0].heap.fail_at = n;
        rc = sched_pool_reconfigure(r[0].pool, &heavy, &r[0].queue);
        r[0].heap.fail_at = 0;
        assert_true(first_ones(&r[0]) == (rc ? before : after));
    }
    rig_close(&r[0]);
    rig_close(&r[1]);
}

static void the_hot_path_does_not_allocate(void **state)
{
    (void)state;
    struct rig r;
    struct reservation busy;
    static struct request q[512];

    open_busy(&r, &busy);
    r.heap.fail_at = 1;
    for (int i = 0; i < 512; i++) {
        ask(&q[i], (uint8_t)(1 + i % 9), 0);
        assert_int_equal(rig_admit(&r, &q[i].r), WEIR_E_AGAIN);
        assert_int_equal(sched_pool_enqueue(r.pool, &q[i].w, r.now), 0);
        r.now += NS_PER_MS * 100;
    }
    struct reservation *running = &busy;
    struct request *got;
    int served = 0;
    while ((got = next(&r, running))) {
        running = &got->r;
        served++;
        if (served % 3 == 0)
            sched_pool_cancel(r.pool, &q[511 - served].w);
        r.now += NS_PER_MS * 700;
    }
    assert_int_equal(r.heap.fail_at, 1);
    r.heap.fail_at = 0;
    assert_int_equal(sched_pool_waiting(r.pool), 0);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pool_with_labels_has_only_members_that_have_them),
        cmocka_unit_test(order_is_class_deadline_arrival),
        cmocka_unit_test(ageing_ends_starvation),
        cmocka_unit_test(nobody_starves),
        cmocka_unit_test(deadlines_of_newcomers_do_not_starve),
        cmocka_unit_test(what_cannot_be_in_time_is_refused),
        cmocka_unit_test(nobody_jumps_the_queue_but_the_unfitting_do_not_block),
        cmocka_unit_test(offers_look_64_deep_and_keep_places),
        cmocka_unit_test(cancel_limits_and_hints),
        cmocka_unit_test(the_old_generation_counts_against_the_limit),
        cmocka_unit_test(members_of_any_model),
        cmocka_unit_test(rotation_survives_a_refresh),
        cmocka_unit_test(no_memory_leaves_the_pool_as_it_was),
        cmocka_unit_test(weights_that_change_are_in_tables_too),
        cmocka_unit_test(the_hot_path_does_not_allocate),
    };
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
