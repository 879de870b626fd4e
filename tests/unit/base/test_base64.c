/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include "base/base64.h"
#include "base/bug.h"
#include "heap_mem.h"

static struct test_heap heap;
static struct mem mem;

/* RFC 4648, section 10. */
static const char *const pairs[][2] = {{"", ""},
                                       {"f", "Zg=="},
                                       {"fo", "Zm8="},
                                       {"foo", "Zm9v"},
                                       {"foob", "Zm9vYg=="},
                                       {"fooba", "Zm9vYmE="},
                                       {"foobar", "Zm9vYmFy"}};

static void text_and_bytes_are_each_others(void **state)
{
    (void)state;
    mem = test_heap_mem(&heap);
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        struct buf b;
        buf_init(&b, &mem, 64);
        assert_int_equal(base64_put(&b, slice_str(pairs[i][0])), 0);
        assert_true(slice_eq(buf_slice(&b), slice_str(pairs[i][1])));
        buf_clear(&b);
        assert_int_equal(base64_read(slice_str(pairs[i][1]), &b), 0);
        assert_true(slice_eq(buf_slice(&b), slice_str(pairs[i][0])));
        buf_fini(&b);
    }
    assert_int_equal(heap.live, 0);
}

static void every_byte_comes_back(void **state)
{
    (void)state;
    char all[256];
    struct buf text;
    struct buf back;

    mem = test_heap_mem(&heap);
    for (size_t i = 0; i < sizeof(all); i++)
        all[i] = (char)(unsigned char)i;
    buf_init(&text, &mem, 1024);
    buf_init(&back, &mem, 1024);
    assert_int_equal(base64_put(&text, slice_of(all, sizeof(all))), 0);
    assert_int_equal(base64_read(buf_slice(&text), &back), 0);
    assert_true(slice_eq(buf_slice(&back), slice_of(all, sizeof(all))));
    buf_fini(&text);
    buf_fini(&back);
}

static void what_is_no_base64_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "Z", "Zg", "Zg=", "Zg==Zg==", "=g==", "Zm9v\n", "Zm 9", "Z===", "Zm-v", "===="};
    struct buf b;

    mem = test_heap_mem(&heap);
    buf_init(&b, &mem, 64);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(base64_read(slice_str(bad[i]), &b), WEIR_E_INVALID);
    buf_fini(&b);
}

static void the_cap_of_the_buffer_holds(void **state)
{
    (void)state;
    struct buf b;

    mem = test_heap_mem(&heap);
    buf_init(&b, &mem, 4);
    assert_int_equal(base64_put(&b, SLICE("foob")), WEIR_E_FULL);
    buf_clear(&b);
    assert_int_equal(base64_read(SLICE("Zm9vYmFy"), &b), WEIR_E_FULL);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_and_bytes_are_each_others),
        cmocka_unit_test(every_byte_comes_back),
        cmocka_unit_test(what_is_no_base64_is_refused),
        cmocka_unit_test(the_cap_of_the_buffer_holds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
