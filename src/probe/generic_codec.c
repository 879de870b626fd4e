/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Any other server: one that speaks OpenAI's API (a model list), or just HTTP. Series of
 * trtllm-serve are read too, wherever somebody shows them at /metrics.
 */
#include "probe/adapters_codec.h"

static const struct engine_metrics_shape metrics = {
    .series = engine_trtllm_series, .zero_labels = NULL, .on_line = NULL};
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
