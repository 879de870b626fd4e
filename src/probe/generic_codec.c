/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Any other server: one that speaks OpenAI's API (a model list), or just HTTP. Series of engines without an
 * adapter of their own (trtllm-serve) are read too.
 */
#include "probe/adapters_codec.h"

static const struct engine_series series[] = {
    {"trtllm_num_requests_running", NUMBER_RUNNING, JOIN_SUM, NULL, NULL},
    {"trtllm_num_requests_waiting", NUMBER_WAITING, JOIN_SUM, NULL, NULL},
    {"trtllm_kv_cache_utilization", NUMBER_KV_RATIO, JOIN_MEAN, NULL, NULL},
    {"trtllm_kv_cache_max_blocks", NUMBER_KV_BLOCKS, JOIN_SUM, NULL, NULL},
    {"trtllm_kv_cache_tokens_per_block", NUMBER_KV_BLOCK_TOKENS, JOIN_MEAN, NULL, NULL},
    {NULL, NUMBER_COUNT, JOIN_SUM, NULL, NULL},
};

static const struct engine_metrics_shape metrics = {
    .series = series, .zero_labels = NULL, .on_line = NULL};
static const char *const health[] = {"/health", "/v1/models", "/", NULL};

const struct engine_adapter engine_generic = {
    .kind = ENGINE_GENERIC,
    .name = "generic",
    .health_paths = health,
    .any_answer = true,
    .models_path = "/v1/models",
    .models = engine_models_list,
    .metrics_path = "/metrics",
    .metrics = &metrics,
};
