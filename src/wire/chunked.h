/* SPDX-License-Identifier: Apache-2.0 */
/** @file Chunked transfer coding (RFC 9112 7.1): a resumable decoder that lends payload, and the encoder's prefix. */
#ifndef WEIR_WIRE_CHUNKED_H
#define WEIR_WIRE_CHUNKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

/** Decoder state; zero-initialise. */
struct chunked {
    uint64_t
        left; /**< payload bytes left in the current chunk; in a trailer's name: see chunked.c */
    uint32_t line;    /**< bytes of the current size, extension or trailer line so far */
    uint32_t trailer; /**< bytes of all trailer lines so far */
    uint8_t state;
    bool done; /**< the final empty line was read */
};

/** Caps: one size line with extensions, and all trailers. Above: WEIR_E_PROTO. */
enum { CHUNKED_LINE_MAX = 4096, CHUNKED_TRAILER_MAX = 16384 };

/**
 * Decode from the front of [p, p+n): consume framing and at most one run of payload.
 * @param payload out: payload borrowed from the input, possibly empty.
 * @return bytes consumed (> 0, payload included), 0 = nothing to do (n == 0 or done), WEIR_E_PROTO = malformed.
 * Call again with the rest until it returns 0. Extensions and trailer fields are checked for form and dropped; a
 * trailer of framing (Content-Length, Transfer-Encoding) is refused.
 * Strict: hex digits only, CRLF only, no bare LF, at most 16 digits.
 */
int64_t
wire_chunked_read(struct chunked *c, const char *p, size_t n, struct slice *payload) MUST_CHECK;

enum { CHUNKED_PREFIX_MAX = 18 };

/** Write "<hex size>\r\n" for a chunk of n > 0 bytes. @return its length. The chunk ends with "\r\n"; the body with "0\r\n\r\n". */
size_t wire_chunked_prefix(char out[CHUNKED_PREFIX_MAX], size_t n);

#endif /* WEIR_WIRE_CHUNKED_H */
