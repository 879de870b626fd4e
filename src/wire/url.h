/* SPDX-License-Identifier: Apache-2.0 */
/** @file URLs and query strings: split without copying, decode into the caller's buffer. */
#ifndef WEIR_WIRE_URL_H
#define WEIR_WIRE_URL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"

/** http://host:port/path?query, borrowed from the text. */
struct url {
    bool tls;
    struct slice host;      /**< IPv6 literals without brackets */
    uint16_t port;          /**< 80 or 443 when not given */
    struct slice authority; /**< as written, userinfo refused */
    struct slice path;      /**< "/" when empty */
    struct slice query;     /**< without "?"; absent when none */
};

/** Absolute http or https URL. WEIR_E_INVALID otherwise. */
int wire_url_parse(struct slice text, struct url *out) MUST_CHECK;

/** "host:port", "[v6]:port" or "host" (port then 0). */
int wire_authority_parse(struct slice text, struct slice *host, uint16_t *port) MUST_CHECK;

/** Split a request target "/path?query" (origin form). */
void wire_target_split(struct slice target, struct slice *path, struct slice *query);

/** Percent-decode, "+" as space when `form`. Appends to out; WEIR_E_INVALID for a broken escape. */
int wire_url_decode(struct slice text, bool form, struct buf *out) MUST_CHECK;

/** Append, percent-encoded, all but letters, digits, "-._~" and `more`: a path segment, a value of a query or form. */
void wire_url_encode(struct slice text, const char *more, struct buf *out);

/** Is `raw`, decoded, that text? A broken escape stands for itself. Cost: O(n), copies nothing. */
bool wire_url_means(struct slice raw, bool form, struct slice text);

/**
 * Next name=value pair of a query or form body.
 * @param rest moved on. @param name, value raw (still encoded). @return false at the end. Empty pieces are skipped.
 */
bool wire_query_next(struct slice *rest, struct slice *name, struct slice *value);

#endif /* WEIR_WIRE_URL_H */
