/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include "gpu/sample_codec.h"

static struct gpu_reading full(uint64_t total, uint64_t free, uint32_t util)
{
    return (struct gpu_reading){.known = GPU_MEMORY | GPU_UTIL | GPU_MEM_BUSY | GPU_SM_ACTIVE |
                                         GPU_DRAM_BW,
                                .memory_total_bytes = total,
                                .memory_free_bytes = free,
                                .util_bp = util,
                                .mem_busy_bp = util / 2,
                                .sm_active_bp = util / 4,
                                .dram_bw_bp = util / 8};
}

static void memory_is_the_least_times_the_number(void **state)
{
    (void)state;
    const struct gpu_reading g[] = {full(100, 60, 8000), full(80, 70, 4000)};
    struct sample s = {0};

    assert_int_equal(gpu_sample(&s, g, 2), MEMBW_DRAM_BANDWIDTH);
    assert_int_equal(s.known, 1u << SAMPLE_MEMORY_FREE | 1u << SAMPLE_MEMORY_TOTAL |
                                  1u << SAMPLE_GPU_UTIL | 1u << SAMPLE_MEMBW_UTIL |
                                  1u << SAMPLE_SM_ACTIVE);
    assert_int_equal(s.memory_free_bytes, 120);
    assert_int_equal(s.memory_total_bytes, 160);
    assert_int_equal(s.gpu_util_bp, 8000);
    assert_int_equal(s.sm_active_bp, 2000);
    assert_int_equal(s.membw_util_bp, 1000);
}

static void what_one_device_does_not_tell_is_unknown(void **state)
{
    (void)state;
    struct gpu_reading g[] = {full(100, 60, 8000), full(100, 60, 8000)};
    struct sample s = {.known = 1u << SAMPLE_RUNNING, .running = 4};

    g[1].known &= (uint32_t) ~(GPU_MEMORY | GPU_DRAM_BW);
    assert_int_equal(gpu_sample(&s, g, 2), MEMBW_TIME_BUSY);
    assert_int_equal(s.known, 1u << SAMPLE_RUNNING | 1u << SAMPLE_GPU_UTIL |
                                  1u << SAMPLE_MEMBW_UTIL | 1u << SAMPLE_SM_ACTIVE);
    assert_int_equal(s.membw_util_bp, 4000);
    assert_int_equal(s.running, 4);
    g[0].known = 0;
    s = (struct sample){0};
    assert_int_equal(gpu_sample(&s, g, 2), MEMBW_UNKNOWN);
    assert_int_equal(s.known, 0);
    assert_int_equal(gpu_sample(&s, g, 0), MEMBW_UNKNOWN);
    assert_int_equal(s.known, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_the_least_times_the_number),
        cmocka_unit_test(what_one_device_does_not_tell_is_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
