/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include "base/bug.h"
#include "base/num.h"
#include "fleet/metadata.h"

static void one(const char *key, const char *value, struct fleet_metadata *out)
{
    struct kv kv = {slice_str(key), slice_str(value)};

    fleet_metadata_read(&kv, 1, out);
}

static void numbers_are_read_or_unknown(void **state)
{
    (void)state;
    struct fleet_metadata m;
    static const struct {
        const char *text;
        bool known;
        uint64_t bytes;
    } memory[] = {
        {"8", true, 8 * GIB}, {"7.5", true, 7 * GIB + GIB / 2},
        {" 0 ", true, 0},     {"0.000000001", true, 1},
        {"", false, 0},       {"-1", false, 0},
        {"8GB", false, 0},    {"eight", false, 0},
        {"1e3", false, 0},    {"99999999999999999999", false, 0},
        {".5", false, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(memory); i++) {
        one("remaining_memory", memory[i].text, &m);
        assert_int_equal(sample_has(&m.sample, SAMPLE_MEMORY_FREE), memory[i].known);
        if (memory[i].known)
            assert_int_equal(m.sample.memory_free_bytes, memory[i].bytes);
    }
    static const struct {
        const char *text;
        bool known;
        uint32_t bp;
    } util[] = {
        {"80", true, 8000},     {"0", true, 0},       {"100", true, 10000},
        {"33.333", true, 3333}, {"45 %", true, 4500}, {"100.01", false, 0},
        {"-5", false, 0},       {"nan", false, 0},    {"%", false, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(util); i++) {
        one("gpu_util", util[i].text, &m);
        assert_int_equal(sample_has(&m.sample, SAMPLE_GPU_UTIL), util[i].known);
        if (util[i].known)
            assert_int_equal(m.sample.gpu_util_bp, util[i].bp);
    }
    one("current_requests", "4294967295", &m);
    assert_int_equal(m.sample.running, UINT32_MAX);
    one("current_requests", "4294967296", &m);
    assert_false(sample_has(&m.sample, SAMPLE_RUNNING));
    one("queue_length", "12", &m);
    assert_int_equal(m.sample.waiting, 12);
    one("max_concurrency", "-3", &m);
    assert_int_equal(m.max_concurrency, 0);
    one("max_model_len", "8192", &m);
    assert_int_equal(m.max_model_len, 8192);
    one("report_time_ms", "1700000000000", &m);
    assert_int_equal(m.report_time_ms, UINT64_C(1700000000000));
}

static void words_are_read_or_unknown(void **state)
{
    (void)state;
    struct fleet_metadata m;
    static const char *const states[] = {"healthy", "busy", "loading", "Unhealthy", "DRAINING"};

    for (uint32_t i = 0; i < ARRAY_LEN(states); i++) {
        one("health_status", states[i], &m);
        assert_true(sample_has(&m.sample, SAMPLE_STATE));
        assert_int_equal(m.sample.state, i);
    }
    one("health_status", "fine", &m);
    assert_int_equal(m.sample.known, 0);
    one("supported_tasks", "chat, embeddings,dance", &m);
    assert_int_equal(m.tasks, TASK_CHAT | TASK_EMBEDDING | TASK_OTHER);
    one("supported_tasks", "dance", &m);
    assert_int_equal(m.tasks, 0);
    one("supported_tasks", ",,", &m);
    assert_int_equal(m.tasks, 0);
    one("zone", " eu-1a ", &m);
    assert_true(slice_eq(m.zone, SLICE("eu-1a")));
    one("region", "", &m);
    assert_null(m.region.p);
    struct kv both[] = {{SLICE("datacenter"), SLICE("dc1")}, {SLICE("cluster"), SLICE("east")}};
    fleet_metadata_read(both, 2, &m);
    assert_true(slice_eq(m.cluster, SLICE("east")));
    fleet_metadata_read(both, 1, &m);
    assert_true(slice_eq(m.cluster, SLICE("dc1")));
    one("engine", "vLLM", &m);
    assert_int_equal(m.engine, ENGINE_VLLM);
    one("engine", "homegrown", &m);
    assert_int_equal(m.engine, ENGINE_GENERIC);
    one("engine", "", &m);
    assert_int_equal(m.engine, ENGINE_UNKNOWN);
}

static void the_first_of_equal_keys_counts_and_bad_ones_spoil_nothing(void **state)
{
    (void)state;
    struct fleet_metadata m;
    struct kv kv[] = {
        {SLICE("gpu_util"), SLICE("bad")},       {SLICE("gpu_util"), SLICE("50")},
        {SLICE("remaining_memory"), SLICE("2")}, {SLICE("Gpu_type"), SLICE("A100")},
        {SLICE("gpu_type"), SLICE("T4")},        {SLICE("queue_length"), {NULL, 0}},
    };

    fleet_metadata_read(kv, ARRAY_LEN(kv), &m);
    assert_int_equal(m.sample.known, 1u << SAMPLE_MEMORY_FREE);
    assert_true(slice_eq(m.gpu_type, SLICE("T4")));
    assert_true(fleet_metadata_fast(SLICE("report_time_ms")));
    assert_false(fleet_metadata_fast(SLICE("gpu_type")));
    assert_false(fleet_metadata_fast(SLICE("other")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_read_or_unknown),
        cmocka_unit_test(words_are_read_or_unknown),
        cmocka_unit_test(the_first_of_equal_keys_counts_and_bad_ones_spoil_nothing),
    };
    return cmocka_run_group_tests_name("metadata", tests, NULL, NULL);
}
