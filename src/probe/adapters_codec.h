/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file What differs between inference servers, one table entry each, in a file of its name. Pure: which paths, which
 * series, what an answer means. The asking is done by engine.c. Private to the room.
 */
#ifndef WEIR_PROBE_ADAPTERS_CODEC_H
#define WEIR_PROBE_ADAPTERS_CODEC_H

#include "probe/fault_codec.h"
#include "probe/metrics_codec.h"
#include "probe/models_codec.h"

struct engine_adapter {
    enum engine_kind kind;
    const char *name; /**< as in configuration and metadata */

    /* Signs of it, for auto. */
    const char *const
        *owners;           /**< values of owned_by in /v1/models; NULL-terminated; NULL = none */
    const char *prefix;    /**< of its series; NULL = none */
    const char *sign_path; /**< ask for this and ... */
    const char
        *sign_post; /**< where GET is answered by 405: body of a POST to the same; NULL = none */
    /** ... see whether it is one; NULL = no such sign. */
    bool (*is_it)(struct slice body);

    /* Health. */
    const char *const *health_paths; /**< tried in order while one is unknown there (404, 405) */
    const char *health_post;         /**< body of a POST; NULL = GET */
    bool any_answer;                 /**< at the last of them every status below 500 will do */
    /** The health path is this + the name of the first model that a source tells; NULL = as above. */
    const char *health_of_model;
    /** What a 2xx of that one says; NULL = it is ready. */
    enum engine_fault (*healthy)(struct slice body);
    uint64_t health_least_ns; /**< never more often than this; 0 = no limit */
    bool silent_503; /**< until it was ready once, a 503 without words means that it is loading */
    unsigned
        loading_status; /**< of a health path while it loads; 0 = none besides what faults say */
    const struct engine_fault_rule *faults;

    /* Models. */
    const char *models_path;
    const char *models_post; /**< body of a POST; NULL = GET */
    int (*models)(struct slice body, struct arena *a, struct engine_models *out);
    const char *more_models_path; /**< asked as well; NULL = none; read by engine_models_list */
    const char
        *else_models_path; /**< asked where models_path is unknown (404, 405, 501); NULL = none */

    /* Numbers. */
    const char *metrics_path;
    uint16_t metrics_port_shift; /**< its metrics listen on the HTTP port + this */
    const struct engine_metrics_shape *metrics;
    const char *slots_path; /**< asked where there are no metrics; NULL = none */
    const char *slots_post; /**< body of a POST; NULL = GET */
    /** false: it is not what it should be. */
    bool (*slots)(struct slice body, struct engine_metrics *out);
    const char *memory_path; /**< asked after it; NULL = none */
    /** Adds to what slots read. */
    bool (*memory)(struct slice body, struct engine_metrics *out);
};

/** In the order of looking for signs; the last is ENGINE_GENERIC. */
extern const struct engine_adapter *const engine_adapters[];
extern const uint32_t engine_n_adapters;

/** ENGINE_UNKNOWN gives the generic one. */
const struct engine_adapter *engine_adapter_of(enum engine_kind kind);
/** By owned_by of its model list, or NULL. */
const struct engine_adapter *engine_adapter_owner(const char *owner);
/** By the series it shows, or NULL. */
const struct engine_adapter *engine_adapter_series(struct slice metrics_text);

extern const struct engine_adapter engine_vllm, engine_sglang, engine_llamacpp, engine_tgi,
    engine_tei, engine_triton, engine_ollama, engine_weir_worker, engine_trtllm, engine_fastchat,
    engine_tfserving, engine_sdwebui, engine_oip, engine_generic;
extern const struct engine_metrics_shape engine_vllm_metrics;
extern const struct engine_series engine_trtllm_series[];

#endif /* WEIR_PROBE_ADAPTERS_CODEC_H */
