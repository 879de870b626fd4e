/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "heap_mem.h"
#include "sched/prefix_index.h"

enum { CHAIN = 128 };

struct world {
    struct test_heap heap;
    struct mem mem;
    void *memory;
    struct sched_prefix x;
    uint64_t chain[CHAIN];
};

static void open_world(struct world *w, size_t bytes)
{
    memset(w, 0, sizeof(*w));
    w->mem = test_heap_mem(&w->heap);
    w->memory = aligned_alloc(64, bytes);
    memset(w->memory, 0, bytes);
    sched_prefix_init(&w->x, &w->mem, w->memory, bytes);
    struct prng r = {1};
    for (uint32_t i = 0; i < CHAIN; i++)
        w->chain[i] = prng_next(&r);
}

static void close_world(struct world *w)
{
    sched_prefix_fini(&w->x);
    free(w->memory);
    assert_int_equal(w->heap.live, 0);
}

static void note(struct world *w, uint32_t n, uint32_t slot, uint32_t generation, uint32_t cap)
{
    sched_prefix_expect(&w->x, slot);
    sched_prefix_note(&w->x, w->chain, n, slot, generation, cap);
}

static uint32_t hits(struct world *w, uint32_t slot, uint32_t generation)
{
    struct sched_prefix_ask ask = {slot, generation, 99};

    sched_prefix_hits(&w->x, w->chain, CHAIN, &ask, 1);
    return ask.hits;
}

/* Each endpoint holds as much of a chain as was sent there, over group borders and in any order. */
static void as_deep_as_it_was_sent(void **state)
{
    (void)state;
    enum { ENDPOINTS = 1000 };
    static struct sched_prefix_ask ask[ENDPOINTS];
    static uint32_t deep[ENDPOINTS];
    struct world w;
    struct prng r = {2};

    open_world(&w, 64 << 20);
    for (uint32_t i = 0; i < ENDPOINTS; i++) {
        deep[i] = (uint32_t)prng_below(&r, CHAIN + 1);
        note(&w, deep[i], i, 1, 0);
        ask[i] = (struct sched_prefix_ask){i, 1, 0};
    }
    sched_prefix_hits(&w.x, w.chain, CHAIN, ask, ENDPOINTS);
    for (uint32_t i = 0; i < ENDPOINTS; i++)
        assert_int_equal(ask[i].hits, deep[i]);
    /* Of some of them only, and of a shorter prompt. */
    uint32_t n = 0;
    for (uint32_t i = 0; i < ENDPOINTS; i += 1 + (uint32_t)prng_below(&r, 40))
        ask[n++] = (struct sched_prefix_ask){i, 1, 0};
    sched_prefix_hits(&w.x, w.chain, 7, ask, n);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(ask[i].hits, deep[ask[i].slot] < 7 ? deep[ask[i].slot] : 7);
    close_world(&w);
}

static void another_generation_starts_empty(void **state)
{
    (void)state;
    struct world w;

    open_world(&w, 1 << 20);
    note(&w, 10, 3, 1, 0);
    assert_int_equal(hits(&w, 3, 1), 10);
    assert_int_equal(hits(&w, 3, 2), 0);
    note(&w, 4, 3, 2, 0);
    assert_int_equal(hits(&w, 3, 2), 4);
    assert_int_equal(hits(&w, 3, 1), 0);
    /* Its neighbours are others. */
    assert_int_equal(hits(&w, 2, 1), 0);
    assert_int_equal(hits(&w, 4, 1), 0);
    close_world(&w);
}

/* What an endpoint keeps is what was touched last, as much as its cache holds, within one 64th. */
static void each_endpoint_is_an_lru_cache_of_its_size(void **state)
{
    (void)state;
    enum { CAP = 640, EACH = 16 };
    struct world w;
    uint64_t chain[EACH];

    open_world(&w, 16 << 20);
    note(&w, EACH, 0, 1, CAP);
    for (uint32_t k = 1; k <= 200; k++) {
        for (uint32_t i = 0; i < EACH; i++)
            chain[i] = (uint64_t)k << 32 | i;
        sched_prefix_note(&w.x, chain, EACH, 0, 1, CAP);
        uint32_t had = hits(&w, 0, 1);
        if (k * EACH <= CAP - 2 * EACH)
            assert_int_equal(had, EACH);
        if (k * EACH >= CAP + 2 * EACH)
            assert_int_equal(had, 0);
    }
    /* What is used again stays. */
    note(&w, EACH, 0, 1, CAP);
    for (uint32_t k = 1000; k < 2000; k++) {
        for (uint32_t i = 0; i < EACH; i++)
            chain[i] = (uint64_t)k << 32 | i;
        sched_prefix_note(&w.x, chain, EACH, 0, 1, CAP);
        note(&w, EACH, 0, 1, CAP);
        assert_int_equal(hits(&w, 0, 1), EACH);
    }
    close_world(&w);
}

/* 100 times what fits: the memory is what it was given, nothing is wrong, the newest is known. */
static void memory_is_bounded(void **state)
{
    (void)state;
    struct world w;
    struct prng r = {5};

    open_world(&w, 100 * PREFIX_SET_BYTES + 64);
    sched_prefix_expect(&w.x, 0);
    long live = w.heap.live;
    for (uint32_t k = 0; k < 20000; k++) {
        uint64_t chain[4];
        for (uint32_t i = 0; i < 4; i++)
            chain[i] = prng_next(&r);
        sched_prefix_note(&w.x, chain, 4, 0, 1, 0);
        struct sched_prefix_ask ask = {0, 1, 0};
        sched_prefix_hits(&w.x, chain, 4, &ask, 1);
        assert_int_equal(ask.hits, 4);
    }
    assert_int_equal(w.heap.live, live);
    close_world(&w);
}

/* High slots in a table smaller than their group's number: the places wrap round. */
static void every_slot_in_a_small_table(void **state)
{
    (void)state;
    struct world w;

    open_world(&w, 64 * PREFIX_SET_BYTES);
    for (uint32_t slot = PREFIX_SLOTS_MAX - 1; slot > PREFIX_GROUP; slot -= slot / 3) {
        note(&w, 9, slot, 1, 0);
        assert_int_equal(hits(&w, slot, 1), 9);
        assert_int_equal(hits(&w, slot - PREFIX_GROUP, 1), 0);
    }
    close_world(&w);
}

static void without_memory_nothing_is_remembered(void **state)
{
    (void)state;
    struct world w;

    open_world(&w, 64);
    note(&w, 10, 0, 1, 0);
    assert_int_equal(hits(&w, 0, 1), 0);
    close_world(&w);
    open_world(&w, 1 << 20);
    w.heap.fail_at = 1;
    note(&w, 10, 0, 1, 0); /* no room for the slot's state */
    w.heap.fail_at = 0;
    assert_int_equal(hits(&w, 0, 1), 0);
    note(&w, 10, PREFIX_SLOTS_MAX + 5, 1, 0);
    assert_int_equal(hits(&w, PREFIX_SLOTS_MAX + 5, 1), 0);
    close_world(&w);
}

/* The clock of an endpoint goes round: 70,000 readings later nothing old looks new. */
static void the_clock_goes_round(void **state)
{
    (void)state;
    struct world w;
    uint64_t chain[4];

    open_world(&w, 1 << 20);
    note(&w, 3, 0, 1, 64);
    for (uint32_t k = 0; k < 70000; k++) {
        for (uint32_t i = 0; i < 4; i++)
            chain[i] = (uint64_t)(k % 1000) << 32 | i;
        sched_prefix_note(&w.x, chain, 4, 0, 1, 64);
        struct sched_prefix_ask ask = {0, 1, 0};
        sched_prefix_hits(&w.x, chain, 4, &ask, 1);
        assert_int_equal(ask.hits, 4);
    }
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_deep_as_it_was_sent),
        cmocka_unit_test(another_generation_starts_empty),
        cmocka_unit_test(each_endpoint_is_an_lru_cache_of_its_size),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(every_slot_in_a_small_table),
        cmocka_unit_test(without_memory_nothing_is_remembered),
        cmocka_unit_test(the_clock_goes_round),
    };

    return cmocka_run_group_tests_name("prefix_index", tests, NULL, NULL);
}
