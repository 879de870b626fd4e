/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of dcgm-exporter to exact readings; blanks and nonsense are unknown; which devices a list of names means. */
#include "ct.h"

#include "base/err.h"
#include "gpu/dcgm_codec.h"

#define GPU0 "gpu=\"0\",UUID=\"GPU-aaaa\",modelName=\"NVIDIA A100-SXM4-80GB\",Hostname=\"h\""
#define GPU1 "gpu=\"1\",UUID=\"GPU-abbb\",modelName=\"NVIDIA A100-SXM4-80GB\",Hostname=\"h\""
#define MIB  UINT64_C(1048576)

static struct gpu_exported rows[GPU_EXPORTED_MAX];

static uint32_t read_page(const char *text)
{
    memset(rows, 0xff, sizeof(rows));
    return gpu_dcgm_read(slice_str(text), rows);
}

static void every_number_has_its_unit(void **state)
{
    (void)state;
    uint32_t n = read_page("# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).\n"
                           "DCGM_FI_DEV_GPU_UTIL{" GPU0 "} 37\n"
                           "DCGM_FI_DEV_MEM_COPY_UTIL{" GPU0 "} 12\n"
                           "DCGM_FI_DEV_FB_FREE{" GPU0 "} 1000\n"
                           "DCGM_FI_DEV_FB_USED{" GPU0 "} 3000\n"
                           "DCGM_FI_DEV_FB_RESERVED{" GPU0 "} 96\n"
                           "DCGM_FI_PROF_SM_ACTIVE{" GPU0 "} 0.5\n"
                           "DCGM_FI_PROF_DRAM_ACTIVE{" GPU0 "} 0.125\n"
                           "DCGM_FI_DEV_POWER_USAGE{" GPU0 "} 71.5\n"
                           "DCGM_FI_DEV_GPU_TEMP{" GPU0 "} 40\n"
                           "go_goroutines 7\n");
    const struct gpu_reading *r = &rows[0].reading;

    assert_int_equal(n, 1);
    assert_string_equal(r->uuid, "GPU-aaaa");
    assert_string_equal(r->name, "NVIDIA A100-SXM4-80GB");
    assert_string_equal(rows[0].index, "0");
    assert_false(r->mig);
    assert_int_equal(r->known, GPU_MEMORY | GPU_UTIL | GPU_MEM_BUSY | GPU_POWER | GPU_SM_ACTIVE |
                                   GPU_DRAM_BW);
    assert_int_equal(r->util_bp, 3700);
    assert_int_equal(r->mem_busy_bp, 1200);
    assert_int_equal(r->sm_active_bp, 5000);
    assert_int_equal(r->dram_bw_bp, 1250);
    assert_int_equal(r->power_mw, 71500);
    assert_int_equal(r->memory_free_bytes, 1000 * MIB);
    assert_int_equal(r->memory_total_bytes, 4096 * MIB);
}

static void a_total_of_its_own_counts(void **state)
{
    (void)state;
    assert_int_equal(read_page("DCGM_FI_DEV_FB_TOTAL{" GPU0 "} 4096\n"
                               "DCGM_FI_DEV_FB_USED{" GPU0 "} 4000\n"
                               "DCGM_FI_DEV_FB_TOTAL{" GPU1 "} 4096\n"
                               "DCGM_FI_DEV_FB_FREE{" GPU1 "} 5000\n"),
                     2);
    assert_int_equal(rows[0].reading.memory_free_bytes, 96 * MIB);
    assert_int_equal(rows[0].reading.memory_total_bytes, 4096 * MIB);
    assert_int_equal(rows[1].reading.memory_free_bytes, 4096 * MIB);
}

static void what_cannot_be_is_unknown(void **state)
{
    (void)state;
    uint32_t n = read_page("DCGM_FI_DEV_GPU_UTIL{" GPU0 "} 9223372036854775794\n"
                           "DCGM_FI_PROF_SM_ACTIVE{" GPU0 "} 140737488355328\n"
                           "DCGM_FI_PROF_DRAM_ACTIVE{" GPU0 "} NaN\n"
                           "DCGM_FI_DEV_FB_FREE{" GPU0 "} 9223372036854775792\n"
                           "DCGM_FI_DEV_FB_USED{" GPU0 "} 10\n"
                           "DCGM_FI_DEV_MEM_COPY_UTIL{" GPU0 "} -1\n"
                           "DCGM_FI_DEV_GPU_UTIL{gpu=\"1\"} 5\n"
                           "DCGM_FI_DEV_FB_FREE{" GPU1 "} 0\n"
                           "DCGM_FI_DEV_FB_USED{" GPU1 "} 0\n");

    assert_int_equal(n, 2);
    assert_int_equal(rows[0].reading.known, 0);
    assert_int_equal(rows[1].reading.known, 0);
    assert_int_equal(read_page("vllm:num_requests_running 3\n"), 0);
    assert_int_equal(read_page(""), 0);
}

#define SLICE3                                                                                     \
    "gpu=\"0\",UUID=\"GPU-aaaa\",modelName=\"A100\",GPU_I_PROFILE=\"1g.10gb\",GPU_I_ID=\"3\""
#define SLICE5                                                                                     \
    "gpu=\"0\",UUID=\"GPU-aaaa\",modelName=\"A100\",GPU_I_PROFILE=\"1g.10gb\",GPU_I_ID=\"5\""

static int choose(uint32_t n, const char *select, struct gpu_reading *out)
{
    return gpu_exported_choose(rows, n, slice_str(select), out);
}

/* Texts end at a NUL: two devices that differ behind it would be one, and one that begins with it has no name. */
static void a_name_with_a_nul_is_none(void **state)
{
    (void)state;
    memset(rows, 0xff, sizeof(rows));
    assert_int_equal(gpu_dcgm_read(SLICE("DCGM_FI_DEV_GPU_UTIL{UUID=\"\0\0\"} 1\n"
                                         "DCGM_FI_DEV_GPU_UTIL{UUID=\"GPU\0-a\"} 1\n"
                                         "DCGM_FI_DEV_GPU_UTIL{UUID=\"GPU\0-b\"} 1\n"
                                         "DCGM_FI_DEV_GPU_UTIL{UUID=\"GPU-c\",pod=\"p\0q\"} 1\n"),
                                   rows),
                     1);
    assert_string_equal(rows[0].reading.uuid, "GPU-c");
    assert_string_equal(rows[0].pod, "");
}

static void slices_stand_for_their_gpu(void **state)
{
    (void)state;
    struct gpu_reading out[GPU_DEVICES_MAX];
    uint32_t n = read_page("DCGM_FI_DEV_GPU_UTIL{" GPU0 "} 1\n"
                           "DCGM_FI_PROF_GR_ENGINE_ACTIVE{" SLICE3 "} 0.25\n"
                           "DCGM_FI_PROF_GR_ENGINE_ACTIVE{" SLICE5 "} 0.75\n"
                           "DCGM_FI_DEV_GPU_UTIL{" GPU1 "} 2\n");

    assert_int_equal(n, 4);
    assert_int_equal(choose(n, "all", out), 3);
    assert_string_equal(out[0].uuid, "GPU-aaaa/3");
    assert_true(out[0].mig);
    assert_int_equal(out[0].util_bp, 2500);
    assert_string_equal(out[1].uuid, "GPU-aaaa/5");
    assert_string_equal(out[2].uuid, "GPU-abbb");
    assert_int_equal(choose(n, "0", out), 2);
    assert_int_equal(choose(n, "0/5", out), 1);
    assert_string_equal(out[0].uuid, "GPU-aaaa/5");
    assert_int_equal(choose(n, "GPU-aaaa/3", out), 1);
    assert_int_equal(choose(n, "GPU-aaaa/4", out), WEIR_E_NOTFOUND);
}

static void a_list_of_names_keeps_its_order(void **state)
{
    (void)state;
    struct gpu_reading out[GPU_DEVICES_MAX];
    uint32_t n = read_page("DCGM_FI_DEV_GPU_UTIL{" GPU0 "} 1\nDCGM_FI_DEV_GPU_UTIL{" GPU1 "} 2\n");

    assert_int_equal(choose(n, "1, 0", out), 2);
    assert_string_equal(out[0].uuid, "GPU-abbb");
    assert_string_equal(out[1].uuid, "GPU-aaaa");
    assert_int_equal(choose(n, "1,GPU-ab", out), 1);
    assert_int_equal(choose(n, "GPU-a", out), WEIR_E_NOTFOUND);
    assert_int_equal(choose(n, "2", out), WEIR_E_NOTFOUND);
    assert_int_equal(choose(n, "G", out), WEIR_E_NOTFOUND);
    assert_int_equal(choose(n, "", out), WEIR_E_NOTFOUND);
}

static void pods_that_share_a_gpu_have_a_row_each(void **state)
{
    (void)state;
    struct gpu_reading out[GPU_DEVICES_MAX];
    uint32_t n = read_page("DCGM_FI_DEV_GPU_UTIL{" GPU0 ",namespace=\"a\",pod=\"one\"} 1\n"
                           "DCGM_FI_DEV_GPU_UTIL{" GPU0 ",namespace=\"a\",pod=\"two\"} 1\n"
                           "DCGM_FI_DEV_GPU_UTIL{" GPU1 ",namespace=\"b\",pod=\"one\"} 2\n");

    assert_int_equal(n, 3);
    assert_int_equal(gpu_exported_of_pod(rows, n, SLICE("a"), SLICE("one"), out), 1);
    assert_string_equal(out[0].uuid, "GPU-aaaa");
    assert_int_equal(gpu_exported_of_pod(rows, n, slice_of(NULL, 0), SLICE("one"), out), 2);
    assert_int_equal(gpu_exported_of_pod(rows, n, SLICE("b"), SLICE("two"), out), 0);
    assert_int_equal(gpu_exported_of_pod(rows, n, SLICE("b"), slice_of(NULL, 0), out), 0);
    assert_int_equal(choose(n, "all", out), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_has_its_unit),
        cmocka_unit_test(a_total_of_its_own_counts),
        cmocka_unit_test(what_cannot_be_is_unknown),
        cmocka_unit_test(a_name_with_a_nul_is_none),
        cmocka_unit_test(slices_stand_for_their_gpu),
        cmocka_unit_test(a_list_of_names_keeps_its_order),
        cmocka_unit_test(pods_that_share_a_gpu_have_a_row_each),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
