/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <string.h>

#include "base/slice.h"

static bool same_by_definition(const char *a, const char *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ascii_lower(a[i]) != ascii_lower(b[i]))
            return false;
    return true;
}

/* Every pair of byte values, at the places that each length's words and their overlap have. */
static void test_case_is_ignored_for_letters_only(void **state)
{
    static const size_t lengths[] = {1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31};
    char a[32];
    char b[32];

    (void)state;
    for (size_t l = 0; l < sizeof(lengths) / sizeof(*lengths); l++)
        for (size_t at = 0; at < lengths[l]; at++)
            for (unsigned x = 0; x < 256; x++)
                for (unsigned flip = 0; flip < 9; flip++) {
                    memset(a, 'x', sizeof(a));
                    memset(b, 'X', sizeof(b));
                    a[at] = (char)x;
                    b[at] = (char)(flip < 8 ? x ^ 1u << flip : x);
                    assert_int_equal(
                        slice_eq_nocase(slice_of(a, lengths[l]), slice_of(b, lengths[l])),
                        same_by_definition(a, b, lengths[l]));
                }
}

static void test_lengths_differ(void **state)
{
    (void)state;
    assert_false(slice_eq_nocase(SLICE("host"), SLICE("hosts")));
    assert_true(slice_eq_nocase(SLICE(""), (struct slice){NULL, 0}));
}

static void test_trim_takes_blanks_and_tabs_only(void **state)
{
    struct slice t = slice_trim(SLICE(" \t a b\r \t"));

    (void)state;
    assert_true(slice_eq(t, SLICE("a b\r")));
    assert_int_equal(slice_trim(SLICE(" \t ")).n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_case_is_ignored_for_letters_only),
        cmocka_unit_test(test_lengths_differ),
        cmocka_unit_test(test_trim_takes_blanks_and_tabs_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
