/* SPDX-License-Identifier: Apache-2.0 */
/* Against tests/nvml/fake_nvml.c, loaded by the same dlopen as the real library. Time is an argument, so nothing waits. */
#include "ct.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/num.h"
#include "gpu/gpu.h"
#include "gpu/watch.h"
#include "loop/loop.h"

static char script[64];
static char next_script[80];
static struct gpu_reading r[GPU_DEVICES_MAX];

/* Exchange the script as a whole: the library never sees half of one. */
static void world(const char *text)
{
    FILE *f = fopen(next_script, "we");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(rename(next_script, script), 0);
}

static struct gpu_options options(const char *select)
{
    return (struct gpu_options){.nvml = getenv("FAKE_NVML"),
                                .sysfs = "/nonexistent",
                                .select = select,
                                .retry_ns = 100 * NS_PER_S};
}

static struct gpus *open_these(const char *select)
{
    const struct gpu_options o = options(select);
    struct gpus *g = NULL;
    struct slice bad;

    assert_int_equal(gpus_open(&o, &g, &bad), 0);
    assert_null(bad.p);
    return g;
}

static void expect_refusal(const char *select, int rc, const char *piece)
{
    const struct gpu_options o = options(select);
    struct gpus *g = NULL;
    struct slice bad;

    assert_int_equal(gpus_open(&o, &g, &bad), rc);
    assert_int_equal(bad.n, strlen(piece));
    assert_memory_equal(bad.p, piece, bad.n);
}

#define H100                                                                                       \
    "count 2\n"                                                                                    \
    "0 uuid GPU-aaaa\n0 name NVIDIA H100 80GB HBM3\n0 total 85899345920\n0 free 21474836480\n"     \
    "0 util 37\n0 membusy 12\n0 power 412345\n0 mig 0\n0 gpm 1\n0 sm 71.25\n0 dram 33.5\n"         \
    "0 engine 90\n"                                                                                \
    "1 uuid GPU-bbbb\n1 name Tesla T4\n1 total 16106127360\n1 free 16000000000\n"                  \
    "1 util 100\n1 membusy 0\n1 power 70000\n"

static void every_value_is_exact(void **state)
{
    (void)state;
    world(H100);
    struct gpus *g = open_these("all");

    assert_int_equal(gpus_count(g), 2);
    assert_int_equal(gpus_read(g, NS_PER_S, r), 2);
    assert_string_equal(r[0].uuid, "GPU-aaaa");
    assert_string_equal(r[0].name, "NVIDIA H100 80GB HBM3");
    assert_false(r[0].mig);
    assert_false(r[0].lost);
    /* GPM counts between two samples: the first reading has none. */
    assert_int_equal(r[0].known, GPU_MEMORY | GPU_UTIL | GPU_MEM_BUSY | GPU_POWER);
    assert_int_equal(r[0].memory_total_bytes, 85899345920);
    assert_int_equal(r[0].memory_free_bytes, 21474836480);
    assert_int_equal(r[0].util_bp, 3700);
    assert_int_equal(r[0].mem_busy_bp, 1200);
    assert_int_equal(r[0].power_mw, 412345);
    assert_string_equal(r[1].uuid, "GPU-bbbb");
    assert_int_equal(r[1].known, GPU_MEMORY | GPU_UTIL | GPU_MEM_BUSY | GPU_POWER);
    assert_int_equal(r[1].util_bp, 10000);
    /* Less than 100 ms later there is no second sample yet. */
    gpus_read(g, NS_PER_S + 99 * NS_PER_MS, r);
    assert_int_equal(r[0].known & (GPU_SM_ACTIVE | GPU_DRAM_BW), 0);
    gpus_read(g, NS_PER_S + 100 * NS_PER_MS, r);
    assert_int_equal(r[0].known, GPU_MEMORY | GPU_UTIL | GPU_MEM_BUSY | GPU_POWER | GPU_SM_ACTIVE |
                                     GPU_DRAM_BW);
    assert_int_equal(r[0].sm_active_bp, 7125);
    assert_int_equal(r[0].dram_bw_bp, 3350);
    assert_int_equal(r[0].util_bp, 3700);
    /* The T4 has no GPM, and that does not come and go. */
    assert_int_equal(r[1].known & (GPU_SM_ACTIVE | GPU_DRAM_BW), 0);
    /* A result stands until the next one; the samples change places each time. */
    gpus_read(g, NS_PER_S + 150 * NS_PER_MS, r);
    assert_int_equal(r[0].sm_active_bp, 7125);
    world(H100 "0 sm 5\n0 dram !21\n");
    gpus_read(g, 2 * NS_PER_S, r);
    assert_int_equal(r[0].sm_active_bp, 500);
    assert_int_equal(r[0].known & GPU_DRAM_BW, 0);
    gpus_close(g);
}

static void devices_are_chosen_by_index_and_uuid(void **state)
{
    (void)state;
    world(H100);
    struct gpus *g = open_these("1");
    assert_int_equal(gpus_read(g, 1, r), 1);
    assert_string_equal(r[0].uuid, "GPU-bbbb");
    gpus_close(g);
    g = open_these("GPU-bbbb, 0"); /* the order is the caller's */
    assert_int_equal(gpus_read(g, 1, r), 2);
    assert_string_equal(r[0].uuid, "GPU-bbbb");
    assert_string_equal(r[1].uuid, "GPU-aaaa");
    gpus_close(g);
    g = open_these("GPU-b"); /* a beginning that fits one alone */
    assert_int_equal(gpus_count(g), 1);
    gpus_close(g);
    g = open_these("none");
    assert_int_equal(gpus_read(g, 1, r), 0);
    gpus_close(g);
    expect_refusal("0,2", WEIR_E_NOTFOUND, "2");
    expect_refusal("GPU-", WEIR_E_NOTFOUND, "GPU-");
    expect_refusal("GPU-cccc", WEIR_E_NOTFOUND, "GPU-cccc");
    expect_refusal("0,x", WEIR_E_INVALID, "x");
    expect_refusal("0,,1", WEIR_E_INVALID, "");
    expect_refusal("-1", WEIR_E_INVALID, "-1");
    expect_refusal("1,GPU-bbbb", WEIR_E_INVALID, "GPU-bbbb");
}

static void cuda_visible_devices_has_its_own_manners(void **state)
{
    (void)state;
    const struct {
        const char *text;
        unsigned n;
        const char *first;
    } cases[] = {
        {"0,1", 2, "GPU-aaaa"},   {"1", 1, "GPU-bbbb"},      {"", 0, NULL},
        {"-1", 0, NULL},          {"1,-1,0", 1, "GPU-bbbb"}, {"1,7,0", 1, "GPU-bbbb"},
        {"GPU-a", 1, "GPU-aaaa"}, {"NoDevFiles", 0, NULL},
    };

    world(H100);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct gpu_options o = options(cases[i].text);
        struct gpus *g = NULL;
        struct slice bad;
        o.cuda = true;
        assert_int_equal(gpus_open(&o, &g, &bad), 0);
        assert_int_equal(gpus_read(g, 1, r), cases[i].n);
        if (cases[i].first)
            assert_string_equal(r[0].uuid, cases[i].first);
        gpus_close(g);
    }
}

static void a_gpu_in_mig_mode_stands_for_its_slices(void **state)
{
    (void)state;
    /* Slices 1 and 4; the holes between them end nothing. Utilization is not supported on slices. */
    world("count 2\n"
          "0 uuid GPU-aaaa\n0 mig 18\n0 gpm 1\n0 total 85899345920\n0 free 1\n0 util 50\n0 membusy "
          "1\n0 power 1\n"
          "0 name NVIDIA A100-SXM4-80GB\n"
          "0/1 uuid MIG-one\n0/1 total 10737418240\n0/1 free 9663676416\n0/1 sm 12\n0/1 dram "
          "3\n0/1 engine 44.5\n"
          "0/4 uuid MIG-two\n0/4 total 21474836480\n0/4 free 5368709120\n0/4 sm !3\n0/4 dram "
          "8\n0/4 engine !3\n"
          "1 uuid GPU-bbbb\n1 total 16106127360\n1 free 16000000000\n");
    struct gpus *g = open_these("all");

    gpus_read(g, NS_PER_S, r);
    assert_int_equal(gpus_read(g, 2 * NS_PER_S, r), 3);
    assert_string_equal(r[0].uuid, "MIG-one");
    assert_string_equal(r[0].name, "NVIDIA A100-SXM4-80GB");
    assert_true(r[0].mig);
    assert_int_equal(r[0].known, GPU_MEMORY | GPU_UTIL | GPU_SM_ACTIVE | GPU_DRAM_BW);
    assert_int_equal(r[0].memory_free_bytes, 9663676416);
    assert_int_equal(r[0].util_bp, 4450); /* the engines' active time stands in */
    assert_int_equal(r[0].sm_active_bp, 1200);
    assert_string_equal(r[1].uuid, "MIG-two");
    assert_int_equal(r[1].known, GPU_MEMORY | GPU_DRAM_BW);
    assert_int_equal(r[1].memory_total_bytes, 21474836480);
    assert_string_equal(r[2].uuid, "GPU-bbbb");
    assert_false(r[2].mig);
    gpus_close(g);

    g = open_these("MIG-two");
    assert_int_equal(gpus_count(g), 1);
    gpus_close(g);
    g = open_these("0"); /* all its slices */
    assert_int_equal(gpus_count(g), 2);
    gpus_close(g);
    struct gpu_options o = options("0,1"); /* CUDA: the first slice alone */
    struct slice bad;
    o.cuda = true;
    assert_int_equal(gpus_open(&o, &g, &bad), 0);
    assert_int_equal(gpus_read(g, 1, r), 2);
    assert_string_equal(r[0].uuid, "MIG-one");
    assert_string_equal(r[1].uuid, "GPU-bbbb");
    gpus_close(g);
    expect_refusal("GPU-aaaa", WEIR_E_NOTFOUND, "GPU-aaaa");
}

static void a_driver_of_long_ago_gives_what_it_has(void **state)
{
    (void)state;
    world(H100);
    struct gpu_options o = options("all");
    struct gpus *g = NULL;
    struct slice bad;
    o.nvml = getenv("FAKE_NVML_OLD");
    assert_int_equal(gpus_open(&o, &g, &bad), 0);
    gpus_read(g, NS_PER_S, r);
    assert_int_equal(gpus_read(g, 2 * NS_PER_S, r), 2);
    assert_int_equal(r[0].known, GPU_MEMORY | GPU_UTIL | GPU_MEM_BUSY | GPU_POWER);
    assert_int_equal(r[0].memory_free_bytes, 21474836480);
    gpus_close(g);
}

static void what_is_not_told_is_unknown_and_never_zero(void **state)
{
    (void)state;
    const struct {
        const char *more;
        uint32_t known;
    } cases[] = {
        {"0 free !3\n", GPU_UTIL | GPU_MEM_BUSY | GPU_POWER},
        {"0 total 18446744073709551615\n", GPU_UTIL | GPU_MEM_BUSY | GPU_POWER},
        {"0 total 18446744073709551614\n0 free 18446744073709551614\n",
         GPU_UTIL | GPU_MEM_BUSY | GPU_POWER},
        {"0 total 1125899906842625\n", GPU_UTIL | GPU_MEM_BUSY | GPU_POWER},
        {"0 total 0\n0 free 0\n", GPU_UTIL | GPU_MEM_BUSY | GPU_POWER},
        {"0 free 85899345921\n", GPU_UTIL | GPU_MEM_BUSY | GPU_POWER},
        {"0 util 101\n", GPU_MEMORY | GPU_MEM_BUSY | GPU_POWER},
        {"0 util 4294967295\n0 membusy 4294967295\n", GPU_MEMORY | GPU_POWER},
        {"0 util !999\n", GPU_MEMORY | GPU_POWER},
        {"0 power 4294967295\n", GPU_MEMORY | GPU_UTIL | GPU_MEM_BUSY},
        {"0 power !4\n", GPU_MEMORY | GPU_UTIL | GPU_MEM_BUSY},
        {"0 memory_v2 !13\n", GPU_MEMORY | GPU_UTIL | GPU_MEM_BUSY | GPU_POWER},
        {"0 memory_v2 !25\n", GPU_MEMORY | GPU_UTIL | GPU_MEM_BUSY | GPU_POWER},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char text[2048];
        snprintf(text, sizeof(text), "%s0 gpm 0\n%s", H100, cases[i].more);
        world(text);
        struct gpus *g = open_these("0");
        for (int again = 0; again < 2; again++) {
            assert_int_equal(gpus_read(g, NS_PER_S, r), 1);
            assert_int_equal(r[0].known, cases[i].known);
            assert_false(r[0].lost);
        }
        gpus_close(g);
    }
}

static void what_no_machine_has_is_not_believed(void **state)
{
    (void)state;
    struct gpus *g;

    world("count 4294967295\n0 uuid GPU-aaaa\n");
    g = open_these("all");
    assert_int_equal(gpus_count(g), 0);
    gpus_close(g);
    world("count 3\n0 uuid GPU-\xff\xfe\n1 uuid GPU-bbbb\n1 name \xc3\x28 H100\n2 uuid !999\n");
    g = open_these("all");
    assert_int_equal(gpus_read(g, NS_PER_S, r), 1);
    assert_string_equal(r[0].uuid, "GPU-bbbb");
    assert_string_equal(r[0].name, "");
    gpus_close(g);
}

static void not_now_is_asked_again_and_never_is_not(void **state)
{
    (void)state;
    world(H100 "0 util !10\n0 power !3\n");
    struct gpus *g = open_these("0");

    gpus_read(g, NS_PER_S, r);
    assert_int_equal(r[0].known, GPU_MEMORY);
    world(H100);
    gpus_read(g, 2 * NS_PER_S, r);
    assert_int_equal(r[0].known & (GPU_UTIL | GPU_POWER), GPU_UTIL);
    gpus_close(g);
}

static void a_lost_device_is_marked_and_the_others_go_on(void **state)
{
    (void)state;
    world(H100);
    struct gpus *g = open_these("all");

    gpus_read(g, NS_PER_S, r);
    gpus_read(g, 2 * NS_PER_S, r);
    assert_int_equal(r[0].known & GPU_SM_ACTIVE, GPU_SM_ACTIVE);
    world(H100 "0 handle !15\n");
    gpus_read(g, 3 * NS_PER_S, r);
    assert_true(r[0].lost);
    assert_int_equal(r[0].known, 0);
    assert_string_equal(r[0].uuid, "GPU-aaaa");
    assert_false(r[1].lost);
    assert_int_equal(r[1].memory_free_bytes, 16000000000);
    /* Not asked before its time, then it is. */
    world(H100);
    gpus_read(g, 102 * NS_PER_S, r);
    assert_true(r[0].lost);
    gpus_read(g, 103 * NS_PER_S, r);
    assert_false(r[0].lost);
    assert_int_equal(r[0].known, GPU_MEMORY | GPU_UTIL | GPU_MEM_BUSY | GPU_POWER);
    gpus_read(g, 104 * NS_PER_S, r);
    assert_int_equal(r[0].sm_active_bp, 7125);
    /* Needs a reset; and a sample that fails takes GPM's numbers along, no others. */
    world(H100 "0 sample !10\n");
    gpus_read(g, 105 * NS_PER_S, r);
    assert_int_equal(r[0].known, GPU_MEMORY | GPU_UTIL | GPU_MEM_BUSY | GPU_POWER);
    world(H100 "1 total !16\n");
    gpus_read(g, 106 * NS_PER_S, r);
    assert_true(r[1].lost);
    assert_false(r[0].lost);
    gpus_close(g);
}

static void a_useless_library_is_dropped_and_tried_again(void **state)
{
    (void)state;
    static const int codes[] = {1, 9, 18};

    for (size_t i = 0; i < 3; i++) {
        char text[2048];
        world(H100);
        struct gpus *g = open_these("1,0");
        gpus_read(g, NS_PER_S, r);
        gpus_read(g, 2 * NS_PER_S, r);
        snprintf(text, sizeof(text), "%s0 util !%d\ninit !9\n", H100, codes[i]);
        world(text);
        /* The first is still read, then the library is of no use. */
        assert_int_equal(gpus_read(g, 3 * NS_PER_S, r), 2);
        assert_string_equal(r[1].uuid, "GPU-aaaa");
        assert_int_equal(r[1].known, 0);
        assert_false(r[1].lost);
        gpus_read(g, 4 * NS_PER_S, r);
        assert_int_equal(r[0].known, 0);
        assert_string_equal(r[0].uuid, "GPU-bbbb");
        /* The driver is still not there at the next try, but at the one after it; GPU 1 did not come back. */
        gpus_read(g, 103 * NS_PER_S, r);
        assert_int_equal(r[0].known, 0);
        world("count 1\n0 uuid GPU-aaaa\n0 name X\n0 total 100\n0 free 60\n");
        gpus_read(g, 202 * NS_PER_S, r);
        assert_int_equal(r[1].known, 0);
        gpus_read(g, 203 * NS_PER_S, r);
        assert_int_equal(r[1].known, GPU_MEMORY);
        assert_int_equal(r[1].memory_free_bytes, 60);
        assert_false(r[1].lost);
        assert_true(r[0].lost);
        assert_string_equal(r[0].uuid, "GPU-bbbb");
        gpus_close(g);
    }
}

static void a_driver_that_comes_later_is_found(void **state)
{
    (void)state;
    world("init !9\n");
    struct gpus *g = open_these("all");

    assert_int_equal(gpus_read(g, NS_PER_S, r), 0);
    world(H100);
    assert_int_equal(gpus_read(g, 100 * NS_PER_S, r), 0);
    assert_int_equal(gpus_read(g, 101 * NS_PER_S, r), 2);
    assert_int_equal(r[1].memory_free_bytes, 16000000000);
    gpus_close(g);
    world("init !9\n");
    expect_refusal("0", WEIR_E_NOTFOUND, "0");
}

static void a_device_one_may_not_open_is_left_out(void **state)
{
    (void)state;
    world(H100 "0 handle !4\n");
    struct gpus *g = open_these("all");

    assert_int_equal(gpus_read(g, 1, r), 1);
    assert_string_equal(r[0].uuid, "GPU-bbbb");
    gpus_close(g);
    world("count !999\n");
    g = open_these("all");
    assert_int_equal(gpus_read(g, 1, r), 0);
    gpus_close(g);
}

static void no_library_is_no_error(void **state)
{
    (void)state;
    struct gpu_options o = options("all");
    struct gpus *g = NULL;
    struct slice bad;

    o.nvml = "/nonexistent/libnvidia-ml.so.1";
    assert_int_equal(gpus_open(&o, &g, &bad), 0);
    assert_int_equal(gpus_read(g, 1, r), 0);
    gpus_close(g);
    o.nvml = "libc.so.6"; /* a library, but another one */
    assert_int_equal(gpus_open(&o, &g, &bad), 0);
    assert_int_equal(gpus_read(g, 1, r), 0);
    gpus_close(g);
}

static void a_thread_reads_for_the_loop(void **state)
{
    (void)state;
    uint64_t first = 0;
    uint64_t next = 0;
    struct gpu_watch *w = NULL;

    world(H100);
    assert_int_equal(gpu_watch_start(open_these("all"), NS_PER_MS, &w), 0);
    while (gpu_watch_copy(w, r, &first) == 0)
        usleep(100);
    assert_true(first != 0 && first <= loop_clock());
    assert_int_equal(r[0].memory_free_bytes, 21474836480);
    do {
        usleep(100);
        assert_int_equal(gpu_watch_copy(w, r, &next), 2);
    } while (next == first);
    assert_true(next > first);
    gpu_watch_stop(w);
}

static void types_are_the_names_that_weights_use(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"NVIDIA A100-SXM4-80GB", "A100"},
        {"NVIDIA H100 80GB HBM3", "H100"},
        {"Tesla T4", "T4"},
        {"NVIDIA L40S", "L40S"},
        {"NVIDIA GeForce RTX 3090", "3090"},
        {"NVIDIA RTX A6000", "A6000"},
        {"NVIDIA H200", "H200"},
        {"AMD Instinct MI300X", "MI300X"},
        {"A100-PCIE-40GB", "A100"},
        {"NVIDIA GH200 480GB", "GH200"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct slice type = gpu_type_of(slice_str(cases[i][0]));
        assert_int_equal(type.n, strlen(cases[i][1]));
        assert_memory_equal(type.p, cases[i][1], type.n);
    }
    assert_null(gpu_type_of(SLICE("")).p);
    assert_null(gpu_type_of(SLICE("NVIDIA")).p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_is_exact),
        cmocka_unit_test(devices_are_chosen_by_index_and_uuid),
        cmocka_unit_test(cuda_visible_devices_has_its_own_manners),
        cmocka_unit_test(a_gpu_in_mig_mode_stands_for_its_slices),
        cmocka_unit_test(a_driver_of_long_ago_gives_what_it_has),
        cmocka_unit_test(what_is_not_told_is_unknown_and_never_zero),
        cmocka_unit_test(what_no_machine_has_is_not_believed),
        cmocka_unit_test(not_now_is_asked_again_and_never_is_not),
        cmocka_unit_test(a_lost_device_is_marked_and_the_others_go_on),
        cmocka_unit_test(a_useless_library_is_dropped_and_tried_again),
        cmocka_unit_test(a_driver_that_comes_later_is_found),
        cmocka_unit_test(a_device_one_may_not_open_is_left_out),
        cmocka_unit_test(no_library_is_no_error),
        cmocka_unit_test(a_thread_reads_for_the_loop),
        cmocka_unit_test(types_are_the_names_that_weights_use),
    };

    snprintf(script, sizeof(script), "/tmp/weir-nvml-XXXXXX");
    int fd = mkstemp(script);
    if (fd < 0 || !getenv("FAKE_NVML"))
        return 1;
    close(fd);
    snprintf(next_script, sizeof(next_script), "%s.next", script);
    setenv("WEIR_FAKE_NVML", script, 1);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(script);
    return rc;
}
