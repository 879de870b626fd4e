/* SPDX-License-Identifier: Apache-2.0 */
/** @file SGLang: gauges of tensor rank 0, summed over data-parallel ranks. Its health check costs the engine work. */
#include "base/num.h"
#include "probe/adapters_codec.h"

static const struct engine_series series[] = {
    {"sglang:num_running_reqs", NUMBER_RUNNING, JOIN_SUM, NULL, NULL},
    {"sglang:num_queue_reqs", NUMBER_WAITING, JOIN_SUM, NULL, NULL},
    {"sglang:token_usage", NUMBER_KV_RATIO, JOIN_MEAN, NULL, NULL},
    {"sglang:kv_used_tokens", NUMBER_KV_USED, JOIN_SUM, NULL, NULL},
    {"sglang:num_used_tokens", NUMBER_KV_USED, JOIN_SUM, NULL, NULL},
    {"sglang:max_total_num_tokens", NUMBER_KV_CAPACITY, JOIN_SUM, NULL, NULL},
    {"sglang:num_pages", NUMBER_KV_BLOCKS, JOIN_SUM, NULL, NULL},
    {"sglang:page_size", NUMBER_KV_BLOCK_TOKENS, JOIN_MEAN, NULL, NULL},
    {"sglang:gen_throughput", NUMBER_TOKENS_PER_S, JOIN_SUM, NULL, NULL},
    {"sglang:generation_tokens_total", NUMBER_TOKENS_TOTAL, JOIN_SUM, NULL, NULL},
    {"sglang:cache_hit_rate", NUMBER_PREFIX_RATIO, JOIN_MEAN, NULL, NULL},
    {NULL, NUMBER_COUNT, JOIN_SUM, NULL, NULL},
};

static const char *const ranks[] = {"tp_rank", "pp_rank", "moe_ep_rank", NULL};
static const struct engine_metrics_shape metrics = {
    .series = series, .zero_labels = ranks, .on_line = NULL};
static const char *const health[] = {"/health", NULL};
static const char *const owners[] = {"sglang", NULL};

const struct engine_adapter engine_sglang = {
    .kind = ENGINE_SGLANG,
    .name = "sglang",
    .owners = owners,
    .prefix = "sglang:",
    .health_paths = health,
    .health_least_ns = 5 * NS_PER_S,
    .silent_503 = true,
    .models_path = "/v1/models",
    .models = engine_models_list,
    .metrics_path = "/metrics",
    .metrics = &metrics,
};
