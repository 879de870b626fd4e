/* SPDX-License-Identifier: Apache-2.0 */
/* A page of dcgm-exporter, and a choice of its devices: shares and memory are what they can be, nobody is chosen twice. */
#include "fuzz.h"

#include "gpu/dcgm_codec.h"

static void check(const struct gpu_reading *r)
{
    FUZZ_CHECK(memchr(r->uuid, 0, sizeof(r->uuid)) != NULL && r->uuid[0] != 0);
    FUZZ_CHECK(memchr(r->name, 0, sizeof(r->name)) != NULL);
    FUZZ_CHECK(r->util_bp <= 10000 && r->mem_busy_bp <= 10000 && r->sm_active_bp <= 10000 &&
               r->dram_bw_bp <= 10000);
    FUZZ_CHECK(r->memory_free_bytes <= r->memory_total_bytes);
    FUZZ_CHECK(!(r->known & GPU_MEMORY) || r->memory_total_bytes != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct gpu_exported rows[GPU_EXPORTED_MAX];
    struct slice page = slice_of((const char *)data, size);
    struct gpu_reading out[GPU_DEVICES_MAX];
    struct slice select;

    /* The first line chooses. */
    if (!slice_cut(&page, '\n', &select))
        return 0;
    uint32_t n = gpu_dcgm_read(page, rows);
    FUZZ_CHECK(n <= GPU_EXPORTED_MAX);
    for (uint32_t i = 0; i < n; i++)
        check(&rows[i].reading);
    int chosen = gpu_exported_choose(rows, n, select, out);
    FUZZ_CHECK(chosen <= GPU_DEVICES_MAX);
    for (int i = 0; i < chosen; i++)
        for (int k = 0; k < i; k++)
            FUZZ_CHECK(strcmp(out[i].uuid, out[k].uuid) != 0);
    FUZZ_CHECK(gpu_exported_of_pod(rows, n, slice_of(NULL, 0), select, out) <= GPU_DEVICES_MAX);
    return 0;
}
