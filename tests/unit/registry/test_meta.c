/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/bug.h"
#include "base/prng.h"
#include "heap_mem.h"
#include "registry/meta.h"

/* A table under test and the last "visible" answer. */
struct fixture {
    struct test_heap heap;
    struct mem mem;
    struct meta *m;
    bool changed, visible;
};

static void setup(struct fixture *f)
{
    *f = (struct fixture){0};
    f->mem = test_heap_mem(&f->heap);
}

static void say(struct fixture *f, enum meta_writer w, const char *key, const char *value)
{
    struct kv kv = {slice_str(key), slice_str(value)};
    struct meta *next;

    assert_int_equal(meta_merge(&f->mem, f->m, &kv, 1, w, &next, &f->visible), 0);
    f->changed = next != NULL;
    if (next) {
        mem_free(&f->mem, f->m);
        f->m = next;
    }
}

/* "a=1;b=2" of what is in effect. */
static void expect(struct fixture *f, const char *want)
{
    struct buf b;

    buf_init(&b, &f->mem, 100000);
    for (uint32_t i = 0; f->m && i < f->m->n_kv; i++) {
        buf_put_str(&b, i ? ";" : "");
        buf_put_slice(&b, f->m->kv[i].key);
        buf_put_char(&b, '=');
        buf_put_slice(&b, f->m->kv[i].value);
    }
    buf_put_char(&b, '\0');
    assert_string_equal(buf_slice(&b).p, want);
    buf_fini(&b);
}

static void done(struct fixture *f)
{
    mem_free(&f->mem, f->m);
    assert_int_equal(f->heap.live, 0);
}

static void keys_of_two_writers_add_up(void **state)
{
    (void)state;
    struct fixture f;

    setup(&f);
    say(&f, META_CLIENT, "model", "x");
    assert_true(f.visible);
    say(&f, META_OPERATOR, "free", "12");
    say(&f, META_CLIENT, "model", "x");
    assert_false(f.changed);
    expect(&f, "model=x;free=12");
    say(&f, META_OPERATOR, "free", "11");
    expect(&f, "model=x;free=11");
    done(&f);
}

static void a_repeated_beat_does_not_undo_an_edit_but_a_new_value_counts(void **state)
{
    (void)state;
    struct fixture f;

    setup(&f);
    say(&f, META_CLIENT, "a", "1");
    say(&f, META_OPERATOR, "a", "2");
    say(&f, META_CLIENT, "a", "1");
    expect(&f, "a=2");
    assert_false(f.changed);
    say(&f, META_CLIENT, "a", "3");
    expect(&f, "a=3");
    say(&f, META_OPERATOR, "a", "");
    expect(&f, "");
    say(&f, META_CLIENT, "a", "3");
    expect(&f, "");
    say(&f, META_CLIENT, "a", "4");
    expect(&f, "a=4");
    done(&f);
}

static void an_empty_value_deletes_once(void **state)
{
    (void)state;
    struct fixture f;

    setup(&f);
    say(&f, META_OPERATOR, "b", "1");
    say(&f, META_CLIENT, "b", "");
    assert_true(f.visible);
    expect(&f, "");
    say(&f, META_OPERATOR, "b", "2");
    say(&f, META_CLIENT, "b", "");
    assert_false(f.changed);
    expect(&f, "b=2");
    say(&f, META_OPERATOR, "b", "2");
    assert_false(f.changed);
    say(&f, META_OPERATOR, "never", "");
    assert_false(f.changed);
    done(&f);
}

static void the_limit_counts_keys_in_effect_and_a_refusal_changes_nothing(void **state)
{
    (void)state;
    struct fixture f;
    char key[16];
    struct meta *next;
    bool visible;

    setup(&f);
    for (int i = 0; i < ENDPOINT_KV_MAX; i++) {
        (void)snprintf(key, sizeof(key), "k%d", i);
        say(&f, META_CLIENT, key, "v");
    }
    struct kv one_more = {SLICE("more"), SLICE("v")};
    assert_int_equal(meta_merge(&f.mem, f.m, &one_more, 1, META_CLIENT, &next, &visible),
                     WEIR_E_FULL);
    assert_null(next);
    /* A remembered deletion makes room when it has to. */
    say(&f, META_CLIENT, "k7", "");
    say(&f, META_CLIENT, "more", "v");
    assert_int_equal(f.m->n_kv, ENDPOINT_KV_MAX);
    assert_true(slice_eq(meta_get(f.m->kv, f.m->n_kv, SLICE("more")), SLICE("v")));
    assert_null(meta_get(f.m->kv, f.m->n_kv, SLICE("k7")).p);
    done(&f);
}

/* Against a plain model: last news wins; what a client repeats is no news. */
static void random_writes_agree_with_the_model(void **state)
{
    (void)state;
    struct fixture f;
    struct prng r = {2026};
    char value[8][2] = {{0}};
    int told[8];
    static const char *const keys[] = {"k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"};

    setup(&f);
    memset(told, -1, sizeof(told));
    for (int step = 0; step < 20000; step++) {
        size_t k = prng_below(&r, 8);
        int v = (int)prng_below(&r, 4); /* 0 deletes */
        char text[2] = {v ? (char)('0' + v) : '\0', '\0'};
        bool client = prng_below(&r, 2);
        say(&f, client ? META_CLIENT : META_OPERATOR, keys[k], text);
        if (!client || told[k] != v)
            value[k][0] = text[0];
        if (client)
            told[k] = v;
        struct slice got = meta_get(f.m ? f.m->kv : NULL, f.m ? f.m->n_kv : 0, slice_str(keys[k]));
        assert_true(slice_eq(got, slice_str(value[k])));
        assert_int_equal(got.p != NULL, value[k][0] != '\0');
    }
    done(&f);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct fixture f;
    struct kv kv[] = {{SLICE("a"), SLICE("2")}, {SLICE("b"), SLICE("3")}};
    int rc = WEIR_E_NOMEM;

    setup(&f);
    say(&f, META_CLIENT, "a", "1");
    long live = f.heap.live;
    for (long at = 1; rc == WEIR_E_NOMEM; at++) {
        struct meta *next;
        bool visible;
        f.heap.fail_at = at;
        rc = meta_merge(&f.mem, f.m, kv, 2, META_CLIENT, &next, &visible);
        f.heap.fail_at = 0;
        if (rc == 0) {
            assert_true(at > 1);
            mem_free(&f.mem, next);
        }
        assert_int_equal(f.heap.live, live);
    }
    assert_int_equal(rc, 0);
    done(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_of_two_writers_add_up),
        cmocka_unit_test(a_repeated_beat_does_not_undo_an_edit_but_a_new_value_counts),
        cmocka_unit_test(an_empty_value_deletes_once),
        cmocka_unit_test(the_limit_counts_keys_in_effect_and_a_refusal_changes_nothing),
        cmocka_unit_test(random_writes_agree_with_the_model),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("meta", tests, NULL, NULL);
}
