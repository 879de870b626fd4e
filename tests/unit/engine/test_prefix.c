/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include "engine/prefix.h"
#include "engine/profile.h"
#include "heap_mem.h"

static void the_least_recently_used_goes_first(void **state)
{
    (void)state;
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct engine_prefix c;
    const uint64_t chain[] = {1, 2, 3, 4};
    uint32_t idle;
    bool was_idle;
    assert_int_equal(engine_prefix_init(&c, &mem, 3), 0);
    for (uint64_t h = 1; h <= 3; h++)
        assert_int_equal(engine_prefix_add(&c, h), 0);
    assert_int_equal(engine_prefix_add(&c, 4), WEIR_E_FULL);
    assert_int_equal(engine_prefix_probe(&c, chain, 4, &idle), 3);
    assert_int_equal(idle, 0);
    assert_false(engine_prefix_evict(&c));
    for (uint64_t h = 3; h >= 1; h--)
        assert_true(engine_prefix_release(&c, h));
    assert_int_equal(engine_prefix_probe(&c, chain, 4, &idle), 3);
    assert_int_equal(idle, 3);
    /* Using 3 for a moment makes it the last to go: 2 leaves first, and cuts the chain after 1. */
    assert_true(engine_prefix_use(&c, 3, &was_idle));
    assert_true(was_idle);
    assert_true(engine_prefix_release(&c, 3));
    assert_true(engine_prefix_evict(&c));
    assert_int_equal(engine_prefix_probe(&c, chain, 4, &idle), 1);
    assert_true(engine_prefix_evict(&c));
    assert_int_equal(engine_prefix_probe(&c, chain, 4, &idle), 0);
    assert_true(engine_prefix_use(&c, 3, &was_idle));
    assert_false(engine_prefix_use(&c, 1, &was_idle));
    engine_prefix_fini(&c);
    assert_int_equal(heap.live, 0);
}

static void two_users_hold_a_block(void **state)
{
    (void)state;
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct engine_prefix c;
    bool was_idle;
    assert_int_equal(engine_prefix_init(&c, &mem, 1), 0);
    assert_int_equal(engine_prefix_add(&c, 9), 0);
    assert_true(engine_prefix_use(&c, 9, &was_idle));
    assert_false(was_idle);
    assert_false(engine_prefix_release(&c, 9));
    assert_false(engine_prefix_evict(&c));
    assert_true(engine_prefix_release(&c, 9));
    assert_true(engine_prefix_evict(&c));
    assert_int_equal(c.n_used + c.n_idle, 0);
    assert_int_equal(engine_prefix_add(&c, 10), 0);
    engine_prefix_fini(&c);
}

static void every_gpu_of_the_command_line_is_known(void **state)
{
    (void)state;
    const char *names[] = {"a100", "h100", "h200", "l40s", "l4", "3090", "t4", "cpu"};
    for (unsigned i = 0; i < 8; i++) {
        const struct engine_profile *p = engine_profile_find(slice_str(names[i]));
        assert_non_null(p);
        assert_string_equal(p->name, names[i]);
        assert_true(p->floor_ms > 0 && p->b_ms > 0 && p->kv_tokens > 0);
        /* What the KV cache takes is there, with the tenth that vLLM leaves alone. */
        assert_true((double)p->kv_tokens * (double)p->kv_bytes_per_token <
                    0.9 * (double)p->memory_total_bytes);
    }
    assert_null(engine_profile_at(8));
    assert_ptr_equal(engine_profile_find(SLICE("A100")), engine_profile_at(0));
    assert_null(engine_profile_find(SLICE("a10")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_recently_used_goes_first),
        cmocka_unit_test(two_users_hold_a_block),
        cmocka_unit_test(every_gpu_of_the_command_line_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
