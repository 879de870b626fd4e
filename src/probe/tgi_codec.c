/* SPDX-License-Identifier: Apache-2.0 */
/** @file Hugging Face text-generation-inference. It tells no KV use; its model and context stand in /info. */
#include "probe/adapters_codec.h"
#include "probe/rows_codec.h"

static const struct engine_series series[] = {
    {"tgi_batch_current_size", NUMBER_RUNNING, JOIN_SUM, NULL, NULL},
    {"tgi_queue_size", NUMBER_WAITING, JOIN_SUM, NULL, NULL},
    {"tgi_request_generated_tokens_sum", NUMBER_TOKENS_TOTAL, JOIN_SUM, NULL, NULL},
    {NULL, NUMBER_COUNT, JOIN_SUM, NULL, NULL},
};

static int on_info(void *ctx, const struct slice *v)
{
    bool *found = ctx;

    *found = v[0].n > 0 && (v[1].n > 0 || slice_eq(v[2], SLICE("text-generation-router")));
    return 0;
}

static bool is_tgi(struct slice body)
{
    static const char *const fields[] = {"model_id", "max_total_tokens", "router", NULL};
    const struct engine_rows_shape shape = {NULL, fields};
    bool found = false;

    return engine_rows_read(body, &shape, on_info, &found) == 0 && found;
}

static const struct engine_metrics_shape metrics = {
    .series = series, .zero_labels = NULL, .on_line = NULL};
static const char *const health[] = {"/health", NULL};
static const struct engine_fault_rule faults[] = {
    {503, "healthcheck", ENGINE_FAULT_BROKEN},
    {424, NULL, ENGINE_FAULT_BROKEN},
    {0, NULL, ENGINE_FAULT_NONE},
};

const struct engine_adapter engine_tgi = {
    .kind = ENGINE_TGI,
    .name = "tgi",
    .prefix = "tgi_",
    .sign_path = "/info",
    .is_it = is_tgi,
    .health_paths = health,
    .faults = faults,
    .models_path = "/info",
    .models = engine_models_info,
    .metrics_path = "/metrics",
    .metrics = &metrics,
};
