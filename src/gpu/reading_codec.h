/* SPDX-License-Identifier: Apache-2.0 */
/** @file One device at one moment, whoever read it. Pure. */
#ifndef WEIR_GPU_READING_CODEC_H
#define WEIR_GPU_READING_CODEC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

enum { GPU_DEVICES_MAX = 64, GPU_TEXT = 96 };

/** Bits of gpu_reading.known. */
enum gpu_fact {
    GPU_MEMORY = 1 << 0, /**< total and free */
    GPU_UTIL = 1 << 1,   /**< share of time in which something ran */
    GPU_MEM_BUSY =
        1 << 2, /**< share of time in which the memory controller was busy; not a bandwidth */
    GPU_POWER = 1 << 3,
    GPU_SM_ACTIVE = 1 << 4, /**< GPM: share of multiprocessors at work */
    GPU_DRAM_BW = 1 << 5,   /**< GPM: memory bandwidth as a share of the device's maximum */
};

/** One device at one moment. Shares are basis points: 10000 is 100 %. */
struct gpu_reading {
    char uuid[GPU_TEXT]; /**< "GPU-...", "MIG-..." or "AMD-..." */
    char name[GPU_TEXT]; /**< as the driver says it: "NVIDIA H100 80GB HBM3" */
    bool mig;            /**< a MIG slice */
    bool lost;           /**< fell off the bus, needs a reset, or is there no more */
    uint32_t known;      /**< enum gpu_fact */
    uint64_t memory_total_bytes;
    uint64_t memory_free_bytes;
    uint32_t util_bp;
    uint32_t mem_busy_bp;
    uint32_t sm_active_bp;
    uint32_t dram_bw_bp;
    uint32_t power_mw;
};

/** The short name that weights are set by: "NVIDIA A100-SXM4-80GB" is A100. Borrowed from name; absent when nothing is left. */
struct slice gpu_type_of(struct slice name);

#endif /* WEIR_GPU_READING_CODEC_H */
