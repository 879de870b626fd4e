/* SPDX-License-Identifier: Apache-2.0 */
/* Against a small sysfs of our own. */
#include "ct.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/num.h"
#include "gpu/gpu.h"

static char root[] = "/tmp/weir-sysfs-XXXXXX";
static struct gpu_reading r[GPU_DEVICES_MAX];

static void put(const char *file, const char *text)
{
    char path[512];
    FILE *f;

    snprintf(path, sizeof(path), "%s/class/drm/%s", root, file);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        mkdir(path, 0755);
        *slash = '/';
    }
    f = fopen(path, "we");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void drop(const char *file)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/class/drm/%s", root, file);
    assert_int_equal(unlink(path), 0);
}

static struct gpus *open_these(const char *select)
{
    const struct gpu_options o = {
        .nvml = "/nonexistent", .sysfs = root, .select = select, .retry_ns = NS_PER_S};
    struct gpus *g = NULL;
    struct slice bad;

    assert_int_equal(gpus_open(&o, &g, &bad), 0);
    return g;
}

static int fill(void **state)
{
    (void)state;
    /* card0 is Intel's, card0-DP-1 a connector; of card10 there is less than of card2. */
    put("card0/device/vendor", "0x8086\n");
    put("card0/device/uevent", "DRIVER=i915\n");
    put("card0-DP-1/status", "connected\n");
    put("card2/device/vendor", "0x1002\n");
    put("card2/device/uevent", "DRIVER=amdgpu\nPCI_CLASS=30000\nPCI_SLOT_NAME=0000:03:00.0\n");
    put("card2/device/unique_id", "6f1b8c2e9a3d4055\n");
    put("card2/device/product_name", "AMD Instinct MI300X\n");
    put("card2/device/mem_info_vram_total", "206141652992\n");
    put("card2/device/mem_info_vram_used", "6141652992\n");
    put("card2/device/gpu_busy_percent", "63\n");
    put("card2/device/mem_busy_percent", "21\n");
    put("card2/device/power/runtime_status", "active\n");
    put("card2/device/hwmon/hwmon5/power1_average", "412000000\n");
    put("card2/device/hwmon/hwmon5/power1_input", "999000000\n");
    put("card10/device/vendor", "0x1002\n");
    put("card10/device/uevent", "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:0c:00.0\n");
    put("card10/device/mem_info_vram_total", "1000\n");
    put("card10/device/mem_info_vram_used", "1001\n");
    put("card10/device/hwmon/hwmon7/power1_input", "45000000\n");
    put("card11/device/vendor", "0x1002\n"); /* passed through to a guest */
    put("card11/device/uevent", "DRIVER=vfio-pci\n");
    return 0;
}

static void every_value_is_exact(void **state)
{
    (void)state;
    struct gpus *g = open_these("all");

    assert_int_equal(gpus_read(g, 1, r), 2);
    assert_string_equal(r[0].uuid, "AMD-6f1b8c2e9a3d4055");
    assert_string_equal(r[0].name, "AMD Instinct MI300X");
    assert_int_equal(r[0].known, GPU_MEMORY | GPU_UTIL | GPU_MEM_BUSY | GPU_POWER);
    assert_int_equal(r[0].memory_total_bytes, 206141652992);
    assert_int_equal(r[0].memory_free_bytes, 200000000000);
    assert_int_equal(r[0].util_bp, 6300);
    assert_int_equal(r[0].mem_busy_bp, 2100);
    assert_int_equal(r[0].power_mw, 412000);
    assert_string_equal(r[1].uuid, "AMD-0000:0c:00.0");
    assert_string_equal(r[1].name, "AMD GPU");
    assert_int_equal(r[1].known, GPU_POWER); /* used above total is no number */
    assert_int_equal(r[1].power_mw, 45000);
    gpus_close(g);
}

static void cards_are_chosen_like_others(void **state)
{
    (void)state;
    struct gpus *g = open_these("1");

    assert_int_equal(gpus_read(g, 1, r), 1);
    assert_string_equal(r[0].uuid, "AMD-0000:0c:00.0");
    gpus_close(g);
    g = open_these("AMD-6f1b");
    assert_int_equal(gpus_read(g, 1, r), 1);
    assert_string_equal(r[0].uuid, "AMD-6f1b8c2e9a3d4055");
    gpus_close(g);
}

static void a_suspended_card_is_not_woken(void **state)
{
    (void)state;
    struct gpus *g = open_these("0");

    put("card2/device/power/runtime_status", "suspended\n");
    gpus_read(g, 1, r);
    assert_int_equal(r[0].known, 0);
    assert_false(r[0].lost);
    put("card2/device/power/runtime_status", "active\n");
    gpus_read(g, 2, r);
    assert_int_equal(r[0].util_bp, 6300);
    gpus_close(g);
}

static void a_card_that_is_gone_is_lost_until_it_is_back(void **state)
{
    (void)state;
    struct gpus *g = open_these("0");

    drop("card2/device/vendor");
    gpus_read(g, 1, r);
    assert_true(r[0].lost);
    assert_int_equal(r[0].known, 0);
    put("card2/device/vendor", "0x1002\n");
    gpus_read(g, 2, r);
    assert_false(r[0].lost);
    assert_int_equal(r[0].memory_free_bytes, 200000000000);
    gpus_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_is_exact),
        cmocka_unit_test(cards_are_chosen_like_others),
        cmocka_unit_test(a_suspended_card_is_not_woken),
        cmocka_unit_test(a_card_that_is_gone_is_lost_until_it_is_back),
    };
    char command[64];

    if (!mkdtemp(root))
        return 1;
    int rc = cmocka_run_group_tests(tests, fill, NULL);
    snprintf(command, sizeof(command), "rm -r %s", root);
    return system(command) == 0 ? rc : 1;
}
