/* SPDX-License-Identifier: Apache-2.0 */
/** @file Server-sent events: where events end in a byte stream cut anywhere, and their data. Changes no byte. */
#ifndef WEIR_WIRE_SSE_H
#define WEIR_WIRE_SSE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

/** Splitter state; zero-initialise. */
struct sse_split {
    uint64_t events; /**< complete events so far (comments alone count as none) */
    bool in_event;   /**< bytes since the last event end hold a field line */
    uint8_t state;   /**< where in a line we stand */
};

/**
 * Advance over [p, p+n). @return the offset just past the first event end found, or 0 when none ends in here
 * (state then spans all n bytes). LF, CRLF and CR line ends. An event ends with its empty line; when a cut falls
 * inside that line's CRLF, the LF counts to what follows.
 */
size_t wire_sse_split(struct sse_split *s, const char *p, size_t n);

/** Do we stand between two events, so that a line of our own may be put here? Comments alone leave it so. */
static inline bool wire_sse_between(const struct sse_split *s)
{
    return !s->in_event && s->state == 0;
}

/** First "data:" value of one whole event, one leading space dropped. @return false when it has none. */
bool wire_sse_data(struct slice event, struct slice *data);

#endif /* WEIR_WIRE_SSE_H */
