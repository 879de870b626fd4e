/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chosen devices are remembered by UUID. When NVML has to be dropped (its driver was unloaded or exchanged), they stay
 * in their places without readings, and find their handles again once the library has been loaded anew.
 */
#include "gpu/gpu.h"

#include "base/bug.h"
#include "base/num.h"
#include "gpu/amd.h"
#include "gpu/nvml.h"
#include "loop/alloc.h"
#include "loop/log.h"

enum { FOUND_MAX = 512 };

struct chosen {
    bool amd;
    bool missing; /* after the library came back without it */
    struct nvml_device nvidia;
    struct amd_device card;
};

/* What there is to choose from. */
struct found {
    unsigned top; /* the index that stands for it; slices share their GPU's */
    bool amd;
    struct nvml_device nvidia;
    struct amd_device card;
};

struct gpus {
    const char *library;
    const char *sysfs;
    const char *select;
    bool cuda;
    uint64_t retry_ns;
    struct nvml *nvml;    /* NULL while there is none */
    bool retry;           /* worth another try */
    uint64_t retry_at_ns; /* 0 = from the next reading on */
    struct chosen chosen[GPU_DEVICES_MAX];
    unsigned n;
};

struct finding {
    struct found *list;
    unsigned n;
    unsigned n_top;
};

static const char *uuid_of(const struct found *f)
{
    return f->amd ? f->card.uuid : f->nvidia.uuid;
}

static int on_device(void *ctx, unsigned top, const struct nvml_device *d)
{
    struct finding *f = ctx;

    if (f->n == FOUND_MAX)
        return WEIR_E_FULL;
    f->list[f->n++] = (struct found){.top = top, .nvidia = *d};
    f->n_top = MAX(f->n_top, top + 1);
    return 0;
}

static void drop_nvml(struct gpus *g)
{
    for (unsigned i = 0; i < g->n; i++)
        if (!g->chosen[i].amd && g->nvml)
            nvml_forget(g->nvml, &g->chosen[i].nvidia);
    nvml_close(g->nvml);
    g->nvml = NULL;
}

static int find_all(struct gpus *g, struct finding *f)
{
    struct amd_device cards[GPU_DEVICES_MAX];

    if (g->nvml) {
        int rc = nvml_list(g->nvml, on_device, f);
        if (rc == WEIR_E_AGAIN) {
            drop_nvml(g);
            g->retry = true;
            f->n = f->n_top = 0;
        } else if (rc) {
            return rc;
        }
    }
    unsigned n = amd_list(g->sysfs, cards, GPU_DEVICES_MAX);
    for (unsigned i = 0; i < n && f->n < FOUND_MAX; i++)
        f->list[f->n++] = (struct found){.top = f->n_top++, .amd = true, .card = cards[i]};
    return 0;
}

static int choose(struct gpus *g, const struct found *f)
{
    for (unsigned i = 0; i < g->n; i++) {
        const char *uuid = g->chosen[i].amd ? g->chosen[i].card.uuid : g->chosen[i].nvidia.uuid;
        if (strcmp(uuid, uuid_of(f)) == 0)
            return WEIR_E_INVALID;
    }
    if (g->n == GPU_DEVICES_MAX)
        return WEIR_E_FULL;
    g->chosen[g->n++] = (struct chosen){.amd = f->amd, .nvidia = f->nvidia, .card = f->card};
    return 0;
}

/* All that an index stands for; of a GPU in MIG mode CUDA takes the first slice alone. */
static int choose_index(struct gpus *g, const struct finding *f, uint64_t index)
{
    bool any = false;

    for (unsigned i = 0; i < f->n && !(any && g->cuda); i++) {
        if (f->list[i].top != index)
            continue;
        int rc = choose(g, &f->list[i]);
        if (rc)
            return rc;
        any = true;
    }
    return any ? 0 : WEIR_E_NOTFOUND;
}

/* By UUID, or a beginning of one that fits one device only. */
static int choose_uuid(struct gpus *g, const struct finding *f, struct slice piece)
{
    const struct found *hit = NULL;

    for (unsigned i = 0; i < f->n; i++) {
        struct slice uuid = slice_str(uuid_of(&f->list[i]));
        if (slice_eq(uuid, piece))
            return choose(g, &f->list[i]);
        if (!slice_starts(uuid, piece))
            continue;
        if (hit)
            return WEIR_E_NOTFOUND;
        hit = &f->list[i];
    }
    return hit ? choose(g, hit) : WEIR_E_NOTFOUND;
}

static int choose_piece(struct gpus *g, const struct finding *f, struct slice piece)
{
    uint64_t index;

    if (num_u64(piece, &index) == 0)
        return choose_index(g, f, index);
    if (slice_starts(piece, SLICE("GPU-")) || slice_starts(piece, SLICE("MIG-")) ||
        slice_starts(piece, SLICE("AMD-")))
        return choose_uuid(g, f, piece);
    return WEIR_E_INVALID;
}

static int choose_list(struct gpus *g, const struct finding *f, struct slice *bad)
{
    struct slice rest = slice_str(g->select);
    struct slice piece;

    while (slice_cut(&rest, ',', &piece)) {
        piece = slice_trim(piece);
        int rc = choose_piece(g, f, piece);
        if (rc == 0)
            continue;
        if (g->cuda && rc != WEIR_E_FULL) {
            if (piece.n)
                log_warn("gpu",
                         "CUDA_VISIBLE_DEVICES ends for us at \"%.*s\", which names no device",
                         SLICE_ARG(piece));
            return 0;
        }
        *bad = piece;
        return rc;
    }
    return 0;
}

static int select_devices(struct gpus *g, struct slice *bad)
{
    struct finding f = {.list = mem_array(loop_mem(), FOUND_MAX, sizeof(struct found))};

    if (!f.list)
        return WEIR_E_NOMEM;
    int rc = find_all(g, &f);
    if (rc == 0 && strcmp(g->select, "all") == 0) {
        for (unsigned i = 0; i < f.n && rc == 0; i++)
            rc = choose(g, &f.list[i]);
    } else if (rc == 0) {
        rc = choose_list(g, &f, bad);
    }
    mem_free(loop_mem(), f.list);
    return rc;
}

/* Where is each of ours now? */
static int on_known_device(void *ctx, unsigned top, const struct nvml_device *d)
{
    struct gpus *g = ctx;

    (void)top;
    for (unsigned i = 0; i < g->n; i++) {
        struct chosen *c = &g->chosen[i];
        if (c->amd || strcmp(c->nvidia.uuid, d->uuid) != 0)
            continue;
        c->nvidia = *d;
        c->missing = false;
    }
    return 0;
}

static void reopen(struct gpus *g, uint64_t now_ns)
{
    const char *why;
    struct slice bad;

    g->retry_at_ns = now_ns + g->retry_ns;
    if (nvml_open(g->library, &g->nvml, &why) != 0)
        return;
    log_info("gpu", "NVML answers (again)");
    if (g->n == 0) {
        if (select_devices(g, &bad) != 0)
            log_error("gpu", "too many devices");
        return;
    }
    for (unsigned i = 0; i < g->n; i++)
        g->chosen[i].missing = !g->chosen[i].amd;
    if (nvml_list(g->nvml, on_known_device, g) != 0)
        drop_nvml(g);
    for (unsigned i = 0; i < g->n && g->nvml; i++)
        if (g->chosen[i].missing) {
            log_error("gpu", "%s is lost", g->chosen[i].nvidia.uuid);
            g->chosen[i].nvidia.lost = true;
            g->chosen[i].nvidia.retry_at_ns = now_ns + g->retry_ns;
        }
}

int gpus_open(const struct gpu_options *o, struct gpus **out, struct slice *bad)
{
    const char *why;
    int rc;

    *bad = (struct slice){NULL, 0};
    struct gpus *g = mem_zalloc(loop_mem(), sizeof(*g));
    if (!g)
        return WEIR_E_NOMEM;
    g->library = o->nvml ? o->nvml : "libnvidia-ml.so.1";
    g->sysfs = o->sysfs ? o->sysfs : "/sys";
    g->select = o->select;
    g->cuda = o->cuda;
    g->retry_ns = o->retry_ns;
    if (strcmp(g->select, "none") == 0) {
        *out = g;
        return 0;
    }
    int opened = nvml_open(g->library, &g->nvml, &why);
    g->retry = opened == 0 || opened == WEIR_E_AGAIN;
    rc = select_devices(g, bad);
    if (rc) {
        gpus_close(g);
        return rc;
    }
    if (opened == WEIR_E_AGAIN || (opened && o->nvml))
        log_warn("gpu", "no NVIDIA devices are read: %s: %s", g->library, why);
    else if (g->n == 0)
        log_info("gpu", "no GPU is read here%s%s", opened ? ": NVML: " : "", opened ? why : "");
    *out = g;
    return 0;
}

void gpus_close(struct gpus *g)
{
    if (!g)
        return;
    drop_nvml(g);
    mem_free(loop_mem(), g);
}

unsigned gpus_count(const struct gpus *g)
{
    return g->n;
}

static void read_nvidia(struct gpus *g, struct chosen *c, uint64_t now_ns, struct gpu_reading *out)
{
    if (g->nvml && nvml_read(g->nvml, &c->nvidia, now_ns, g->retry_ns, out) != 0) {
        log_warn("gpu", "NVML is of no use any more; another try in %llu s",
                 (unsigned long long)(g->retry_ns / NS_PER_S));
        drop_nvml(g);
        g->retry_at_ns = now_ns + g->retry_ns;
    }
    /* Without the library: who it is, and nothing about how. */
    memcpy(out->uuid, c->nvidia.uuid, sizeof(out->uuid));
    memcpy(out->name, c->nvidia.name, sizeof(out->name));
    out->mig = slice_starts(slice_str(c->nvidia.uuid), SLICE("MIG-"));
}

unsigned gpus_read(struct gpus *g, uint64_t now_ns, struct gpu_reading *out)
{
    if (!g->nvml && g->retry && now_ns >= g->retry_at_ns)
        reopen(g, now_ns);
    for (unsigned i = 0; i < g->n; i++) {
        out[i] = (struct gpu_reading){0};
        if (g->chosen[i].amd)
            amd_read(g->sysfs, &g->chosen[i].card, &out[i]);
        else
            read_nvidia(g, &g->chosen[i], now_ns, &out[i]);
    }
    return g->n;
}
