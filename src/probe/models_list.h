/* SPDX-License-Identifier: Apache-2.0 */
/** @file Reads the answer of GET /v1/models (OpenAI shape; llama.cpp's and Ollama's extra keys are ignored). */
#ifndef WEIR_PROBE_MODELS_LIST_H
#define WEIR_PROBE_MODELS_LIST_H

#include "base/arena.h"
#include "base/err.h"
#include "model/endpoint_t.h"

/**
 * @param out, n the models, in a's memory. Entries without a usable id are skipped, duplicates dropped.
 * @return 0, WEIR_E_INVALID (no such list), WEIR_E_NOMEM.
 */
int probe_models_list(struct slice body, struct arena *a, struct model_ref **out, uint32_t *n)
    MUST_CHECK;

#endif /* WEIR_PROBE_MODELS_LIST_H */
