/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file NVIDIA Triton, with or without its TensorRT-LLM backend. Metrics listen two ports above HTTP (8000, 8002); each
 * model has a state of its own.
 */
#include "probe/adapters_codec.h"
#include "probe/rows_codec.h"

static const struct engine_series series[] = {
    {"nv_trt_llm_request_metrics", NUMBER_RUNNING, JOIN_SUM, "request_type", "scheduled"},
    {"nv_trt_llm_request_metrics", NUMBER_WAITING, JOIN_SUM, "request_type", "waiting"},
    {"nv_inference_pending_request_count", NUMBER_WAITING, JOIN_SUM, NULL, NULL},
    {"nv_trt_llm_kv_cache_block_metrics", NUMBER_KV_RATIO, JOIN_MEAN, "kv_cache_block_type",
     "fraction"},
    {"nv_trt_llm_kv_cache_block_metrics", NUMBER_KV_BLOCKS, JOIN_SUM, "kv_cache_block_type", "max"},
    {"nv_trt_llm_kv_cache_block_metrics", NUMBER_KV_BLOCK_TOKENS, JOIN_MEAN, "kv_cache_block_type",
     "tokens_per"},
    {"nv_gpu_memory_total_bytes", NUMBER_MEMORY_TOTAL, JOIN_SUM, NULL, NULL},
    {"nv_gpu_memory_used_bytes", NUMBER_MEMORY_USED, JOIN_SUM, NULL, NULL},
    {"nv_gpu_utilization", NUMBER_GPU_RATIO, JOIN_MEAN, NULL, NULL},
    {NULL, NUMBER_COUNT, JOIN_SUM, NULL, NULL},
};

static int on_server(void *ctx, const struct slice *v)
{
    bool *found = ctx;

    *found = slice_eq(v[0], SLICE("triton"));
    return 0;
}

static bool is_triton(struct slice body)
{
    static const char *const fields[] = {"name", NULL};
    const struct engine_rows_shape shape = {NULL, fields};
    bool found = false;

    return engine_rows_read(body, &shape, on_server, &found) == 0 && found;
}

static const struct engine_metrics_shape metrics = {
    .series = series, .zero_labels = NULL, .on_line = NULL};
static const char *const health[] = {"/v2/health/ready", NULL};
static const struct engine_fault_rule faults[] = {{0, NULL, ENGINE_FAULT_NONE}};

const struct engine_adapter engine_triton = {
    .kind = ENGINE_TRITON,
    .name = "triton",
    .prefix = "nv_inference_",
    .sign_path = "/v2",
    .is_it = is_triton,
    .health_paths = health,
    .loading_status = 400,
    .faults = faults,
    .models_path = "/v2/repository/index",
    .models_post = "{}",
    .models = engine_models_list,
    .metrics_path = "/metrics",
    .metrics_port_shift = 2,
    .metrics = &metrics,
};
