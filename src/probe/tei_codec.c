/* SPDX-License-Identifier: Apache-2.0 */
/** @file Hugging Face text-embeddings-inference: a queue length and /info; what runs it does not tell. */
#include "probe/adapters_codec.h"
#include "probe/rows_codec.h"

static const struct engine_series series[] = {
    {"te_queue_size", NUMBER_WAITING, JOIN_SUM, NULL, NULL},
    {NULL, NUMBER_COUNT, JOIN_SUM, NULL, NULL},
};

static int on_info(void *ctx, const struct slice *v)
{
    bool *found = ctx;

    *found = v[0].n > 0 && v[1].n > 0 && v[2].n > 0;
    return 0;
}

static bool is_tei(struct slice body)
{
    static const char *const fields[] = {"model_id", "max_client_batch_size",
                                         "tokenization_workers", NULL};
    const struct engine_rows_shape shape = {NULL, fields};
    bool found = false;

    return engine_rows_read(body, &shape, on_info, &found) == 0 && found;
}

static const struct engine_metrics_shape metrics = {
    .series = series, .zero_labels = NULL, .on_line = NULL};
static const char *const health[] = {"/health", NULL};
static const struct engine_fault_rule faults[] = {
    {503, NULL, ENGINE_FAULT_BROKEN},
    {424, NULL, ENGINE_FAULT_BROKEN},
    {0, NULL, ENGINE_FAULT_NONE},
};

const struct engine_adapter engine_tei = {
    .kind = ENGINE_TEI,
    .name = "tei",
    .prefix = "te_",
    .sign_path = "/info",
    .is_it = is_tei,
    .health_paths = health,
    .faults = faults,
    .models_path = "/info",
    .models = engine_models_info,
    .metrics_path = "/metrics",
    .metrics = &metrics,
};
