/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every return code has one of four meanings: the device will never answer this question (stop asking), not now (unknown
 * this time), the device is gone (mark it, look for it again later), or the library is of no use any more (drop it).
 */
#include "gpu/nvml.h"

#include <dlfcn.h>

#include "base/bug.h"
#include "base/utf8.h"
#include "loop/alloc.h"
#include "loop/log.h"

/* Beyond these a number is a broken driver's, not a machine's. */
enum { COUNT_MAX = 512, SLICES_MAX = 64 };
#define MEMORY_MOST (UINT64_C(1) << 50)

enum verdict { FINE, NEVER, LATER, LOST, DROP };

static enum verdict judge(int rc)
{
    switch (rc) {
    case NVML_OK:
        return FINE;
    case NVML_NOT_SUPPORTED:
    case NVML_NO_PERMISSION:
    case NVML_FUNCTION_NOT_FOUND:
    case NVML_ARGUMENT_VERSION_MISMATCH:
    case NVML_DEPRECATED:
        return NEVER;
    case NVML_GPU_IS_LOST:
    case NVML_RESET_REQUIRED:
    case NVML_GPU_NOT_FOUND:
        return LOST;
    case NVML_UNINITIALIZED:
    case NVML_DRIVER_NOT_LOADED:
    case NVML_VERSION_MISMATCH:
        return DROP;
    default:
        return LATER;
    }
}

static void *find(void *library, const char *newest, const char *older)
{
    void *f = dlsym(library, newest);

    return f || !older ? f : dlsym(library, older);
}

static void resolve(void *library, struct nvml_calls *c)
{
    void *f;

    /* memcpy: ISO C has no conversion from an object pointer to a function's. */
#define NVML_RESOLVE(field, newest, older, arguments)                                              \
    f = find(library, newest, older);                                                              \
    memcpy(&c->field, &f, sizeof(f));
    NVML_CALLS(NVML_RESOLVE)
#undef NVML_RESOLVE
}

static int give_up(struct nvml *n, int rc)
{
    dlclose(n->library);
    mem_free(loop_mem(), n);
    return rc;
}

int nvml_open(const char *library, struct nvml **out, const char **why)
{
    struct nvml *n = mem_zalloc(loop_mem(), sizeof(*n));

    *why = "out of memory";
    if (!n)
        return WEIR_E_NOMEM;
    n->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!n->library) {
        *why = "no such library here";
        mem_free(loop_mem(), n);
        return WEIR_E_NOTFOUND;
    }
    resolve(n->library, &n->calls);
    const struct nvml_calls *c = &n->calls;
    *why = "the library lacks NVML's basic functions";
    if (!c->init || !c->shutdown || !c->count || !c->by_index || !c->uuid || !c->name)
        return give_up(n, WEIR_E_UNSUPPORTED);
    int rc = c->init();
    if (rc != NVML_OK) {
        *why = rc == NVML_DRIVER_NOT_LOADED  ? "the driver is not loaded"
               : rc == NVML_VERSION_MISMATCH ? "library and driver are of different versions"
               : rc == NVML_NO_PERMISSION    ? "no permission to open the devices"
                                             : "initialisation failed";
        return give_up(n, WEIR_E_AGAIN);
    }
    *out = n;
    return 0;
}

void nvml_close(struct nvml *n)
{
    if (!n)
        return;
    n->calls.shutdown();
    (void)give_up(n, 0);
}

/* Reads who it is; NVML's code. */
static int identify(struct nvml *n, struct nvml_device *d)
{
    int rc = n->calls.uuid(d->handle, d->uuid, sizeof(d->uuid));

    if (rc != NVML_OK)
        return rc;
    d->uuid[sizeof(d->uuid) - 1] = 0;
    /* It goes into registrations, which have to be text. */
    if (!d->uuid[0] || !utf8_ok(d->uuid, strlen(d->uuid)))
        return NVML_NO_DATA;
    if (n->calls.name(d->parent ? d->parent : d->handle, d->name, sizeof(d->name)) != NVML_OK)
        d->name[0] = 0;
    d->name[sizeof(d->name) - 1] = 0;
    if (!utf8_ok(d->name, strlen(d->name)))
        d->name[0] = 0;
    return rc;
}

static bool mig_on(struct nvml *n, nvml_handle gpu)
{
    unsigned now = 0;
    unsigned pending = 0;

    return n->calls.mig_mode && n->calls.mig_count && n->calls.mig_by_index &&
           n->calls.mig_mode(gpu, &now, &pending) == NVML_OK && now == 1;
}

/* A GPU that has become known again, or a slice whose GPU has. */
static int adopt(struct nvml *n, struct nvml_device *d)
{
    if (!slice_starts(slice_str(d->uuid), SLICE("MIG-")))
        return NVML_OK;
    int rc =
        n->calls.mig_parent ? n->calls.mig_parent(d->handle, &d->parent) : NVML_FUNCTION_NOT_FOUND;
    if (rc == NVML_OK && n->calls.mig_instance &&
        n->calls.mig_instance(d->handle, &d->gpu_instance) != NVML_OK)
        d->off |= 1u << NVML_ASK_GPM;
    return rc;
}

static int list_slices(struct nvml *n, unsigned top, nvml_handle gpu, nvml_each_fn each, void *ctx)
{
    unsigned most = 0;

    if (n->calls.mig_count(gpu, &most) != NVML_OK)
        return 0;
    for (unsigned i = 0; i < MIN(most, (unsigned)SLICES_MAX); i++) {
        struct nvml_device d = {.parent = gpu};
        /* An index may be empty while later ones are not. */
        if (n->calls.mig_by_index(gpu, i, &d.handle) != NVML_OK || identify(n, &d) != NVML_OK)
            continue;
        if (!n->calls.mig_instance || n->calls.mig_instance(d.handle, &d.gpu_instance) != NVML_OK)
            d.off |= 1u << NVML_ASK_GPM;
        int rc = each(ctx, top, &d);
        if (rc)
            return rc;
    }
    return 0;
}

int nvml_list(struct nvml *n, nvml_each_fn each, void *ctx)
{
    unsigned count = 0;
    int rc = n->calls.count(&count);

    if (rc != NVML_OK || count > COUNT_MAX)
        return WEIR_E_AGAIN;
    for (unsigned i = 0; i < count; i++) {
        struct nvml_device d = {0};
        rc = n->calls.by_index(i, &d.handle);
        if (rc == NVML_OK)
            rc = identify(n, &d);
        if (judge(rc) == DROP)
            return WEIR_E_AGAIN;
        if (rc != NVML_OK) {
            /* Counted, but not ours to open, or broken. The others are not worse for it. */
            log_warn("gpu", "device %u is left out: NVML code %d", i, rc);
            continue;
        }
        rc = mig_on(n, d.handle) ? list_slices(n, i, d.handle, each, ctx) : each(ctx, i, &d);
        if (rc)
            return rc;
    }
    return 0;
}

static enum verdict note(struct nvml_device *d, enum nvml_question q, const char *what, int rc)
{
    enum verdict v = judge(rc);
    uint32_t bit = 1u << q;

    if (v == FINE) {
        d->failing &= ~bit;
    } else if (v == NEVER) {
        log_info("gpu", "%s tells no %s: NVML code %d", d->uuid, what, rc);
        d->off |= bit;
    } else if (v == LATER && rc != NVML_NO_DATA && rc != NVML_NOT_READY && !(d->failing & bit)) {
        log_warn("gpu", "%s of %s cannot be read for now: NVML code %d", what, d->uuid, rc);
        d->failing |= bit;
    }
    return v;
}

static bool asks(const struct nvml_device *d, enum nvml_question q)
{
    return !(d->off & 1u << q);
}

/* All ones and 0 stand for "not available" here and there, and free above total for nonsense. */
static void take_memory(struct gpu_reading *out, uint64_t total, uint64_t free)
{
    if (total == 0 || total > MEMORY_MOST || free > total)
        return;
    out->known |= GPU_MEMORY;
    out->memory_total_bytes = total;
    out->memory_free_bytes = free;
}

static enum verdict read_memory(struct nvml *n, struct nvml_device *d, struct gpu_reading *out)
{
    struct nvml_memory_v2 v2 = {.version = NVML_MEMORY_V2};
    struct nvml_memory v1 = {0};

    if (asks(d, NVML_ASK_MEMORY_V2)) {
        int rc = n->calls.memory_v2 ? n->calls.memory_v2(d->handle, &v2) : NVML_FUNCTION_NOT_FOUND;
        if (rc == NVML_OK)
            take_memory(out, v2.total, v2.free);
        if (judge(rc) != NEVER)
            return note(d, NVML_ASK_MEMORY_V2, "memory", rc);
        d->off |= 1u << NVML_ASK_MEMORY_V2; /* the older form may do */
    }
    if (!asks(d, NVML_ASK_MEMORY))
        return NEVER;
    int rc = n->calls.memory ? n->calls.memory(d->handle, &v1) : NVML_FUNCTION_NOT_FOUND;
    if (rc == NVML_OK)
        take_memory(out, v1.total, v1.free);
    return note(d, NVML_ASK_MEMORY, "memory", rc);
}

static enum verdict read_utilization(struct nvml *n, struct nvml_device *d, struct gpu_reading *out)
{
    struct nvml_utilization u = {UINT32_MAX, UINT32_MAX};

    if (!asks(d, NVML_ASK_UTIL))
        return NEVER;
    int rc = n->calls.utilization ? n->calls.utilization(d->handle, &u) : NVML_FUNCTION_NOT_FOUND;
    if (rc == NVML_OK && u.gpu <= 100) {
        out->known |= GPU_UTIL;
        out->util_bp = u.gpu * 100;
    }
    if (rc == NVML_OK && u.memory <= 100) {
        out->known |= GPU_MEM_BUSY;
        out->mem_busy_bp = u.memory * 100;
    }
    return note(d, NVML_ASK_UTIL, "utilization", rc);
}

static enum verdict read_power(struct nvml *n, struct nvml_device *d, struct gpu_reading *out)
{
    unsigned mw = UINT32_MAX;

    if (!asks(d, NVML_ASK_POWER))
        return NEVER;
    int rc = n->calls.power ? n->calls.power(d->handle, &mw) : NVML_FUNCTION_NOT_FOUND;
    if (rc == NVML_OK && mw != UINT32_MAX) {
        out->known |= GPU_POWER;
        out->power_mw = mw;
    }
    return note(d, NVML_ASK_POWER, "power", rc);
}

static enum verdict
read_gpm(struct nvml *n, struct nvml_device *d, uint64_t now_ns, struct gpu_reading *out)
{
    if (!asks(d, NVML_ASK_GPM))
        return NEVER;
    return note(d, NVML_ASK_GPM, "SM activity and DRAM bandwidth", gpm_read(n, d, now_ns, out));
}

static void lose(struct nvml *n, struct nvml_device *d, uint64_t retry_at_ns)
{
    if (!d->lost)
        log_error("gpu", "%s is lost", d->uuid);
    gpm_fini(n, &d->gpm);
    d->lost = true;
    d->retry_at_ns = retry_at_ns;
}

/* A device that was reset comes back under a new handle and the old UUID. */
static bool recover(struct nvml *n, struct nvml_device *d)
{
    struct nvml_memory memory;

    if (!n->calls.by_uuid || n->calls.by_uuid(d->uuid, &d->handle) != NVML_OK ||
        adopt(n, d) != NVML_OK)
        return false;
    enum verdict v = n->calls.memory ? judge(n->calls.memory(d->handle, &memory)) : NEVER;
    if (v != FINE && v != NEVER)
        return false;
    d->lost = false;
    d->off = 0;
    d->failing = 0;
    log_info("gpu", "%s is back", d->uuid);
    return true;
}

int nvml_read(struct nvml *n,
              struct nvml_device *d,
              uint64_t now_ns,
              uint64_t retry_ns,
              struct gpu_reading *out)
{
    memcpy(out->uuid, d->uuid, sizeof(out->uuid));
    memcpy(out->name, d->name, sizeof(out->name));
    out->mig = d->parent != NULL;
    if (d->lost && (now_ns < d->retry_at_ns || !recover(n, d))) {
        if (now_ns >= d->retry_at_ns)
            d->retry_at_ns = now_ns + retry_ns;
        out->lost = true;
        return 0;
    }
    enum verdict seen[4];
    seen[0] = read_memory(n, d, out);
    seen[1] = read_utilization(n, d, out);
    seen[2] = read_power(n, d, out);
    seen[3] = read_gpm(n, d, now_ns, out); /* after the utilization, which it may stand in for */
    for (size_t i = 0; i < ARRAY_LEN(seen); i++) {
        if (seen[i] == DROP) {
            out->known = 0;
            return WEIR_E_AGAIN;
        }
        if (seen[i] == LOST)
            out->lost = true;
    }
    if (out->lost) {
        out->known = 0;
        lose(n, d, now_ns + retry_ns);
    }
    return 0;
}

void nvml_forget(struct nvml *n, struct nvml_device *d)
{
    gpm_fini(n, &d->gpm);
}
