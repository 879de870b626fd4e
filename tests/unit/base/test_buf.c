/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "base/bug.h"
#include "heap_mem.h"

static void expect(struct buf *b, const char *text)
{
    assert_int_equal(b->err, 0);
    assert_int_equal(buf_len(b), strlen(text));
    assert_memory_equal(buf_slice(b).p, text, strlen(text));
    buf_clear(b);
}

static void numbers_print_exactly(void **state)
{
    (void)state;
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct buf b;
    buf_init(&b, &mem, 4096);
    buf_put_u64(&b, UINT64_MAX);
    expect(&b, "18446744073709551615");
    buf_put_i64(&b, INT64_MIN);
    expect(&b, "-9223372036854775808");
    const struct {
        double v;
        unsigned decimals;
        const char *text;
    } cases[] = {
        {0, 6, "0"},
        {1.0, 3, "1"},
        {0.05, 2, "0.05"},
        {1.005, 2, "1"}, /* 1.005 is below 1.005 */
        {-2.5, 1, "-2.5"},
        {0.999, 2, "1"},
        {12.000001, 6, "12.000001"},
        {(double)NAN, 3, "NaN"},
        {(double)INFINITY, 3, "+Inf"},
        {-(double)INFINITY, 3, "-Inf"},
        {0.007, 3, "0.007"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        buf_put_f64(&b, cases[i].v, cases[i].decimals);
        expect(&b, cases[i].text);
    }
    buf_put_hex(&b, 0xabc, 8);
    expect(&b, "00000abc");
    buf_put_hex(&b, 0x0123456789abcdef, 16);
    expect(&b, "0123456789abcdef");
    buf_put_hex(&b, 0xfedcba9876543210, 16);
    expect(&b, "fedcba9876543210");
    buf_fini(&b);
    assert_int_equal(heap.live, 0);
}

static void json_strings_stay_valid(void **state)
{
    (void)state;
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct buf b;
    buf_init(&b, &mem, 4096);
    buf_put_json(&b, SLICE("a\"b\\c\n\x01\x7f \xe4\xbd\xa0 \xff\xc0\x80"));
    expect(&b,
           "\"a\\\"b\\\\c\\n\\u0001\\u007f \xe4\xbd\xa0 \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
    buf_put_json(&b,
                 SLICE("\xc2\x82\xc2\x9f\xc2\xa0\xe2\x80\xa8\xef\xbb\xbf\xef\xbf\xbf\xef\xbf\xbd"));
    expect(&b, "\"\\u0082\\u009f\xc2\xa0\\u2028\\ufeff\\uffff\xef\xbf\xbd\"");
    buf_fini(&b);
}

static void cap_and_memory_errors_stick(void **state)
{
    (void)state;
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct buf b;
    buf_init(&b, &mem, 10);
    assert_int_equal(buf_put_str(&b, "0123456789"), 0);
    assert_int_equal(buf_put_char(&b, 'x'), WEIR_E_FULL);
    assert_int_equal(buf_put_char(&b, 'x'), WEIR_E_FULL);
    assert_int_equal(buf_len(&b), 10);
    buf_fini(&b);
    heap.fail_at = 1;
    buf_init(&b, &mem, 10);
    assert_int_equal(buf_put_str(&b, "a"), WEIR_E_NOMEM);
    buf_fini(&b);
    assert_int_equal(heap.live, 0);
}

static void consume_and_append_keep_the_order(void **state)
{
    (void)state;
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct buf b;
    buf_init(&b, &mem, 300);
    char next = 'a';
    char want = 'a';
    for (int round = 0; round < 5000; round++) {
        for (int i = 0; i < round % 17; i++) {
            if (buf_len(&b) == 300)
                break;
            assert_int_equal(buf_put_char(&b, next), 0);
            next = next == 'z' ? 'a' : (char)(next + 1);
        }
        size_t take = (size_t)(round % 13);
        struct slice s = buf_slice(&b);
        for (size_t i = 0; i < take && i < s.n; i++) {
            assert_int_equal(s.p[i], want);
            want = want == 'z' ? 'a' : (char)(want + 1);
        }
        buf_consume(&b, take);
    }
    buf_fini(&b);
    assert_int_equal(heap.live, 0);
}

static void a_burst_gives_its_memory_back(void **state)
{
    (void)state;
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct buf b;
    buf_init(&b, &mem, 100);
    buf_slim(&b, 0); /* nothing yet */
    assert_null(b.p);
    assert_non_null(buf_reserve(&b, 100));
    buf_commit(&b, 100);
    assert_int_equal(b.cap, 100);
    buf_consume(&b, 99);
    buf_slim(&b, 0); /* a byte that nobody has read yet */
    assert_int_equal(b.cap, 100);
    assert_int_equal(buf_len(&b), 1);
    buf_consume(&b, 1);
    buf_slim(&b, 100); /* no more than is kept */
    assert_int_equal(b.cap, 100);
    assert_int_equal(heap.live, 1);
    buf_slim(&b, 99);
    assert_int_equal(b.cap, 0);
    assert_null(b.p);
    assert_int_equal(heap.live, 0);
    /* It is as it was made, its cap too. */
    assert_int_equal(buf_put_str(&b, "again"), 0);
    expect(&b, "again");
    assert_null(buf_reserve(&b, 101));
    buf_slim(&b, 0); /* what went wrong stays until it is cleared */
    assert_int_equal(heap.live, 0);
    assert_int_equal(b.err, WEIR_E_FULL);
    assert_int_equal(buf_put_char(&b, 'x'), WEIR_E_FULL);
    buf_clear(&b);
    assert_int_equal(buf_put_char(&b, 'x'), 0);
    expect(&b, "x");
    buf_fini(&b);
    assert_int_equal(heap.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_print_exactly),
        cmocka_unit_test(json_strings_stay_valid),
        cmocka_unit_test(cap_and_memory_errors_stick),
        cmocka_unit_test(consume_and_append_keep_the_order),
        cmocka_unit_test(a_burst_gives_its_memory_back),
    };
    return cmocka_run_group_tests_name("buf", tests, NULL, NULL);
}
