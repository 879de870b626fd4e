/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include "base/num.h"
#include "proxy/acks.h"

enum { FAST = 20, LATE = 41, PAUSE = 500 }; /* ms */

/* How often the kernel is asked while n reads come with this gap. */
static unsigned asked(struct acks *a, uint8_t *held, unsigned n, uint64_t gap_ms)
{
    unsigned times = 0;

    for (unsigned i = 0; i < n; i++)
        times += acks_note(a, held, gap_ms * NS_PER_MS);
    return times;
}

static void test_a_fast_stream_asks_once(void **state)
{
    struct acks a = {0};
    uint8_t held = 0;

    (void)state;
    assert_int_equal(asked(&a, &held, ACKS_AFTER - 1, FAST), 0);
    assert_false(a.lazy);
    assert_int_equal(asked(&a, &held, 1, FAST), 1);
    assert_true(a.lazy);
    assert_int_equal(asked(&a, &held, 10000, FAST), 0);
    assert_int_equal(held, 0);
}

static void test_a_slow_stream_never_asks(void **state)
{
    struct acks a = {0};
    uint8_t held = 0;

    (void)state;
    assert_int_equal(asked(&a, &held, 1000, LATE), 0);
    assert_int_equal(asked(&a, &held, 1000, PAUSE), 0);
    assert_false(a.lazy);
    assert_int_equal(held, 0);
}

static void test_after_a_pause_it_asks_again(void **state)
{
    struct acks a = {0};
    uint8_t held = 0;

    (void)state;
    assert_int_equal(asked(&a, &held, 100, FAST), 1);
    assert_int_equal(asked(&a, &held, 1, PAUSE), 0);
    assert_int_equal(asked(&a, &held, 100, FAST), 1);
    /* Long after the trial a late one tells nothing either. */
    assert_int_equal(asked(&a, &held, 1, LATE), 0);
    assert_int_equal(held, 0);
}

static void test_who_holds_back_is_left_alone(void **state)
{
    uint8_t held = 0;

    (void)state;
    for (unsigned i = 0; i < ACKS_HELD_MAX; i++) {
        struct acks a = {0};
        assert_int_equal(asked(&a, &held, ACKS_AFTER + 1, FAST), 1);
        assert_int_equal(asked(&a, &held, 1, LATE), 0);
        assert_int_equal(held, i + 1);
    }
    struct acks next = {0};
    assert_int_equal(asked(&next, &held, 10000, FAST), 0);
    assert_false(next.lazy);
    assert_int_equal(held, ACKS_HELD_MAX);
}

static void test_one_good_trial_clears_the_record(void **state)
{
    struct acks a = {0};
    uint8_t held = ACKS_HELD_MAX - 1;

    (void)state;
    assert_int_equal(asked(&a, &held, ACKS_AFTER + ACKS_TRIAL - 1, FAST), 1);
    assert_int_equal(held, ACKS_HELD_MAX - 1);
    assert_int_equal(asked(&a, &held, 1, FAST), 0);
    assert_int_equal(held, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_fast_stream_asks_once),
        cmocka_unit_test(test_a_slow_stream_never_asks),
        cmocka_unit_test(test_after_a_pause_it_asks_again),
        cmocka_unit_test(test_who_holds_back_is_left_alone),
        cmocka_unit_test(test_one_good_trial_clears_the_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
