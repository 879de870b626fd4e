/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <stdlib.h>
#include <string.h>

#include "base/bug.h"
#include "base/hash.h"
#include "model/endpoint_t.h"
#include "peek/peek.h"

static struct peek k;

static void feed(const char *text, size_t n, size_t cut)
{
    peek_init(&k);
    assert_int_equal(peek_feed(&k, text, cut), 0);
    assert_int_equal(peek_feed(&k, text + cut, n - cut), 0);
    assert_int_equal(peek_end(&k), 0);
    assert_true(k.complete);
    assert_false(k.broken);
    assert_int_equal(k.bytes, n);
}

static void text_is(const struct peek_text *t, const char *want)
{
    assert_int_equal(t->present, want != NULL);
    if (!want)
        return;
    assert_false(t->too_long);
    assert_int_equal(t->n, strlen(want));
    assert_memory_equal(t->bytes, want, t->n);
    assert_true(t->hash == hash_slice(slice_str(want), 0));
}

static void everything_is_found_at_every_cut(void **state)
{
    (void)state;
    static const char body[] =
        "{\"messages\":[{\"role\":\"system\",\"content\":\"be \\u00e9\"},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"12345\"},"
        "{\"image_url\":{\"url\":\"data:image/"
        "png;base64,AAAA\",\"detail\":\"low\"},\"type\":\"image_url\"},"
        "{\"type\":\"input_audio\",\"input_audio\":{\"data\":\"AAAA\",\"format\":\"wav\"}}]}],"
        "\"stream\": true, \"max_tokens\": 100, \"max_completion_tokens\":77, \"user\":\"u-1\","
        "\"temperature\":0.5,\"stop\":[\"x\",\"y\"],\"prompt_cache_key\":\"k\",\"previous_response_"
        "id\":\"resp_1\","
        "\"metadata\":{\"model\":\"no\",\"user\":\"no\",\"stream\":false},"
        "\"mod\\u0065l\":\"llama-\\u0033-8b\"}";
    size_t n = sizeof(body) - 1;

    for (size_t cut = 0; cut <= n; cut++) {
        feed(body, n, cut);
        text_is(&k.found.model, "llama-3-8b");
        text_is(&k.found.user, "u-1");
        text_is(&k.found.prompt_cache_key, "k");
        text_is(&k.found.previous_response_id, "resp_1");
        assert_true(k.found.stream);
        assert_true(k.found.has_stream);
        assert_int_equal(k.found.max_tokens, 77);
        assert_int_equal(k.found.prompt_bytes, 5 + 5);
        assert_int_equal(k.found.n_images, 1);
        assert_int_equal(k.found.n_audio, 1);
    }
}

static const struct {
    const char *body;
    uint64_t bytes;
    uint32_t images, audio;
} prompts[] = {
    {"{}", 0, 0, 0},
    {"{\"prompt\":\"\"}", 0, 0, 0},
    {"{\"prompt\":\"hello world, longer than the front\"}", 34, 0, 0},
    {"{\"prompt\":[\"ab\",\"cde\"]}", 5, 0, 0},
    {"{\"prompt\":[1,22,333]}", 12, 0, 0},
    {"{\"prompt\":[[1,2],[3]]}", 12, 0, 0},
    {"{\"prompt\":null}", 0, 0, 0},
    {"{\"input\":\"abc\"}", 3, 0, 0},
    {"{\"input\":[\"abc\",\"d\"]}", 4, 0, 0},
    {"{\"input\":[[15339,1917]]}", 8, 0, 0},
    {"{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"abc\"},"
     "{\"type\":\"input_image\",\"image_url\":\"data:image/png;base64,AAAA\"}]},"
     "{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"xy\"}]}",
     5, 1, 0},
    {"{\"input\":[\"data:image/png;base64,AAAA\",\"data:audio/wav;base64,AAAA\",\"data: is "
     "here\",\"data:image\"]}",
     23, 1, 1},
    {"{\"instructions\":\"abc\",\"system\":[{\"type\":\"text\",\"text\":\"de\"}]}", 5, 0, 0},
    {"{\"tools\":[{\"type\":\"function\",\"n\":1}]}", 14, 0, 0},
    {"{\"functions\":[{\"name\":\"f\",\"parameters\":{\"image_url\":{\"type\":\"string\"}}}],"
     "\"user\":\"x\"}",
     34, 0, 0},
    {"{\"messages\":[{\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\","
     "\"function\":"
     "{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}}]},{\"role\":\"tool\",\"content\":\"42\"}]}",
     9, 0, 0},
    {"{\"messages\":[{\"content\":[{\"image_url\":null,\"type\":\"text\",\"text\":\"a\"}]}]}", 1, 0,
     0},
    {"{\"messages\":[{\"content\":[{\"image_url\":{\"url\":\"u\",\"text\":\"no\"},\"text\":\"a\"},{"
     "\"text\":\"b\"}]}]}",
     2, 1, 0},
    {"{\"messages\":[{\"content\":\"abc\",\"images\":[\"AAAA\",\"BBBB\"]},{\"content\":\"d\"}]}", 4,
     2, 0},
    {"{\"messages\":[{\"content\":[{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"data\":"
     "\"AA\"}},"
     "{\"type\":\"text\",\"text\":\"xyz\"}]}]}",
     3, 1, 0},
    {"{\"messages\":[{\"content\":[{\"audio_url\":{\"url\":\"data:audio/wav;base64,AA\"}}]}]}", 0,
     0, 1},
    {"{\"messages\":[{\"content\":\"data:image/png;base64,AAAAAAAA\"}]}", 0, 1, 0},
    {"{\"messages\":[{\"role\":\"user\",\"name\":\"n\",\"content\":\"a\"}],\"messages\":[{"
     "\"content\":\"bc\"}]}",
     2, 0, 0},
    {"{\"messages\":[{\"content\":[{\"image_url\":\"x\"},{\"audio\":\"y\"}]}],\"messages\":[],"
     "\"prompt\":\"z\"}",
     1, 0, 0},
    {"{\"x\":{\"messages\":[{\"content\":\"abc\"}]},\"y\":[{\"text\":\"q\"}]}", 0, 0, 0},
};

static void prompt_text_is_counted_by_key_path(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(prompts); i++)
        for (size_t cut = 0; cut <= strlen(prompts[i].body); cut++) {
            feed(prompts[i].body, strlen(prompts[i].body), cut);
            if (k.found.prompt_bytes != prompts[i].bytes)
                print_error("%s: %u\n", prompts[i].body, (unsigned)k.found.prompt_bytes);
            assert_int_equal(k.found.prompt_bytes, prompts[i].bytes);
            assert_int_equal(k.found.n_images, prompts[i].images);
            assert_int_equal(k.found.n_audio, prompts[i].audio);
        }
}

static void of_a_repeated_key_the_last_counts(void **state)
{
    (void)state;
    static const char one[] =
        "{\"model\":\"a\",\"stream\":true,\"max_tokens\":5,\"user\":\"u\",\"model\":\"bc\","
        "\"stream\":false,\"max_tokens\":6,\"user\":null}";
    feed(one, sizeof(one) - 1, 0);
    text_is(&k.found.model, "bc");
    text_is(&k.found.user, NULL);
    assert_false(k.found.stream);
    assert_true(k.found.has_stream);
    assert_int_equal(k.found.max_tokens, 6);
    static const char two[] =
        "{\"model\":\"a\",\"model\":{\"model\":\"x\"},\"stream\":true,\"stream\":null}";
    feed(two, sizeof(two) - 1, 0);
    text_is(&k.found.model, NULL);
    assert_false(k.found.stream);
    assert_false(k.found.has_stream);
}

static void limits(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        uint64_t want;
    } rows[] = {
        {"{\"max_tokens\":5}", 5},
        {"{\"max_output_tokens\":7}", 7},
        {"{\"max_completion_tokens\":3,\"max_tokens\":5}", 3},
        {"{\"max_tokens\":5,\"max_completion_tokens\":3,\"max_output_tokens\":9}", 3},
        {"{\"max_tokens\":5,\"max_completion_tokens\":null}", 5},
        {"{\"max_tokens\":-1}", 0},
        {"{\"max_tokens\":0}", 0},
        {"{\"max_tokens\":1e3}", 1000},
        {"{\"max_tokens\":64.0}", 64},
        {"{\"max_tokens\":\"5\"}", 0},
        {"{\"max_tokens\":[5]}", 0},
        {"{\"max_tokens\":1e300}", 0},
        {"{\"x\":{\"max_tokens\":5}}", 0},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        feed(rows[i].body, strlen(rows[i].body), 0);
        assert_int_equal(k.found.max_tokens, rows[i].want);
    }
}

/* `n` times 'a' as the model. */
static size_t model_body(char *to, size_t n)
{
    memcpy(to, "{\"model\":\"", 10);
    memset(to + 10, 'a', n);
    memcpy(to + 10 + n, "\"}", 2);
    return n + 12;
}

static void long_names_are_marked_and_still_hashed(void **state)
{
    (void)state;
    static char body[2048];
    static char last[PEEK_TEXT_MAX + 1];

    memset(last, 'a', PEEK_TEXT_MAX);
    size_t n = model_body(body, PEEK_TEXT_MAX);
    feed(body, n, 100);
    text_is(&k.found.model, last);
    n = model_body(body, PEEK_TEXT_MAX + 1);
    feed(body, n, 0);
    assert_true(k.found.model.present);
    assert_true(k.found.model.too_long);
    struct features f = {.prompt_tokens = 0};
    peek_features(&k, &f);
    assert_null(f.model.p);
    n = model_body(body, 1000);
    feed(body, n, 0);
    uint64_t hash = k.found.model.hash;
    for (size_t cut = 1; cut < n; cut++) {
        feed(body, n, cut);
        assert_true(k.found.model.hash == hash);
    }
    body[500] = 'b';
    feed(body, n, 0);
    assert_true(k.found.model.hash != hash);
}

static void model_after_ten_megabytes(void **state)
{
    (void)state;
    static const char head[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"";
    static const char tail[] = "\"}],\"model\":\"last\"}";
    static char block[65536];
    unsigned blocks = 160;

    memset(block, 'x', sizeof(block));
    peek_init(&k);
    assert_int_equal(peek_feed(&k, head, sizeof(head) - 1), 0);
    for (unsigned i = 0; i < blocks; i++)
        assert_int_equal(peek_feed(&k, block, sizeof(block)), 0);
    assert_false(k.complete);
    assert_int_equal(k.found.prompt_bytes, blocks * sizeof(block));
    assert_int_equal(peek_feed(&k, tail, sizeof(tail) - 1), 0);
    assert_true(k.complete);
    text_is(&k.found.model, "last");
    assert_int_equal(k.found.prompt_bytes, 10485760);
}

static void what_was_found_before_the_body_broke_stays(void **state)
{
    (void)state;
    static const char *bad[] = {"{\"model\":\"m\",\"prompt\":\"ab\",x}",
                                "{\"model\":\"m\",\"prompt\":\"ab\"} {",
                                "{\"model\":\"m\",\"prompt\":\"ab\",\"y\":\"\x01\"}"};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        peek_init(&k);
        assert_int_equal(peek_feed(&k, bad[i], strlen(bad[i])), WEIR_E_PROTO);
        assert_true(k.broken);
        assert_non_null(k.scan.error);
        text_is(&k.found.model, "m");
        assert_int_equal(k.found.prompt_bytes, 2);
        assert_int_equal(peek_feed(&k, "{}", 2), WEIR_E_PROTO);
        assert_int_equal(peek_end(&k), WEIR_E_PROTO);
    }
    peek_init(&k);
    assert_int_equal(peek_feed(&k, "{\"model\":\"m\"", 12), 0);
    assert_int_equal(peek_end(&k), WEIR_E_PROTO);
    assert_true(k.broken);
    assert_false(k.complete);
    peek_init(&k);
    char deep[300];
    memset(deep, '[', sizeof(deep));
    assert_int_equal(peek_feed(&k, deep, sizeof(deep)), WEIR_E_PROTO);
}

static void bodies_without_an_object_find_nothing(void **state)
{
    (void)state;
    static const char *odd[] = {
        "[]", "\"model\"", "5", "null", "[{\"model\":\"x\",\"prompt\":\"y\"}]", "[[\"prompt\"]]"};

    for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
        feed(odd[i], strlen(odd[i]), 0);
        text_is(&k.found.model, NULL);
        assert_int_equal(k.found.prompt_bytes, 0);
    }
}

static void deep_content_keeps_its_place(void **state)
{
    (void)state;
    char body[8192] = "{\"messages\":";

    /* 120 objects inside each other, each with a text before and after the next one. */
    for (int i = 0; i < 120; i++)
        strcat(body, "[{\"text\":\"a\",\"content\":");
    strcat(body, "\"bc\"");
    for (int i = 0; i < 120; i++)
        strcat(body, ",\"text\":\"d\"}]");
    strcat(body, "}");
    feed(body, strlen(body), 1000);
    assert_int_equal(k.found.prompt_bytes, 120 + 2 + 120);
}

static void features_take_what_was_found(void **state)
{
    (void)state;
    static const char body[] =
        "{\"model\":\"m\",\"stream\":true,\"max_tokens\":9,\"prompt\":\"abcde\","
        "\"messages\":[{\"content\":[{\"image_url\":\"x\"},{\"audio\":\"y\"}]}]}";
    struct features f = {.prompt_tokens = 0};

    feed(body, sizeof(body) - 1, 0);
    peek_features(&k, &f);
    assert_true(slice_eq(f.model, SLICE("m")));
    assert_true(f.stream);
    assert_true(f.prompt_complete);
    assert_int_equal(f.prompt_bytes, 5);
    assert_int_equal(f.prompt_tokens, 2);
    assert_int_equal(f.output_tokens, 9);
    assert_int_equal(f.n_images, 1);
    assert_int_equal(f.n_audio, 1);
    assert_int_equal(f.body_bytes, sizeof(body) - 1);
    f = (struct features){.model = SLICE("header"), .body_bytes = 7};
    peek_features(&k, &f);
    assert_true(slice_eq(f.model, SLICE("header")));
    assert_int_equal(f.body_bytes, 7);
}

static void paths_tell_the_task(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        uint32_t task;
    } rows[] = {
        {"/v1/chat/completions", TASK_CHAT},
        {"/v1/chat/completions?api-version=1", TASK_CHAT},
        {"/openai/v1/chat/completions/", TASK_CHAT},
        {"/v1/responses", TASK_CHAT},
        {"/v1/messages", TASK_CHAT},
        {"/v1/completions", TASK_COMPLETION},
        {"/v1/embeddings", TASK_EMBEDDING},
        {"/v1/rerank", TASK_RERANK},
        {"/v2/rerank", TASK_RERANK},
        {"/rerank", TASK_RERANK},
        {"/v1/audio/transcriptions", TASK_AUDIO},
        {"/v1/audio/translations", TASK_AUDIO},
        {"/v1/audio/speech", TASK_AUDIO},
        {"/v1/images/generations", TASK_IMAGE},
        {"/v1/images/edits", TASK_IMAGE},
        {"/v1/images/variations", TASK_IMAGE},
        {"/v1/models", 0},
        {"/v1/responses/resp_1", 0},
        {"/completions", 0},
        {"/x?/v1/completions", 0},
        {"/", 0},
        {"", 0},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_int_equal(peek_task(slice_str(rows[i].path)), rows[i].task);
}

static void a_batch_counts_its_prompts_at_every_cut(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        uint32_t n;
    } cases[] = {
        {"{\"prompt\":\"one\"}", 0},
        {"{\"prompt\":[\"one\",\"two\",\"three\"]}", 3},
        {"{\"prompt\":[1,2,3]}", 0},
        {"{\"prompt\":[[1,2],[3]]}", 2},
        {"{\"input\":[\"a\",\"b\"],\"user\":\"u\",\"stop\":[\"x\",\"y\"]}", 2},
        {"{\"input\":[{\"role\":\"user\",\"content\":[\"a\",\"b\"]}]}", 0},
        {"{\"messages\":[{\"content\":\"a\"}]}", 0},
        {"{\"prompt\":[\"a\",\"b\"],\"prompt\":[\"c\"]}", 1},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (size_t cut = 0; cut <= strlen(cases[i].body); cut++) {
            feed(cases[i].body, strlen(cases[i].body), cut);
            assert_int_equal(k.found.n_prompts, cases[i].n);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_counts_its_prompts_at_every_cut),
        cmocka_unit_test(everything_is_found_at_every_cut),
        cmocka_unit_test(prompt_text_is_counted_by_key_path),
        cmocka_unit_test(of_a_repeated_key_the_last_counts),
        cmocka_unit_test(limits),
        cmocka_unit_test(long_names_are_marked_and_still_hashed),
        cmocka_unit_test(model_after_ten_megabytes),
        cmocka_unit_test(what_was_found_before_the_body_broke_stays),
        cmocka_unit_test(bodies_without_an_object_find_nothing),
        cmocka_unit_test(deep_content_keeps_its_place),
        cmocka_unit_test(features_take_what_was_found),
        cmocka_unit_test(paths_tell_the_task),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
