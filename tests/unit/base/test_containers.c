/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <string.h>

#include "base/arena.h"
#include "base/bug.h"
#include "base/heap.h"
#include "base/map.h"
#include "base/pairing.h"
#include "base/prng.h"
#include "heap_mem.h"

enum { KEYS = 3000 };

static void map_agrees_with_an_array(void **state)
{
    (void)state;
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct map m;
    static uint32_t ids[KEYS];
    static bool in[KEYS];
    struct prng r = {42};
    uint32_t n = 0;

    map_init(&m, &mem);
    memset(in, 0, sizeof(in));
    for (int step = 0; step < 100000; step++) {
        uint32_t i = (uint32_t)prng_below(&r, KEYS);
        ids[i] = i * 2654435761u;
        struct slice key = slice_of((const char *)&ids[i], sizeof(ids[i]));
        assert_ptr_equal(map_get(&m, key), in[i] ? &ids[i] : NULL);
        if (prng_below(&r, 2)) {
            assert_int_equal(map_put(&m, key, &ids[i]), 0);
            n += !in[i];
            in[i] = true;
        } else {
            assert_ptr_equal(map_del(&m, key), in[i] ? &ids[i] : NULL);
            n -= in[i];
            in[i] = false;
        }
        assert_int_equal(m.n, n);
    }
    uint32_t seen = 0;
    map_foreach(e, &m) seen++;
    assert_int_equal(seen, n);
    map_fini(&m);
    assert_int_equal(heap.live, 0);
}

struct item {
    struct heap_node node;
    uint64_t key;
};

static bool before(const struct heap_node *a, const struct heap_node *b)
{
    return container_of(a, struct item, node)->key < container_of(b, struct item, node)->key;
}

static void heap_gives_keys_in_order_after_removals(void **state)
{
    (void)state;
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    static struct item items[500];
    struct prng r = {7};
    struct heap h;

    heap_init(&h, &mem, before);
    for (uint32_t i = 0; i < ARRAY_LEN(items); i++) {
        items[i] = (struct item){.key = prng_below(&r, 1000)};
        assert_int_equal(heap_push(&h, &items[i].node), 0);
    }
    for (uint32_t i = 0; i < ARRAY_LEN(items); i += 3)
        heap_remove(&h, &items[i].node);
    for (uint32_t i = 1; i < ARRAY_LEN(items); i += 3) {
        items[i].key = prng_below(&r, 1000);
        heap_update(&h, &items[i].node);
    }
    uint64_t last = 0;
    uint32_t n = 0;
    while (heap_top(&h)) {
        struct item *it = container_of(heap_top(&h), struct item, node);
        assert_true(it->key >= last);
        last = it->key;
        heap_remove(&h, &it->node);
        n++;
    }
    assert_int_equal(n, 333);
    heap_fini(&h);
    assert_int_equal(heap.live, 0);
}

struct paired {
    struct pairing_node node;
    uint32_t key;
    bool in;
};

static bool pair_before(const struct pairing_node *a, const struct pairing_node *b)
{
    return container_of(a, struct paired, node)->key < container_of(b, struct paired, node)->key;
}

/* Pushes and removals of any node, in any order: the top is always the least of those that are in. */
static void pairing_heap_has_the_least_on_top(void **state)
{
    (void)state;
    static struct paired items[200];
    struct prng r = {11};
    struct pairing h = {0};

    for (uint32_t step = 0; step < 20000; step++) {
        struct paired *it = &items[prng_below(&r, ARRAY_LEN(items))];
        if (step % 5 == 0 && h.top)
            it = container_of(h.top, struct paired, node);
        if (it->in) {
            pairing_remove(&h, &it->node, pair_before);
        } else {
            it->key = (uint32_t)prng_below(&r, 50);
            pairing_push(&h, &it->node, pair_before);
        }
        it->in = !it->in;
        uint32_t least = UINT32_MAX;
        for (uint32_t i = 0; i < ARRAY_LEN(items); i++)
            if (items[i].in && items[i].key < least)
                least = items[i].key;
        assert_int_equal(h.top ? container_of(h.top, struct paired, node)->key : UINT32_MAX, least);
    }
    /* One that only grew is taken apart in order. */
    h = (struct pairing){0};
    for (uint32_t i = 0; i < ARRAY_LEN(items); i++) {
        items[i].key = (i * 77) % 200;
        pairing_push(&h, &items[i].node, pair_before);
    }
    for (uint32_t i = 0; i < ARRAY_LEN(items); i++) {
        assert_int_equal(container_of(h.top, struct paired, node)->key, i);
        pairing_remove(&h, h.top, pair_before);
    }
    assert_null(h.top);
}

static void arena_keeps_its_cap_and_frees_all(void **state)
{
    (void)state;
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct arena a;
    struct slice copy;

    arena_init(&a, &mem, 5000);
    assert_int_equal(arena_slice(&a, SLICE("hello"), &copy), 0);
    assert_true(slice_eq(copy, SLICE("hello")));
    assert_int_equal(copy.p[5], 0);
    assert_int_equal(arena_slice(&a, (struct slice){NULL, 0}, &copy), 0);
    assert_null(copy.p);
    assert_non_null(arena_alloc(&a, 3000));
    assert_null(arena_alloc(&a, 3000));
    assert_non_null(arena_alloc(&a, 16));
    assert_null(arena_array(&a, SIZE_MAX / 2, 4));
    arena_fini(&a);
    assert_int_equal(heap.live, 0);
}

static void cut_gives_every_piece_once(void **state)
{
    (void)state;
    struct slice rest = SLICE("a,,b,");
    struct slice piece;
    const char *want[] = {"a", "", "b", ""};
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        assert_true(slice_cut(&rest, ',', &piece));
        assert_true(slice_eq(piece, slice_str(want[i])));
    }
    assert_false(slice_cut(&rest, ',', &piece));
}

static void secrets_are_equal_only_when_whole(void **state)
{
    (void)state;
    const struct slice secret = SLICE("abab");
    assert_true(slice_same_secret(SLICE("abab"), secret));
    const char *wrong[] = {"", "ab", "ababab", "abaB", "xbab"};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        assert_false(slice_same_secret(slice_str(wrong[i]), secret));
    assert_false(slice_same_secret(SLICE("a"), SLICE("")));
    assert_true(slice_same_secret(SLICE(""), SLICE("")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(map_agrees_with_an_array),
        cmocka_unit_test(heap_gives_keys_in_order_after_removals),
        cmocka_unit_test(pairing_heap_has_the_least_on_top),
        cmocka_unit_test(arena_keeps_its_cap_and_frees_all),
        cmocka_unit_test(cut_gives_every_piece_once),
        cmocka_unit_test(secrets_are_equal_only_when_whole),
    };
    return cmocka_run_group_tests_name("containers", tests, NULL, NULL);
}
