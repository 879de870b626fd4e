/* SPDX-License-Identifier: Apache-2.0 */
/* What others publish is done here as they publish it: KubeAI's prefix hash and Prequal. */
#include "ct.h"

#include "base/bug.h"
#include "base/hash.h"
#include "base/prng.h"
#include "fleet_rig.h"

enum { SERVERS = 8, REQUESTS = 200 };

static uint32_t load_of(struct rig *r, uint32_t i)
{
    return (uint32_t)atomic_load(&sched_pool_member(r->pool, i).cell->inflight);
}

/* load + 1 <= 1.25 x (total + 1) / n, or nobody is so, and then the prefix stays at home. */
static void prefix_hash_keeps_kubeais_bound(void **state)
{
    (void)state;
    struct rig r;
    struct reservation held[REQUESTS] = {{0}};
    struct prng p = {5};
    unsigned spilled = 0;
    unsigned nobody = 0;

    rig_open(&r, "prefix_hash");
    for (uint32_t i = 0; i < SERVERS; i++)
        rig_add(&r, i, "");
    rig_refresh(&r);
    r.f.prefix_key = hash_pair(1, 2);
    uint32_t home = (uint32_t)rig_once(&r);
    for (uint32_t k = 0; k < REQUESTS; k++) {
        uint32_t total = 0;
        bool ok[SERVERS];
        bool any = false;
        for (uint32_t i = 0; i < SERVERS; i++)
            total += load_of(&r, i);
        for (uint32_t i = 0; i < SERVERS; i++) {
            ok[i] = total == 0 || 4 * SERVERS * (load_of(&r, i) + 1) <= 5 * (total + 1);
            any = any || ok[i];
        }
        assert_int_equal(rig_admit(&r, &held[k]), 0);
        uint32_t slot = r.chosen.endpoint->slot;
        assert_true(any ? ok[slot] : slot == home);
        if (!any || ok[home])
            assert_int_equal(slot, home);
        spilled += slot != home;
        nobody += !any;
        if (prng_below(&p, 4) == 0)
            rig_end(&held[prng_below(&p, k + 1)]);
    }
    assert_true(spilled > REQUESTS / 2 && nobody > 2);
    for (uint32_t k = 0; k < REQUESTS; k++)
        rig_end(&held[k]);
    rig_close(&r);
}

/* Each has about its share of the ring, and who leaves gives up nothing but its own. */
static void prefix_hash_spreads_prefixes_and_few_move(void **state)
{
    (void)state;
    enum { KEYS = 4000 };
    struct rig r;
    static int before[KEYS];
    int count[SERVERS] = {0};

    rig_open(&r, "prefix_hash");
    for (uint32_t i = 0; i < SERVERS; i++)
        rig_add(&r, i, "");
    rig_refresh(&r);
    for (int round = 0; round < 2; round++) {
        for (int k = 0; k < KEYS; k++) {
            r.f.prefix_key = hash_pair((uint64_t)k, 3);
            int slot = rig_once(&r);
            if (round == 0) {
                before[k] = slot;
                count[slot]++;
            } else {
                assert_int_not_equal(slot, 3);
                assert_true(slot == before[k] || before[k] == 3);
            }
        }
        struct rig_host gone;
        rig_host(&gone, 3, "");
        gone.i.enabled = false;
        rig_put(&r, &gone);
        rig_refresh(&r);
    }
    for (int i = 0; i < SERVERS; i++)
        assert_true(count[i] > KEYS / SERVERS / 2 && count[i] < KEYS / SERVERS * 2);
    rig_close(&r);
}

/* Fresh answers keep requests away from the hot; answers of more than a second ago count for nothing. */
static void prequal_goes_by_its_probes_while_they_are_fresh(void **state)
{
    (void)state;
    enum { PICKS = 1600, MANY = 16 };
    int hot[2] = {0};

    for (int old = 0; old < 2; old++) {
        struct rig r;
        rig_open(&r, "prequal");
        for (uint32_t i = 0; i < MANY; i++)
            rig_add(&r, i, i == 5 ? "current_requests=50" : "current_requests=1");
        rig_refresh(&r);
        for (int k = 0; k < PICKS; k++) {
            r.now += old ? 1000 * NS_PER_MS : NS_PER_MS / 16;
            hot[old] += rig_once(&r) == 5;
        }
        rig_close(&r);
    }
    assert_true(hot[0] <= 1); /* the first, when there was no answer yet */
    assert_true(hot[1] > PICKS / MANY / 2 && hot[1] < PICKS / MANY * 2);
}

/* An answer that is used counts what was sent on it: all at once do not go to one. */
static void prequal_counts_what_it_sent(void **state)
{
    (void)state;
    enum { MANY = 64, PICKS = 640 };
    struct rig r;
    static struct reservation held[PICKS];

    memset(held, 0, sizeof(held));
    rig_open(&r, "prequal");
    for (uint32_t i = 0; i < MANY; i++)
        rig_add(&r, i, "");
    rig_refresh(&r);
    for (int k = 0; k < PICKS; k++)
        assert_int_equal(rig_admit(&r, &held[k]), 0);
    for (uint32_t i = 0; i < MANY; i++)
        assert_true(load_of(&r, i) <= 2 * PICKS / MANY);
    for (int k = 0; k < PICKS; k++)
        rig_end(&held[k]);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefix_hash_keeps_kubeais_bound),
        cmocka_unit_test(prefix_hash_spreads_prefixes_and_few_move),
        cmocka_unit_test(prequal_goes_by_its_probes_while_they_are_fresh),
        cmocka_unit_test(prequal_counts_what_it_sent),
    };
    return cmocka_run_group_tests_name("baselines", tests, NULL, NULL);
}
