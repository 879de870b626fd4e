/* SPDX-License-Identifier: Apache-2.0 */
/** @file NVIDIA's devices, by NVML. Private to the room. */
#ifndef WEIR_GPU_NVML_H
#define WEIR_GPU_NVML_H

#include "gpu/gpm.h"
#include "gpu/gpu.h"
#include "gpu/nvml_abi.h"

struct nvml {
    void *library;
    struct nvml_calls calls;
    struct nvml_gpm_get gpm; /* scratch of GPM's one large argument */
};

/** What is asked of a device; a bit in nvml_device.off once the driver says it never answers. */
enum nvml_question {
    NVML_ASK_MEMORY_V2,
    NVML_ASK_MEMORY,
    NVML_ASK_UTIL,
    NVML_ASK_POWER,
    NVML_ASK_GPM
};

struct nvml_device {
    nvml_handle handle;
    nvml_handle parent;    /* of a MIG slice: the GPU; else NULL */
    unsigned gpu_instance; /* of a MIG slice */
    uint32_t off;          /* bits over enum nvml_question */
    uint32_t failing;      /* likewise: failed lately, and that was logged */
    struct gpm gpm;
    uint64_t retry_at_ns; /* while lost */
    bool lost;
    char uuid[GPU_TEXT];
    char name[GPU_TEXT];
};

/**
 * Load and initialise. @param why static words for a log line when not 0.
 * @return 0, WEIR_E_NOTFOUND (no such library), WEIR_E_UNSUPPORTED (it is not NVML), WEIR_E_AGAIN (its driver is not
 * ready: worth another try in minutes), WEIR_E_NOMEM.
 */
int nvml_open(const char *library, struct nvml **out, const char **why) MUST_CHECK;
void nvml_close(struct nvml *n);

/** Receives the devices; top is the index of the GPU, or the GPU that a slice belongs to. @return not 0 = enough. */
typedef int (*nvml_each_fn)(void *ctx, unsigned top, const struct nvml_device *d);
/** @return 0, what each returned, or WEIR_E_AGAIN (the library is to be dropped). */
int nvml_list(struct nvml *n, nvml_each_fn each, void *ctx);

/** Fills out, d->uuid and d->name included. @return 0, or WEIR_E_AGAIN: the library is to be dropped. */
int nvml_read(struct nvml *n,
              struct nvml_device *d,
              uint64_t now_ns,
              uint64_t retry_ns,
              struct gpu_reading *out);
/** Give back what reading took. */
void nvml_forget(struct nvml *n, struct nvml_device *d);

#endif /* WEIR_GPU_NVML_H */
