/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <stdbool.h>

#include "base/bug.h"
#include "des/draw.h"

static bool near(double a, double b, double relative)
{
    double d = a - b;

    return (d < 0 ? -d : d) <= relative * (b < 0 ? -b : b);
}

static void logarithms_are_right_to_the_last_digits(void **state)
{
    (void)state;
    static const struct {
        double x, ln;
    } known[] = {
        {2, 0.69314718055994530942},      {10, 2.30258509299404568402},
        {0.1, -2.30258509299404568402},   {1e300, 690.77552789821370520540},
        {1e-300, -690.77552789821370520}, {1.4, 0.33647223662121293050},
        {0.7, -0.35667494393873237891},   {1.0000001, 9.9999995000000333333e-8},
    };

    assert_true(des_log(1) == 0);
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        assert_true(near(des_log(known[i].x), known[i].ln, 4e-9));
    for (size_t i = 0; i < 6; i++)
        assert_true(near(des_log(known[i].x), known[i].ln, 1e-14));
}

static void exponential_draws_have_their_mean_and_deviation(void **state)
{
    (void)state;
    struct prng r = des_stream(3, 1);
    double sum = 0;
    double squares = 0;
    enum { N = 400000 };

    for (int i = 0; i < N; i++) {
        double v = des_exponential(&r, 5);
        assert_true(v >= 0);
        sum += v;
        squares += v * v;
    }
    assert_true(near(sum / N, 5, 0.01));
    assert_true(near(squares / N - sum / N * (sum / N), 25, 0.02));
}

static void normal_draws_have_mean_0_and_variance_1(void **state)
{
    (void)state;
    struct prng r = des_stream(3, 2);
    double sum = 0;
    double squares = 0;
    enum { N = 200000 };

    for (int i = 0; i < N; i++) {
        double v = des_normal(&r);
        sum += v;
        squares += v * v;
    }
    assert_true(sum / N < 0.01 && sum / N > -0.01);
    assert_true(near(squares / N, 1, 0.01));
}

static void streams_of_one_seed_differ(void **state)
{
    (void)state;
    struct prng a = des_stream(1, 1);
    struct prng b = des_stream(1, 2);
    struct prng again = des_stream(1, 1);

    assert_true(prng_next(&a) != prng_next(&b));
    a = des_stream(1, 1);
    assert_true(prng_next(&a) == prng_next(&again));
}

static void intervals_are_students(void **state)
{
    (void)state;
    assert_true(des_interval(1, 1) == 0);
    /* t(4) = 2.776: of five values with deviation 1, 2.776 / sqrt(5). */
    assert_true(near(des_interval(1, 5), 1.2414649, 1e-6));
    assert_true(near(des_interval(2, 100), 2 * 1.984217 / 10, 0.002));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logarithms_are_right_to_the_last_digits),
        cmocka_unit_test(exponential_draws_have_their_mean_and_deviation),
        cmocka_unit_test(normal_draws_have_mean_0_and_variance_1),
        cmocka_unit_test(streams_of_one_seed_differ),
        cmocka_unit_test(intervals_are_students),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
