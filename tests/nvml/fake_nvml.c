/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An NVML of our own: the same symbols, values and errors from a text file that WEIR_FAKE_NVML names. The file is read
 * again whenever it was exchanged, so a test changes the world by renaming a new file over it.
 *
 * Lines: "KEY VALUE" for the library, "DEVICE KEY VALUE" for a device, "DEVICE/SLICE KEY VALUE" for a MIG slice; "#"
 * begins a comment. A VALUE "!N" makes the call return code N; "-" takes the line back,
 * "hang" never returns.
 *   library: init, count (of devices), count alone decides how many there are
 *   device:  handle, uuid, name, total, free, memory_v2, util, membusy, power, mig, gpm, sm, dram, engine, sample
 * What is not told: handle, uuid and name are made up, everything else answers 3 (not supported).
 * OLD_ABI leaves out every _v2 and _v3 name and all of GPM, as drivers of long ago do.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "gpu/nvml_abi.h"

#define EXPORT __attribute__((visibility("default")))

enum { LINES_MAX = 512, DEVICES = 64, SLICES = 8 };

static struct line {
    char who[24];
    char key[24];
    char value[120];
} lines[LINES_MAX];
static int n_lines;
static struct timespec read_at;
static ino_t read_inode;
static int inits; /* as counted by init and shutdown */

/* A handle is the address of its place: [device][0] is the GPU, [device][1 + slice] a slice. */
static char places[DEVICES][1 + SLICES];

struct fake_sample {
    nvml_handle of;
    unsigned gpu_instance;
    unsigned long number; /* which one since the start; 0 = never taken */
};
static int samples_out;

static void refresh(void)
{
    const char *path = getenv("WEIR_FAKE_NVML");
    struct stat st;
    char text[256];

    if (!path || stat(path, &st) != 0) {
        n_lines = 0;
        return;
    }
    if (st.st_ino == read_inode && memcmp(&st.st_mtim, &read_at, sizeof(read_at)) == 0)
        return;
    FILE *f = fopen(path, "re");
    if (!f)
        return;
    read_inode = st.st_ino;
    read_at = st.st_mtim;
    n_lines = 0;
    while (n_lines < LINES_MAX && fgets(text, sizeof(text), f)) {
        struct line *l = &lines[n_lines];
        text[strcspn(text, "#\n")] = 0;
        if (sscanf(text, "%23s %23s %119[^\n]", l->who, l->key, l->value) == 3)
            n_lines++;
        else if (sscanf(text, "%23s %119[^\n]", l->key, l->value) == 2) {
            strcpy(l->who, "*");
            n_lines++;
        }
    }
    fclose(f);
}

/* The last line counts. */
static const char *look(const char *who, const char *key)
{
    refresh();
    for (int i = n_lines - 1; i >= 0; i--)
        if (strcmp(lines[i].who, who) == 0 && strcmp(lines[i].key, key) == 0)
            return strcmp(lines[i].value, "-") == 0 ? NULL : lines[i].value;
    return NULL;
}

static bool place_of(nvml_handle h, int *device, int *slice)
{
    const char *p = h;

    if (p < &places[0][0] || p >= &places[0][0] + sizeof(places))
        return false;
    *device = (int)((p - &places[0][0]) / (1 + SLICES));
    *slice = (int)((p - &places[0][0]) % (1 + SLICES)) - 1;
    return true;
}

static const char *who_is(nvml_handle h, char out[24])
{
    int device;
    int slice;

    if (!place_of(h, &device, &slice))
        return NULL;
    if (slice < 0)
        snprintf(out, 24, "%d", device);
    else
        snprintf(out, 24, "%d/%d", device, slice);
    return out;
}

/* A value as text; NVML's code. A device that fell off the bus answers everything with that. */
static int ask(nvml_handle h, const char *key, const char **out)
{
    char who[24];
    char gpu[24];

    if (inits == 0)
        return NVML_UNINITIALIZED;
    if (!who_is(h, who))
        return NVML_INVALID_ARGUMENT;
    snprintf(gpu, sizeof(gpu), "%.*s", (int)strcspn(who, "/"), who);
    const char *broken = look(gpu, "handle");
    if (broken && broken[0] == '!')
        return atoi(broken + 1);
    const char *v = look(who, key);
    if (!v)
        return NVML_NOT_SUPPORTED;
    if (v[0] == '!')
        return atoi(v + 1);
    if (strcmp(v, "hang") == 0) /* as a driver does while a board dies */
        sleep(3600);
    *out = v;
    return NVML_OK;
}

static int ask_number(nvml_handle h, const char *key, unsigned long long *out)
{
    const char *v;
    int rc = ask(h, key, &v);

    if (rc == NVML_OK)
        *out = strtoull(v, NULL, 0);
    return rc;
}

static int ask_text(nvml_handle h, const char *key, const char *fallback, char *out, unsigned room)
{
    const char *v = fallback;
    int rc = ask(h, key, &v);

    if (rc != NVML_OK && rc != NVML_NOT_SUPPORTED)
        return rc;
    if (strlen(v) >= room)
        return 7; /* insufficient size */
    strcpy(out, v);
    return NVML_OK;
}

static int library_code(const char *key)
{
    const char *v = look("*", key);

    return v && v[0] == '!' ? atoi(v + 1) : NVML_OK;
}

#ifdef OLD_ABI
#    define INIT     nvmlInit
#    define COUNT    nvmlDeviceGetCount
#    define BY_INDEX nvmlDeviceGetHandleByIndex
#else
#    define INIT     nvmlInit_v2
#    define COUNT    nvmlDeviceGetCount_v2
#    define BY_INDEX nvmlDeviceGetHandleByIndex_v2
#endif

EXPORT int INIT(void);
EXPORT int INIT(void)
{
    int rc = library_code("init");

    inits += rc == NVML_OK;
    return rc;
}

EXPORT int nvmlShutdown(void);
EXPORT int nvmlShutdown(void)
{
    if (inits == 0)
        return NVML_UNINITIALIZED;
    if (samples_out != 0) /* a leak of ours: let the test see it */
        abort();
    inits--;
    return NVML_OK;
}

EXPORT int COUNT(unsigned *out);
EXPORT int COUNT(unsigned *out)
{
    const char *v = look("*", "count");

    if (inits == 0)
        return NVML_UNINITIALIZED;
    if (v && v[0] == '!')
        return atoi(v + 1);
    *out = v ? (unsigned)atoi(v) : 0;
    return NVML_OK;
}

EXPORT int BY_INDEX(unsigned i, nvml_handle *out);
EXPORT int BY_INDEX(unsigned i, nvml_handle *out)
{
    unsigned n = 0;
    const char *ignored;
    int rc = COUNT(&n);

    if (rc != NVML_OK)
        return rc;
    if (i >= n || i >= DEVICES)
        return NVML_INVALID_ARGUMENT;
    rc = ask(&places[i][0], "handle", &ignored);
    if (rc != NVML_OK && rc != NVML_NOT_SUPPORTED)
        return rc;
    *out = &places[i][0];
    return NVML_OK;
}

EXPORT int nvmlDeviceGetUUID(nvml_handle h, char *out, unsigned room);
EXPORT int nvmlDeviceGetUUID(nvml_handle h, char *out, unsigned room)
{
    char fallback[64];
    int device = 0;
    int slice = 0;

    if (place_of(h, &device, &slice) && slice >= 0)
        snprintf(fallback, sizeof(fallback), "MIG-%d-%d", device, slice);
    else
        snprintf(fallback, sizeof(fallback), "GPU-%d", device);
    return ask_text(h, "uuid", fallback, out, room);
}

EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, nvml_handle *out);
EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, nvml_handle *out)
{
    char text[96];

    for (int d = 0; d < DEVICES; d++)
        for (int s = 0; s <= SLICES; s++)
            if (nvmlDeviceGetUUID(&places[d][s], text, sizeof(text)) == NVML_OK &&
                strcmp(text, uuid) == 0) {
                *out = &places[d][s];
                return NVML_OK;
            }
    return NVML_NOT_FOUND;
}

EXPORT int nvmlDeviceGetName(nvml_handle h, char *out, unsigned room);
EXPORT int nvmlDeviceGetName(nvml_handle h, char *out, unsigned room)
{
    return ask_text(h, "name", "NVIDIA Fake", out, room);
}

EXPORT int nvmlDeviceGetMemoryInfo(nvml_handle h, struct nvml_memory *m);
EXPORT int nvmlDeviceGetMemoryInfo(nvml_handle h, struct nvml_memory *m)
{
    unsigned long long total = 0;
    unsigned long long free = 0;
    int rc = ask_number(h, "total", &total);

    if (rc == NVML_OK)
        rc = ask_number(h, "free", &free);
    if (rc == NVML_OK)
        *m = (struct nvml_memory){total, free, total - free};
    return rc;
}

EXPORT int nvmlDeviceGetUtilizationRates(nvml_handle h, struct nvml_utilization *u);
EXPORT int nvmlDeviceGetUtilizationRates(nvml_handle h, struct nvml_utilization *u)
{
    unsigned long long gpu = 0;
    unsigned long long memory = 0;
    int rc = ask_number(h, "util", &gpu);

    if (rc == NVML_OK)
        rc = ask_number(h, "membusy", &memory);
    if (rc == NVML_OK)
        *u = (struct nvml_utilization){(unsigned)gpu, (unsigned)memory};
    return rc;
}

EXPORT int nvmlDeviceGetPowerUsage(nvml_handle h, unsigned *mw);
EXPORT int nvmlDeviceGetPowerUsage(nvml_handle h, unsigned *mw)
{
    unsigned long long v = 0;
    int rc = ask_number(h, "power", &v);

    *mw = (unsigned)v;
    return rc;
}

#ifndef OLD_ABI
EXPORT int nvmlDeviceGetMemoryInfo_v2(nvml_handle h, struct nvml_memory_v2 *m);
EXPORT int nvmlDeviceGetMemoryInfo_v2(nvml_handle h, struct nvml_memory_v2 *m)
{
    struct nvml_memory v1 = {0};
    const char *ignored;

    if (m->version != (40u | 2u << 24))
        return NVML_ARGUMENT_VERSION_MISMATCH;
    int rc = ask(h, "memory_v2", &ignored); /* says no when the line says so */
    if (rc != NVML_OK && rc != NVML_NOT_SUPPORTED)
        return rc;
    rc = nvmlDeviceGetMemoryInfo(h, &v1);
    if (rc == NVML_OK) {
        m->total = v1.total;
        m->free = v1.free;
        m->reserved = v1.used / 2;
        m->used = v1.used - m->reserved;
    }
    return rc;
}

EXPORT int nvmlDeviceGetMigMode(nvml_handle h, unsigned *now, unsigned *pending);
EXPORT int nvmlDeviceGetMigMode(nvml_handle h, unsigned *now, unsigned *pending)
{
    unsigned long long v = 0;
    int rc = ask_number(h, "mig", &v);

    *now = *pending = v != 0;
    return rc;
}

EXPORT int nvmlDeviceGetMaxMigDeviceCount(nvml_handle h, unsigned *n);
EXPORT int nvmlDeviceGetMaxMigDeviceCount(nvml_handle h, unsigned *n)
{
    (void)h;
    *n = SLICES - 1;
    return NVML_OK;
}

/* "mig" is a bit set of the slices that exist. */
EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(nvml_handle h, unsigned i, nvml_handle *out);
EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(nvml_handle h, unsigned i, nvml_handle *out)
{
    unsigned long long v = 0;
    int rc = ask_number(h, "mig", &v);

    if (rc == NVML_OK && (i >= SLICES || !(v >> i & 1)))
        rc = NVML_NOT_FOUND;
    if (rc == NVML_OK)
        *out = (char *)h + 1 + i;
    return rc;
}

EXPORT int nvmlDeviceGetGpuInstanceId(nvml_handle h, unsigned *id);
EXPORT int nvmlDeviceGetGpuInstanceId(nvml_handle h, unsigned *id)
{
    int device;
    int slice = -1;

    if (!place_of(h, &device, &slice) || slice < 0)
        return NVML_INVALID_ARGUMENT;
    *id = 7 + (unsigned)slice;
    return NVML_OK;
}

EXPORT int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvml_handle h, nvml_handle *out);
EXPORT int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvml_handle h, nvml_handle *out)
{
    int device;
    int slice;

    if (!place_of(h, &device, &slice) || slice < 0)
        return NVML_INVALID_ARGUMENT;
    *out = &places[device][0];
    return NVML_OK;
}

EXPORT int nvmlGpmQueryDeviceSupport(nvml_handle h, struct nvml_gpm_support *s);
EXPORT int nvmlGpmQueryDeviceSupport(nvml_handle h, struct nvml_gpm_support *s)
{
    unsigned long long v = 0;

    if (s->version != 1)
        return NVML_ARGUMENT_VERSION_MISMATCH;
    int rc = ask_number(h, "gpm", &v);
    s->supported = v != 0;
    return rc;
}

EXPORT int nvmlGpmSampleAlloc(nvml_handle *out);
EXPORT int nvmlGpmSampleAlloc(nvml_handle *out)
{
    *out = calloc(1, sizeof(struct fake_sample));
    samples_out++;
    return NVML_OK;
}

EXPORT int nvmlGpmSampleFree(nvml_handle s);
EXPORT int nvmlGpmSampleFree(nvml_handle s)
{
    free(s);
    samples_out--;
    return NVML_OK;
}

static unsigned long samples_taken;

static int take_sample(nvml_handle h, unsigned gpu_instance, nvml_handle s)
{
    const char *ignored;
    int rc = ask(h, "sample", &ignored);

    if (rc != NVML_OK && rc != NVML_NOT_SUPPORTED)
        return rc;
    *(struct fake_sample *)s =
        (struct fake_sample){.of = h, .gpu_instance = gpu_instance, .number = ++samples_taken};
    return NVML_OK;
}

EXPORT int nvmlGpmSampleGet(nvml_handle h, nvml_handle s);
EXPORT int nvmlGpmSampleGet(nvml_handle h, nvml_handle s)
{
    return take_sample(h, 0, s);
}

EXPORT int nvmlGpmMigSampleGet(nvml_handle h, unsigned gpu_instance, nvml_handle s);
EXPORT int nvmlGpmMigSampleGet(nvml_handle h, unsigned gpu_instance, nvml_handle s)
{
    int device;
    int slice;

    if (gpu_instance < 7 || !place_of(h, &device, &slice) || slice >= 0)
        return NVML_INVALID_ARGUMENT;
    return take_sample((char *)h + 1 + (gpu_instance - 7), gpu_instance, s);
}

EXPORT int nvmlGpmMetricsGet(struct nvml_gpm_get *g);
EXPORT int nvmlGpmMetricsGet(struct nvml_gpm_get *g)
{
    const struct fake_sample *older = g->older;
    const struct fake_sample *newer = g->newer;

    if (g->version != 1)
        return NVML_ARGUMENT_VERSION_MISMATCH;
    if (!older->number || !newer->number || older->number >= newer->number ||
        older->of != newer->of)
        return NVML_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < g->n; i++) {
        struct nvml_gpm_metric *m = &g->metrics[i];
        const char *v = NULL;
        m->rc = ask(newer->of,
                    m->id == 2    ? "sm"
                    : m->id == 10 ? "dram"
                    : m->id == 1  ? "engine"
                                  : "?",
                    &v);
        m->value = v ? strtod(v, NULL) : -1;
    }
    return NVML_OK;
}
#endif
