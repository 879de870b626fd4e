/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <string.h>

#include "fleet/health.h"
#include "fleet_rig.h"

static void thresholds_in_a_row(void **state)
{
    (void)state;
    RIG_CELL(c);
    struct cell *cell = &c;
    struct health_track t = {0};
    struct health_rules r = fleet_health_rules(&(struct health_rules){0});
    static const struct {
        char probe;
        enum health want;
    } steps[] = {
        {'r', HEALTH_UNKNOWN}, {'r', HEALTH_UNKNOWN}, {'r', HEALTH_DOWN}, {'g', HEALTH_DOWN},
        {'r', HEALTH_DOWN},    {'g', HEALTH_DOWN},    {'g', HEALTH_UP},   {'r', HEALTH_UP},
        {'r', HEALTH_UP},      {'g', HEALTH_UP},      {'r', HEALTH_UP},   {'r', HEALTH_UP},
        {'r', HEALTH_DOWN},
    };

    assert_int_equal(r.down_after, 3);
    assert_int_equal(r.up_after, 2);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
        assert_int_equal(fleet_health_probe(cell, &t, &r, steps[i].probe == 'g', 1), steps[i].want);
    assert_int_equal(atomic_load(&cell->health_flags), HEALTH_SEEN_UP);
}

static void the_first_green_probe_brings_up_the_unknown(void **state)
{
    (void)state;
    RIG_CELL(c);
    struct cell *cell = &c;
    struct health_track t = {0};
    struct health_rules r = fleet_health_rules(&(struct health_rules){.up_after = 5});

    assert_int_equal(fleet_health_probe(cell, &t, &r, true, 1), HEALTH_UP);
}

static void one_green_probe_is_enough_after_refused_connections(void **state)
{
    (void)state;
    RIG_CELL(c);
    struct cell *cell = &c;
    struct health_track t = {0};
    struct health_rules r = fleet_health_rules(&(struct health_rules){0});

    atomic_store(&cell->health, HEALTH_DOWN);
    atomic_store(&cell->health_flags, HEALTH_SEEN_UP | HEALTH_REFUSED);
    atomic_store(&cell->consecutive_failures, 5);
    assert_int_equal(fleet_health_probe(cell, &t, &r, true, 1), HEALTH_UP);
    assert_int_equal(atomic_load(&cell->health_flags), HEALTH_SEEN_UP);
    assert_int_equal(atomic_load(&cell->consecutive_failures), 0);
}

static void progress_contradicts_red_probes(void **state)
{
    (void)state;
    RIG_CELL(c);
    struct cell *cell = &c;
    struct health_track t = {0};
    struct health_rules r = fleet_health_rules(&(struct health_rules){.progress_ns = 100});

    atomic_store(&cell->health, HEALTH_UP);
    atomic_store(&cell->last_progress_ns, 1000);
    for (uint64_t now = 990; now < 1100; now += 10)
        assert_int_equal(fleet_health_probe(cell, &t, &r, false, now), HEALTH_UP);
    assert_int_equal(t.reds, 0);
    assert_int_equal(fleet_health_probe(cell, &t, &r, false, 1100), HEALTH_UP);
    assert_int_equal(fleet_health_probe(cell, &t, &r, false, 1100), HEALTH_UP);
    assert_int_equal(fleet_health_probe(cell, &t, &r, false, 1100), HEALTH_DOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thresholds_in_a_row),
        cmocka_unit_test(the_first_green_probe_brings_up_the_unknown),
        cmocka_unit_test(one_green_probe_is_enough_after_refused_connections),
        cmocka_unit_test(progress_contradicts_red_probes),
    };
    return cmocka_run_group_tests_name("health", tests, NULL, NULL);
}
