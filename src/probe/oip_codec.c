/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Any other server of the Open Inference Protocol (KServe v2): MLServer, KServe's own, OpenVINO. It tells no
 * numbers that all of them share; MLServer has Triton's repository index, others list names at /v2/models.
 */
#include "probe/adapters_codec.h"
#include "probe/rows_codec.h"

static int on_server(void *ctx, const struct slice *v)
{
    bool *found = ctx;

    *found = v[0].n > 0 && !slice_eq(v[0], SLICE("triton")) && v[1].n > 0;
    return 0;
}

/* Triton is looked for before. */
static bool is_oip(struct slice body)
{
    static const char *const fields[] = {"name", "version", NULL};
    const struct engine_rows_shape shape = {NULL, fields};
    bool found = false;

    return engine_rows_read(body, &shape, on_server, &found) == 0 && found;
}

static const char *const health[] = {"/v2/health/ready", NULL};

const struct engine_adapter engine_oip = {
    .kind = ENGINE_OIP,
    .name = "oip",
    .sign_path = "/v2",
    .is_it = is_oip,
    .health_paths = health,
    .silent_503 = true,
    .loading_status = 400,
    .models_path = "/v2/repository/index",
    .models_post = "{}",
    .else_models_path = "/v2/models",
    .models = engine_models_names,
};
