/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include "base/prng.h"
#include "fleet_rig.h"
#include "sched/evidence.h"

#define S(n) ((n)*NS_PER_S)

enum { HOSTS_MAX = 8, HELD_MAX = 512 };

/* A closed loop: `held` requests under way, the oldest ends when the next one comes. */
struct load {
    struct reservation held[HELD_MAX];
    uint32_t at, n;
    uint32_t picks[HOSTS_MAX];
};

static void step(struct rig *r, struct load *l)
{
    struct reservation *x = &l->held[l->at];

    rig_end(x);
    assert_int_equal(rig_admit(r, x), 0);
    l->picks[r->chosen.endpoint->slot]++;
    l->at = (l->at + 1) % l->n;
}

/* Picks of each over `n` picks at one moment. */
static void run(struct rig *r, struct load *l, uint32_t n)
{
    memset(l->picks, 0, sizeof(l->picks));
    for (uint32_t i = 0; i < n; i++)
        step(r, l);
}

static void end(struct load *l)
{
    for (uint32_t i = 0; i < l->n; i++)
        rig_end(&l->held[i]);
}

/* Four grown endpoints under load. */
static void four(struct rig *r, struct load *l, const char *policy, uint32_t held)
{
    *l = (struct load){.n = held};
    rig_open(r, policy);
    r->policy.slow_start_ns = S(30);
    for (uint32_t i = 0; i < 4; i++)
        rig_add(r, i, "");
    rig_refresh(r);
    run(r, l, held);
    r->now += S(31);
    run(r, l, 400);
    for (int i = 0; i < 4; i++)
        assert_in_range(l->picks[i], held ? 60 : 0, 140);
}

static void a_joiner_ramps(const char *policy, uint32_t held)
{
    enum { N = 10000, FAIR = N / 5, FAIR6 = N / 6 };
    struct rig r;
    struct load l;
    uint64_t t0;

    four(&r, &l, policy, held);
    rig_add(&r, 4, "");
    rig_refresh(&r);
    t0 = r.now;
    run(&r, &l, held);
    r.now = t0 + S(3);
    run(&r, &l, N);
    assert_in_range(l.picks[4], FAIR / 20, FAIR / 4);
    /* The others carry on as before: four of five parts, and what the joiner leaves. */
    for (int i = 0; i < 4; i++)
        assert_in_range(l.picks[i], FAIR, N / 4 + N / 40);

    r.now = t0 + S(10);
    run(&r, &l, N);
    uint32_t before = l.picks[4];
    rig_add(&r, 5, "");
    rig_refresh(&r);
    run(&r, &l, N);
    /* Another one joins: neither reset nor jump, and nobody surges. */
    uint32_t most = before * 13 / 10;
    /* Of two joiners drawn together one has to serve: one pair in fifteen. */
    if (strcmp(policy, "power_of_two") == 0)
        most += N / 15;
    assert_in_range(l.picks[4], before * 7 / 10, most);
    assert_in_range(l.picks[5], 0, FAIR6 / 4);
    for (int i = 0; i < 4; i++)
        assert_in_range(l.picks[i], FAIR6, N / 4 + N / 40);

    r.now = t0 + S(20);
    run(&r, &l, N);
    assert_true(l.picks[4] > before);
    r.now = t0 + S(41);
    run(&r, &l, held);
    run(&r, &l, N);
    for (int i = 0; i < 6; i++)
        assert_in_range(l.picks[i], FAIR6 * 85 / 100, FAIR6 * 115 / 100);
    end(&l);
    rig_close(&r);
}

static void a_joiner_ramps_under_chain(void **state)
{
    (void)state;
    a_joiner_ramps("chain", 8);
    a_joiner_ramps("chain", 12);
    a_joiner_ramps("chain", 400);
}

static void a_joiner_ramps_under_least_request(void **state)
{
    (void)state;
    a_joiner_ramps("least_request", 1);
    a_joiner_ramps("least_request", 40);
}

static void a_joiner_ramps_under_weighted_round_robin(void **state)
{
    (void)state;
    a_joiner_ramps("weighted_round_robin", 40);
}

static void a_joiner_ramps_under_power_of_two(void **state)
{
    (void)state;
    a_joiner_ramps("power_of_two", 1);
    a_joiner_ramps("power_of_two", 8);
    a_joiner_ramps("power_of_two", 40);
}

static void the_first_fleet_starts_in_full(void **state)
{
    (void)state;
    struct rig r;
    struct load l = {.n = 12};

    rig_open(&r, "chain");
    r.policy.slow_start_ns = S(30);
    rig_add(&r, 0, "");
    rig_refresh(&r);
    run(&r, &l, 12);
    r.now += S(5);
    rig_add(&r, 1, "");
    rig_add(&r, 2, "");
    rig_refresh(&r);
    run(&r, &l, 12);
    run(&r, &l, 300);
    for (int i = 0; i < 3; i++)
        assert_in_range(l.picks[i], 95, 105);
    end(&l);
    rig_close(&r);
}

static void a_new_generation_with_an_honest_0_does_not_get_everything(void **state)
{
    (void)state;
    struct rig r;
    struct load l;
    struct rig_host h;

    four(&r, &l, "chain", 400);
    /* 400 more of before, which the agent of each still reports as its own. */
    rig_host(&h, 0, "");
    h.i.epoch = 1;
    rig_put(&r, &h);
    h.i.epoch = 2;
    rig_put(&r, &h);
    rig_refresh(&r);
    assert_true(r.snapshot->members[0].endpoint->generation > 1);
    run(&r, &l, 400);
    assert_in_range(l.picks[0], 0, 60);
    end(&l);
    rig_close(&r);
}

static void a_recovery_is_no_new_start(void **state)
{
    (void)state;
    struct rig r;
    struct load l;

    four(&r, &l, "chain", 40);
    (void)fleet_probe(r.fleet, 0, 1, true, r.now);
    for (int i = 0; i < 3; i++)
        (void)fleet_probe(r.fleet, 0, 1, false, r.now + S(10));
    r.now += S(20);
    run(&r, &l, 40);
    for (int i = 0; i < 2; i++)
        (void)fleet_probe(r.fleet, 0, 1, true, r.now);
    run(&r, &l, 80);
    run(&r, &l, 400);
    assert_in_range(l.picks[0], 80, 120);
    end(&l);
    rig_close(&r);
}

static void off_costs_nothing_and_changes_nothing(void **state)
{
    (void)state;
    struct rig r;

    rig_open(&r, "chain");
    rig_add(&r, 0, "");
    rig_refresh(&r);
    assert_int_equal(atomic_load(&r.snapshot->members[0].cell->gate), GATE_YOUNG);
    assert_int_equal(rig_once(&r), 0);
    assert_int_equal(atomic_load(&r.snapshot->members[0].cell->gate), 0);
    rig_close(&r);
}

static void an_explanation_starts_nobody(void **state)
{
    (void)state;
    struct rig r;
    struct load l;
    struct explain_row why[HOSTS_MAX];

    four(&r, &l, "chain", 40);
    rig_add(&r, 4, "");
    rig_refresh(&r);
    struct cell *joiner = sched_pool_member(r.pool, 4).cell;
    assert_int_equal(sched_scratch_reserve(&r.scratch, &r.mem, HOSTS_MAX), 0);
    sched_pool_explain(r.pool, &r.f, r.now, 1, &r.scratch, &r.d, why);
    assert_true(atomic_load(&joiner->offered_since_ns) == 0);
    run(&r, &l, 1);
    assert_true(atomic_load(&joiner->offered_since_ns) == r.now);
    end(&l);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_joiner_ramps_under_chain),
        cmocka_unit_test(a_joiner_ramps_under_least_request),
        cmocka_unit_test(a_joiner_ramps_under_weighted_round_robin),
        cmocka_unit_test(a_joiner_ramps_under_power_of_two),
        cmocka_unit_test(the_first_fleet_starts_in_full),
        cmocka_unit_test(a_new_generation_with_an_honest_0_does_not_get_everything),
        cmocka_unit_test(a_recovery_is_no_new_start),
        cmocka_unit_test(off_costs_nothing_and_changes_nothing),
        cmocka_unit_test(an_explanation_starts_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
