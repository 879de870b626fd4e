/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <string.h>

#include "base/bug.h"
#include "heap_mem.h"
#include "wire/url.h"

static void same(struct slice got, const char *want)
{
    if (!want) {
        assert_null(got.p);
        return;
    }
    assert_non_null(got.p);
    assert_int_equal(got.n, strlen(want));
    assert_memory_equal(got.p, want, got.n);
}

static void urls_are_split(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool tls;
        const char *host;
        unsigned port;
        const char *authority, *path, *query;
    } rows[] = {
        {"http://gpu1:8000", false, "gpu1", 8000, "gpu1:8000", "/", NULL},
        {"HTTPS://Gpu1/a/b?c=d?e", true, "Gpu1", 443, "Gpu1", "/a/b", "c=d?e"},
        {"http://10.0.0.1/", false, "10.0.0.1", 80, "10.0.0.1", "/", NULL},
        {"http://[fe80::1]:65535/x?", false, "fe80::1", 65535, "[fe80::1]:65535", "/x", ""},
        {"http://a?q", false, "a", 80, "a", "/", "q"},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct url u;
        assert_int_equal(wire_url_parse(slice_str(rows[i].text), &u), 0);
        assert_int_equal(u.tls, rows[i].tls);
        same(u.host, rows[i].host);
        assert_int_equal(u.port, rows[i].port);
        same(u.authority, rows[i].authority);
        same(u.path, rows[i].path);
        same(u.query, rows[i].query);
    }
}

static void bad_urls_are_refused(void **state)
{
    (void)state;
    static const char *bad[] = {"",
                                "gpu1:8000",
                                "ftp://a",
                                "http://",
                                "http:///x",
                                "http://u@h",
                                "http://u:p@h",
                                "http://h:0",
                                "http://h:65536",
                                "http://h:",
                                "http://h:8x",
                                "http://a b",
                                "http://a/ b",
                                "http://a/#f",
                                "http://[::1",
                                "http://[]",
                                "http://[x]",
                                "http://::1",
                                "http://[::1]x",
                                "http://a:000080"};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct url u;
        assert_int_equal(wire_url_parse(slice_str(bad[i]), &u), WEIR_E_INVALID);
    }
}

static void authorities_may_lack_a_port(void **state)
{
    (void)state;
    struct slice host;
    uint16_t port;

    assert_int_equal(wire_authority_parse(SLICE("gpu1"), &host, &port), 0);
    same(host, "gpu1");
    assert_int_equal(port, 0);
    assert_int_equal(wire_authority_parse(SLICE("[::]:30000"), &host, &port), 0);
    same(host, "::");
    assert_int_equal(port, 30000);
    assert_int_equal(wire_authority_parse(SLICE(":80"), &host, &port), WEIR_E_INVALID);
}

static void targets_are_split(void **state)
{
    (void)state;
    static const char *rows[][3] = {{"/a?b", "/a", "b"},      {"/a", "/a", NULL},
                                    {"/a?", "/a", ""},        {"http://h:1/a?b", "/a", "b"},
                                    {"http://h", "/", NULL},  {"*", "*", NULL},
                                    {"https://h?x", "/", "x"}};

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct slice path;
        struct slice query;
        wire_target_split(slice_str(rows[i][0]), &path, &query);
        same(path, rows[i][1]);
        same(query, rows[i][2]);
    }
}

static void decoding(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool form;
        const char *want;
    } rows[] = {{"a%20b+c", false, "a b+c"},
                {"a%20b+c", true, "a b c"},
                {"%E4%bd%A0", false, "\xe4\xbd\xa0"},
                {"DEFAULT_GROUP%40%40a", true, "DEFAULT_GROUP@@a"},
                {"", true, ""},
                {"%41", true, "A"}};
    static const char *bad[] = {"%", "%4", "%4g", "%g4", "a%", "%%41", "% 1", "%+1"};
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct buf out;

    buf_init(&out, &mem, 100);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        buf_clear(&out);
        assert_int_equal(wire_url_decode(slice_str(rows[i].text), rows[i].form, &out), 0);
        same(buf_slice(&out), rows[i].want);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(wire_url_decode(slice_str(bad[i]), true, &out), WEIR_E_INVALID);
    buf_fini(&out);
    buf_init(&out, &mem, 3);
    assert_int_equal(wire_url_decode(SLICE("abcd"), true, &out), WEIR_E_FULL);
    buf_fini(&out);
    assert_int_equal(heap.live, 0);
}

static void query_pairs(void **state)
{
    (void)state;
    struct slice rest = SLICE("&a=1&&b&c==2&=x&");
    static const char *want[][2] = {{"a", "1"}, {"b", ""}, {"c", "=2"}, {"", "x"}};
    struct slice name;
    struct slice value;

    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        assert_true(wire_query_next(&rest, &name, &value));
        same(name, want[i][0]);
        same(value, want[i][1]);
    }
    assert_false(wire_query_next(&rest, &name, &value));
    assert_false(wire_query_next(&rest, &name, &value));
    rest = (struct slice){NULL, 0};
    assert_false(wire_query_next(&rest, &name, &value));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(urls_are_split),
        cmocka_unit_test(bad_urls_are_refused),
        cmocka_unit_test(authorities_may_lack_a_port),
        cmocka_unit_test(targets_are_split),
        cmocka_unit_test(decoding),
        cmocka_unit_test(query_pairs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
