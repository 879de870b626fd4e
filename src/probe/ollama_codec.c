/* SPDX-License-Identifier: Apache-2.0 */
/** @file Ollama: no metrics at all. It lists what is on disk; a request for it loads it and waits for that. */
#include "probe/adapters_codec.h"
#include "probe/rows_codec.h"

static int on_version(void *ctx, const struct slice *v)
{
    bool *found = ctx;

    *found = v[0].n > 0;
    return 0;
}

static bool is_ollama(struct slice body)
{
    static const char *const fields[] = {"version", NULL};
    const struct engine_rows_shape shape = {NULL, fields};
    bool found = false;

    return engine_rows_read(body, &shape, on_version, &found) == 0 && found;
}

static const char *const health[] = {"/api/version", NULL};
static const char *const owners[] = {"library", NULL};
static const struct engine_fault_rule faults[] = {
    {503, "server busy", ENGINE_FAULT_BUSY},
    {0, NULL, ENGINE_FAULT_NONE},
};

const struct engine_adapter engine_ollama = {
    .kind = ENGINE_OLLAMA,
    .name = "ollama",
    .owners = owners,
    .sign_path = "/api/version",
    .is_it = is_ollama,
    .health_paths = health,
    .faults = faults,
    .models_path = "/api/tags",
    .models = engine_models_list,
    .more_models_path = "/v1/models",
};
