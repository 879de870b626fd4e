/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include "heap_mem.h"
#include "report/report_codec.h"

static void expect(struct buf *b, int rc, const char *text)
{
    assert_int_equal(rc, 0);
    assert_int_equal(buf_len(b), strlen(text));
    assert_memory_equal(buf_slice(b).p, text, strlen(text));
    buf_clear(b);
}

static void an_endpoint_is_written_whole(void **state)
{
    (void)state;
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct buf b;
    buf_init(&b, &mem, 4096);
    const struct slice services[] = {SLICE("chat")};
    const struct model_ref models[] = {
        {.id = SLICE("llama"), .version = SLICE("2"), .max_model_len = 8192},
        {.id = SLICE("a\"b")}};
    const struct device devices[] = {
        {.uuid = SLICE("GPU-1"), .type = SLICE("A100"), .memory_total_bytes = 85899345920}};
    const struct kv metadata[] = {{SLICE("rack"), SLICE("7")}, {SLICE("note"), SLICE("x\ny")}};
    const struct kv labels[] = {{SLICE("tier"), SLICE("gold")}};
    const struct instance i = {
        .id = SLICE("w 1"),
        .services = services,
        .n_services = 1,
        .host = SLICE("127.0.0.1"),
        .port = 8000,
        .models = models,
        .n_models = 2,
        .tasks = TASK_CHAT | TASK_EMBEDDING,
        .devices = devices,
        .n_devices = 1,
        .weight = 2500,
        .engine = ENGINE_WEIR_WORKER,
        .max_concurrency = 256,
        .metadata = metadata,
        .n_metadata = 2,
        .labels = labels,
        .n_labels = 1,
        .epoch = 1764581611000000000,
    };
    expect(
        &b, report_write_instance(&b, &i, NULL, 5000),
        "{\"id\":\"w 1\",\"service\":\"chat\",\"url\":\"http://127.0.0.1:8000\","
        "\"models\":[{\"id\":\"llama\",\"version\":\"2\",\"max_model_len\":8192},{\"id\":"
        "\"a\\\"b\"}],"
        "\"tasks\":[\"chat\",\"embedding\"],"
        "\"devices\":[{\"uuid\":\"GPU-1\",\"type\":\"A100\",\"memory_total_bytes\":85899345920}],"
        "\"weight\":2.5,\"engine\":\"weir-worker\",\"max_concurrency\":256,\"ttl_ms\":5000,"
        "\"epoch\":1764581611000000000,"
        "\"metadata\":{\"rack\":\"7\",\"note\":\"x\\ny\"},\"labels\":{\"tier\":\"gold\"}}");
    buf_fini(&b);
    assert_int_equal(heap.live, 0);
}

static void what_is_unknown_is_left_out(void **state)
{
    (void)state;
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct buf b;
    buf_init(&b, &mem, 4096);
    const struct instance i = {
        .id = SLICE("x"), .host = SLICE("::1"), .port = 1, .tls = true, .weight = 1000, .epoch = 1};
    expect(&b, report_write_instance(&b, &i, NULL, 1),
           "{\"id\":\"x\",\"url\":\"https://[::1]:1\",\"weight\":1,\"ttl_ms\":1,\"epoch\":1}");
    const struct sample none = {.epoch = 3, .seq = 4};
    expect(&b, report_write_sample(&b, &none, 500), "{\"epoch\":3,\"seq\":4,\"interval_ms\":500}");
    /* A known 0 is a value. */
    const struct sample zero = {.known = 1u << SAMPLE_RUNNING | 1u << SAMPLE_GPU_UTIL};
    expect(&b, report_write_sample(&b, &zero, 500),
           "{\"epoch\":0,\"seq\":0,\"interval_ms\":500,\"gpu_util_percent\":0,\"running\":0}");
    buf_fini(&b);
}

static void a_full_sample(void **state)
{
    (void)state;
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct buf b;
    buf_init(&b, &mem, 4096);
    const struct sample s = {
        .known = (1u << (SAMPLE_STATE + 1)) - 1,
        .epoch = 9,
        .seq = 8,
        .gpu_util_bp = 8050,
        .membw_util_bp = 4001,
        .sm_active_bp = 10000,
        .memory_free_bytes = 1,
        .memory_total_bytes = 2,
        .kv_capacity_tokens = 3,
        .kv_used_tokens = 4,
        .running = 5,
        .waiting = 6,
        .batch = 7,
        .tokens_per_s = 10,
        .state = REPORTED_BUSY,
    };
    expect(&b, report_write_sample(&b, &s, 250),
           "{\"epoch\":9,\"seq\":8,\"interval_ms\":250,\"gpu_util_percent\":80.5,"
           "\"membw_util_percent\":40.01,\"sm_active_percent\":100,\"memory_free_bytes\":1,"
           "\"memory_total_bytes\":2,\"kv_capacity_tokens\":3,\"kv_used_tokens\":4,\"running\":5,"
           "\"waiting\":6,\"batch\":7,\"tokens_per_s\":10,\"state\":\"busy\"}");
    buf_fini(&b);
}

static void urls_carry_any_id(void **state)
{
    (void)state;
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct buf b;
    buf_init(&b, &mem, 64);
    expect(&b, report_write_url(&b, SLICE("http://r:8848/"), SLICE("10.0.0.1:80"), "/load"),
           "http://r:8848/v1/endpoints/10.0.0.1:80/load");
    expect(&b, report_write_url(&b, SLICE("http://r"), SLICE("a/b ?\xe4"), ""),
           "http://r/v1/endpoints/a%2fb%20%3f%e4");
    assert_int_equal(
        report_write_url(&b, SLICE("http://r"),
                         SLICE("0123456789012345678901234567890123456789012345678901234567890"),
                         ""),
        WEIR_E_FULL);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_endpoint_is_written_whole),
        cmocka_unit_test(what_is_unknown_is_left_out),
        cmocka_unit_test(a_full_sample),
        cmocka_unit_test(urls_carry_any_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
