/* SPDX-License-Identifier: Apache-2.0 */
/* Model lists in every shape: what is listed, what is left out, what is refused. */
#include "ct.h"

#include <stdio.h>

#include "heap_mem.h"
#include "probe/models_codec.h"
#include "probe/rows_codec.h"

struct rig {
    struct test_heap heap;
    struct mem mem;
    struct arena arena;
    struct engine_models m;
};

static int read_list(struct rig *r, const char *text)
{
    arena_fini(&r->arena);
    return engine_models_list(slice_str(text), &r->arena, &r->m);
}

static void open_rig(struct rig *r)
{
    *r = (struct rig){0};
    r->mem = test_heap_mem(&r->heap);
    arena_init(&r->arena, &r->mem, 1 << 20);
}

static void close_rig(struct rig *r)
{
    arena_fini(&r->arena);
    assert_int_equal(r->heap.live, 0);
}

static void assert_model(const struct rig *r, uint32_t i, const char *id)
{
    assert_true(i < r->m.n);
    assert_true(slice_eq(r->m.list[i].id, slice_str(id)));
}

static void vllm_with_an_adapter(void **state)
{
    (void)state;
    struct rig r;

    open_rig(&r);
    assert_int_equal(
        read_list(
            &r,
            "{\"object\":\"list\",\"data\":[{\"id\":\"base\",\"object\":\"model\",\"created\":1,"
            "\"owned_by\":\"vllm\",\"root\":\"/models/"
            "base\",\"parent\":null,\"max_model_len\":8192,"
            "\"permission\":[{\"id\":\"modelperm-1\",\"object\":\"model_permission\"}]},"
            "{\"id\":\"lora_1\",\"owned_by\":\"vllm\",\"parent\":\"base\",\"permission\":[]}]}"),
        0);
    assert_int_equal(r.m.n, 2);
    assert_model(&r, 0, "base");
    assert_int_equal(r.m.list[0].max_model_len, 8192);
    assert_null(r.m.list[0].lora_base.p);
    assert_model(&r, 1, "lora_1");
    assert_true(slice_eq(r.m.list[1].lora_base, SLICE("base")));
    assert_int_equal(r.m.list[1].max_model_len, 0);
    assert_string_equal(r.m.owner, "vllm");
    close_rig(&r);
}

static void llamacpp_lists_twice_and_ollama_by_name(void **state)
{
    (void)state;
    struct rig r;

    open_rig(&r);
    assert_int_equal(
        read_list(&r, "{\"models\":[{\"name\":\"q.gguf\",\"model\":\"q.gguf\",\"type\":\"model\","
                      "\"details\":{\"format\":\"gguf\"}}],\"object\":\"list\","
                      "\"data\":[{\"id\":\"q.gguf\",\"owned_by\":\"llamacpp\",\"meta\":{\"n_ctx_"
                      "train\":4096}}]}"),
        0);
    assert_int_equal(r.m.n, 1);
    assert_model(&r, 0, "q.gguf");
    assert_string_equal(r.m.owner, "llamacpp");
    assert_int_equal(
        read_list(&r, "{\"models\":[{\"name\":\"llama3:latest\",\"model\":\"llama3:latest\","
                      "\"size\":1,\"digest\":\"x\"},{\"model\":\"phi:1b\"}]}"),
        0);
    assert_int_equal(r.m.n, 2);
    assert_model(&r, 0, "llama3:latest");
    assert_model(&r, 1, "phi:1b");
    close_rig(&r);
}

static void states_of_single_models(void **state)
{
    (void)state;
    struct rig r;

    open_rig(&r);
    assert_int_equal(
        read_list(&r,
                  "[{\"name\":\"a\",\"version\":\"1\",\"state\":\"READY\"},"
                  "{\"name\":\"a\",\"version\":\"2\",\"state\":\"LOADING\"},"
                  "{\"name\":\"b\",\"version\":\"1\",\"state\":\"UNAVAILABLE\",\"reason\":\"x\"},"
                  "{\"name\":\"c\",\"version\":\"1\",\"state\":\"UNLOADING\"}]"),
        0);
    assert_int_equal(r.m.n, 2);
    assert_true(slice_eq(r.m.list[0].version, SLICE("1")));
    assert_false(r.m.list[0].loading);
    assert_true(slice_eq(r.m.list[1].version, SLICE("2")));
    assert_true(r.m.list[1].loading);
    /* llama.cpp as a router: one that is not loaded is loaded by the first request for it. */
    assert_int_equal(
        read_list(
            &r, "{\"data\":[{\"id\":\"x\",\"status\":{\"value\":\"loading\",\"args\":[\"value\"]}},"
                "{\"id\":\"y\",\"status\":{\"value\":\"unloaded\"}},"
                "{\"id\":\"z\",\"status\":{\"value\":\"failed\"}},{\"id\":\"w\",\"status\":"
                "\"loaded\"}]}"),
        0);
    assert_int_equal(r.m.n, 3);
    assert_model(&r, 0, "x");
    assert_true(r.m.list[0].loading);
    assert_model(&r, 1, "y");
    assert_false(r.m.list[1].loading);
    assert_model(&r, 2, "w");
    close_rig(&r);
}

static void what_is_left_out_and_what_is_refused(void **state)
{
    (void)state;
    struct rig r;
    static char text[300 * 32];
    size_t n = 0;

    open_rig(&r);
    assert_int_equal(
        read_list(&r, "{\"data\":[{\"id\":\"\"},{\"id\":7},{\"id\":\"a\",\"max_model_len\":-1},"
                      "{\"id\":\"a\"},{\"x\":1},3,null,[{\"id\":\"deep\"}]]}"),
        0);
    assert_int_equal(r.m.n, 2); /* a number is taken by its text */
    assert_model(&r, 0, "7");
    assert_model(&r, 1, "a");
    assert_int_equal(r.m.list[1].max_model_len, 0);
    assert_int_equal(r.m.left_out, 2);
    assert_int_equal(read_list(&r, "{\"data\":[]}"), 0);
    assert_int_equal(r.m.n, 0);

    static const char *const bad[] = {"",
                                      "{}",
                                      "nonsense",
                                      "{\"data\":{\"x\":{\"id\":\"a\"}}}",
                                      "{\"data\":[{\"id\":\"a\"}",
                                      "{\"data\":[{\"id\":\"a\"}]} x",
                                      "<html>",
                                      "{\"error\":{\"message\":\"Loading model\"}}"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        assert_int_equal(read_list(&r, bad[i]), WEIR_E_INVALID);
        assert_int_equal(r.m.n, 0);
    }

    n += (size_t)snprintf(text + n, sizeof(text) - n, "{\"data\":[");
    for (int i = 0; i < 300; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s{\"id\":\"m%d\"}", i ? "," : "", i);
    n += (size_t)snprintf(text + n, sizeof(text) - n, "]}");
    assert_int_equal(read_list(&r, text), 0);
    assert_int_equal(r.m.n, 256);
    assert_int_equal(r.m.left_out, 44);
    close_rig(&r);
}

static void names_that_are_no_utf8_are_left_out(void **state)
{
    (void)state;
    struct rig r;

    open_rig(&r);
    assert_int_equal(read_list(&r, "{\"data\":[{\"id\":\"\xc3\x28\"},"
                                   "{\"id\":\"lora\",\"parent\":\"\xed\xa0\x80\"},"
                                   "{\"id\":\"v\",\"version\":\"\xfe\"},"
                                   "{\"id\":\"\xe6\xa8\xa1\"}]}"),
                     0);
    assert_int_equal(r.m.n, 1);
    assert_int_equal(r.m.left_out, 3);
    assert_model(&r, 0, "\xe6\xa8\xa1");
    close_rig(&r);
}

static void names_at_their_longest(void **state)
{
    (void)state;
    struct rig r;
    char name[514] = {0};
    char text[700];

    open_rig(&r);
    memset(name, 'x', sizeof(name) - 1);
    for (int n = 511; n <= 513; n++) {
        snprintf(text, sizeof(text), "{\"data\":[{\"id\":\"%.*s\"}]}", n, name);
        assert_int_equal(read_list(&r, text), 0);
        assert_int_equal(r.m.n, n <= 512 ? 1 : 0);
        if (n <= 512)
            assert_int_equal(r.m.list[0].id.n, n);
    }
    close_rig(&r);
}

static void one_model_by_info(void **state)
{
    (void)state;
    struct rig r;

    open_rig(&r);
    assert_int_equal(engine_models_info(
                         SLICE("{\"model_id\":\"bigscience/bloom\",\"max_total_tokens\":2048,"
                               "\"max_input_tokens\":1024,\"router\":\"text-generation-router\"}"),
                         &r.arena, &r.m),
                     0);
    assert_int_equal(r.m.n, 1);
    assert_model(&r, 0, "bigscience/bloom");
    assert_int_equal(r.m.list[0].max_model_len, 2048);
    assert_int_equal(
        engine_models_info(SLICE("{\"model_id\":\"e5\",\"max_input_length\":512}"), &r.arena, &r.m),
        0);
    assert_int_equal(r.m.list[0].max_model_len, 512);
    assert_int_equal(engine_models_info(SLICE("{\"version\":\"1\"}"), &r.arena, &r.m),
                     WEIR_E_INVALID);
    assert_int_equal(r.m.n, 0);
    close_rig(&r);
}

static void no_memory_at_any_point(void **state)
{
    (void)state;
    int rc = WEIR_E_NOMEM;

    for (long at = 1; rc == WEIR_E_NOMEM; at++) {
        struct rig r;
        assert_true(at < 20);
        open_rig(&r);
        r.heap.fail_at = at;
        rc = read_list(&r, "{\"data\":[{\"id\":\"a\",\"version\":\"1\",\"parent\":\"b\"}]}");
        assert_int_equal(r.m.n, rc == 0 ? 1 : 0);
        close_rig(&r);
    }
    assert_int_equal(rc, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vllm_with_an_adapter),
        cmocka_unit_test(llamacpp_lists_twice_and_ollama_by_name),
        cmocka_unit_test(states_of_single_models),
        cmocka_unit_test(what_is_left_out_and_what_is_refused),
        cmocka_unit_test(names_that_are_no_utf8_are_left_out),
        cmocka_unit_test(names_at_their_longest),
        cmocka_unit_test(one_model_by_info),
        cmocka_unit_test(no_memory_at_any_point),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
