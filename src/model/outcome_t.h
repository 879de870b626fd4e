/* SPDX-License-Identifier: Apache-2.0 */
/** @file What an answer says it used. Unknown is a value of its own (a clear bit), never 0. */
#ifndef WEIR_MODEL_OUTCOME_T_H
#define WEIR_MODEL_OUTCOME_T_H

#include <stdbool.h>
#include <stdint.h>

/** Bits of struct usage.known. */
enum { USAGE_PROMPT = 1, USAGE_COMPLETION = 2, USAGE_CACHED = 4 };

/** More tokens than this in one number are not believed. */
#define USAGE_TOKENS_MAX (UINT64_C(1) << 32)

struct usage {
    uint64_t prompt_tokens;
    uint64_t completion_tokens;
    uint64_t cached_tokens; /**< of the prompt, found in the engine's prefix cache */
    uint8_t known;          /**< which of them were told */
};

static inline bool usage_has(const struct usage *u, unsigned bit)
{
    return (u->known & bit) != 0;
}

#endif /* WEIR_MODEL_OUTCOME_T_H */
