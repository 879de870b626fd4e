/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include "base/bug.h"
#include "conf/error.h"

static void add(struct conf_errors *e, uint32_t line, uint32_t column, const char *text)
{
    struct conf_place at = {.file = SLICE("f"), .line = line, .column = column};
    struct slice parts[] = {slice_str(text)};

    conf_error_add(e, &at, parts, 1);
}

static void errors_stand_by_place(void **state)
{
    (void)state;
    struct conf_errors e = {.n = 0};
    add(&e, 7, 2, "c");
    add(&e, 0, 0, "e");
    add(&e, 3, 9, "b");
    add(&e, 3, 1, "a");
    add(&e, 7, 2, "d");
    const char *expected[] = {"f:3:1: a", "f:3:9: b", "f:7:2: c", "f:7:2: d", "f: e"};
    assert_int_equal(e.n, 5);
    for (size_t i = 0; i < ARRAY_LEN(expected); i++)
        assert_string_equal(e.list[i].text, expected[i]);
    assert_string_equal(e.list[0].text + e.list[0].message, "a");
    assert_int_equal(e.list[1].line, 3);
    assert_int_equal(e.list[1].column, 9);
}

static void only_the_first_twenty_are_kept(void **state)
{
    (void)state;
    static struct conf_errors e;
    for (uint32_t i = 1; i <= 25; i++)
        add(&e, i, 1, "x");
    assert_int_equal(e.n, 20);
    assert_int_equal(e.total, 25);
    assert_string_equal(e.list[19].text, "f:20:1: x");
}

static void text_cannot_break_the_line(void **state)
{
    (void)state;
    struct conf_errors e = {.n = 0};
    struct conf_place at = {.file = {NULL, 0}};
    struct slice parts[] = {SLICE("a\nb\x1b[2J\x7f\xff"), SLICE("\xc3\xa4\xc2\x9b")};
    conf_error_add(&e, &at, parts, 2);
    assert_string_equal(e.list[0].text, "a\\x0ab\\x1b[2J\\x7f\\xff\xc3\xa4\\xc2\\x9b");
}

static void long_text_is_cut_at_a_character(void **state)
{
    (void)state;
    static char text[2 * CONF_ERROR_TEXT];
    struct conf_errors e = {.n = 0};
    struct conf_place at = {.file = {NULL, 0}};
    for (size_t i = 0; i < sizeof(text); i += 2)
        memcpy(text + i, "\xc3\xa4", 2);
    struct slice parts[] = {SLICE("x"), slice_of(text, sizeof(text)), SLICE("never")};
    conf_error_add(&e, &at, parts, 3);
    size_t n = strlen(e.list[0].text);
    assert_int_equal(n, 510); /* x, 253 characters of two bytes, ... */
    assert_string_equal(e.list[0].text + n - 5, "\xc3\xa4...");
}

static void nearest_is_two_edits_at_most(void **state)
{
    (void)state;
    static const char *const known[] = {"policy", "match", "queue", "use"};
    static const struct {
        const char *got, *want;
    } cases[] = {
        {"polcy", "policy"},
        {"ploicy", "policy"},
        {"Policies", NULL},
        {"POLICY", "policy"},
        {"quue", "queue"},
        {"matches", "match"},
        {"matchesx", NULL},
        {"xyz", NULL},
        {"us", "use"},
        {"", NULL},
        {"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct slice near = conf_nearest(slice_str(cases[i].got), known, ARRAY_LEN(known));
        if (cases[i].want)
            assert_true(slice_eq(near, slice_str(cases[i].want)));
        else
            assert_null(near.p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_stand_by_place),
        cmocka_unit_test(only_the_first_twenty_are_kept),
        cmocka_unit_test(text_cannot_break_the_line),
        cmocka_unit_test(long_text_is_cut_at_a_character),
        cmocka_unit_test(nearest_is_two_edits_at_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
