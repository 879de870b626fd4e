/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <string.h>

#include "base/bug.h"
#include "wire/sse.h"

static void same(struct slice got, const char *want)
{
    assert_int_equal(got.n, strlen(want));
    assert_memory_equal(got.p, want, got.n);
}

static const struct {
    const char *text;
    uint64_t events;
    bool between; /* at the end */
} rows[] = {
    {"", 0, true},
    {"data: a\n\n", 1, true},
    {"data: a\r\n\r\n", 1, true},
    {"data: a\r\r", 1, false},
    {"data: a\n\ndata: b\n\n", 2, true},
    {"data: a\r\n\r\ndata: b\r\n\r\n", 2, true},
    {"data: a\r\rdata: b\r\r", 2, false},
    {"data: a\n\r\n\r\n\n", 1, true},
    {": ping\n\n", 0, true},
    {": ping\n\ndata: a\n\n", 1, true},
    {"event: x\ndata: a\n: c\n\n\n\n", 1, true},
    {"data: a\tb\x01\n\n", 1, true},
    {"data: [DONE]\n", 0, false},
    {"data", 0, false},
    {": pi", 0, false},
    {": ping\n", 0, true},
    {"\n\n\ndata:\xe4\xbd\xa0\n\n", 1, true},
};

static void events_are_counted_at_every_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (size_t cut = 0; cut <= strlen(rows[i].text); cut++) {
            struct sse_split s = {0};
            size_t n = strlen(rows[i].text);
            for (size_t at = 0; at < n;) {
                size_t stop = at < cut ? cut : n;
                size_t used = wire_sse_split(&s, rows[i].text + at, stop - at);
                at = used ? at + used : stop;
            }
            assert_int_equal(s.events, rows[i].events);
            assert_int_equal(wire_sse_between(&s), rows[i].between);
        }
}

static void the_end_lies_after_the_empty_line(void **state)
{
    (void)state;
    struct sse_split s = {0};

    assert_int_equal(wire_sse_split(&s, "data: a\n\ndata: b", 16), 9);
    assert_int_equal(wire_sse_split(&s, "data: b", 7), 0);
    assert_int_equal(wire_sse_split(&s, "\r\n\r\n:", 5), 4);
    s = (struct sse_split){0};
    assert_int_equal(wire_sse_split(&s, "data: a\r\n\r", 10), 10);
    assert_int_equal(wire_sse_split(&s, "\ndata: b\r\n\r\n", 12), 12);
    assert_int_equal(s.events, 2);
}

static void data_is_the_first_data_line(void **state)
{
    (void)state;
    static const char *with[][2] = {
        {"data: a b\n\n", "a b"}, {"data:a\r\n\r\n", "a"},
        {"data:  a\n\n", " a"},   {"event: x\r\ndata: 1\ndata: 2", "1"},
        {": c\rdata\r\r", ""},    {"data:\n\n", ""},
        {"data: \n\n", ""},       {"\n: p\n\ndata: {\t}\n\n", "{\t}"},
    };
    static const char *without[] = {
        "", "\n", ": data: a\n\n", "event: data:\n\n", "datax: a\n\n", " data: a\n\n"};
    struct slice data;

    for (size_t i = 0; i < ARRAY_LEN(with); i++) {
        assert_true(wire_sse_data(slice_str(with[i][0]), &data));
        same(data, with[i][1]);
    }
    for (size_t i = 0; i < ARRAY_LEN(without); i++)
        assert_false(wire_sse_data(slice_str(without[i]), &data));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_counted_at_every_cut),
        cmocka_unit_test(the_end_lies_after_the_empty_line),
        cmocka_unit_test(data_is_the_first_data_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
