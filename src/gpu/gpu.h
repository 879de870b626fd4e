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
#include "gpu/reading_codec.h"

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

#endif /* WEIR_GPU_GPU_H */
