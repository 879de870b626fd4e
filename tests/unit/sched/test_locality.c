/* SPDX-License-Identifier: Apache-2.0 */
/* Filter locality: who stays, who spills over and when, by which of the keys, and what the reservation says of it. */
#include "ct.h"

#include <stdio.h>

#include "base/hash.h"
#include "fleet_rig.h"
#include "sched/record.h"
#include "sched/slo.h"

enum { NEAR_HOSTS = 2, HOSTS = 4, TURNS = 8 };

static void stay(struct rig *r, struct place place)
{
    sched_policy_stay(&r->policy, &place);
    sched_policy_seal(&r->policy);
    RIG_MUST(sched_pool_reconfigure(r->pool, &r->policy, &r->queue));
}

/* Hosts 0 and 1 are in zone a, 2 and 3 in zone b. */
static void open_zones(struct rig *r, const char *policy, const char *more)
{
    char metadata[64];

    rig_open(r, policy);
    stay(r, (struct place){.zone = SLICE("a")});
    for (uint32_t i = 0; i < HOSTS; i++) {
        (void)snprintf(metadata, sizeof(metadata), "zone=%c %s", i < NEAR_HOSTS ? 'a' : 'b', more);
        rig_add(r, i, metadata);
    }
    rig_refresh(r);
}

/* @return a bit for each host that was chosen in some turns. */
static unsigned chosen_in_turns(struct rig *r)
{
    unsigned seen = 0;

    for (int i = 0; i < TURNS; i++) {
        int slot = rig_once(r);
        assert_true(slot >= 0);
        seen |= 1U << slot;
    }
    return seen;
}

static void stays_while_one_has_room_with_every_policy(void **state)
{
    (void)state;
    const char *name;

    for (uint32_t k = 0; (name = sched_policy_name(k)) != NULL; k++) {
        struct rig r;
        struct reservation held[HOSTS] = {{0}};
        unsigned order = 0;

        open_zones(&r, name, "max_concurrency=1");
        for (unsigned i = 0; i < HOSTS; i++) {
            r.f.session = i;
            assert_int_equal(rig_admit(&r, &held[i]), 0);
            bool near = r.chosen.endpoint->slot < NEAR_HOSTS;
            assert_int_equal(near, i < NEAR_HOSTS);
            assert_int_equal(held[i].spilled, !near);
            /* What is full fits all the same: it is no reason to call the fleet too small. */
            assert_int_equal(r.d.fit, HOSTS);
            order |= 1U << r.chosen.endpoint->slot;
        }
        assert_int_equal(order, (1U << HOSTS) - 1);
        struct reservation none = {0};
        assert_int_equal(rig_admit(&r, &none), WEIR_E_AGAIN);
        /* A place that comes free at home is taken again. */
        rig_end(&held[0]);
        assert_int_equal(rig_admit(&r, &none), 0);
        assert_true(r.chosen.endpoint->slot < NEAR_HOSTS);
        assert_false(none.spilled);
        rig_end(&none);
        for (unsigned i = 1; i < HOSTS; i++)
            rig_end(&held[i]);
        rig_close(&r);
    }
}

static void red_or_tried_ones_hold_nobody(void **state)
{
    (void)state;
    struct rig r;

    open_zones(&r, "chain", "");
    assert_int_equal(chosen_in_turns(&r), 3);
    atomic_store(&r.snapshot->members[0].cell->health, HEALTH_DOWN);
    cell_changed(r.snapshot->members[0].cell);
    assert_int_equal(chosen_in_turns(&r), 1 << 1);
    struct reservation res = {0};
    struct sched_exclude tried = {.n = 1, .tried = {{.slot = 1, .generation = 1}}};
    RIG_MUST(sched_pool_admit(r.pool, &r.f, &tried, r.now, 1, &r.scratch, &res, &r.chosen, &r.d));
    assert_true(r.chosen.endpoint->slot >= NEAR_HOSTS);
    rig_end(&res);
    atomic_store(&r.snapshot->members[1].cell->health, HEALTH_DOWN);
    cell_changed(r.snapshot->members[1].cell);
    assert_int_equal(chosen_in_turns(&r), 1 << 2 | 1 << 3);
    /* In a panic red ones are used, at home too, but they keep nobody there. */
    for (uint32_t i = 0; i < NEAR_HOSTS; i++)
        atomic_store(&r.snapshot->members[i].cell->health_flags, HEALTH_SEEN_UP);
    r.policy.panic_percent = 40;
    RIG_MUST(sched_pool_reconfigure(r.pool, &r.policy, &r.queue));
    assert_int_equal(chosen_in_turns(&r), (1 << HOSTS) - 1);
    rig_close(&r);
}

static void goes_by_the_parts_that_are_said(void **state)
{
    (void)state;
    struct rig r;
    static const char *const hosts[] = {"region=eu zone=a cluster=c1", "region=eu zone=b",
                                        "region=us zone=a datacenter=c2", ""};
    static const struct {
        struct place place;
        unsigned chosen;
    } cases[] = {
        {{.zone = {"a", 1}}, 1 << 0 | 1 << 2},
        {{.region = {"eu", 2}}, 1 << 0 | 1 << 1},
        {{.region = {"us", 2}, .zone = {"a", 1}}, 1 << 2},
        {{.cluster = {"c1", 2}}, 1 << 0},
        /* Of Consul. */
        {{.cluster = {"c2", 2}}, 1 << 2},
        /* Nacos' name for those whose cluster nobody told. */
        {{.cluster = {"DEFAULT", 7}}, 1 << 1 | 1 << 3},
        /* Nobody is there, or nobody asked. */
        {{.region = {"eu", 2}, .zone = {"c", 1}}, (1 << HOSTS) - 1},
        {{.zone = {"A", 1}}, (1 << HOSTS) - 1},
        {{.zone = {"", 0}}, (1 << HOSTS) - 1},
    };

    rig_open(&r, "chain");
    for (uint32_t i = 0; i < HOSTS; i++)
        rig_add(&r, i, hosts[i]);
    rig_refresh(&r);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        stay(&r, cases[i].place);
        assert_int_equal(chosen_in_turns(&r), cases[i].chosen);
    }
    /* An endpoint that moves. */
    stay(&r, (struct place){.zone = SLICE("b")});
    assert_int_equal(chosen_in_turns(&r), 1 << 1);
    rig_add(&r, 3, "zone=b");
    rig_refresh(&r);
    assert_int_equal(chosen_in_turns(&r), 1 << 1 | 1 << 3);
    rig_close(&r);
}

static void who_would_miss_a_target_does_not_fit(void **state)
{
    (void)state;
    enum { PROMPT = 1000 };
    struct rig r;

    rig_open(&r, "queued_work");
    r.f.task = TASK_CHAT;
    r.f.stream = r.f.prompt_complete = true;
    r.f.prompt_tokens = PROMPT;
    for (uint32_t i = 0; i < 2; i++) {
        char authority[] = "10.0.0.0:8000";
        authority[7] = (char)('0' + i);
        struct sched_rates *x = sched_lore_rates(
            r.lore, sched_lore_key(hash_slice(slice_str(authority), 0), RIG_MODEL, 0),
            slice_of(NULL, 0));
        /* The one at home takes 1.001 s for this prompt, the other one 0.101 s. */
        atomic_store(&x->fixed_us, i ? 100000 : 1000000);
        atomic_store(&x->prefill_ns, 1000);
        atomic_store(&x->firsts, SCHED_RATES_SURE);
        atomic_store(&x->used_ns, r.now);
        rig_add(&r, i, i ? "zone=b" : "zone=a");
    }
    stay(&r, (struct place){.zone = SLICE("a")});
    rig_refresh(&r);
    assert_int_equal(chosen_in_turns(&r), 1 << 0);
    r.f.slo_ttft_ns = NS_PER_S / 2;
    assert_int_equal(chosen_in_turns(&r), 1 << 1);
    r.f.slo_ttft_ns = 2 * NS_PER_S;
    assert_int_equal(chosen_in_turns(&r), 1 << 0);
    rig_close(&r);
}

/* A policy without it is what it was, to the hash that names it in logs. */
static void nothing_changes_where_it_is_not_said(void **state)
{
    (void)state;
    struct policy p;
    struct policy q;
    struct place nowhere = {{NULL, 0}, {NULL, 0}, {NULL, 0}};

    RIG_MUST(sched_policy_named(SLICE("chain"), &p));
    q = p;
    assert_false(sched_policy_stays(&p));
    q.place = nowhere;
    sched_policy_seal(&q);
    assert_true(p.hash == q.hash);
    struct place place = {.zone = SLICE("a")};
    sched_policy_stay(&q, &place);
    sched_policy_stay(&q, &place);
    sched_policy_seal(&q);
    assert_int_equal(q.n_filters, p.n_filters + 1);
    assert_string_equal(sched_filters[q.filters[5]].name, "concurrency");
    assert_string_equal(sched_filters[q.filters[6]].name, "locality");
    assert_string_equal(sched_filters[q.filters[7]].name, "memory_known");
    uint64_t zone = q.hash;
    q.place = (struct place){.cluster = SLICE("a")};
    sched_policy_seal(&q);
    assert_true(q.hash != zone && zone != p.hash);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stays_while_one_has_room_with_every_policy),
        cmocka_unit_test(red_or_tried_ones_hold_nobody),
        cmocka_unit_test(goes_by_the_parts_that_are_said),
        cmocka_unit_test(who_would_miss_a_target_does_not_fit),
        cmocka_unit_test(nothing_changes_where_it_is_not_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
