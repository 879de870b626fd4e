/* SPDX-License-Identifier: Apache-2.0 */
/** @file trtllm-serve: its series stand at a path of their own, /metrics is a JSON log of iterations. */
#include "probe/adapters_codec.h"

const struct engine_series engine_trtllm_series[] = {
    {"trtllm_num_requests_running", NUMBER_RUNNING, JOIN_SUM, NULL, NULL},
    {"trtllm_num_requests_waiting", NUMBER_WAITING, JOIN_SUM, NULL, NULL},
    {"trtllm_kv_cache_utilization", NUMBER_KV_RATIO, JOIN_MEAN, NULL, NULL},
    {"trtllm_kv_cache_max_blocks", NUMBER_KV_BLOCKS, JOIN_SUM, NULL, NULL},
    {"trtllm_kv_cache_tokens_per_block", NUMBER_KV_BLOCK_TOKENS, JOIN_MEAN, NULL, NULL},
    {NULL, NUMBER_COUNT, JOIN_SUM, NULL, NULL},
};

static bool is_trtllm(struct slice body)
{
    const struct engine_adapter *a = engine_adapter_series(body);

    return a == &engine_trtllm;
}

static const struct engine_metrics_shape metrics = {
    .series = engine_trtllm_series, .zero_labels = NULL, .on_line = NULL};
static const char *const health[] = {"/health", NULL};
static const char *const owners[] = {"tensorrt_llm", NULL};

const struct engine_adapter engine_trtllm = {
    .kind = ENGINE_TRTLLM,
    .name = "trtllm",
    .owners = owners,
    .prefix = "trtllm_",
    .sign_path = "/prometheus/metrics",
    .is_it = is_trtllm,
    .health_paths = health,
    .models_path = "/v1/models",
    .models = engine_models_list,
    .metrics_path = "/prometheus/metrics",
    .metrics = &metrics,
};
