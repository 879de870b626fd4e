/* SPDX-License-Identifier: Apache-2.0 */
/* A program of its own: Meson gives one that depends on the scripted library its folder in LD_LIBRARY_PATH. */
#include "ct.h"

#include <stdbool.h>
#include <unistd.h>

#include "base/num.h"
#include "gpu/gpu.h"

static struct gpu_reading r[GPU_DEVICES_MAX];

/* The real thing, where there is one. */
static void a_real_device_answers(void **state)
{
    (void)state;
    const struct gpu_options o = {.select = "all", .retry_ns = NS_PER_S};
    struct gpus *g = NULL;
    struct slice bad;

    assert_int_equal(gpus_open(&o, &g, &bad), 0);
    gpus_read(g, NS_PER_S, r);
    usleep(150000); /* GPM counts between two samples at least 100 ms apart */
    unsigned n = gpus_read(g, 2 * NS_PER_S, r);
    for (unsigned i = 0; i < n; i++) {
        print_message("# %s \"%s\" known=%x total=%llu free=%llu util=%u membusy=%u sm=%u dram=%u "
                      "power=%u mW\n",
                      r[i].uuid, r[i].name, r[i].known, (unsigned long long)r[i].memory_total_bytes,
                      (unsigned long long)r[i].memory_free_bytes, r[i].util_bp, r[i].mem_busy_bp,
                      r[i].sm_active_bp, r[i].dram_bw_bp, r[i].power_mw);
        assert_false(r[i].lost);
        assert_true(r[i].uuid[0] && r[i].name[0]);
        assert_true(r[i].memory_free_bytes <= r[i].memory_total_bytes);
        assert_true(r[i].util_bp <= 10000 && r[i].sm_active_bp <= 10000 &&
                    r[i].dram_bw_bp <= 10000);
    }
    gpus_close(g);
}

static bool any_device(void)
{
    const struct gpu_options o = {.select = "all", .retry_ns = NS_PER_S};
    struct gpus *g = NULL;
    struct slice bad;

    if (gpus_open(&o, &g, &bad) != 0)
        return true;
    bool any = gpus_count(g) > 0;
    gpus_close(g);
    return any;
}

/* 77 is Meson's word for skipped: cmocka's own way of saying it in TAP reads as a failure there. */
int main(void)
{
    enum { SKIPPED = 77 };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_real_device_answers),
    };

    if (!any_device()) {
        print_message("# skipped: no NVIDIA or AMD device on this machine\n");
        return SKIPPED;
    }
    return cmocka_run_group_tests_name("real", tests, NULL, NULL);
}
