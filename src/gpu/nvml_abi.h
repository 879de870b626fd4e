/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The part of NVML's binary interface that is used here, written from its documentation: constants, layouts, and
 * the one list of functions. A plain name is the oldest form of a call, so suffixes are always spelled out.
 */
#ifndef WEIR_GPU_NVML_ABI_H
#define WEIR_GPU_NVML_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef void *nvml_handle; /* opaque to us: a device or a GPM sample */

enum nvml_return {
    NVML_OK = 0,
    NVML_UNINITIALIZED = 1,
    NVML_INVALID_ARGUMENT = 2,
    NVML_NOT_SUPPORTED = 3,
    NVML_NO_PERMISSION = 4,
    NVML_NOT_FOUND = 6,
    NVML_DRIVER_NOT_LOADED = 9,
    NVML_TIMEOUT = 10,
    NVML_FUNCTION_NOT_FOUND = 13,
    NVML_GPU_IS_LOST = 15,
    NVML_RESET_REQUIRED = 16,
    NVML_VERSION_MISMATCH = 18,
    NVML_IN_USE = 19,
    NVML_NO_DATA = 21,
    NVML_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_DEPRECATED = 26,
    NVML_NOT_READY = 27,
    NVML_GPU_NOT_FOUND = 28,
};

struct nvml_memory {
    uint64_t total, free, used;
};

struct nvml_memory_v2 {
    uint32_t version;
    uint64_t total, reserved, free, used;
};

struct nvml_utilization {
    uint32_t gpu, memory; /* percent */
};

struct nvml_gpm_support {
    uint32_t version;
    uint32_t supported;
};

struct nvml_gpm_metric {
    uint32_t id;
    int32_t rc;
    double value;
    const char *names[3];
};

/* The header's array of metrics grew from 98 to 333 under the same version number: only numMetrics can be touched, but
 * room for all of them costs 16 KiB once. */
enum { NVML_GPM_ROOM = 400 };
struct nvml_gpm_get {
    uint32_t version;
    uint32_t n;
    nvml_handle older, newer;
    struct nvml_gpm_metric metrics[NVML_GPM_ROOM];
};

enum { NVML_MEMORY_V2 = sizeof(struct nvml_memory_v2) | 2 << 24, NVML_GPM_VERSION = 1 };
enum { NVML_GPM_ENGINE_ACTIVE = 1, NVML_GPM_SM_ACTIVE = 2, NVML_GPM_DRAM_BW = 10 };

_Static_assert(sizeof(struct nvml_memory) == 24, "nvmlMemory_t");
_Static_assert(sizeof(struct nvml_memory_v2) == 40 && offsetof(struct nvml_memory_v2, free) == 24,
               "nvmlMemory_v2_t");
_Static_assert(sizeof(struct nvml_utilization) == 8, "nvmlUtilization_t");
_Static_assert(sizeof(struct nvml_gpm_support) == 8, "nvmlGpmSupport_t");
_Static_assert(sizeof(struct nvml_gpm_metric) == 40, "nvmlGpmMetric_t");
_Static_assert(offsetof(struct nvml_gpm_get, metrics) == 24, "nvmlGpmMetricsGet_t");

/*
 * X(field, newest name, older name or NULL, arguments). A call that neither name resolves to is NULL: the driver has it
 * not. init, shutdown, count, by_index, uuid and name are needed; all else is extra.
 */
#define NVML_CALLS(X)                                                                              \
    X(init, "nvmlInit_v2", "nvmlInit", (void))                                                     \
    X(shutdown, "nvmlShutdown", NULL, (void))                                                      \
    X(count, "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount", (unsigned *))                          \
    X(by_index, "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex",                     \
      (unsigned, nvml_handle *))                                                                   \
    X(by_uuid, "nvmlDeviceGetHandleByUUID", NULL, (const char *, nvml_handle *))                   \
    X(uuid, "nvmlDeviceGetUUID", NULL, (nvml_handle, char *, unsigned))                            \
    X(name, "nvmlDeviceGetName", NULL, (nvml_handle, char *, unsigned))                            \
    X(memory, "nvmlDeviceGetMemoryInfo", NULL, (nvml_handle, struct nvml_memory *))                \
    X(memory_v2, "nvmlDeviceGetMemoryInfo_v2", NULL, (nvml_handle, struct nvml_memory_v2 *))       \
    X(utilization, "nvmlDeviceGetUtilizationRates", NULL,                                          \
      (nvml_handle, struct nvml_utilization *))                                                    \
    X(power, "nvmlDeviceGetPowerUsage", NULL, (nvml_handle, unsigned *))                           \
    X(mig_mode, "nvmlDeviceGetMigMode", NULL, (nvml_handle, unsigned *, unsigned *))               \
    X(mig_count, "nvmlDeviceGetMaxMigDeviceCount", NULL, (nvml_handle, unsigned *))                \
    X(mig_by_index, "nvmlDeviceGetMigDeviceHandleByIndex", NULL,                                   \
      (nvml_handle, unsigned, nvml_handle *))                                                      \
    X(mig_instance, "nvmlDeviceGetGpuInstanceId", NULL, (nvml_handle, unsigned *))                 \
    X(mig_parent, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", NULL,                            \
      (nvml_handle, nvml_handle *))                                                                \
    X(gpm_support, "nvmlGpmQueryDeviceSupport", NULL, (nvml_handle, struct nvml_gpm_support *))    \
    X(gpm_alloc, "nvmlGpmSampleAlloc", NULL, (nvml_handle *))                                      \
    X(gpm_free, "nvmlGpmSampleFree", NULL, (nvml_handle))                                          \
    X(gpm_sample, "nvmlGpmSampleGet", NULL, (nvml_handle, nvml_handle))                            \
    X(gpm_mig_sample, "nvmlGpmMigSampleGet", NULL, (nvml_handle, unsigned, nvml_handle))           \
    X(gpm_metrics, "nvmlGpmMetricsGet", NULL, (struct nvml_gpm_get *))

struct nvml_calls {
#define NVML_FIELD(field, newest, older, arguments) int(*field) arguments;
    NVML_CALLS(NVML_FIELD)
#undef NVML_FIELD
};

#endif /* WEIR_GPU_NVML_ABI_H */
