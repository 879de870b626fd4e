/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file TensorFlow Serving. It lists no models, so they come from whoever registers it, and the state of the first of
 * them is its health. Its series (where --monitoring_config_file turns them on) tell neither who runs nor who waits.
 */
#include "probe/adapters_codec.h"
#include "probe/rows_codec.h"

static const struct engine_series series[] = {{NULL, NUMBER_COUNT, JOIN_SUM, NULL, NULL}};
static const struct engine_metrics_shape metrics = {
    .series = series, .zero_labels = NULL, .on_line = NULL};

static bool is_tfserving(struct slice body)
{
    return engine_adapter_series(body) == &engine_tfserving;
}

struct states {
    bool available, loading;
};

static int on_version(void *ctx, const struct slice *v)
{
    struct states *s = ctx;

    s->available = s->available || slice_eq(v[0], SLICE("AVAILABLE"));
    s->loading = s->loading || slice_eq(v[0], SLICE("START")) || slice_eq(v[0], SLICE("LOADING"));
    return 0;
}

/* One version that can be used is enough, whatever becomes of the others. */
static enum engine_fault read_states(struct slice body)
{
    static const char *const lists[] = {"model_version_status", NULL};
    static const char *const fields[] = {"state", NULL};
    const struct engine_rows_shape shape = {lists, fields};
    struct states s = {0};

    if (engine_rows_read(body, &shape, on_version, &s) != 0)
        return ENGINE_FAULT_BROKEN;
    return s.available ? ENGINE_FAULT_NONE : s.loading ? ENGINE_FAULT_LOADING : ENGINE_FAULT_BROKEN;
}

static const char *const health[] = {"/monitoring/prometheus/metrics", "/v1/models", "/", NULL};
static const struct engine_fault_rule faults[] = {{0, NULL, ENGINE_FAULT_NONE}};

const struct engine_adapter engine_tfserving = {
    .kind = ENGINE_TFSERVING,
    .name = "tfserving",
    .prefix = ":tensorflow:",
    .sign_path = "/monitoring/prometheus/metrics",
    .is_it = is_tfserving,
    .health_paths = health,
    .any_answer = true,
    .health_of_model = "/v1/models/",
    .healthy = read_states,
    .faults = faults,
    .models_path = "/v1/models",
    .models = engine_models_list,
    .metrics_path = "/monitoring/prometheus/metrics",
    .metrics = &metrics,
};
