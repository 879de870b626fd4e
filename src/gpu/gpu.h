/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The GPUs of this machine and how they are: NVIDIA by NVML (loaded at run time, never linked), AMD by sysfs.
 *
 * What a device, driver or permission does not tell is unknown (a clear bit), never 0. One set belongs to one thread:
 * calls into a driver may block, so an event loop reads through gpu/watch.h, which has a thread for it.
 */
#ifndef WEIR_GPU_GPU_H
#define WEIR_GPU_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
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

struct gpu_options {
    const char *nvml;  /**< path or name of the library; NULL = libnvidia-ml.so.1; borrowed */
    const char *sysfs; /**< root of sysfs; NULL = /sys; borrowed */
    const char *
        select; /**< "all", "none", or a comma list of indexes and UUIDs (or unique beginnings of them); borrowed */
    bool cuda;         /**< select has CUDA_VISIBLE_DEVICES' manners: see gpus_open() */
    uint64_t retry_ns; /**< before a lost device or library is tried again */
};

struct gpus;

/**
 * Find the devices and choose among them. Indexes count NVIDIA's devices in PCI order, then AMD's by card; a GPU in MIG
 * mode stands for its slices. No device at all is no error. Logs once what there is not.
 * @param bad which piece of select was refused, in select; absent otherwise.
 * @return 0, WEIR_E_INVALID (a piece that is neither index nor UUID, or twice the same), WEIR_E_NOTFOUND (no such device),
 * WEIR_E_FULL (more than GPU_DEVICES_MAX), WEIR_E_NOMEM. With cuda an unknown piece ends the list, as it does in CUDA,
 * and an index that names a GPU in MIG mode stands for its first slice.
 */
int gpus_open(const struct gpu_options *o, struct gpus **out, struct slice *bad) MUST_CHECK;
void gpus_close(struct gpus *g);

/** How many were chosen. They keep their order; with "all" there may be more once a driver has come. */
unsigned gpus_count(const struct gpus *g);

/** Read every chosen device. @param out room for GPU_DEVICES_MAX. @return how many. May block in the driver. */
unsigned gpus_read(struct gpus *g, uint64_t now_ns, struct gpu_reading *out);

/** The short name that weights are set by: "NVIDIA A100-SXM4-80GB" is A100. Borrowed from name; absent when nothing is left. */
struct slice gpu_type_of(struct slice name);

#endif /* WEIR_GPU_GPU_H */
