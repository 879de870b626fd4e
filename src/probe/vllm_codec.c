/* SPDX-License-Identifier: Apache-2.0 */
/** @file vLLM: old and new names; sums over data-parallel engines. Our own emulated worker shows the same series. */
#include "base/bug.h"
#include "probe/adapters_codec.h"

static const struct engine_series series[] = {
    {"vllm:num_requests_running", NUMBER_RUNNING, JOIN_SUM, NULL, NULL},
    {"vllm:num_requests_waiting", NUMBER_WAITING, JOIN_SUM, NULL, NULL},
    {"vllm:num_requests_waiting_by_reason", NUMBER_WAITING, JOIN_SUM, NULL, NULL},
    {"vllm:kv_cache_usage_perc", NUMBER_KV_RATIO, JOIN_MEAN, NULL, NULL},
    {"vllm:gpu_cache_usage_perc", NUMBER_KV_RATIO, JOIN_MEAN, NULL, NULL},
    {"vllm:generation_tokens_total", NUMBER_TOKENS_TOTAL, JOIN_SUM, NULL, NULL},
    {"vllm:generation_tokens", NUMBER_TOKENS_TOTAL, JOIN_SUM, NULL, NULL},
    {"vllm:prefix_cache_hits_total", NUMBER_PREFIX_HITS, JOIN_SUM, NULL, NULL},
    {"vllm:prefix_cache_hits", NUMBER_PREFIX_HITS, JOIN_SUM, NULL, NULL},
    {"vllm:gpu_prefix_cache_hits_total", NUMBER_PREFIX_HITS, JOIN_SUM, NULL, NULL},
    {"vllm:gpu_prefix_cache_hits", NUMBER_PREFIX_HITS, JOIN_SUM, NULL, NULL},
    {"vllm:prefix_cache_queries_total", NUMBER_PREFIX_LOOKED, JOIN_SUM, NULL, NULL},
    {"vllm:prefix_cache_queries", NUMBER_PREFIX_LOOKED, JOIN_SUM, NULL, NULL},
    {"vllm:gpu_prefix_cache_queries_total", NUMBER_PREFIX_LOOKED, JOIN_SUM, NULL, NULL},
    {"vllm:gpu_prefix_cache_queries", NUMBER_PREFIX_LOOKED, JOIN_SUM, NULL, NULL},
    {NULL, NUMBER_COUNT, JOIN_SUM, NULL, NULL},
};

static bool is(const struct prom_line *line, struct slice name)
{
    return slice_eq(line->name, name);
}

/* Capacity stands in labels of one line per engine; adapters in labels of several lines, of which the youngest, by its
 * value, is true. */
static void on_line(struct engine_metrics *m, const struct prom_line *line)
{
    double blocks, size;

    if (is(line, SLICE("vllm:cache_config_info"))) {
        if (engine_metrics_label(line, "num_gpu_blocks", &blocks) &&
            engine_metrics_label(line, "block_size", &size))
            engine_metrics_add(m, NUMBER_KV_CAPACITY, blocks * size);
        return;
    }
    if (!is(line, SLICE("vllm:lora_requests_info")) || !(line->value > m->newest_lora))
        return;
    int n = engine_metrics_text(line, "running_lora_adapters", m->loras, sizeof(m->loras));
    if (n >= 0) {
        m->newest_lora = line->value;
        m->n_loras = (uint32_t)n;
    }
}

const struct engine_metrics_shape engine_vllm_metrics = {
    .series = series, .zero_labels = NULL, .on_line = on_line};

static const char *const health[] = {"/health", NULL};
static const char *const vllm_owners[] = {"vllm", NULL};
static const char *const weir_owners[] = {"weir", NULL};
static const struct engine_fault_rule faults[] = {
    {404, "does not exist", ENGINE_FAULT_CLIENT},
    {0, NULL, ENGINE_FAULT_NONE},
};

const struct engine_adapter engine_vllm = {
    .kind = ENGINE_VLLM,
    .name = "vllm",
    .owners = vllm_owners,
    .prefix = "vllm:",
    .health_paths = health,
    .faults = faults,
    .models_path = "/v1/models",
    .models = engine_models_list,
    .metrics_path = "/metrics",
    .metrics = &engine_vllm_metrics,
};

const struct engine_adapter engine_weir_worker = {
    .kind = ENGINE_WEIR_WORKER,
    .name = "weir",
    .owners = weir_owners,
    .health_paths = health,
    .silent_503 = true,
    .faults = faults,
    .models_path = "/v1/models",
    .models = engine_models_list,
    .metrics_path = "/metrics",
    .metrics = &engine_vllm_metrics,
};
