/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Request body -> features, while it streams in: any key order, any cut, no tree, no prompt text kept.
 */
#ifndef WEIR_PEEK_PEEK_H
#define WEIR_PEEK_PEEK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"
#include "model/features_t.h"
#include "wire/json_scan.h"

enum { PEEK_TEXT_MAX = 256 };

/** A short string value that was found. */
struct peek_text {
    uint16_t n;
    bool present;
    bool too_long; /**< longer than PEEK_TEXT_MAX: not usable as a name, hash still right */
    uint64_t hash; /**< over the whole value */
    char bytes[PEEK_TEXT_MAX];
};

/** What the body told so far. */
struct peek_found {
    struct peek_text model;
    struct peek_text user;
    struct peek_text prompt_cache_key;
    struct peek_text previous_response_id;
    bool stream;
    bool has_stream;
    uint64_t max_tokens; /**< max_completion_tokens beats max_tokens; 0 = none */
    uint64_t prompt_bytes; /**< unescaped text bytes of messages, prompt, input, tools; no base64 images or audio */
    uint32_t n_images;
    uint32_t n_audio;
};

/** One body being scanned. Fill by peek_init(). */
struct peek {
    struct json_scan scan;
    struct peek_found found;
    uint64_t bytes;    /**< body bytes fed */
    bool complete;     /**< the top-level value ended */
    bool broken;       /**< not JSON: what was found before still counts */
    uint8_t opaque[192]; /**< the peeker's own state; see peek.c */
};

void peek_init(struct peek *k);

/**
 * Feed body bytes (after transfer decoding).
 * @return 0, or WEIR_E_PROTO once the body is not JSON (found stays what it was; the caller decides).
 */
int peek_feed(struct peek *k, const char *p, size_t n) MUST_CHECK;

/** End of the body. @return 0, or WEIR_E_PROTO when it is not one complete JSON value. */
int peek_end(struct peek *k) MUST_CHECK;

/**
 * Copy what was found into features (model only when features has none yet: a header beats the body).
 * Texts are borrowed from k. Prompt tokens are prompt_bytes / 4, rounded up.
 */
void peek_features(const struct peek *k, struct features *f);

/** The task bit a path asks for ("/v1/chat/completions" -> TASK_CHAT), 0 when it does not say. */
uint32_t peek_task(struct slice path);

#endif /* WEIR_PEEK_PEEK_H */
