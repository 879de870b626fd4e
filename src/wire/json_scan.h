/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Streaming JSON scanner (RFC 8259): bytes in at any cut, events out, no tree, no allocation.
 * Long strings arrive in pieces, unescaped, so that a 10 MB prompt needs no buffer. Bytes above 0x7F inside
 * strings are handed on as they are, well-formed UTF-8 or not: the gateway refuses nothing a worker may take.
 */
#ifndef WEIR_WIRE_JSON_SCAN_H
#define WEIR_WIRE_JSON_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

enum { JSON_DEPTH_MAX = 256, JSON_NUMBER_MAX = 64 };

/** The names keep clear of those of jansson, which some callers include too. */
enum json_event {
    JSON_SCAN_OBJECT_BEGIN,
    JSON_SCAN_OBJECT_END,
    JSON_SCAN_ARRAY_BEGIN,
    JSON_SCAN_ARRAY_END,
    JSON_SCAN_KEY,    /**< pieces as JSON_SCAN_STRING */
    JSON_SCAN_STRING, /**< text: unescaped; last says whether the string ended with this piece */
    JSON_SCAN_NUMBER, /**< text: the whole literal; one longer than JSON_NUMBER_MAX is an error */
    JSON_SCAN_TRUE,
    JSON_SCAN_FALSE,
    JSON_SCAN_NULL,
};

/**
 * @param text borrowed for the call; keys, strings and numbers only. May be empty with the last piece of a string.
 * @param last the value or key is complete.
 * @return 0 to go on; anything else stops the scan and is returned by wire_json_scan().
 */
typedef int (*json_event_fn)(void *ctx, enum json_event event, struct slice text, bool last);

/** Scanner state, about 150 bytes; fill by wire_json_init(). */
struct json_scan {
    json_event_fn on_event;
    void *ctx;
    uint64_t
        offset; /**< bytes consumed, for error messages: the byte that was refused stands here */
    const char *error; /**< static text after WEIR_E_PROTO and WEIR_E_FULL */
    int rc;            /**< the result that ended the scan; later calls return it again */
    uint16_t depth;
    uint8_t state;
    uint8_t escape;          /**< where inside an escape */
    uint16_t code_unit;      /**< hex digits of \u so far */
    uint16_t high_surrogate; /**< waiting for its other half; 0 = none */
    bool is_key;
    uint8_t literal;    /**< which of true, false, null */
    uint8_t literal_at; /**< characters of it seen */
    uint8_t number_len;
    char number[JSON_NUMBER_MAX];      /**< a literal that was cut */
    uint8_t stack[JSON_DEPTH_MAX / 8]; /**< bit per level: 1 = object */
};

void wire_json_init(struct json_scan *s, json_event_fn on_event, void *ctx);

/**
 * Feed the next bytes. @return 0 = fine so far, WEIR_E_PROTO = not JSON (see s->error and s->offset),
 * WEIR_E_FULL = nested deeper than JSON_DEPTH_MAX, or the callback's non-zero result.
 * Lone surrogate escapes become U+FFFD. Cost: O(n); plain string runs are handed on without copying.
 */
int wire_json_scan(struct json_scan *s, const char *p, size_t n) MUST_CHECK;

/** End of input. @return 0 when exactly one value was complete, else WEIR_E_PROTO or what ended the scan. */
int wire_json_end(struct json_scan *s) MUST_CHECK;

#endif /* WEIR_WIRE_JSON_SCAN_H */
