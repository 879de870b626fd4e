/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Reads what an engine serves from any of the lists they give: OpenAI's and vLLM's `data`, llama.cpp's `models`
 * beside it, Ollama's `models`, Triton's repository index, TGI's and TEI's one object.
 */
#ifndef WEIR_PROBE_MODELS_CODEC_H
#define WEIR_PROBE_MODELS_CODEC_H

#include "base/arena.h"
#include "base/err.h"
#include "model/endpoint_t.h"

enum { ENGINE_OWNER_MAX = 32 };

/** What was read. Texts live in the arena. */
struct engine_models {
    struct arena *arena;
    struct model_ref *list;
    uint32_t n;
    uint32_t left_out; /**< entries without a usable name, or above ENDPOINT_MODELS_MAX */
    char owner
        [ENGINE_OWNER_MAX]; /**< owned_by of the first entry that has one, terminated; "" = none */
};

/**
 * The union of all lists in the body, without duplicates. What is being loaded is listed as loading; what the engine
 * says it cannot serve (failed, unavailable, being unloaded) is left out.
 * @return 0 (an empty list too); WEIR_E_INVALID: no such list; WEIR_E_NOMEM.
 */
int engine_models_list(struct slice body, struct arena *a, struct engine_models *out) MUST_CHECK;

/** The one model that TGI's or TEI's GET /info tells: model_id, and max_total_tokens or max_input_length. */
int engine_models_info(struct slice body, struct arena *a, struct engine_models *out) MUST_CHECK;

/** The names in a list under `model_names` (FastChat) or `models` (KServe), and lists of objects as above. */
int engine_models_names(struct slice body, struct arena *a, struct engine_models *out) MUST_CHECK;

#endif /* WEIR_PROBE_MODELS_CODEC_H */
