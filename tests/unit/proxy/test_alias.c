/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include "proxy/exchange.h"

static void expect_json(const char *body, const char *value)
{
    size_t from = 0;
    size_t to = 0;
    bool found = alias_find_json(slice_str(body), &from, &to);

    assert_int_equal(found, value != NULL);
    if (!value)
        return;
    assert_int_equal(to - from, strlen(value));
    assert_memory_equal(body + from, value, to - from);
}

static void test_json(void **state)
{
    (void)state;
    expect_json("{\"model\":\"a\"}", "\"a\"");
    expect_json(" { \"x\" : [ {\"model\":\"no\"} ] , \"model\" \n:\t\"a\\u0062\" }",
                "\"a\\u0062\"");
    expect_json("{\"mod\\u0065l\":\"a\"}", "\"a\"");
    expect_json("{\"models\":\"a\",\"mode\":\"b\",\"MODEL\":\"c\"}", NULL);
    expect_json("{\"x\":\"\\\"model\\\":\\\"no\\\"\"}", NULL);
    expect_json("{\"model\":\"\"}", "\"\"");
    /* Of two, the last counts, as for whoever parses it. */
    expect_json("{\"model\":\"a\",\"model\":\"bb\"}", "\"bb\"");
    expect_json("{\"model\":\"a\",\"model\":null}", NULL);
    expect_json("{\"model\":1}", NULL);
    expect_json("{\"model\":{\"model\":\"x\"}}", NULL);
    expect_json("[{\"model\":\"a\"}]", NULL);
    expect_json("{\"model\":\"a", NULL);
    expect_json("{\"model\"", NULL);
    expect_json("", NULL);
    /* What follows need not be here, or be JSON. */
    expect_json("{\"model\":\"a\",\"messages\":[{\"ro", "\"a\"");
}

/* Wherever a block of the scan ends, the place is the same. */
static void test_every_alignment(void **state)
{
    static const char tail[] = "\",\"model\" : \"gpt-4o-mini\",\"z\":1}";
    static char body[9000];

    (void)state;
    for (size_t pad = 4030; pad < 4110; pad++) {
        size_t n = 0;
        memcpy(body, "{\"p\":\"", 6);
        n = 6;
        memset(body + n, 'x', pad);
        n += pad;
        memcpy(body + n, tail, sizeof(tail) - 1);
        size_t from;
        size_t to;
        assert_true(alias_find_json(slice_of(body, n + sizeof(tail) - 1), &from, &to));
        assert_int_equal(from, n + 12);
        assert_int_equal(to - from, 13);
    }
}

static void expect_form(const char *body, const char *value)
{
    size_t from = 0;
    size_t to = 0;
    bool found = alias_find_form(slice_str(body), SLICE("\r\n--b"), &from, &to);

    assert_int_equal(found, value != NULL);
    if (!value)
        return;
    assert_int_equal(to - from, strlen(value));
    assert_memory_equal(body + from, value, to - from);
}

static void test_form(void **state)
{
    (void)state;
    expect_form("--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm1\r\n--b--\r\n",
                "m1");
    expect_form("--b\r\nContent-Disposition: form-data; name=model\r\nX: y\r\n\r\nm1\r\n--b\r\n",
                "m1");
    expect_form("--b\r\nContent-Disposition: form-data; name=\"file\"; "
                "filename=\"model\"\r\n\r\nno\r\n--b\r\n"
                "Content-Disposition: form-data; name=\"model\"\r\n\r\n\r\n--b--",
                "");
    expect_form("pre\r\n--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b--",
                "m");
    expect_form("--b\r\nContent-Disposition: form-data; filename=\"name=model\"\r\n\r\nno\r\n--b--",
                NULL);
    expect_form("--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm", NULL);
    expect_form("--b\r\nContent-Disposition: form-data; name=\"model\"", NULL);
    /* a file is no field, whatever its name; the last of two fields counts; other lines of a head say nothing */
    expect_form(
        "--b\r\nContent-Disposition: form-data; name=\"model\"; filename=\"x\"\r\n\r\nno\r\n"
        "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nyes\r\n"
        "--b\r\nContent-Disposition: form-data; name=\"model\"; filename=x\r\n\r\nno\r\n--b--",
        "yes");
    expect_form("--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm1\r\n"
                "--b\r\nContent-Disposition: form-data; name=model\r\n\r\nm22\r\n--b--",
                "m22");
    expect_form("--b\r\nContent-Disposition: form-data; name=\"x\"\r\nX-Y: a; "
                "name=\"model\"\r\n\r\nno\r\n--b--",
                NULL);
    expect_form("", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_every_alignment),
        cmocka_unit_test(test_form),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
