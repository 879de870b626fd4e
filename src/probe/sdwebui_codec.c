/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Stable Diffusion webui (AUTOMATIC1111): one job at a time behind one lock, checkpoints instead of models, and
 * the memory of its device.
 */
#include "base/num.h"
#include "probe/adapters_codec.h"
#include "probe/rows_codec.h"

enum { P_PROGRESS, P_ETA, P_JOBS };
static const char *const progress_fields[] = {
    [P_PROGRESS] = "progress", [P_ETA] = "eta_relative", [P_JOBS] = "state.job_count", NULL};

static int on_progress(void *ctx, const struct slice *v)
{
    double *jobs = ctx;

    if (!v[P_PROGRESS].n || !v[P_ETA].n || num_f64(v[P_JOBS], jobs) != 0)
        return WEIR_E_INVALID;
    return 0;
}

static bool jobs_of(struct slice body, double *jobs)
{
    const struct engine_rows_shape shape = {NULL, progress_fields};

    *jobs = -2;
    return engine_rows_read(body, &shape, on_progress, jobs) == 0 && *jobs > -2;
}

static bool is_sdwebui(struct slice body)
{
    double jobs;

    return jobs_of(body, &jobs);
}

/* How many images a job has is not how many jobs there are: it is busy, or it is not. */
static bool read_progress(struct slice body, struct engine_metrics *out)
{
    double jobs;

    *out = (struct engine_metrics){.newest_lora = -1};
    if (!jobs_of(body, &jobs))
        return false;
    engine_metrics_add(out, NUMBER_RUNNING, jobs != 0);
    return true;
}

static int on_memory(void *ctx, const struct slice *v)
{
    double *found = ctx;
    double free_bytes;
    double total;

    if (num_f64(v[0], &free_bytes) == 0 && num_f64(v[1], &total) == 0 && total > 0 &&
        free_bytes >= 0 && free_bytes <= total) {
        found[0] = free_bytes;
        found[1] = total;
    }
    return 0;
}

/* {"ram":{...},"cuda":{"system":{"free":1,"used":1,"total":1},...}}: numbers stand in it, nothing that nests. */
static struct slice system_of_cuda(struct slice body)
{
    while (body.n && !slice_starts(body, SLICE("\"cuda\"")))
        body = slice_from(body, 1);
    while (body.n && !slice_starts(body, SLICE("\"system\"")))
        body = slice_from(body, 1);
    body = slice_from(body, slice_find(body, '{'));
    size_t end = slice_find(body, '}');
    return end < body.n ? slice_of(body.p, end + 1) : slice_of(NULL, 0);
}

static bool read_memory(struct slice body, struct engine_metrics *out)
{
    static const char *const fields[] = {"free", "total", NULL};
    const struct engine_rows_shape shape = {NULL, fields};
    double found[2] = {-1, -1};

    if (engine_rows_read(system_of_cuda(body), &shape, on_memory, found) != 0 || found[1] < 0)
        return false;
    engine_metrics_add(out, NUMBER_MEMORY_FREE, found[0]);
    engine_metrics_add(out, NUMBER_MEMORY_TOTAL, found[1]);
    return true;
}

static const char *const health[] = {"/internal/ping", "/sdapi/v1/progress?skip_current_image=true",
                                     NULL};
static const struct engine_fault_rule faults[] = {{0, NULL, ENGINE_FAULT_NONE}};

const struct engine_adapter engine_sdwebui = {
    .kind = ENGINE_SDWEBUI,
    .name = "sdwebui",
    .sign_path = "/sdapi/v1/progress?skip_current_image=true",
    .is_it = is_sdwebui,
    .health_paths = health,
    .faults = faults,
    .models_path = "/sdapi/v1/sd-models",
    .models = engine_models_list,
    .slots_path = "/sdapi/v1/progress?skip_current_image=true",
    .slots = read_progress,
    .memory_path = "/sdapi/v1/memory",
    .memory = read_memory,
};
