/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <stdlib.h>

#include "proxy/exchange.h"

static struct slice write_one(struct buf *out, const struct error_answer *e)
{
    buf_init(out, loop_mem(), 65536);
    error_write(out, e);
    assert_int_equal(out->err, 0);
    return buf_slice(out);
}

static void test_one_answer_byte_by_byte(void **state)
{
    struct buf out;
    struct error_answer e = {.code = REJECT_MODEL_NOT_FOUND,
                             .param = "model",
                             .detail = SLICE("a\"b\n"),
                             .request_id = SLICE("r1")};
    static const char want[] =
        "HTTP/1.1 404 Not Found\r\n"
        "Content-Type: application/json\r\n"
        "X-Request-Id: r1\r\n"
        "Content-Length:  130\r\n\r\n"
        "{\"error\":{\"message\":\"the model does not exist: `a\\\"b\\n`\","
        "\"type\":\"invalid_request_error\",\"code\":\"model_not_found\",\"param\":\"model\"}}";

    (void)state;
    struct slice got = write_one(&out, &e);
    assert_memory_equal(got.p, want, MIN(got.n, sizeof(want) - 1));
    assert_int_equal(got.n, sizeof(want) - 1);
    assert_int_equal(strlen(strstr(want, "{\"error")), 130);
    buf_fini(&out);
}

/* Every code has words, a status, the right length, and Retry-After exactly with 429 and 503. */
static void test_all_codes(void **state)
{
    (void)state;
    for (int code = REJECT_NONE + 1; code < REJECT_COUNT; code++) {
        struct buf out;
        struct error_answer e = {.code = (enum rejection)code, .close = true};
        struct slice got = write_one(&out, &e);
        assert_int_equal(buf_put_char(&out, '\0'), 0);
        got = buf_slice(&out);
        const char *body = strstr(got.p, "\r\n\r\n");
        assert_non_null(body);
        unsigned status = error_status(e.code);
        bool retry = strstr(got.p, "Retry-After: 1\r\n") != NULL;
        assert_int_equal(retry, status == 429 || status == 503);
        assert_non_null(strstr(got.p, "Connection: close\r\n"));
        assert_null(strstr(got.p, "\"message\":\"\""));
        assert_non_null(strstr(got.p, error_code(e.code)));
        const char *length = strstr(got.p, "Content-Length: ");
        assert_non_null(length);
        assert_int_equal(strtoul(length + 16, NULL, 10), strlen(body + 4));
        buf_fini(&out);
    }
}

static void test_head_only_and_long_detail(void **state)
{
    static char longest[100000];
    struct buf out;
    struct error_answer e = {
        .code = REJECT_MODEL_NOT_FOUND, .detail = {longest, sizeof(longest)}, .head_only = true};

    (void)state;
    for (size_t i = 0; i < sizeof(longest); i++)
        longest[i] = '\x01'; /* six bytes each once escaped */
    struct slice got = write_one(&out, &e);
    assert_memory_equal(got.p + got.n - 4, "\r\n\r\n", 4);
    assert_true(got.n < 256);
    buf_fini(&out);
}

static void test_outcomes(void **state)
{
    (void)state;
    assert_int_equal(error_outcome(REJECT_MODEL_NOT_FOUND), OUTCOME_CLIENT_ERROR);
    assert_int_equal(error_outcome(REJECT_QUEUE_FULL), OUTCOME_REJECTED);
    assert_int_equal(error_outcome(REJECT_NO_ENDPOINT), OUTCOME_REJECTED);
    assert_int_equal(error_outcome(REJECT_UPSTREAM_FAILED), OUTCOME_UPSTREAM_ERROR);
    assert_int_equal(error_outcome(REJECT_QUEUE_TIMEOUT), OUTCOME_TIMEOUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_answer_byte_by_byte),
        cmocka_unit_test(test_all_codes),
        cmocka_unit_test(test_head_only_and_long_detail),
        cmocka_unit_test(test_outcomes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
