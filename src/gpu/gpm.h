/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file GPM (Hopper and newer): SM activity and DRAM bandwidth are counted by the device between two samples, so the
 * first reading of a device has none. Private to the room.
 */
#ifndef WEIR_GPU_GPM_H
#define WEIR_GPU_GPM_H

#include "gpu/gpu.h"
#include "gpu/nvml_abi.h"

struct nvml;
struct nvml_device;

struct gpm {
    nvml_handle samples[2];
    uint64_t taken_ns; /* of the newer */
    unsigned newer;    /* which one that is */
    unsigned n;        /* samples taken, at most 2 */
    bool asked;        /* the device was asked whether it has GPM */
    struct {           /* the last result, which stands until the next one */
        uint32_t known;
        uint32_t engine_bp, sm_bp, dram_bp;
        bool engine;
    } last;
};

/** Next sample, when the last is 100 ms old, and what it shows, into out. @return NVML's code. */
int gpm_read(struct nvml *n, struct nvml_device *d, uint64_t now_ns, struct gpu_reading *out);
void gpm_fini(struct nvml *n, struct gpm *g);

#endif /* WEIR_GPU_GPM_H */
