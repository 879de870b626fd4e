/* SPDX-License-Identifier: Apache-2.0 */
/* What YAML is taken, and what is refused with which words. */
#include "unit/confio/load.h"

#include "base/bug.h"
#include "confio/nodes.h"

static void refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *errors;
    } cases[] = {
        {"a: &x 1\n", "w.yaml:1:4: anchors (&name) are not accepted; write the value out\n"},
        {"a: &x {b: 1}\n", "w.yaml:1:4: anchors (&name) are not accepted; write the value out\n"},
        {"a: &x [b]\n", "w.yaml:1:4: anchors (&name) are not accepted; write the value out\n"},
        {"a: *x\n", "w.yaml:1:4: aliases (*name) are not accepted; write the value out\n"},
        {"a: !!str 1\n", "w.yaml:1:4: tags (!name) are not accepted\n"},
        {"a: !x [1]\n", "w.yaml:1:4: tags (!name) are not accepted\n"},
        {"threads: 1\n---\nthreads: 2\n", "w.yaml:2:1: a second document (---) is not accepted\n"},
        {"? [a]\n: 1\n", "w.yaml:1:3: a key must be plain text\n"},
        {"{{a: 1}: 2}\n", "w.yaml:1:2: a key must be plain text\n"},
        {"health:\n\tinterval: 5s\n", "w.yaml:2:1: a tab cannot indent; use spaces\n"},
        {"a: 'x\n", "w.yaml:2:1: not valid YAML: found unexpected end of stream\n"},
        {"a: b: c\n",
         "w.yaml:1:5: not valid YAML: mapping values are not allowed in this context\n"},
        {"a: [1, 2\nb: 3\n", "w.yaml:2:2: not valid YAML: did not find expected ',' or ']'\n"},
        {"a: \x01\n", "w.yaml:1:4: is not text: control character\n"},
        {"\x7f"
         "ELF\x02\n",
         "w.yaml:1:1: is not text: control character\n"},
        {"# \xc3\xa4\n\xff\n", "w.yaml:2:1: is not text: this byte is not UTF-8\n"},
        {"a: 1\r\nb: \xc3\n", "w.yaml:2:4: is not text: this byte is not UTF-8\n"},
        {"\xff\xfe", "w.yaml:1:1: is UTF-16; write UTF-8\n"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        expect_errors(cases[i].text, cases[i].errors);
}

static void line_ends_and_a_bom_do_not_matter(void **state)
{
    (void)state;
    static const char *const same[] = {"threads: 3\nhealth:\n  up_after: 4\n",
                                       "threads: 3\r\nhealth:\r\n  up_after: 4\r\n",
                                       "\xef\xbb\xbfthreads: 3\nhealth:\n  up_after: 4\n",
                                       "{\"threads\": \"3\", \"health\": {\"up_after\": 4}}",
                                       "threads: 3 # three\nhealth: {up_after: 4}"};
    for (size_t i = 0; i < ARRAY_LEN(same); i++) {
        struct loaded l;
        expect_conf(&l, same[i]);
        assert_int_equal(l.conf->threads, 3);
        assert_int_equal(l.conf->health.up_after, 4);
        load_fini(&l);
    }
    expect_errors("threads: 3\r\nhealth:\r\n  upafter: 4\r\n",
                  "w.yaml:3:3: unknown key \"upafter\" in health; did you mean \"up_after\"?\n");
}

static void depth_and_number_are_limited(void **state)
{
    (void)state;
    static char text[400000];
    memset(text, '[', 32);
    memset(text + 32, ']', 32);
    text[64] = '\0';
    expect_errors(text, "w.yaml:1:1: the file must be a map of keys, not a list\n");
    memset(text, '[', 33);
    text[33] = '\0';
    expect_errors(text, "w.yaml:1:33: nested more than 32 levels deep\n");

    /* The list itself is one of the values. */
    text[0] = '[';
    for (size_t i = 0; i < 99999; i++)
        memcpy(text + 1 + 2 * i, "1,", 2);
    strcpy(text + 1 + 2 * 99999, "]");
    expect_errors(text, "w.yaml:1:1: the file must be a map of keys, not a list\n");
    strcpy(text + 1 + 2 * 99999, "1]");
    expect_errors(text, "w.yaml:1:200000: the file has more than 100,000 values\n");
}

static void nodes_are_flat_with_places(void **state)
{
    (void)state;
    struct test_heap heap = {.live = 0};
    struct mem mem = test_heap_mem(&heap);
    static struct conf_errors errors;
    struct confio_nodes n;
    static const struct {
        enum conf_kind kind;
        const char *key, *text;
        bool quoted;
        uint32_t key_line, key_column, line, column, end;
    } want[] = {
        {CONF_NODE_MAP, NULL, NULL, false, 1, 1, 1, 1, 7},
        {CONF_NODE_SEQ, "a", NULL, false, 1, 1, 2, 3, 4},
        {CONF_NODE_SCALAR, NULL, "x", false, 2, 5, 2, 5, 3},
        {CONF_NODE_SCALAR, NULL, "", true, 3, 5, 3, 5, 4},
        {CONF_NODE_MAP, "b", NULL, false, 4, 1, 4, 4, 6},
        {CONF_NODE_SCALAR, "c", "d e", false, 4, 5, 4, 8, 6},
        {CONF_NODE_SCALAR, "f", "g\n", true, 5, 1, 5, 4, 7},
    };
    confio_nodes_init(&n, &mem);
    assert_int_equal(confio_yaml_parse(SLICE("f"),
                                       SLICE("a:\n  - x\n  - \"\"\nb: {c: d e}\nf: |\n  g\n"), &n,
                                       &errors),
                     0);
    assert_int_equal(n.n, ARRAY_LEN(want));
    for (uint32_t i = 0; i < n.n; i++) {
        const struct conf_node *node = &n.list[i];
        assert_int_equal(node->kind, want[i].kind);
        assert_true(slice_eq(node->key, slice_str(want[i].key)));
        assert_true(slice_eq(node->text, slice_str(want[i].text)));
        assert_int_equal(node->quoted, want[i].quoted);
        assert_int_equal(node->key_line, want[i].key_line);
        assert_int_equal(node->key_column, want[i].key_column);
        assert_int_equal(node->line, want[i].line);
        assert_int_equal(node->column, want[i].column);
        assert_int_equal(node->end, want[i].end);
    }
    confio_nodes_fini(&n);
    assert_int_equal(heap.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused),
        cmocka_unit_test(line_ends_and_a_bom_do_not_matter),
        cmocka_unit_test(depth_and_number_are_limited),
        cmocka_unit_test(nodes_are_flat_with_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
