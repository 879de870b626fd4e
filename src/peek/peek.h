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
    /** hash_slice(value, 0); of a value that is too long, of its pieces of PEEK_TEXT_MAX bytes. */
    uint64_t hash;
    char bytes[PEEK_TEXT_MAX];
};

/** What the body told so far. Of a key that stands twice the last value counts, as in Python and JavaScript. */
struct peek_found {
    struct peek_text model;
    struct peek_text user;
    struct peek_text prompt_cache_key;
    struct peek_text previous_response_id;
    bool stream;
    bool has_stream;
    /** max_completion_tokens, else max_tokens, else max_output_tokens; 0 = none */
    uint64_t max_tokens;
    /** Unescaped text bytes of messages, prompt, input, tools, functions, system and instructions; no base64
     * images or audio. A token number counts 4 bytes. */
    uint64_t prompt_bytes;
    /** Strings and token arrays in a list under prompt or input: that many prompts in one request; 0 = no such list. */
    uint32_t n_prompts;
    uint32_t n_images; /**< images and videos */
    uint32_t n_audio;
};

/** The top-level keys that hold prompt text. */
enum { PEEK_SECTIONS = 7 };

/** What one section has added to the totals, so that a repeated key can take it back. */
struct peek_section {
    uint64_t bytes;
    uint32_t n_images;
    uint32_t n_audio;
};

/** Bytes kept of a key, and of the front of a string to tell base64 media by. */
enum { PEEK_KEY_MAX = 24, PEEK_FRONT_MAX = 11 };

/** One body being scanned, about 1.5 KB. Fill by peek_init(). */
struct peek {
    struct json_scan scan;
    struct peek_found found;
    uint64_t bytes; /**< body bytes fed */
    bool complete;  /**< the top-level value ended */
    bool broken;    /**< not JSON: what was found before still counts */

    /* The rest is the walk's own. */
    uint8_t field;        /**< which top-level key we are under */
    uint8_t class;        /**< how text here counts, by the nearest key */
    uint8_t key_len;      /**< above PEEK_KEY_MAX: longer than any known key */
    uint8_t front_len;    /**< bytes in front; above PEEK_FRONT_MAX: decided to be text */
    bool in_string;       /**< pieces of one string are coming in */
    bool media_string;    /**< it is a base64 data URL */
    uint16_t depth;       /**< arrays and objects we are inside */
    uint16_t objects;     /**< objects below the section's root */
    uint16_t block_depth; /**< depth at which a block of one class began; 0 = in none */
    uint64_t limits[3];   /**< max_completion_tokens, max_tokens, max_output_tokens */
    struct peek_section sections[PEEK_SECTIONS];
    char key[PEEK_KEY_MAX];
    char front[PEEK_FRONT_MAX];
    uint8_t was_text[JSON_DEPTH_MAX / 8]; /**< bit per object: the class around it was text */
};

void peek_init(struct peek *k);

/**
 * Feed body bytes (after transfer decoding).
 * @return 0, or WEIR_E_PROTO once the body is not JSON (found stays what it was; the caller decides).
 * k->scan.error and k->scan.offset say what is wrong and where.
 */
int peek_feed(struct peek *k, const char *p, size_t n) MUST_CHECK;

/** End of the body. @return 0, or WEIR_E_PROTO when it is not one complete JSON value. */
int peek_end(struct peek *k) MUST_CHECK;

/**
 * Copy what was found into features (model only when features has none yet: a header beats the body).
 * Texts are borrowed from k. Prompt tokens are prompt_bytes / 4, rounded up.
 */
void peek_features(const struct peek *k, struct features *f);

/** The same for what a multipart body told. @param complete the body was scanned to its end. */
void peek_found_features(const struct peek_found *found, bool complete, struct features *f);

/**
 * The task bit a path asks for ("/v1/chat/completions" -> TASK_CHAT, also with a prefix before "/v1" and with a
 * query), 0 when it does not say.
 */
uint32_t peek_task(struct slice path);

/**
 * A path that names its model: /v2/models/M[/versions/V]/infer (generate, generate_stream, ready, config, stats, or
 * nothing more) and /v1/models/M[/versions/V | /labels/L]:predict (classify, regress).
 * @param path without a query. @param model, version out: raw, still percent-encoded; version absent when there is none.
 */
bool peek_path_model(struct slice path, struct slice *model, struct slice *version);

/** A value begins; what was there is forgotten. This and the next two are for the room's own files. */
void peek_text_begin(struct peek_text *t);

/** Add a piece of it. */
void peek_text_put(struct peek_text *t, struct slice piece);

/** It is complete: hash it. */
void peek_text_done(struct peek_text *t);

#endif /* WEIR_PEEK_PEEK_H */
