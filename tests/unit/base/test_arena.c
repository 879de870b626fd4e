/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <stdalign.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bug.h"
#include "heap_mem.h"

static void a_reserve_is_one_block_and_no_more(void **state)
{
    (void)state;
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct arena a;
    arena_init(&a, &mem, 1 << 20);
    assert_int_equal(arena_reserve(&a, 0), 0);
    assert_int_equal(heap.live, 0);
    /* Three of 24 bytes each, and two texts of 3 and of none: 80 + 4 + 1, in whole words. */
    size_t room = ARENA_ROOM(3, 24) + 4 + 1;
    assert_int_equal(room, 85);
    assert_int_equal(arena_reserve(&a, room), 0);
    assert_int_equal(a.total, 96);
    assert_int_equal(a.left, 96);
    struct slice text, empty, absent;
    assert_int_equal(arena_slice(&a, SLICE("abc"), &text), 0);
    void *array = arena_array(&a, 3, 24);
    assert_non_null(array);
    assert_int_equal((uintptr_t)array % alignof(max_align_t), 0);
    assert_int_equal(arena_slice(&a, SLICE(""), &empty), 0);
    assert_int_equal(arena_slice(&a, slice_of(NULL, 0), &absent), 0);
    assert_string_equal(text.p, "abc");
    assert_string_equal(empty.p, "");
    assert_null(absent.p);
    assert_int_equal(heap.live, 1);
    assert_int_equal(a.total, 96);
    assert_int_equal(a.left, 11);
    /* What is at hand is not taken again; a byte more is. */
    assert_int_equal(arena_reserve(&a, 11), 0);
    assert_int_equal(a.total, 96);
    assert_int_equal(arena_reserve(&a, 12), 0);
    assert_int_equal(a.total, 96 + 16);
    assert_int_equal(heap.live, 2);
    assert_string_equal(text.p, "abc");
    arena_fini(&a);
    assert_int_equal(heap.live, 0);
}

static void a_reserve_ends_at_the_cap(void **state)
{
    (void)state;
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct arena a;
    arena_init(&a, &mem, 100);
    static const size_t above[] = {101, SIZE_MAX / 2, SIZE_MAX / 2 + 1, SIZE_MAX - 1, SIZE_MAX};
    for (size_t i = 0; i < ARRAY_LEN(above); i++)
        assert_int_equal(arena_reserve(&a, above[i]), WEIR_E_NOMEM);
    assert_int_equal(heap.live, 0);
    assert_int_equal(arena_reserve(&a, 96), 0);
    assert_int_equal(arena_reserve(&a, 97), WEIR_E_NOMEM);
    assert_int_equal(a.left, 96); /* a refusal costs nothing */
    assert_non_null(arena_alloc(&a, 96));
    assert_null(arena_alloc(&a, 1));
    arena_fini(&a);
    heap.fail_at = 1;
    assert_int_equal(arena_reserve(&a, 1), WEIR_E_NOMEM);
    assert_int_equal(a.total, 0);
    assert_int_equal(arena_reserve(&a, 1), 0);
    arena_fini(&a);
    assert_int_equal(heap.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reserve_is_one_block_and_no_more),
        cmocka_unit_test(a_reserve_ends_at_the_cap),
    };
    return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
