/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpm.h"

#include "base/num.h"
#include "gpu/nvml.h"

static const uint64_t apart_ns = 100 * NS_PER_MS;

/* Percent to basis points; what is no share (NaN too) is unknown. */
static bool share(double percent, uint32_t *out)
{
    if (!(percent >= 0 && percent <= 100))
        return false;
    *out = (uint32_t)(percent * 100 + 0.5);
    return true;
}

static int begin(struct nvml *n, struct nvml_device *d)
{
    struct gpm *g = &d->gpm;
    const struct nvml_calls *c = &n->calls;
    struct nvml_gpm_support support = {.version = NVML_GPM_VERSION};

    if (!c->gpm_support || !c->gpm_alloc || !c->gpm_free || !c->gpm_metrics ||
        (d->parent ? !c->gpm_mig_sample : !c->gpm_sample))
        return NVML_FUNCTION_NOT_FOUND;
    int rc = c->gpm_support(d->parent ? d->parent : d->handle, &support);
    if (rc == NVML_OK && !support.supported)
        rc = NVML_NOT_SUPPORTED;
    for (int i = 0; i < 2 && rc == NVML_OK; i++)
        rc = g->samples[i] ? NVML_OK : c->gpm_alloc(&g->samples[i]);
    g->asked = rc == NVML_OK;
    return rc;
}

static int measure(struct nvml *n, struct gpm *g)
{
    struct nvml_gpm_get *get = &n->gpm;

    memset(get, 0, sizeof(*get));
    get->version = NVML_GPM_VERSION;
    get->n = 3;
    get->older = g->samples[!g->newer];
    get->newer = g->samples[g->newer];
    get->metrics[0].id = NVML_GPM_SM_ACTIVE;
    get->metrics[1].id = NVML_GPM_DRAM_BW;
    get->metrics[2].id = NVML_GPM_ENGINE_ACTIVE;
    g->last.known = 0;
    g->last.engine = false;
    int rc = n->calls.gpm_metrics(get);
    if (rc != NVML_OK)
        return rc;
    /* The call may succeed while a single metric did not. */
    if (get->metrics[0].rc == NVML_OK && share(get->metrics[0].value, &g->last.sm_bp))
        g->last.known |= GPU_SM_ACTIVE;
    if (get->metrics[1].rc == NVML_OK && share(get->metrics[1].value, &g->last.dram_bp))
        g->last.known |= GPU_DRAM_BW;
    g->last.engine =
        get->metrics[2].rc == NVML_OK && share(get->metrics[2].value, &g->last.engine_bp);
    return NVML_OK;
}

int gpm_read(struct nvml *n, struct nvml_device *d, uint64_t now_ns, struct gpu_reading *out)
{
    struct gpm *g = &d->gpm;
    int rc = g->asked ? NVML_OK : begin(n, d);

    if (rc != NVML_OK)
        return rc;
    if (g->n == 0 || now_ns - g->taken_ns >= apart_ns) {
        unsigned next = g->n == 0 ? 0 : !g->newer;
        rc = d->parent ? n->calls.gpm_mig_sample(d->parent, d->gpu_instance, g->samples[next])
                       : n->calls.gpm_sample(d->handle, g->samples[next]);
        if (rc != NVML_OK) {
            /* The slot that was written to holds nothing one could compare with: begin anew. */
            g->n = 0;
            g->last.known = 0;
            g->last.engine = false;
            return rc;
        }
        g->newer = next;
        g->taken_ns = now_ns;
        if (g->n < 2)
            g->n++;
        if (g->n == 2)
            rc = measure(n, g);
    }
    out->known |= g->last.known;
    out->sm_active_bp = g->last.sm_bp;
    out->dram_bw_bp = g->last.dram_bp;
    /* A MIG slice has no utilization of its own; the share of time its engines were active is the same thing. */
    if (!(out->known & GPU_UTIL) && g->last.engine) {
        out->known |= GPU_UTIL;
        out->util_bp = g->last.engine_bp;
    }
    return rc;
}

void gpm_fini(struct nvml *n, struct gpm *g)
{
    for (int i = 0; i < 2; i++)
        if (g->samples[i])
            n->calls.gpm_free(g->samples[i]);
    *g = (struct gpm){0};
}
