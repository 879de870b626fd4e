/* SPDX-License-Identifier: Apache-2.0 */
/** @file llama.cpp's server: metrics only with --metrics, so its slots, which are on by default, are read instead. */
#include "probe/adapters_codec.h"
#include "probe/rows_codec.h"

static const struct engine_series series[] = {
    {"llamacpp:requests_processing", NUMBER_RUNNING, JOIN_SUM, NULL, NULL},
    {"llamacpp:requests_deferred", NUMBER_WAITING, JOIN_SUM, NULL, NULL},
    {"llamacpp:kv_cache_usage_ratio", NUMBER_KV_RATIO, JOIN_MEAN, NULL, NULL},
    {"llamacpp:kv_cache_tokens", NUMBER_KV_USED, JOIN_SUM, NULL, NULL},
    {"llamacpp:tokens_predicted_total", NUMBER_TOKENS_TOTAL, JOIN_SUM, NULL, NULL},
    {NULL, NUMBER_COUNT, JOIN_SUM, NULL, NULL},
};

/* "state" in releases before is_processing. */
enum { S_BUSY, S_STATE };
static const char *const slot_fields[] = {[S_BUSY] = "is_processing", [S_STATE] = "state", NULL};

static int on_slot(void *ctx, const struct slice *v)
{
    struct engine_metrics *m = ctx;
    bool busy = slice_eq(v[S_BUSY], SLICE("true")) || slice_eq(v[S_STATE], SLICE("1"));

    if (!v[S_BUSY].n && !v[S_STATE].n)
        return WEIR_E_INVALID;
    engine_metrics_add(m, NUMBER_RUNNING, busy);
    return 0;
}

/* Slots tell who works, not who waits. */
static bool read_slots(struct slice body, struct engine_metrics *out)
{
    const struct engine_rows_shape shape = {(const char *const[]){NULL}, slot_fields};

    *out = (struct engine_metrics){.newest_lora = -1};
    return engine_rows_read(body, &shape, on_slot, out) == 0;
}

static const struct engine_metrics_shape metrics = {
    .series = series, .zero_labels = NULL, .on_line = NULL};
static const char *const health[] = {"/health", NULL};
static const char *const owners[] = {"llamacpp", NULL};
static const struct engine_fault_rule faults[] = {
    {503, "Loading model", ENGINE_FAULT_LOADING},
    {501, NULL, ENGINE_FAULT_CLIENT},
    {0, NULL, ENGINE_FAULT_NONE},
};

const struct engine_adapter engine_llamacpp = {
    .kind = ENGINE_LLAMACPP,
    .name = "llamacpp",
    .owners = owners,
    .prefix = "llamacpp:",
    .health_paths = health,
    .faults = faults,
    .models_path = "/v1/models",
    .models = engine_models_list,
    .metrics_path = "/metrics",
    .metrics = &metrics,
    .slots_path = "/slots",
    .slots = read_slots,
};
