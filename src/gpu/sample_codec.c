/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/sample_codec.h"

#include "base/bug.h"

static void know(struct sample *s, enum sample_field f)
{
    s->known |= UINT32_C(1) << f;
}

enum membw_basis gpu_sample(struct sample *s, const struct gpu_reading *gpus, unsigned n)
{
    uint32_t known = n ? UINT32_MAX : 0;
    uint64_t total = UINT64_MAX;
    uint64_t free = UINT64_MAX;
    uint32_t util = 0;
    uint32_t busy = 0;
    uint32_t dram = 0;
    uint32_t sm = 0;

    for (unsigned i = 0; i < n; i++) {
        known &= gpus[i].known;
        total = MIN(total, gpus[i].memory_total_bytes);
        free = MIN(free, gpus[i].memory_free_bytes);
        util = MAX(util, gpus[i].util_bp);
        busy = MAX(busy, gpus[i].mem_busy_bp);
        dram = MAX(dram, gpus[i].dram_bw_bp);
        sm = MAX(sm, gpus[i].sm_active_bp);
    }
    if (known & GPU_MEMORY) {
        s->memory_total_bytes = total * n;
        s->memory_free_bytes = free * n;
        know(s, SAMPLE_MEMORY_TOTAL);
        know(s, SAMPLE_MEMORY_FREE);
    }
    if (known & GPU_UTIL) {
        s->gpu_util_bp = util;
        know(s, SAMPLE_GPU_UTIL);
    }
    if (known & GPU_SM_ACTIVE) {
        s->sm_active_bp = sm;
        know(s, SAMPLE_SM_ACTIVE);
    }
    if (!(known & (GPU_DRAM_BW | GPU_MEM_BUSY)))
        return MEMBW_UNKNOWN;
    s->membw_util_bp = known & GPU_DRAM_BW ? dram : busy;
    know(s, SAMPLE_MEMBW_UTIL);
    return known & GPU_DRAM_BW ? MEMBW_DRAM_BANDWIDTH : MEMBW_TIME_BUSY;
}
