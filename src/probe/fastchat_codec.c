/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file A FastChat model worker: it answers POST only, and tells all that it tells at /worker_get_status. Its queue
 * length counts what runs and what waits together.
 */
#include "base/num.h"
#include "probe/adapters_codec.h"
#include "probe/rows_codec.h"

static int on_status(void *ctx, const struct slice *v)
{
    double *queue = ctx;

    if (v[0].n == 0 || num_f64(v[0], queue) != 0 || *queue < 0)
        return WEIR_E_INVALID;
    return 0;
}

static bool read_queue(struct slice body, double *queue)
{
    static const char *const fields[] = {"queue_length", NULL};
    const struct engine_rows_shape shape = {NULL, fields};

    *queue = -1;
    return engine_rows_read(body, &shape, on_status, queue) == 0 && *queue >= 0;
}

static bool is_fastchat(struct slice body)
{
    double queue;

    return engine_says(body, "\"model_names\"") && read_queue(body, &queue);
}

static bool read_status(struct slice body, struct engine_metrics *out)
{
    double queue;

    *out = (struct engine_metrics){.newest_lora = -1};
    if (!read_queue(body, &queue))
        return false;
    engine_metrics_add(out, NUMBER_RUNNING, queue);
    return true;
}

static const char *const health[] = {"/worker_get_status", NULL};
static const struct engine_fault_rule faults[] = {{0, NULL, ENGINE_FAULT_NONE}};

const struct engine_adapter engine_fastchat = {
    .kind = ENGINE_FASTCHAT,
    .name = "fastchat",
    .sign_path = "/worker_get_status",
    .sign_post = "{}",
    .is_it = is_fastchat,
    .health_paths = health,
    .health_post = "{}",
    .faults = faults,
    .models_path = "/worker_get_status",
    .models_post = "{}",
    .models = engine_models_names,
    .slots_path = "/worker_get_status",
    .slots_post = "{}",
    .slots = read_status,
};
