/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <string.h>

#include "base/prng.h"
#include "model/prefix.h"

static const struct slice none = {NULL, 0};

static void cuts_do_not_matter(void **state)
{
    (void)state;
    static char text[20000];
    struct prng rnd = {7};
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (char)prng_next(&rnd);
    uint64_t root = model_prefix_root(SLICE("m"), none, none, none);
    uint64_t whole[16], pieces[16];
    struct prefix_chain c;
    model_prefix_begin(&c, root, whole, 16);
    model_prefix_feed(&c, slice_of(text, sizeof(text)));
    assert_int_equal(c.n, 9); /* 20000 / 2048 */
    assert_int_equal(whole[0], model_prefix_next(root, text));
    assert_int_equal(whole[1], model_prefix_next(whole[0], text + 2048));
    for (unsigned round = 0; round < 50; round++) {
        model_prefix_begin(&c, root, pieces, 16);
        for (size_t at = 0; at < sizeof(text);) {
            size_t n = (size_t)prng_below(&rnd, 3000);
            if (n > sizeof(text) - at)
                n = sizeof(text) - at;
            model_prefix_feed(&c, slice_of(text + at, n));
            at += n;
        }
        assert_int_equal(c.n, 9);
        assert_int_equal(c.bytes, sizeof(text));
        assert_memory_equal(pieces, whole, 9 * sizeof(whole[0]));
    }
}

static void the_root_tells_models_apart(void **state)
{
    (void)state;
    uint64_t a = model_prefix_root(SLICE("m"), none, none, none);
    assert_int_equal(a, model_prefix_root(SLICE("m"), SLICE(""), SLICE(""), SLICE("")));
    assert_int_not_equal(a, model_prefix_root(SLICE("n"), none, none, none));
    assert_int_not_equal(a, model_prefix_root(SLICE("m"), SLICE("v2"), none, none));
    assert_int_not_equal(model_prefix_root(SLICE("m"), SLICE("x"), none, none),
                         model_prefix_root(SLICE("m"), none, SLICE("x"), none));
}

static void no_more_names_than_places(void **state)
{
    (void)state;
    static char text[3 * PREFIX_BLOCK_BYTES];
    uint64_t names[2] = {0, 0};
    struct prefix_chain c;
    model_prefix_begin(&c, 1, names, 1);
    model_prefix_feed(&c, slice_of(text, sizeof(text)));
    model_prefix_separate(&c);
    assert_int_equal(c.n, 1);
    assert_int_equal(names[1], 0);
    assert_int_equal(c.bytes, sizeof(text) + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_do_not_matter),
        cmocka_unit_test(the_root_tells_models_apart),
        cmocka_unit_test(no_more_names_than_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
