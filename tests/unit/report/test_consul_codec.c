/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <string.h>

#include "base/num.h"
#include "heap_mem.h"
#include "report/consul_codec.h"
#include "report/report_codec.h"

static struct test_heap heap;
static struct mem mem;

static void expect(struct buf *b, const char *text)
{
    buf_put_char(b, '\0');
    assert_string_equal(buf_slice(b).p, text);
    buf_clear(b);
}

static void a_service_has_check_meta_and_tags(void **state)
{
    (void)state;
    static const struct slice services[] = {{"llm", 3}};
    static const struct kv metadata[] = {
        {{"rack", 4}, {"7", 1}}, {{"a.b", 3}, {"1", 1}}, {{"gpu_util", 8}, {"99", 2}}};
    static const struct kv labels[] = {{{"tier", 4}, {"gold", 4}}};
    static const struct model_ref models[] = {{.id = {"m/1", 3}}, {.id = {"n", 1}}};
    const struct instance in = {.id = SLICE("w1"),
                                .services = services,
                                .n_services = 1,
                                .host = SLICE("fd00::1"),
                                .port = 8000,
                                .tls = true,
                                .weight = 2600,
                                .models = models,
                                .n_models = 2,
                                .metadata = metadata,
                                .n_metadata = 3,
                                .labels = labels,
                                .n_labels = 1};
    struct sample s = {.known =
                           1u << SAMPLE_RUNNING | 1u << SAMPLE_STATE | 1u << SAMPLE_MEMORY_FREE,
                       .running = 4,
                       .state = REPORTED_BUSY,
                       .memory_free_bytes = GIB + GIB / 4};
    uint32_t left_out;
    struct buf b;

    mem = test_heap_mem(&heap);
    buf_init(&b, &mem, 4096);
    assert_int_equal(report_consul_write_service(&b, &in, &s, 5000, &left_out), 0);
    assert_int_equal(left_out, 1); /* a.b */
    expect(&b, "{\"ID\":\"w1\",\"Name\":\"llm\",\"Address\":\"fd00::1\",\"Port\":8000,\"Tags\":["
               "\"tier=gold\"],"
               "\"Meta\":{\"registered_by\":\"weir-agent\",\"scheme\":\"https\",\"health_status\":"
               "\"busy\","
               "\"remaining_memory\":\"1.25\",\"current_requests\":\"4\",\"model_id\":\"m/"
               "1,n\",\"rack\":\"7\"},"
               "\"Weights\":{\"Passing\":3,\"Warning\":3},"
               "\"Checks\":[{\"CheckID\":\"service:w1\",\"Name\":\"weir "
               "agent\",\"TTL\":\"5000ms\",\"Status\":\"passing\","
               "\"DeregisterCriticalServiceAfter\":\"5m\"}]}");
    assert_int_equal(report_consul_write_check(&b, &s), 0);
    expect(&b, "{\"Status\":\"passing\",\"Output\":\"busy\"}");
    s.state = REPORTED_LOADING;
    assert_int_equal(report_consul_write_check(&b, &s), 0);
    expect(&b, "{\"Status\":\"critical\",\"Output\":\"loading\"}");
    /* Weir's own document, with the sample as metadata: it beats what the instance says under the same keys. */
    assert_int_equal(report_write_instance(&b, &in, &s, 5000), 0);
    assert_non_null(
        strstr(buf_slice(&b).p,
               "\"metadata\":{\"health_status\":\"loading\",\"remaining_memory\":\"1.25\","
               "\"current_requests\":\"4\",\"rack\":\"7\",\"a.b\":\"1\"},\"labels\""));
    buf_fini(&b);
    assert_int_equal(heap.live, 0);
}

static void urls_name_scheme_authority_and_the_rest(void **state)
{
    (void)state;
    struct slice authority;
    struct slice rest;
    bool tls;

    assert_int_equal(report_split_url(SLICE("etcd://h:1/p/"), "etcd", &tls, &authority, &rest), 0);
    assert_false(tls);
    assert_true(slice_eq(authority, SLICE("h:1")));
    assert_true(slice_eq(rest, SLICE("/p/")));
    assert_int_equal(
        report_split_url(SLICE("etcd+https://[::1]:1?q"), "etcd", &tls, &authority, &rest), 0);
    assert_true(tls);
    assert_true(slice_eq(authority, SLICE("[::1]:1")));
    assert_true(slice_eq(rest, SLICE("?q")));
    static const char *const bad[] = {"etcd:/h:1", "etcd", "etcd+http://h:1", "consul://h:1", ""};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_int_equal(report_split_url(slice_str(bad[i]), "etcd", &tls, &authority, &rest),
                         WEIR_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_service_has_check_meta_and_tags),
        cmocka_unit_test(urls_name_scheme_authority_and_the_rest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
