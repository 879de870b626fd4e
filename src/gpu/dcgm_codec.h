/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The page of NVIDIA's dcgm-exporter to readings of devices, and which of them somebody means. Pure. A series that is
 * absent, or says one of DCGM's "no value" numbers, is unknown.
 */
#ifndef WEIR_GPU_DCGM_CODEC_H
#define WEIR_GPU_DCGM_CODEC_H

#include "base/slice.h"
#include "gpu/reading_codec.h"

enum { GPU_EXPORTED_MAX = 256, GPU_POD_TEXT = 256, GPU_EXPORTED_NUMBERS = 12 };

/** One device of a page, for one pod of those that share it. */
struct gpu_exported {
    /** uuid: of a MIG slice that of its GPU, a slash and the number of the GPU instance: "GPU-.../3". */
    struct gpu_reading reading;
    char index[8];                            /**< label gpu: as nvidia-smi counts; "" = not told */
    char pod[GPU_POD_TEXT], ns[GPU_POD_TEXT]; /**< Kubernetes' pod that has it; "" = not told */
    /* working state */
    double v[GPU_EXPORTED_NUMBERS];
    uint32_t has;
};

/**
 * Read a page. @param rows room for GPU_EXPORTED_MAX; more are left out. @return how many; 0 when it has none.
 */
uint32_t gpu_dcgm_read(struct slice text, struct gpu_exported *rows);

/**
 * Choose devices: "all", or a comma list of indexes, UUIDs and unique beginnings of UUIDs. "all" and an index stand for the
 * slices of a GPU in MIG mode; "0/3" is one of them. In the order of the list, none twice.
 * @param out room for GPU_DEVICES_MAX. @return how many; WEIR_E_NOTFOUND: a piece names none, or more than one.
 */
int gpu_exported_choose(const struct gpu_exported *rows,
                        uint32_t n,
                        struct slice select,
                        struct gpu_reading *out);

/** Those of one pod. @param ns absent: of any namespace. @param out room for GPU_DEVICES_MAX. @return how many. */
uint32_t gpu_exported_of_pod(const struct gpu_exported *rows,
                             uint32_t n,
                             struct slice ns,
                             struct slice pod,
                             struct gpu_reading *out);

#endif /* WEIR_GPU_DCGM_CODEC_H */
