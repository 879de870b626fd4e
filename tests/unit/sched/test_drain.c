/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include "sched/drain.h"

#define S NS_PER_S

static void interval_is_busy_time_over_places(void **state)
{
    (void)state;
    struct sched_drain d = {0};

    assert_int_equal(sched_drain_interval(&d, 5 * S), 0);
    assert_int_equal(sched_drain_retry_after_s(&d, 5 * S, 0), 1);
    sched_drain_begin(&d, 100 * S);
    /* Nobody served yet: so far it took all this time. */
    assert_int_equal(sched_drain_interval(&d, 104 * S), 4 * S);
    for (uint64_t i = 1; i <= 4; i++)
        sched_drain_served(&d, 100 * S + i * 2 * S);
    assert_int_equal(sched_drain_interval(&d, 108 * S), 2 * S);
    /* The silence after the last one counts: 12 s for 4. */
    assert_int_equal(sched_drain_interval(&d, 112 * S), 3 * S);
    /* Time without waiters does not. */
    sched_drain_end(&d, 112 * S);
    assert_int_equal(sched_drain_interval(&d, 150 * S), 3 * S);
    sched_drain_begin(&d, 150 * S);
    assert_int_equal(sched_drain_interval(&d, 154 * S), 4 * S);
    sched_drain_end(&d, 154 * S);
    /* An hour later it is another queue. */
    sched_drain_begin(&d, 3600 * S);
    assert_int_equal(sched_drain_interval(&d, 3600 * S), 0);
    assert_int_equal(sched_drain_interval(&d, 3601 * S), S);
    sched_drain_end(&d, 3601 * S);
}

static void a_clock_that_is_behind_takes_no_time_away(void **state)
{
    (void)state;
    struct sched_drain d = {0};

    sched_drain_begin(&d, 100 * S);
    sched_drain_forget(&d, 103 * S);
    assert_int_equal(sched_drain_interval(&d, 102 * S), 0);
    assert_int_equal(sched_drain_retry_after_s(&d, 102 * S, 5), 1);
    assert_int_equal(sched_drain_interval(&d, 105 * S), 2 * S);
}

static void the_window_is_32_moments(void **state)
{
    (void)state;
    struct sched_drain d = {0};
    uint64_t now = 10 * S;

    sched_drain_begin(&d, now);
    for (int i = 0; i < 100; i++)
        sched_drain_served(&d, now += 4 * S);
    assert_int_equal(sched_drain_interval(&d, now), 4 * S);
    /* It became four times as fast: known for sure when the slow ones have left the window. */
    for (int i = 0; i < DRAIN_STEPS; i++)
        sched_drain_served(&d, now += S);
    assert_int_equal(sched_drain_interval(&d, now), S);
    /* Batches of 96 that end at once, every 8 s: each is one moment. */
    for (int i = 0; i < DRAIN_STEPS * 96; i++)
        sched_drain_served(&d, now += i % 96 == 0 ? 8 * S : i % 96 == 1 ? 1000 : 0);
    uint64_t got = sched_drain_interval(&d, now);
    assert_int_equal(got, (8 * S + 1000) * DRAIN_STEPS / (DRAIN_STEPS * 96));
    sched_drain_end(&d, now);
    sched_drain_end(&d, now);
}

/* Retry-After = ceil(waiting x interval), at least 1 s, at most 60 s. */
static void retry_after_is_the_time_to_drain(void **state)
{
    (void)state;
    struct sched_drain d = {0};

    sched_drain_begin(&d, S);
    for (uint64_t i = 1; i <= 10; i++)
        sched_drain_served(&d, S + i * 250 * NS_PER_MS); /* four a second */
    uint64_t now = S + 2500 * NS_PER_MS;
    static const uint32_t want[][2] = {{0, 1},    {1, 1},        {4, 1},          {5, 2},
                                       {8, 2},    {9, 3},        {41, 11},        {240, 60},
                                       {241, 60}, {1000000, 60}, {UINT32_MAX, 60}};
    for (unsigned i = 0; i < sizeof(want) / sizeof(want[0]); i++)
        assert_int_equal(sched_drain_retry_after_s(&d, now, want[i][0]), want[i][1]);
    /* Nothing for a day: the longest. */
    assert_int_equal(sched_drain_retry_after_s(&d, now + 86400 * S, 1), 60);
    assert_int_equal(sched_drain_interval(&d, now + 86400 * S), 3600 * S);
    sched_drain_end(&d, now);
}

static void places_are_told_once_they_are_sure(void **state)
{
    (void)state;
    struct sched_drain d = {0};

    assert_true(sched_drain_places(&d, 0, S) == UINT64_MAX);
    sched_drain_begin(&d, 0);
    for (uint64_t i = 1; i < DRAIN_SURE; i++) {
        sched_drain_served(&d, i * S);
        assert_true(sched_drain_places(&d, i * S, S) == UINT64_MAX);
    }
    sched_drain_served(&d, DRAIN_SURE * S);
    uint64_t now = DRAIN_SURE * S;
    assert_int_equal(sched_drain_places(&d, now, S - 1), 0);
    assert_int_equal(sched_drain_places(&d, now, S), 1);
    assert_int_equal(sched_drain_places(&d, now, 10 * S + 1), 10);
    sched_drain_forget(&d, now);
    assert_true(sched_drain_places(&d, now, S) == UINT64_MAX);
    sched_drain_end(&d, now);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(interval_is_busy_time_over_places),
        cmocka_unit_test(a_clock_that_is_behind_takes_no_time_away),
        cmocka_unit_test(the_window_is_32_moments),
        cmocka_unit_test(retry_after_is_the_time_to_drain),
        cmocka_unit_test(places_are_told_once_they_are_sure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
