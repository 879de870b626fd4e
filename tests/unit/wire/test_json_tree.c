/* SPDX-License-Identifier: Apache-2.0 */
/* JSON as a tree: values, the last of a key, what is none. */
#include "ct.h"

#include "base/bug.h"
#include "heap_mem.h"
#include "wire/json_tree.h"

static void a_tree_holds_what_stood_there(void **state)
{
    (void)state;
    static const char text[] =
        "{\"a\":1,\"b\":[true,null,\"x\\u00e9\",{}],\"a\":-2.5e1,\"\":\"\",\"c\":{\"d\":false}}";
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    const struct json_node *root;
    struct arena a;
    double v;

    arena_init(&a, &mem, 1 << 16);
    assert_int_equal(wire_json_tree(&a, slice_str(text), &root), 0);
    assert_int_equal(root->n, 5);
    assert_true(wire_json_number(wire_json_get(root, "a"), &v));
    assert_true(v == -25);
    const struct json_node *b = wire_json_get(root, "b");
    assert_int_equal(b->n, 4);
    assert_int_equal(b->first->kind, JSON_NODE_TRUE);
    assert_int_equal(b->first->next->kind, JSON_NODE_NULL);
    assert_true(slice_eq(wire_json_text(b->first->next->next), SLICE("x\xc3\xa9")));
    assert_int_equal(b->first->next->next->next->kind, JSON_NODE_OBJECT);
    assert_null(b->first->next->next->next->next);
    assert_true(wire_json_text(wire_json_get(root, "")).p != NULL);
    assert_int_equal(wire_json_get(wire_json_get(root, "c"), "d")->kind, JSON_NODE_FALSE);
    assert_null(wire_json_get(root, "z"));
    assert_null(wire_json_get(b, "a"));
    assert_null(wire_json_get(NULL, "a"));
    assert_null(wire_json_text(NULL).p);
    assert_false(wire_json_number(b, &v));
    arena_fini(&a);
    assert_int_equal(heap.live, 0);
}

static void what_is_no_json(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "{", "{} {}", "[1,]", "nul", "{\"a\"}"};
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);

    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        const struct json_node *root;
        struct arena a;
        arena_init(&a, &mem, 1 << 16);
        assert_int_equal(wire_json_tree(&a, slice_str(texts[i]), &root), WEIR_E_PROTO);
        assert_null(root);
        arena_fini(&a);
    }
    assert_int_equal(heap.live, 0);
}

static void the_cap_of_the_arena_is_the_cap_of_the_tree(void **state)
{
    (void)state;
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    const struct json_node *root;
    struct arena a;
    char text[4096];

    memset(text, '[', sizeof(text));
    arena_init(&a, &mem, 1 << 20);
    assert_int_equal(wire_json_tree(&a, slice_of(text, sizeof(text)), &root), WEIR_E_FULL);
    arena_fini(&a);
    for (size_t i = 0; i < sizeof(text); i += 2)
        memcpy(text + i, "1,", 2);
    text[0] = '[';
    arena_init(&a, &mem, 8192);
    assert_int_equal(wire_json_tree(&a, slice_of(text, sizeof(text)), &root), WEIR_E_PROTO);
    text[1] = ' ';
    assert_int_equal(wire_json_tree(&a, slice_of(text, sizeof(text)), &root), WEIR_E_NOMEM);
    arena_fini(&a);
    assert_int_equal(heap.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tree_holds_what_stood_there),
        cmocka_unit_test(what_is_no_json),
        cmocka_unit_test(the_cap_of_the_arena_is_the_cap_of_the_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
