/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include "base/num.h"
#include "proxy/retry.h"

static const struct route_retry rules = {.budget_percent = 20, .budget_min_per_s = 3};
static const uint64_t start_ns = 1000 * NS_PER_S;

static unsigned take_all(struct retry_budget *b, uint64_t now_ns)
{
    unsigned n = 0;

    while (n < 10000 && retry_take(b, &rules, now_ns))
        n++;
    return n;
}

static void test_the_floor_is_per_second(void **state)
{
    struct retry_budget b = {0};

    (void)state;
    assert_int_equal(take_all(&b, start_ns), 3);
    assert_int_equal(take_all(&b, start_ns + NS_PER_S - 1), 0);
    assert_int_equal(take_all(&b, start_ns + NS_PER_S), 3);
    /* Quiet seconds are not saved up. */
    assert_int_equal(take_all(&b, start_ns + 9 * NS_PER_S), 3);
}

static void test_the_share_counts_ten_seconds(void **state)
{
    struct retry_budget b = {0};

    (void)state;
    for (unsigned i = 0; i < 1000; i++)
        retry_count(&b, start_ns + i % 5 * NS_PER_S / 5);
    assert_int_equal(take_all(&b, start_ns), 200);
    assert_int_equal(take_all(&b, start_ns + 5 * NS_PER_S), 3);
    /* The thousand and their 200 retries leave the window together. */
    assert_int_equal(take_all(&b, start_ns + 10 * NS_PER_S), 3);
    for (unsigned i = 0; i < 100; i++)
        retry_count(&b, start_ns + 30 * NS_PER_S);
    assert_int_equal(take_all(&b, start_ns + 30 * NS_PER_S), 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_floor_is_per_second),
        cmocka_unit_test(test_the_share_counts_ten_seconds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
