/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file What an answer says it used, read from the bytes as they pass: a JSON body or an event stream, cut
 * anywhere. For metrics and for learned rates; changes no byte and refuses none.
 */
#ifndef WEIR_PEEK_USAGE_H
#define WEIR_PEEK_USAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"
#include "model/outcome_t.h"
#include "wire/json_scan.h"

/** Reader state, about 250 bytes. Zeroed is ready to use. */
struct peek_usage {
    /**
     * What was read, of the last object that had it: prompt_tokens or input_tokens; completion_tokens or output_tokens;
     * cached_tokens of prompt_tokens_details or input_tokens_details.
     */
    struct usage usage;

    /* The rest is the reader's own. */
    uint8_t state;
    uint8_t matched; /**< bytes of the key seen */
    uint8_t field;   /**< what the next number is */
    bool in_details; /**< inside prompt_tokens_details */
    uint8_t key_len;
    char key[24];
    uint64_t values[3];
    bool has[3];
    struct json_scan scan;
};

void peek_usage_init(struct peek_usage *u);

/**
 * Look at the next bytes of the answer's body (after transfer decoding).
 * Every object under a key "usage" is read, at any depth, in JSON and in each event of a stream; the last one
 * with a number wins, field by field. Cost: O(n), one memchr pass where there is none.
 */
void peek_usage_feed(struct peek_usage *u, const char *p, size_t n);

#endif /* WEIR_PEEK_USAGE_H */
