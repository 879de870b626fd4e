/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/agent/describe.h"

#include "base/bug.h"
#include "loop/alloc.h"

enum { MEMORY_MAX = 1 << 20 };

void description_init(struct description *d)
{
    *d = (struct description){0};
    arena_init(&d->arena, loop_mem(), MEMORY_MAX);
}

void description_fini(struct description *d)
{
    arena_fini(&d->arena);
}

static uint64_t memory_of(const struct description_source *s)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < s->n_gpus; i++)
        sum += s->gpus[i].known & GPU_MEMORY ? s->gpus[i].memory_total_bytes : 0;
    return sum;
}

bool description_holds(const struct description *d, const struct description_source *s)
{
    uint64_t memory = memory_of(s);

    /* What is not readable for a while (memory, a basis) does not take back what was told. */
    return d->n_gpus == s->n_gpus && (memory <= d->memory_total_bytes) && (s->basis <= d->basis);
}

static int put_models(struct description *d, const struct description_source *s, struct arena *a)
{
    const struct agent_options *o = s->options;
    uint32_t n = o->n_models ? o->n_models : MIN(s->n_models, (uint32_t)ENDPOINT_MODELS_MAX);
    struct model_ref *models = arena_array(a, n, sizeof(*models));

    if (!models)
        return WEIR_E_NOMEM;
    for (uint32_t i = 0; i < n; i++) {
        const struct model_ref *from =
            o->n_models ? &(struct model_ref){.id = o->models[i]} : &s->models[i];
        /* What the engine says of a model that the options name. */
        for (uint32_t k = 0; o->n_models && k < s->n_models; k++)
            if (slice_eq(s->models[k].id, o->models[i]))
                from = &s->models[k];
        models[i] = *from;
        if (arena_slice(a, from->id, &models[i].id) ||
            arena_slice(a, from->lora_base, &models[i].lora_base) ||
            arena_slice(a, o->model_version.p ? o->model_version : from->version,
                        &models[i].version))
            return WEIR_E_NOMEM;
    }
    d->instance.models = models;
    d->instance.n_models = n;
    return 0;
}

static int put_devices(struct description *d, const struct description_source *s, struct arena *a)
{
    struct slice type_given = s->options->gpu_type;
    struct device *devices = arena_array(a, s->n_gpus, sizeof(*devices));

    if (!devices)
        return WEIR_E_NOMEM;
    for (unsigned i = 0; i < s->n_gpus; i++) {
        const struct gpu_reading *g = &s->gpus[i];
        struct slice type = type_given.p ? type_given : gpu_type_of(slice_str(g->name));
        if (arena_slice(a, slice_str(g->uuid), &devices[i].uuid) ||
            arena_slice(a, type, &devices[i].type))
            return WEIR_E_NOMEM;
        devices[i].memory_total_bytes = g->known & GPU_MEMORY ? g->memory_total_bytes : 0;
    }
    d->instance.devices = devices;
    d->instance.n_devices = s->n_gpus;
    return 0;
}

static int put_metadata(struct description *d, const struct description_source *s, struct arena *a)
{
    const struct agent_options *o = s->options;
    struct kv *pairs = arena_array(a, o->n_metadata + 2, sizeof(*pairs));
    uint32_t n = 0;

    if (!pairs)
        return WEIR_E_NOMEM;
    for (uint32_t i = 0; i < o->n_metadata; i++)
        pairs[n++] = o->metadata[i];
    if (o->gpu_type.p && s->n_gpus == 0)
        pairs[n++] = (struct kv){SLICE("gpu_type"), o->gpu_type};
    if (s->basis != MEMBW_UNKNOWN)
        pairs[n++] = (struct kv){SLICE("membw_basis"), s->basis == MEMBW_DRAM_BANDWIDTH
                                                           ? SLICE("dram_bandwidth")
                                                           : SLICE("time_busy")};
    d->instance.metadata = pairs;
    d->instance.n_metadata = n;
    return 0;
}

int description_make(struct description *d, const struct description_source *s)
{
    const struct agent_options *o = s->options;
    struct description next;

    description_init(&next);
    next.instance = (struct instance){
        .id = o->id,
        .n_services = 1,
        .host = o->host,
        .port = o->port,
        .weight = o->weight,
        .engine = s->kind,
        .max_concurrency = o->max_concurrency,
        .region = o->region,
        .zone = o->zone,
        .cluster = o->cluster,
        .labels = o->labels,
        .n_labels = o->n_labels,
        .epoch = s->epoch,
    };
    if (put_models(&next, s, &next.arena) || put_devices(&next, s, &next.arena) ||
        put_metadata(&next, s, &next.arena)) {
        description_fini(&next);
        return WEIR_E_NOMEM;
    }
    next.basis = s->basis;
    next.n_gpus = s->n_gpus;
    next.memory_total_bytes = memory_of(s);
    description_fini(d);
    *d = next;
    d->service = o->service;
    d->instance.services = &d->service;
    return 0;
}
