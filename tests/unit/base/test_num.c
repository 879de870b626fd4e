/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include "base/bug.h"
#include "base/num.h"

static struct slice s(const char *text)
{
    return slice_str(text);
}

static void u64_takes_digits_only(void **state)
{
    (void)state;
    uint64_t v = 7;
    assert_int_equal(num_u64(s("0"), &v), 0);
    assert_int_equal(v, 0);
    assert_int_equal(num_u64(s("18446744073709551615"), &v), 0);
    assert_true(v == UINT64_MAX);
    assert_int_equal(num_u64(s("18446744073709551616"), &v), WEIR_E_RANGE);
    const char *bad[] = {"", "+1", "-1", " 1", "1 ", "0x1", "1.0"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(num_u64(s(bad[i]), &v), WEIR_E_INVALID);
}

static void i64_reaches_both_ends(void **state)
{
    (void)state;
    int64_t v;
    assert_int_equal(num_i64(s("-9223372036854775808"), &v), 0);
    assert_true(v == INT64_MIN);
    assert_int_equal(num_i64(s("9223372036854775807"), &v), 0);
    assert_true(v == INT64_MAX);
    assert_int_equal(num_i64(s("9223372036854775808"), &v), WEIR_E_RANGE);
}

static void f64_reads_json_numbers(void **state)
{
    (void)state;
    double v;
    assert_int_equal(num_f64(s("-12.5e1"), &v), 0);
    assert_true(v == -125.0);
    assert_int_equal(num_f64(s("0.4"), &v), 0);
    assert_true(v == 0.4);
    const char *bad[] = {"", ".", "-", "1e", "nan", "inf", "1.5x", "1 "};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(num_f64(s(bad[i]), &v), WEIR_E_INVALID);
}

static void scaled_is_exact(void **state)
{
    (void)state;
    uint64_t v;
    assert_int_equal(num_scaled(s("8"), GIB, &v), 0);
    assert_true(v == 8 * GIB);
    assert_int_equal(num_scaled(s("7.5"), GIB, &v), 0);
    assert_true(v == 7 * GIB + GIB / 2);
    assert_int_equal(num_scaled(s("0.0000000005"), 1000000000, &v), 0);
    assert_true(v == 0 || v == 1);
    assert_int_equal(num_scaled(s("17179869184"), GIB, &v), WEIR_E_RANGE);
    const char *bad[] = {"", ".5", "5.", "-1", "1.2.3", "8GB", "1e3"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(num_scaled(s(bad[i]), GIB, &v), WEIR_E_INVALID);
}

static void durations_and_sizes_need_units(void **state)
{
    (void)state;
    uint64_t v;
    assert_int_equal(num_duration(s("1.5s"), &v), 0);
    assert_true(v == 1500 * NS_PER_MS);
    assert_int_equal(num_duration(s("2m"), &v), 0);
    assert_true(v == 120 * NS_PER_S);
    assert_int_equal(num_duration(s("0"), &v), 0);
    assert_true(v == 0);
    assert_int_equal(num_duration(s("5"), &v), WEIR_E_INVALID);
    assert_int_equal(num_duration(s("5 s"), &v), WEIR_E_INVALID);
    assert_int_equal(num_size(s("64KiB"), &v), 0);
    assert_true(v == 65536);
    assert_int_equal(num_size(s("1GB"), &v), 0);
    assert_true(v == 1000000000);
    assert_int_equal(num_size(s("512"), &v), 0);
    assert_true(v == 512);
    assert_int_equal(num_size(s("1kb"), &v), WEIR_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(u64_takes_digits_only),          cmocka_unit_test(i64_reaches_both_ends),
        cmocka_unit_test(f64_reads_json_numbers),         cmocka_unit_test(scaled_is_exact),
        cmocka_unit_test(durations_and_sizes_need_units),
    };
    return cmocka_run_group_tests_name("num", tests, NULL, NULL);
}
