/* SPDX-License-Identifier: Apache-2.0 */
/* So much a minute: what is let in at once, what comes back, what is overdrawn and set right. */
#include "ct.h"

#include "base/bug.h"
#include "base/num.h"
#include "base/prng.h"
#include "sched/allowance.h"

#define S NS_PER_S

static void a_minute_of_it_at_once_and_then_one_by_one(void **state)
{
    (void)state;
    static const uint32_t limits[] = {1, 7, 60, 999, 100000};

    for (uint32_t i = 0; i < ARRAY_LEN(limits); i++) {
        struct sched_allowance a = {0};
        uint32_t n = limits[i];
        uint64_t now = 1000 * S;
        for (uint32_t k = 0; k < n; k++)
            assert_int_equal(sched_allowance_take(&a, n, 1, now), 0);
        uint64_t wait = sched_allowance_take(&a, n, 1, now);
        assert_in_range(wait, 60 * S / n - n, 60 * S / n);
        /* What comes back in between is no whole one. */
        assert_int_equal(sched_allowance_take(&a, n, 1, now + wait / 2), wait - wait / 2);
        assert_int_equal(sched_allowance_wait_ns(&a, n, now), wait);
        assert_true(sched_allowance_take(&a, n, 1, now + wait - 1) > 0);
        assert_int_equal(sched_allowance_take(&a, n, 1, now + wait), 0);
        /* However long nothing is taken, no more than a minute of it is saved up. */
        now += 100000 * S;
        for (uint32_t k = 0; k < n; k++)
            assert_int_equal(sched_allowance_take(&a, n, 1, now), 0);
        assert_true(sched_allowance_take(&a, n, 1, now) > 0);
    }
}

static void one_larger_than_all_of_it_is_let_in_and_paid_for(void **state)
{
    (void)state;
    struct sched_allowance a = {0};

    assert_int_equal(sched_allowance_take(&a, 100, 99, 50 * S), 0);
    assert_int_equal(sched_allowance_take(&a, 100, 1000, 50 * S), 0);
    assert_int_equal(sched_allowance_wait_ns(&a, 100, 50 * S), 600 * S);
    /* It used 10 in the end. */
    sched_allowance_correct(&a, 100, 1000, 10, 51 * S);
    assert_int_equal(sched_allowance_wait_ns(&a, 100, 51 * S), 5 * S);
    /* Or more than was expected. */
    sched_allowance_correct(&a, 100, 10, 110, 51 * S);
    assert_int_equal(sched_allowance_wait_ns(&a, 100, 51 * S), 65 * S);
    /* What comes back to a full one is lost. */
    sched_allowance_correct(&a, 100, 1000, 0, 5000 * S);
    assert_int_equal(sched_allowance_take(&a, 100, 100, 5000 * S), 0);
    assert_true(sched_allowance_take(&a, 100, 1, 5000 * S) > 0);
    /* No number is too large: a day of it is overdrawn at most. */
    struct sched_allowance b = {0};
    assert_int_equal(sched_allowance_take(&b, 1, UINT64_MAX, S), 0);
    sched_allowance_correct(&b, 1, 0, UINT64_MAX, S);
    assert_int_equal(sched_allowance_wait_ns(&b, 1, S), 24 * 3600 * S + 60 * S);
    /* Without a limit nothing is counted. */
    assert_int_equal(sched_allowance_take(&b, 0, 5, S), 0);
    assert_int_equal(sched_allowance_wait_ns(&b, 0, S), 0);
}

/* In any time no more is taken than a minute's worth and what came since, whatever is given back. */
static void never_more_than_it_brings(void **state)
{
    (void)state;
    enum { LIMIT = 600 };

    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct prng p = {seed};
        struct sched_allowance a = {0};
        uint64_t now = 1000 * S;
        uint64_t used = 0;
        for (uint32_t i = 0; i < 5000; i++) {
            uint64_t guess = 1 + prng_below(&p, 20);
            uint64_t real = prng_below(&p, 20);
            now += prng_below(&p, 3 * S);
            if (sched_allowance_take(&a, LIMIT, guess, now))
                continue;
            sched_allowance_correct(&a, LIMIT, guess, real, now);
            used += real;
            assert_true(used <= LIMIT + (now - 1000 * S) / S * LIMIT / 60 + 20 + LIMIT / 60);
        }
        assert_true(used > LIMIT);
    }
}

static void who_is_given_more_pays_for_the_past_by_that(void **state)
{
    (void)state;
    struct sched_allowance a = {0};

    assert_int_equal(sched_allowance_take(&a, 100, 1100, 50 * S), 0);
    assert_int_equal(sched_allowance_wait_ns(&a, 100, 50 * S), 600 * S + 600 * NS_PER_MS);
    sched_allowance_change(&a, 100, 550, 50 * S);
    assert_int_equal(sched_allowance_wait_ns(&a, 550, 50 * S), 60 * S + 60 * S / 550);
    /* As if all of it had been taken at this rate. */
    sched_allowance_correct(&a, 550, 1100, 550, 50 * S);
    assert_int_equal(sched_allowance_wait_ns(&a, 550, 50 * S), 60 * S / 550);
    /* Who is given less waits for one of those, */
    sched_allowance_change(&a, 550, 1, 50 * S);
    assert_int_equal(sched_allowance_wait_ns(&a, 1, 50 * S), 60 * S);
    /* and what has come back already has. */
    sched_allowance_change(&a, 1, 2, 5000 * S);
    assert_int_equal(sched_allowance_take(&a, 2, 2, 5000 * S), 0);
    assert_int_equal(sched_allowance_wait_ns(&a, 2, 5000 * S), 30 * S);
    /* Nothing is owed that was used without a limit. */
    sched_allowance_change(&a, 2, 0, 5000 * S);
    sched_allowance_change(&a, 0, 2, 5000 * S);
    assert_int_equal(sched_allowance_take(&a, 2, 2, 5000 * S), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_minute_of_it_at_once_and_then_one_by_one),
        cmocka_unit_test(one_larger_than_all_of_it_is_let_in_and_paid_for),
        cmocka_unit_test(who_is_given_more_pays_for_the_past_by_that),
        cmocka_unit_test(never_more_than_it_brings),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
