/* SPDX-License-Identifier: Apache-2.0 */
/** @file What one request needs, as far as it is known. No prompt text: counts and hashes only. */
#ifndef WEIR_MODEL_FEATURES_T_H
#define WEIR_MODEL_FEATURES_T_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

/** Default and bounds of the priority classes; 1 is served first. */
enum { PRIORITY_HIGHEST = 1, PRIORITY_DEFAULT = 5, PRIORITY_LOWEST = 9 };

/** Bytes of a tenant's name. */
enum { TENANT_NAME_MAX = 64 };

/** Slices are borrowed from the request and live as long as it. */
struct features {
    struct slice model;   /**< after alias resolution; absent: none named */
    struct slice version; /**< absent: any */
    uint32_t task;        /**< one enum task bit from the path; 0 = any */
    bool stream;
    bool prompt_complete;    /**< the body was scanned to its end */
    uint64_t required_bytes; /**< X-Required-Memory; 0 = not told */
    uint64_t prompt_bytes;   /**< text bytes of the prompt */
    uint64_t prompt_tokens;  /**< estimate: 4 bytes a token, text only */
    uint32_t n_prompts; /**< prompts in one body (a batch), each with a context of its own; 0 = 1 */
    uint64_t output_tokens;      /**< max_tokens or max_completion_tokens; 0 = not told */
    uint64_t kv_bytes_per_token; /**< of the model, from the config; 0 = unknown */
    uint32_t n_images;
    uint32_t n_audio;
    uint64_t body_bytes; /**< Content-Length, or what was seen; 0 = unknown */
    uint64_t session;    /**< hash of the session key */
    bool has_session;
    struct slice tenant;    /**< absent: the one default tenant */
    uint32_t tenant_weight; /**< of its tenant, thousandths; 0 = 1,000 */
    uint8_t priority;       /**< 1..9 */
    uint64_t deadline_ns;   /**< monotonic, arrival to last byte; 0 = none */
    uint64_t slo_ttft_ns;   /**< target, arrival to first byte; 0 = none */
    uint64_t slo_by_ns;     /**< the same, monotonic; 0: it counts from the pick */
    uint64_t slo_tpot_ns;   /**< target for each token after the first; 0 = none */
    struct slice region;
    struct slice gpu_type;    /**< device class asked for; absent: any */
    uint32_t bytes_per_token; /**< Q8, of the model; 0 = 4 bytes, that is 1,024 */
    uint32_t expected_output; /**< tokens, by what was learned; 0 = not asked */
    const uint64_t *blocks;   /**< prefix chain, design section 3; NULL when not computed */
    uint32_t n_blocks;
    uint64_t prefix_key; /**< hash of the first 100 characters of the first user's text; 0 = none */
};

#endif /* WEIR_MODEL_FEATURES_T_H */
