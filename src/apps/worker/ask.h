/* SPDX-License-Identifier: Apache-2.0 */
/** @file An inference request as the emulated worker understands it: JSON body to numbers, hashes and flags. */
#ifndef WEIR_APPS_WORKER_ASK_H
#define WEIR_APPS_WORKER_ASK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/slice.h"

enum ask_kind { ASK_CHAT, ASK_COMPLETION, ASK_EMBEDDING };

enum {
    ASK_INPUTS_MAX = 2048,
    ASK_DIMENSIONS = 256,
    ASK_DIMENSIONS_MAX = 8192,
    ASK_NUMBERS_MAX = 1 << 20, /**< inputs x dimensions */
};

/** Fill by ask_parse(), free by ask_fini(). */
struct ask {
    enum ask_kind kind;
    struct slice model; /**< one of the served ones; borrowed from the list */
    bool stream;
    bool include_usage;
    bool base64;
    uint32_t dimensions;
    bool has_max_tokens;
    uint32_t max_tokens;
    uint32_t prompt_tokens;
    uint64_t prompt_hash;
    uint64_t *blocks; /**< owned; prefix chain */
    uint32_t n_blocks;
    uint64_t *inputs; /**< owned; embedding: hash of each input */
    uint32_t n_inputs;
};

/** Why a request was refused, in vLLM's words. */
struct ask_error {
    unsigned status;
    const char *type;
    const char *param; /**< NULL = null */
    char message[512];
};

/**
 * @param models served names; a request without a model gets the first.
 * @return 0, WEIR_E_NOMEM, or WEIR_E_INVALID with *error filled. On failure nothing is to be freed.
 */
int ask_parse(enum ask_kind kind,
              struct slice body,
              const struct slice *models,
              uint32_t n_models,
              struct ask *out,
              struct ask_error *error) MUST_CHECK;
void ask_fini(struct ask *a);

#endif /* WEIR_APPS_WORKER_ASK_H */
