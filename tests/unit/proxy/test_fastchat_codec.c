/* SPDX-License-Identifier: Apache-2.0 */
/* FastChat's words: prompts by style, what is refused, what answers become, and every failed allocation. */
#include "ct.h"

#include <stdio.h>

#include "base/bug.h"
#include "heap_mem.h"
#include "proxy/fastchat_codec.h"

static const char template[] =
    "{\"name\":\"%s\",\"system_template\":\"<{system_message}>\",\"system_message\":\"%s\","
    "\"roles\":[\"U\",\"A\"],\"messages\":[],\"offset\":0,\"sep_style\":%d,\"sep\":\"|\","
    "\"sep2\":\"#\",\"stop_str\":\"###\",\"stop_token_ids\":[1,2]%s}";

static const char request[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},"
                              "{\"role\":\"assistant\",\"content\":\"a\"},"
                              "{\"role\":\"user\",\"content\":\" r \"}]}";

struct work {
    struct test_heap heap;
    struct mem mem;
    struct arena a;
    struct fastchat_request r;
    struct fastchat_fault why;
    struct buf prompt, images, out;
};

static void begin(struct work *w)
{
    *w = (struct work){0};
    w->mem = test_heap_mem(&w->heap);
    arena_init(&w->a, &w->mem, 1 << 20);
    buf_init(&w->prompt, &w->mem, 1 << 20);
    buf_init(&w->images, &w->mem, 1 << 20);
    buf_init(&w->out, &w->mem, 1 << 20);
}

static void end(struct work *w)
{
    arena_fini(&w->a);
    buf_fini(&w->prompt);
    buf_fini(&w->images);
    buf_fini(&w->out);
    assert_int_equal(w->heap.live, 0);
}

static void expect(struct buf *b, const char *text)
{
    struct slice s = buf_slice(b);

    assert_true(slice_eq(s, slice_str(text)));
}

/* Texts made by FastChat 0.2.36's Conversation.get_prompt(), and by the development branch's for the last two. */
static void prompts_by_style(void **state)
{
    (void)state;
    static const struct {
        int style;
        const char *name, *system, *more, *prompt;
    } cases[] = {
        {1, "x", "S", "", "<S>|U: q|A: a|U:  r |A:"},
        {2, "x", "S", "", "<S>|U: q|A: a#U:  r |A:"},
        {3, "x", "S", "", "<S>|U: q|A: a|U:  r |A: "},
        {4, "x", "S", "", "<S>Uq|Aa|U r |A"},
        {5, "x", "S", "", "<S>Uq|Aa#U r |A"},
        {6, "x", "S", "", "<S>|U\nq|A\na|U\n r |A\n"},
        {7, "x", "S", "", "<S>q A a#U  r |A"},
        {7, "x", "", "", "[INST] q A a#U  r |A"},
        {8, "x", "S", "", "<S>|[Round 0]|U：q|A：a|[Round 1]|U： r |A："},
        {8, "chatglm2", "S", "", "<S>|[Round 1]|U：q|A：a|[Round 2]|U： r |A："},
        {9, "x", "S", "", "<S>|\nU\nq|\nA\na|\nU\n r |\nA\n"},
        {10, "x", "S", "", "<S><s>U:q|\nA:a#\n<s>U: r |\nA:"},
        {11, "x", "S", "", "<S>U:\nq|A:\na#\n\nU:\n r |A:\n"},
        {12, "x", "S", "", "<S>U: q\n\nA: a\n\nU:  r \n\nA:"},
        {13, "x", "S", "", "<S>U: <s>q</s>A: <s>a</s>U: <s> r </s>A: <s>"},
        {14, "x", "S", "", "<S>|U:\nq|A:\na|U:\n r |A:\n"},
        {15, "x", "S", "", "<S>|U: q|A: a|U:  r |A:"},
        {15, "x", "", "", "U: q|A: a|U:  r |A:"},
        {16, "x", "S", "", "<S>U\nqA\naU\n r A"},
        {17, "x", "S", "", "<S>U: q|A: a#U:  r |A:"},
        {18, "x", "S", "", "<S>|U:\nq|A: #aU:\n r |A: #"},
        {19, "x", "S", "", "<S>#q<n>a<n> r |"},
        {8, "x", "S", ",\"system_message_vision\":\"\"",
         "<|begin_of_text|><S><|start_header_id|>U<|end_header_id|>\n\nq<|eot_id|>"
         "<|start_header_id|>A<|end_header_id|>\n\na<|eot_id|>"
         "<|start_header_id|>U<|end_header_id|>\n\nr<|eot_id|>"
         "<|start_header_id|>A<|end_header_id|>\n\n"},
        {21, "x", "S", ",\"system_message_vision\":\"\"",
         "<bos><start_of_turn>U\nq|<start_of_turn>A\na|<start_of_turn>U\n r |<start_of_turn>A\n"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct json_node *conv;
        struct work w;
        char text[1024];
        (void)snprintf(text, sizeof(text), template, cases[i].name, cases[i].system, cases[i].style,
                       cases[i].more);
        begin(&w);
        assert_int_equal(fastchat_read(&w.a, slice_str(request), true, &w.r, &w.why), 0);
        assert_int_equal(wire_json_tree(&w.a, slice_str(text), &conv), 0);
        assert_int_equal(fastchat_prompt(conv, &w.r, &w.prompt, &w.images, &w.why), 0);
        expect(&w.prompt, cases[i].prompt);
        end(&w);
    }
}

static void an_unknown_style_is_the_worker_s_fault(void **state)
{
    (void)state;
    static const int styles[] = {0, 20, 41, -1};

    for (size_t i = 0; i < ARRAY_LEN(styles); i++) {
        const struct json_node *conv;
        struct work w;
        char text[1024];
        (void)snprintf(text, sizeof(text), template, "x", "S", styles[i], "");
        begin(&w);
        assert_int_equal(fastchat_read(&w.a, slice_str(request), true, &w.r, &w.why), 0);
        assert_int_equal(wire_json_tree(&w.a, slice_str(text), &conv), 0);
        assert_int_equal(fastchat_prompt(conv, &w.r, &w.prompt, &w.images, &w.why), WEIR_E_INVALID);
        assert_int_equal(w.why.status, 502);
        end(&w);
    }
}

static void what_error_codes_mean(void **state)
{
    (void)state;
    static const struct {
        uint64_t number;
        unsigned status;
        const char *code;
    } cases[] = {
        {40001, 400, "invalid_request"},
        {40101, 401, "invalid_api_key"},
        {40102, 401, "invalid_api_key"},
        {40103, 403, "forbidden"},
        {40301, 404, "model_not_found"},
        {40302, 400, "invalid_request"},
        {40303, 400, "context_length_exceeded"},
        {42901, 429, "rate_limit_exceeded"},
        {42902, 429, "insufficient_quota"},
        {42903, 429, "rate_limit_exceeded"},
        {50001, 500, "upstream_failed"},
        {50002, 503, "cuda_out_of_memory"},
        {50005, 503, "no_healthy_upstream"},
        {50006, 504, "upstream_timeout"},
        {1, 500, "upstream_failed"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct fastchat_fault f;
        fastchat_fault_of(cases[i].number, SLICE("w"), &f);
        assert_int_equal(f.status, cases[i].status);
        assert_string_equal(f.code, cases[i].code);
        assert_string_equal(f.message, "w");
    }
}

/* A whole answer whose second piece says that it failed is an error, and nothing of the first is told. */
static void a_failure_after_the_first_piece(void **state)
{
    (void)state;
    static const char said[] = "{\"text\":\"a\",\"error_code\":0}\0"
                               "{\"text\":\"oom\",\"error_code\":50002}";
    struct fastchat_answer f;
    struct work w;

    begin(&w);
    fastchat_answer_init(&f, &w.mem, &w.r, SLICE("m"), 1, 2);
    assert_int_equal(fastchat_answer_feed(&f, slice_of(said, sizeof(said)), &w.out), 0);
    assert_int_equal(fastchat_answer_end(&f, &w.out), 0);
    assert_true(slice_starts(buf_slice(&w.out), SLICE("HTTP/1.1 503 ")));
    fastchat_answer_fini(&f);
    end(&w);
}

/* All of one request and its answer. @return 0 when all of it worked. */
static int everything(struct work *w)
{
    static const char said[] =
        "{\"text\":\"He\",\"error_code\":0}\0"
        "{\"text\":\"Hello\",\"error_code\":0,\"finish_reason\":\"stop\",\"usage\":"
        "{\"prompt_tokens\":3,\"completion_tokens\":2}}";
    const struct json_node *conv;
    struct fastchat_answer f;
    char text[1024];

    (void)snprintf(text, sizeof(text), template, "x", "S", 7, "");
    int rc = fastchat_read(&w->a, slice_str(request), true, &w->r, &w->why);
    if (rc == 0)
        rc = wire_json_tree(&w->a, slice_str(text), &conv);
    if (rc == 0)
        rc = fastchat_prompt(conv, &w->r, &w->prompt, &w->images, &w->why);
    if (rc)
        return rc;
    fastchat_write_request(&w->out, &w->r, conv, SLICE("m"), buf_slice(&w->prompt),
                           buf_slice(&w->images), 5);
    if (w->out.err)
        return w->out.err;
    expect(&w->out, "{\"model\":\"m\",\"prompt\":\"<S>q A a#U  r |A\",\"temperature\":0.7,"
                    "\"top_p\":1.0,\"top_k\":-1,\"presence_penalty\":0.0,\"frequency_penalty\":0.0,"
                    "\"max_new_tokens\":5,\"logprobs\":null,\"echo\":false,"
                    "\"stop_token_ids\":[1,2],\"stop\":[\"###\"]}");
    buf_clear(&w->out);
    w->r.stream = w->r.usage_asked = true;
    fastchat_answer_init(&f, &w->mem, &w->r, SLICE("m"), 1, 2);
    rc = fastchat_answer_feed(&f, slice_of(said, sizeof(said)), &w->out);
    if (rc == 0)
        rc = fastchat_answer_end(&f, &w->out);
    fastchat_answer_fini(&f);
    return rc;
}

static void every_failed_allocation_is_survived(void **state)
{
    (void)state;
    struct work w;
    int rc = WEIR_E_NOMEM;

    for (long n = 1; rc; n++) {
        begin(&w);
        w.heap.fail_at = n;
        rc = everything(&w);
        assert_true(rc == 0 || rc == WEIR_E_NOMEM);
        end(&w);
        assert_true(n < 1000);
    }
}

static void a_whole_answer(void **state)
{
    (void)state;
    static const char said[] = "{\"text\":\"a\\ufffdb\",\"error_code\":0}";
    struct fastchat_answer f;
    struct work w;

    begin(&w);
    w.r = (struct fastchat_request){.chat = false};
    fastchat_answer_init(&f, &w.mem, &w.r, SLICE("m"), 255, 2);
    assert_int_equal(fastchat_answer_end(&f, &w.out), WEIR_E_PROTO); /* nothing came */
    assert_int_equal(fastchat_answer_feed(&f, slice_of(said, sizeof(said)), &w.out), 0);
    assert_int_equal(fastchat_answer_end(&f, &w.out), 0);
    expect(&w.out, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
                   "Content-Length: 156\r\n\r\n"
                   "{\"id\":\"cmpl-00000000000000ff\",\"object\":\"text_completion\",\"created\":2,"
                   "\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\"ab\",\"logprobs\":null,"
                   "\"finish_reason\":\"stop\"}]}");
    fastchat_answer_fini(&f);
    end(&w);
}

/* One request for vectors; the worker says the same to each batch. @return of the first call that fails. */
static int embed(
    struct work *w, const char *body, const char *const *told, unsigned *batches, const char *asked)
{
    struct fastchat_embedding e;

    int rc = fastchat_embed_read(&w->a, slice_str(body), &e, &w->why);
    for (*batches = 0; rc == 0 && e.left; (*batches)++) {
        buf_clear(&w->prompt);
        fastchat_embed_ask(&w->prompt, &e, SLICE("m"));
        rc = w->prompt.err;
        if (rc == 0)
            rc = fastchat_embed_hear(&e, slice_str(told[*batches]), &w->why);
    }
    if (rc == 0 && asked)
        expect(&w->prompt, asked);
    if (rc == 0)
        rc = fastchat_embed_write(&w->out, &e, SLICE("m"));
    fastchat_embedding_fini(&e);
    return rc;
}

static void expect_body(struct work *w, const char *text)
{
    struct slice s = buf_slice(&w->out);

    assert_true(slice_starts(s, SLICE("HTTP/1.1 200 OK\r\n")));
    assert_true(slice_ends(s, slice_str(text)));
}

static void vectors(void **state)
{
    (void)state;
    static const char *const five[] = {"{\"embedding\":[[1.5,-2e-3],[1],[2],[3]],\"token_num\":7}",
                                       "{\"embedding\":[[]],\"token_num\":1}"};
    static const char *const numbers[] = {"{\"embedding\":[[1.5,-2]],\"error_code\":0}"};
    static const char *const text[] = {"{\"embedding\":[\"AADAPwAAAMA=\"],\"token_num\":2}"};
    struct work w;
    unsigned n;

    begin(&w);
    assert_int_equal(embed(&w, "{\"input\":[\"a\",\"b\",\"c\",\"d\",\"\\\"e\"]}", five, &n,
                           "{\"model\":\"m\",\"input\":[\"\\\"e\"]}"),
                     0);
    assert_int_equal(n, 2);
    expect_body(&w, "\r\n\r\n{\"object\":\"list\",\"data\":["
                    "{\"object\":\"embedding\",\"index\":0,\"embedding\":[1.5,-2e-3]},"
                    "{\"object\":\"embedding\",\"index\":1,\"embedding\":[1]},"
                    "{\"object\":\"embedding\",\"index\":2,\"embedding\":[2]},"
                    "{\"object\":\"embedding\",\"index\":3,\"embedding\":[3]},"
                    "{\"object\":\"embedding\",\"index\":4,\"embedding\":[]}],\"model\":\"m\","
                    "\"usage\":{\"prompt_tokens\":8,\"total_tokens\":8}}");
    end(&w);
    for (int i = 0; i < 2;
         i++) { /* told so by the worker, or made of its numbers; tokens not told */
        begin(&w);
        assert_int_equal(
            embed(&w, "{\"input\":\"a\",\"encoding_format\":\"base64\"}", i ? numbers : text, &n,
                  "{\"model\":\"m\",\"input\":[\"a\"],\"encoding_format\":\"base64\"}"),
            0);
        expect_body(&w, i ? ",\"embedding\":\"AADAPwAAAMA=\"}],\"model\":\"m\"}"
                          : ",\"embedding\":\"AADAPwAAAMA=\"}],\"model\":\"m\","
                            "\"usage\":{\"prompt_tokens\":2,\"total_tokens\":2}}");
        end(&w);
    }
}

static void vectors_that_are_none(void **state)
{
    (void)state;
    static const struct {
        const char *body, *told;
        int rc;
        unsigned status;
    } cases[] = {
        {"{\"input\":[1,2]}", "", WEIR_E_INVALID, 400},
        {"{\"input\":[[1],[2]]}", "", WEIR_E_INVALID, 400},
        {"{\"input\":[\"a\",null]}", "", WEIR_E_INVALID, 400},
        {"{\"input\":[]}", "", WEIR_E_INVALID, 400},
        {"{}", "", WEIR_E_INVALID, 400},
        {"[\"a\"]", "", WEIR_E_INVALID, 400},
        {"{\"input\":\"a\",\"encoding_format\":\"int8\"}", "", WEIR_E_INVALID, 400},
        {"{\"input\":\"a\",\"dimensions\":8}", "", WEIR_E_INVALID, 400},
        {"{\"input\":\"a\"}", "{\"text\":\"no\",\"error_code\":50002}", WEIR_E_INVALID, 503},
        {"{\"input\":\"a\"}", "{\"error_code\":-1}", WEIR_E_INVALID, 500},
        {"{\"input\":\"a\"}", "[", WEIR_E_PROTO, 0},
        {"{\"input\":\"a\"}", "{\"embedding\":[1,2]}", WEIR_E_PROTO, 0},
        {"{\"input\":\"a\"}", "{\"embedding\":[[1],[2]]}", WEIR_E_PROTO, 0},
        {"{\"input\":\"a\"}", "{\"embedding\":[\"AADAPw==\"]}", WEIR_E_PROTO, 0},
        {"{\"input\":\"a\"}", "{\"embedding\":[[\"1\"]]}", WEIR_E_PROTO, 0},
        {"{\"input\":\"a\",\"encoding_format\":\"base64\"}", "{\"embedding\":[[1e39]]}",
         WEIR_E_PROTO, 0},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct work w;
        unsigned n;
        begin(&w);
        assert_int_equal(embed(&w, cases[i].body, &cases[i].told, &n, NULL), cases[i].rc);
        if (cases[i].rc == WEIR_E_INVALID)
            assert_int_equal(w.why.status, cases[i].status);
        end(&w);
    }
}

static void vectors_survive_every_failed_allocation(void **state)
{
    (void)state;
    static const char *const told[] = {"{\"embedding\":[[1,2],\"AADAPw==\"],\"token_num\":7}"};
    static const char body[] = "{\"input\":[\"a\",\"b\"],\"encoding_format\":\"base64\"}";
    struct work w;
    unsigned n;
    int rc = WEIR_E_NOMEM;

    for (long at = 1; rc; at++) {
        begin(&w);
        w.heap.fail_at = at;
        rc = embed(&w, body, told, &n, NULL);
        assert_true(rc == 0 || rc == WEIR_E_NOMEM);
        end(&w);
        assert_true(at < 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_by_style),
        cmocka_unit_test(an_unknown_style_is_the_worker_s_fault),
        cmocka_unit_test(what_error_codes_mean),
        cmocka_unit_test(a_whole_answer),
        cmocka_unit_test(a_failure_after_the_first_piece),
        cmocka_unit_test(every_failed_allocation_is_survived),
        cmocka_unit_test(vectors),
        cmocka_unit_test(vectors_that_are_none),
        cmocka_unit_test(vectors_survive_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
