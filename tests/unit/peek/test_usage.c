/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <string.h>

#include "base/bug.h"
#include "peek/usage.h"

enum { ALL = USAGE_PROMPT | USAGE_COMPLETION | USAGE_CACHED };

static const struct {
    const char *text;
    unsigned known;
    uint64_t prompt, completion, cached;
} rows[] = {
    {"{\"id\":\"x\",\"choices\":[{\"message\":{\"content\":\"the "
     "\\\"usage\\\":{\\\"prompt_tokens\\\":9}\"}}],"
     "\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":5,\"total_tokens\":15,"
     "\"prompt_tokens_details\":{\"cached_tokens\":3,\"audio_tokens\":1},"
     "\"completion_tokens_details\":{\"cached_tokens\":99,\"prompt_tokens\":99}}}",
     ALL, 10, 5, 3},
    {"{\"usage\" : \n {\"prompt_tokens_details\":null,\"prompt_tokens\":7 , \"total_tokens\":7}}",
     USAGE_PROMPT, 7, 0, 0},
    {"data: {\"choices\":[{\"delta\":{\"content\":\"usage\"}}],\"usage\":null}\n\n"
     "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":34}}\n\n"
     "data: [DONE]\n\n",
     USAGE_PROMPT | USAGE_COMPLETION, 12, 34, 0},
    {"event: response.completed\r\ndata: "
     "{\"response\":{\"usage\":{\"input_tokens\":1,\"input_tokens_details\":"
     "{\"cached_tokens\":1},\"output_tokens\":2}}}\r\n\r\n",
     ALL, 1, 2, 1},
    {"data: {\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n"
     "data: {\"usage\":{\"output_tokens\":15}}\n\n",
     USAGE_PROMPT | USAGE_COMPLETION, 25, 15, 0},
    {"{\"usage\":{}}", 0, 0, 0, 0},
    {"{\"usage\":[{\"prompt_tokens\":1}]}", 0, 0, 0, 0},
    {"[\"usage\",{\"prompt_tokens\":1}]", 0, 0, 0, 0},
    {"{\"usage\":{\"prompt_tokens\":1", 0, 0, 0, 0},
    {"{\"usage\":{\"prompt_tokens\":1,]}", 0, 0, 0, 0},
    {"{\"usage\":{\"prompt_tokens\":\"1\",\"completion_tokens\":-1,\"x\":{\"prompt_tokens\":5}}}",
     0, 0, 0, 0},
    {"{\"usage\":{\"a_key_that_is_longer_than_any_prompt_tokens\":4}}", 0, 0, 0, 0},
    {"{\"usages\":{\"prompt_tokens\":1},\"\"usage\":{\"prompt_tokens\":2}}", USAGE_PROMPT, 2, 0, 0},
    {"{\"usage\":{\"usage\":{\"prompt_tokens\":1},\"prompt_tokens\":2}}", USAGE_PROMPT, 2, 0, 0},
    {"gggg\"usag\"\"usage\"\"usage\":\"\"usage\":{\"prompt_tokens\":2}ggg", USAGE_PROMPT, 2, 0, 0},
    {"{\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":4294967296}}",
     USAGE_PROMPT | USAGE_COMPLETION, 0, UINT64_C(4294967296), 0},
    {"{\"usage\":{\"prompt_tokens\":4294967297,\"completion_tokens\":18446744073709551616}}", 0, 0,
     0, 0},
    {"", 0, 0, 0, 0},
};

static void check(const struct peek_usage *u, size_t i)
{
    assert_int_equal(u->usage.known, rows[i].known);
    assert_int_equal(u->usage.prompt_tokens, rows[i].prompt);
    assert_int_equal(u->usage.completion_tokens, rows[i].completion);
    assert_int_equal(u->usage.cached_tokens, rows[i].cached);
}

static void usage_is_read_at_every_cut(void **state)
{
    (void)state;
    struct peek_usage u;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        size_t n = strlen(rows[i].text);
        for (size_t cut = 0; cut <= n; cut++) {
            peek_usage_init(&u);
            peek_usage_feed(&u, rows[i].text, cut);
            peek_usage_feed(&u, rows[i].text + cut, n - cut);
            check(&u, i);
        }
        peek_usage_init(&u);
        for (size_t at = 0; at < n; at++)
            peek_usage_feed(&u, rows[i].text + at, 1);
        check(&u, i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(usage_is_read_at_every_cut)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
