/* SPDX-License-Identifier: Apache-2.0 */
/** @file What is known of GPUs: step-time coefficients and memory of an 8B model on each. Sources in profile.c. */
#ifndef WEIR_ENGINE_PROFILE_H
#define WEIR_ENGINE_PROFILE_H

#include <stdint.h>

#include "base/slice.h"

struct engine_profile {
    const char *name;     /**< as the command line says it: "a100" */
    const char *gpu_type; /**< as the registry says it: "A100" */
    double floor_ms;      /**< of every step: the weights are read once */
    double b_ms;          /**< per new token beyond 128 in a step: compute */
    double k_us;          /**< per context token of a decoding request: its KV is read */
    double c_ms;          /**< per request in the step */
    uint64_t memory_total_bytes;
    uint64_t kv_bytes_per_token;
    uint64_t kv_tokens;     /**< KV capacity after weights and activations */
    uint32_t max_model_len; /**< of the model; an engine caps it at its KV capacity */
};

/** Find one by name, ASCII case ignored; NULL when there is none. Static. */
const struct engine_profile *engine_profile_find(struct slice name);

/** The i-th, NULL past the end; for lists. */
const struct engine_profile *engine_profile_at(unsigned i);

#endif /* WEIR_ENGINE_PROFILE_H */
