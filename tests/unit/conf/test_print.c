/* SPDX-License-Identifier: Apache-2.0 */
/* The option table against itself: ranges, printing, comparing, running out of memory. */
#include "unit/confio/load.h"

#include "base/bug.h"
#include "conf/option.h"
#include "conf/scalar.h"

/* One of everything. */
static const char everything[] =
    "listeners: [{name: main, address: '[::1]:1234'}]\n"
    "admin: {address: '0.0.0.0:2', token: 'env:T'}\n"
    "registry: {address: off, token: 'file:/a b', state_file: /s, insecure: true}\n"
    "discovery: [{type: static, endpoints: [{url: 'http://h', weight: 0.125, labels: {a: "
    "\"\\\"x\\\"\", 'b: c': ''},\n"
    "  models: [m], gpu_type: T4, max_concurrency: 3, max_model_len: 5, engine: tei, region: r, "
    "zone: z, cluster: c}]}]\n"
    "models: {m: {aliases: [a, 'b#c'], kv_bytes_per_token: 1}, n: }\n"
    "gpu_weights: {A100: 3, \"\\xe4\": 0.001}\n"
    "policies: {p: {use: chain, curve: {0.01: 2, 30.5%: 0.333, 100: 1}, bound: 1.1},\n"
    "  q: {filters: [usable], scores: [{name: load, weight: 0.7}], pick: lowest}}\n"
    "routes: [{match: {path: /x}, policy: p, default_model: m, hash_on: [], half_close: keep,\n"
    "  timeouts: {connect: 1500us, first_byte: 90s, between_bytes: 1h, total: 1.5ms}, trust: "
    "[tenant]},\n"
    "  {policy: q, hash_on: ['cookie:a', 'header:b', user]}]\n"
    "health: {interval: 1m, path: /h}\n"
    "limits: {body: 1000000, peek_max: 1MB, headers: 4KiB}\n"
    "decisions: {sample: 0/s}\n"
    "logging: {level: error, access: 'file:/x/\"y'}\n"
    "threads: 3\n";

static void printing_reads_back_as_the_same(void **state)
{
    (void)state;
    for (int style = 0; style < 2; style++) {
        struct loaded first;
        struct loaded second;
        struct conf_change changes[CONF_CHANGES_MAX];
        expect_conf(&first, everything);
        buf_clear(&first.text);
        assert_int_equal(conf_print(first.conf, style ? CONF_JSON : CONF_YAML, &first.text), 0);
        buf_put_char(&first.text, '\0');
        expect_conf(&second, first.text.p + first.text.from);
        buf_clear(&second.text);
        assert_int_equal(conf_print(second.conf, style ? CONF_JSON : CONF_YAML, &second.text), 0);
        buf_put_char(&second.text, '\0');
        assert_string_equal(second.text.p + second.text.from, first.text.p + first.text.from);
        assert_int_equal(conf_diff(first.conf, second.conf, changes), 0);
        load_fini(&first);
        load_fini(&second);
    }
}

static void numbers_print_as_they_are_written(void **state)
{
    (void)state;
    static const struct {
        enum conf_type type;
        uint64_t v;
        const char *text;
    } cases[] = {
        {CONF_T_COUNT, 0, "0"},
        {CONF_T_COUNT, UINT64_MAX, "18446744073709551615"},
        {CONF_T_RATE, 100, "100/s"},
        {CONF_T_WEIGHT, 1000, "1"},
        {CONF_T_WEIGHT, 1, "0.001"},
        {CONF_T_WEIGHT, 10000000, "10000"},
        {CONF_T_WEIGHT, 2500, "2.5"},
        {CONF_T_FACTOR, Q16_ONE, "1"},
        {CONF_T_FACTOR, Q16_ONE / 2, "0.5"},
        {CONF_T_FACTOR, 1, "0.00002"},
        {CONF_T_FACTOR, Q16_ONE - 1, "0.99998"},
        {CONF_T_DURATION, 0, "0"},
        {CONF_T_DURATION, 1, "1ns"},
        {CONF_T_DURATION, 1500, "1500ns"},
        {CONF_T_DURATION, 90000000000, "90s"},
        {CONF_T_DURATION, 86400000000000, "24h"},
        {CONF_T_SIZE, 1536, "1536"},
        {CONF_T_SIZE, 65536, "64KiB"},
        {CONF_T_SIZE, UINT64_C(1) << 40, "1TiB"},
    };
    char text[CONF_NUMBER_TEXT];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_true(
            slice_eq(conf_number_text(cases[i].type, cases[i].v, text), slice_str(cases[i].text)));
}

/* Every option is sound, and its smallest and largest number are taken while the next one is not. */
static void check_option(const struct conf_option *o)
{
    struct test_heap heap = {.live = 0};
    struct mem mem = test_heap_mem(&heap);
    struct arena a;
    char text[CONF_NUMBER_TEXT];
    uint64_t value[8] = {0};

    arena_init(&a, &mem, 1 << 20);
    size_t doc = strlen(o->doc);
    assert_true(doc > 3 && o->doc[doc - 1] == '.');
    assert_null(strchr(o->doc, '|')); /* it stands in a table */
    bool number = o->type >= CONF_T_COUNT && o->type <= CONF_T_SIZE;
    if (number) {
        bool wide = o->type == CONF_T_DURATION || o->type == CONF_T_SIZE;
        assert_true(o->min <= o->max && (wide || o->max < UINT32_MAX));
        assert_non_null(o->fallback);
        struct conf_why why = {.n = 0};
        assert_int_equal(
            conf_scalar_parse(o, conf_number_text(o->type, o->min, text), &a, value, &why), 0);
        assert_true((wide ? value[0] : *(uint32_t *)value) == o->min);
        assert_int_equal(
            conf_scalar_parse(o, conf_number_text(o->type, o->max, text), &a, value, &why), 0);
        assert_true((wide ? value[0] : *(uint32_t *)value) == o->max);
        if (o->min > 1) {
            why.n = 0;
            assert_int_equal(
                conf_scalar_parse(o, conf_number_text(o->type, o->min - 1, text), &a, value, &why),
                WEIR_E_INVALID);
            assert_true(slice_eq(why.parts[3], SLICE(" is too small; the least is ")));
        }
        why.n = 0;
        assert_int_equal(
            conf_scalar_parse(o, conf_number_text(o->type, o->max + 1, text), &a, value, &why),
            WEIR_E_INVALID);
        assert_true(slice_eq(why.parts[3], SLICE(" is too large; the most is ")));
    }
    assert_true(!o->child ==
                !(o->type == CONF_T_SECTION || o->type == CONF_T_LIST || o->type == CONF_T_MAP));
    arena_fini(&a);
}

static uint32_t check_section(const struct conf_section *s)
{
    uint32_t leaves = 0;

    assert_true(s->n_options <= 32);
    for (uint32_t i = 0; i < s->n_options; i++) {
        check_option(&s->options[i]);
        assert_ptr_equal(conf_option_find(s, slice_str(s->options[i].key)),
                         &s->options[i]); /* no key twice */
        leaves += s->options[i].child ? check_section(s->options[i].child) : 1;
    }
    return leaves;
}

static void the_table_is_sound(void **state)
{
    (void)state;
    assert_true(check_section(&conf_root) > 60);
    uint32_t changes = 0;
    for (uint32_t i = 0; i < conf_root.n_options; i++)
        changes +=
            conf_root.options[i].type == CONF_T_SECTION ? conf_root.options[i].child->n_options : 1;
    assert_true(changes <= CONF_CHANGES_MAX);
}

static void differences_say_what_is_live(void **state)
{
    (void)state;
    struct loaded a;
    struct loaded b;
    struct conf_change c[CONF_CHANGES_MAX];
    expect_conf(&a, "");
    expect_conf(&b, "listeners: [{address: '0.0.0.0:1'}]\nadmin: {address: '127.0.0.1:2', token: "
                    "'env:A'}\nhealth: {interval: 6s}\n"
                    "routes: [{queue: {size: 5}}]\nthreads: 2\n");
    static const struct conf_change expected[] = {
        {"listeners", NULL, true}, {"admin", "address", false},  {"admin", "token", true},
        {"routes", NULL, true},    {"health", "interval", true}, {"threads", NULL, false}};
    assert_int_equal(conf_diff(a.conf, b.conf, c), ARRAY_LEN(expected));
    for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
        assert_string_equal(c[i].part, expected[i].part);
        if (expected[i].key)
            assert_string_equal(c[i].key, expected[i].key);
        else
            assert_null(c[i].key);
        assert_int_equal(c[i].live, expected[i].live);
    }
    a.heap.fail_at = 1;
    assert_int_equal(conf_diff(a.conf, b.conf, c), WEIR_E_NOMEM);
    load_fini(&a);
    load_fini(&b);
}

static void every_failed_allocation_is_survived(void **state)
{
    (void)state;
    static const struct conf_override overrides[] = {
        {.origin = "--worker-urls", .path = "+discovery", .text = {"http://z:1", 10}},
        {.origin = "--host",
         .path = "listeners.address",
         .part = CONF_PART_HOST,
         .text = {"::1", 3}},
    };
    int rc = WEIR_E_NOMEM;
    long n = 0;
    while (rc) {
        struct test_heap heap = {.fail_at = ++n};
        struct mem mem = test_heap_mem(&heap);
        struct confio_options o = {
            .mem = &mem, .overrides = overrides, .n_overrides = ARRAY_LEN(overrides)};
        static struct conf_errors errors;
        struct conf *c;
        memset(&errors, 0, sizeof(errors));
        rc = confio_load_text(&o, SLICE("w.yaml"), slice_str(everything), &c, &errors);
        assert_true(rc == 0 || rc == WEIR_E_NOMEM);
        assert_true(rc == 0 || !c);
        conf_free(c);
        assert_int_equal(heap.live, 0);
    }
    assert_true(n > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(printing_reads_back_as_the_same),
        cmocka_unit_test(numbers_print_as_they_are_written),
        cmocka_unit_test(the_table_is_sound),
        cmocka_unit_test(differences_say_what_is_live),
        cmocka_unit_test(every_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
