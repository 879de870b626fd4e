/* SPDX-License-Identifier: Apache-2.0 */
/** @file AMD's devices, by the amdgpu driver's files in sysfs. Private to the room. */
#ifndef WEIR_GPU_AMD_H
#define WEIR_GPU_AMD_H

#include "gpu/gpu.h"

struct amd_device {
    unsigned card; /* /sys/class/drm/cardN */
    char uuid[GPU_TEXT];
    char name[GPU_TEXT];
    bool lost; /* and that was logged */
};

/** By card number. @return how many, at most max. */
unsigned amd_list(const char *sysfs, struct amd_device *out, unsigned max);
/** Fills out, uuid and name included. A suspended card is not woken: nothing is known of it. */
void amd_read(const char *sysfs, struct amd_device *d, struct gpu_reading *out);

#endif /* WEIR_GPU_AMD_H */
