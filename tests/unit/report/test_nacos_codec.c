/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "heap_mem.h"
#include "report/nacos_codec.h"

static struct test_heap heap;
static struct mem mem;

static const struct slice services[] = {{"llm chat", 8}};
static const struct model_ref models[] = {{.id = {"m/1", 3}, .max_model_len = 8192},
                                          {.id = {"b", 1}, .max_model_len = 4096}};
static const struct device devices[] = {{.uuid = {"GPU-1", 5}, .type = {"A100", 4}}};
static const struct instance instance = {
    .services = services,
    .n_services = 1,
    .host = {"10.0.0.5", 8},
    .port = 8000,
    .models = models,
    .n_models = 2,
    .devices = devices,
    .n_devices = 1,
    .weight = 2500,
    .engine = ENGINE_VLLM,
};

static void expect(struct buf *b, const char *text)
{
    buf_put_char(b, '\0');
    assert_string_equal(buf_slice(b).p, text);
    buf_clear(b);
}

static void urls_name_server_and_place(void **state)
{
    (void)state;
    struct nacos_url u;

    assert_int_equal(report_nacos_url(SLICE("nacos://n:8848"), &u), 0);
    assert_false(u.tls);
    assert_true(slice_eq(u.authority, SLICE("n:8848")));
    assert_true(slice_eq(u.path, SLICE("/nacos")));
    assert_null(u.place.group.p);
    assert_int_equal(
        report_nacos_url(SLICE("nacos+https://[::1]:1/a/b/?namespace=p_1&group=g.x&cluster=c-1"),
                         &u),
        0);
    assert_true(u.tls);
    assert_true(slice_eq(u.authority, SLICE("[::1]:1")));
    assert_true(slice_eq(u.path, SLICE("/a/b")));
    assert_true(slice_eq(u.place.namespace_id, SLICE("p_1")));
    assert_true(slice_eq(u.place.group, SLICE("g.x")));
    assert_true(slice_eq(u.place.cluster, SLICE("c-1")));

    static const char *const bad[] = {
        "nacos://",
        "nacos:///nacos",
        "nacos://h:99999",
        "nacos://h?x=1",
        "nacos://h?group",
        "nacos://h?cluster=a_b",
        "nacos://h?group=a%20",
        "nacos://u:p@h:1:2",
        "http://h",
        "nacos2://h",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_int_equal(report_nacos_url(slice_str(bad[i]), &u), WEIR_E_INVALID);
}

static void a_place_is_written_encoded(void **state)
{
    (void)state;
    struct buf b;
    const struct nacos_place none = {0};
    const struct nacos_place all = {SLICE("ns"), SLICE("g:1"), SLICE("c")};

    buf_init(&b, &mem, 4096);
    assert_int_equal(report_nacos_write_place(&b, &instance, &none), 0);
    expect(
        &b,
        "serviceName=llm%20chat&ip=10.0.0.5&port=8000&clusterName=DEFAULT&groupName=DEFAULT_GROUP&"
        "ephemeral=true");
    assert_int_equal(report_nacos_write_place(&b, &instance, &all), 0);
    expect(
        &b,
        "serviceName=llm%20chat&ip=10.0.0.5&port=8000&clusterName=c&groupName=g%3a1&namespaceId=ns&"
        "ephemeral=true");
    assert_int_equal(report_nacos_write_login(&b, SLICE("a&b"), SLICE("p w+\xc3\xa4")), 0);
    expect(&b, "username=a%26b&password=p%20w%2b%c3%a4");
    buf_fini(&b);
}

static void an_instance_carries_the_contracts_keys(void **state)
{
    (void)state;
    struct buf b;
    struct buf plain;
    uint32_t left_out = 9;
    const struct nacos_place none = {0};
    const struct sample s = {
        .known = 1u << SAMPLE_GPU_UTIL | 1u << SAMPLE_MEMORY_FREE | 1u << SAMPLE_RUNNING |
                 1u << SAMPLE_STATE,
        .gpu_util_bp = 3799,
        .memory_free_bytes = 3 * GIB / 2,
        .running = 0,
        .state = REPORTED_LOADING,
    };

    buf_init(&b, &mem, 8192);
    assert_int_equal(report_nacos_write_instance(&b, &instance, &none, &s, &left_out), 0);
    assert_int_equal(left_out, 0);
    buf_put_char(&b, '\0');
    const char *metadata = strstr(buf_slice(&b).p, "&weight=2.5&enabled=false&metadata=");
    assert_non_null(metadata);
    /* Decode to compare. */
    buf_init(&plain, &mem, 8192);
    for (const char *p = strstr(metadata, "metadata=") + 9; *p; p++) {
        if (*p == '%') {
            unsigned c = 0;
            assert_int_equal(sscanf(p + 1, "%2x", &c), 1);
            buf_put_char(&plain, (char)c);
            p += 2;
        } else {
            buf_put_char(&plain, *p);
        }
    }
    expect(&plain, "{\"registered_by\":\"weir-agent\",\"health_status\":\"loading\",\"remaining_"
                   "memory\":\"1.5\","
                   "\"gpu_util\":\"37\",\"current_requests\":\"0\",\"model_id\":\"m/"
                   "1,b\",\"max_model_len\":\"4096\","
                   "\"gpu_type\":\"A100\",\"engine\":\"vllm\"}");
    buf_fini(&plain);
    buf_fini(&b);
}

static void metadata_that_finds_no_room_is_counted(void **state)
{
    (void)state;
    static char big[1000];
    memset(big, 'x', sizeof(big));
    const struct kv pairs[] = {{SLICE("big"), {big, sizeof(big)}}, {SLICE("k"), SLICE("v")}};
    struct instance in = instance;
    struct buf b;
    uint32_t left_out = 0;
    const struct nacos_place none = {0};
    const struct sample s = {0};

    in.metadata = pairs;
    in.n_metadata = 2;
    buf_init(&b, &mem, 8192);
    assert_int_equal(report_nacos_write_instance(&b, &in, &none, &s, &left_out), 0);
    assert_int_equal(left_out, 1);
    buf_put_char(&b, '\0');
    assert_non_null(strstr(buf_slice(&b).p, "%22k%22%3a%22v%22"));
    assert_null(strstr(buf_slice(&b).p, "xxx"));
    buf_fini(&b);
    /* Memory that runs out is an error, at any allocation, and leaks nothing. */
    for (unsigned at = 1;; at++) {
        struct test_heap failing = {.fail_at = at};
        struct mem m = test_heap_mem(&failing);
        buf_init(&b, &m, 8192);
        int rc = report_nacos_write_instance(&b, &in, &none, &s, &left_out);
        buf_fini(&b);
        assert_int_equal(failing.live, 0);
        if (rc == 0)
            break;
        assert_int_equal(rc, WEIR_E_NOMEM);
    }
}

static void lists_tell_who_holds_the_address(void **state)
{
    (void)state;
    enum nacos_holder who;
    static const struct {
        const char *body;
        enum nacos_holder who;
    } cases[] = {
        {"{\"name\":\"x\",\"hosts\":[]}", NACOS_FREE},
        {"{}", NACOS_FREE},
        {"{\"hosts\":[{\"ip\":\"10.0.0.5\",\"port\":8000,\"clusterName\":\"DEFAULT\",\"metadata\":{"
         "}}]}",
         NACOS_ANOTHERS},
        {"{\"hosts\":[{\"ip\":\"10.0.0.5\",\"port\":8000}]}", NACOS_ANOTHERS},
        {"{\"hosts\":[{\"ip\":\"10.0.0.5\",\"port\":8001},{\"ip\":\"10.0.0.6\",\"port\":8000}]}",
         NACOS_FREE},
        {"{\"hosts\":[{\"ip\":\"10.0.0.5\",\"port\":8000,\"clusterName\":\"other\"}]}", NACOS_FREE},
        {"{\"hosts\":[{\"metadata\":{\"registered_by\":\"weir-agent\"},\"ip\":\"10.0.0.5\","
         "\"port\":8000}]}",
         NACOS_OURS},
        /* The mark of a neighbour is not ours. */
        {"{\"hosts\":[{\"ip\":\"10.0.0.6\",\"port\":8000,\"metadata\":{\"registered_by\":\"weir-"
         "agent\"}},"
         "{\"ip\":\"10.0.0.5\",\"port\":8000}]}",
         NACOS_ANOTHERS},
        {"{\"metadata\":{\"ip\":\"10.0.0.5\"},\"hosts\":[],\"other\":[{\"ip\":\"10.0.0.5\","
         "\"port\":8000}]}",
         NACOS_FREE},
        /* As 1.4 writes it. */
        {"{\"dom\":\"x\",\"cacheMillis\":3000,\"hosts\":[{\"ip\":\"10.0.0.5\",\"port\":8000,"
         "\"valid\":true,"
         "\"marked\":false,\"metadata\":{\"registered_by\":\"weir-agent\"},\"clusterName\":"
         "\"DEFAULT\"}],\"env\":\"\"}",
         NACOS_OURS},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_int_equal(report_nacos_read_list(slice_str(cases[i].body), &instance,
                                                (struct slice){NULL, 0}, &who),
                         0);
        assert_int_equal(who, cases[i].who);
    }
    assert_int_equal(report_nacos_read_list(SLICE(""), &instance, SLICE("c"), &who),
                     WEIR_E_INVALID);
    assert_int_equal(report_nacos_read_list(SLICE("<html>"), &instance, SLICE("c"), &who),
                     WEIR_E_INVALID);
    assert_int_equal(report_nacos_read_list(SLICE("{\"hosts\":["), &instance, SLICE("c"), &who),
                     WEIR_E_INVALID);
}

static void beats_and_logins_are_read(void **state)
{
    (void)state;
    uint64_t code;
    uint64_t interval;
    struct buf token;

    assert_int_equal(report_nacos_read_beat(SLICE("{\"clientBeatInterval\":5000,\"code\":10200}"),
                                            &code, &interval),
                     0);
    assert_int_equal(code, 10200);
    assert_int_equal(interval, 5000);
    assert_int_equal(report_nacos_read_beat(SLICE("{\"code\":20404}"), &code, &interval), 0);
    assert_int_equal(code, 20404);
    assert_int_equal(interval, 0);
    assert_int_equal(report_nacos_read_beat(SLICE("{\"code\":\"x\"}"), &code, &interval),
                     WEIR_E_INVALID);
    assert_int_equal(report_nacos_read_beat(SLICE("ok"), &code, &interval), WEIR_E_INVALID);

    buf_init(&token, &mem, 100);
    assert_int_equal(report_nacos_read_login(
                         SLICE("{\"accessToken\":\"a.b\",\"tokenTtl\":18000,\"globalAdmin\":true}"),
                         &token, &code),
                     0);
    assert_int_equal(code, 18000);
    expect(&token, "a.b");
    assert_int_equal(report_nacos_read_login(SLICE("{\"accessToken\":\"\"}"), &token, &code),
                     WEIR_E_INVALID);
    assert_int_equal(report_nacos_read_login(SLICE("{\"tokenTtl\":1}"), &token, &code),
                     WEIR_E_INVALID);
    buf_fini(&token);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(urls_name_server_and_place),
        cmocka_unit_test(a_place_is_written_encoded),
        cmocka_unit_test(an_instance_carries_the_contracts_keys),
        cmocka_unit_test(metadata_that_finds_no_room_is_counted),
        cmocka_unit_test(lists_tell_who_holds_the_address),
        cmocka_unit_test(beats_and_logins_are_read),
    };

    mem = test_heap_mem(&heap);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    return rc ? rc : heap.live != 0;
}
