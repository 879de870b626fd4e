/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file HTTP/1.x heads: strict parser and framing decision (RFC 9112). Borrows the buffer, copies nothing.
 * Strict means: what could be read two ways by two servers is refused (bare CR, obs-fold, space before the
 * colon, Content-Length with Transfer-Encoding, differing or malformed lengths, codings other than one final
 * "chunked"). A lone LF as line end is refused, in requests and responses; so are methods other than those of
 * RFC 9110 and PATCH, and absolute targets without a plain host.
 */
#ifndef WEIR_WIRE_HTTP1_H
#define WEIR_WIRE_HTTP1_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

enum { HTTP1_FIELDS_MAX = 128 };

struct http1_field {
    struct slice name;
    struct slice value; /**< trimmed */
};

enum http1_framing {
    HTTP1_BODY_NONE,   /**< no body follows */
    HTTP1_BODY_LENGTH, /**< content_length bytes, possibly 0 */
    HTTP1_BODY_CHUNKED,
    HTTP1_BODY_CLOSE, /**< response only: until the peer closes */
};

/** One parsed head; slices point into the caller's bytes. */
struct http1_head {
    struct slice method; /**< request */
    struct slice target; /**< request: as sent */
    uint16_t status;     /**< response: 100..999 */
    struct slice reason; /**< response */
    uint8_t minor;       /**< HTTP/1.minor: 0 or 1 */
    enum http1_framing framing;
    /** As announced, also where no body follows (HEAD, 304); 0 when not. */
    uint64_t content_length;
    bool keep_alive;       /**< the peer allows another message on this connection */
    bool expect_continue;  /**< request: Expect: 100-continue */
    bool upgrade;          /**< Connection: upgrade with an Upgrade field */
    bool connection_names; /**< Connection names fields that must not be passed on */
    uint16_t n_fields;
    struct http1_field fields[HTTP1_FIELDS_MAX];
};

/** Why a head was refused; the message names the field or byte for the 400 answer. */
struct http1_error {
    uint16_t status;     /**< 400, 431 or 505 */
    const char *message; /**< static text */
};

/**
 * Parse a request head from the front of [p, p+n).
 * @param max_fields most header fields (<= HTTP1_FIELDS_MAX); more gives 431.
 * @param head its content counts on success only.
 * @param error filled when the result is negative.
 * @return bytes of the head including the empty line (> 0), 0 = more bytes needed, WEIR_E_PROTO = refuse and close.
 * Leading CRLF before the request line (at most 2) is skipped and counted. The caller caps n.
 * Thread: any. Cost: O(n), no allocation.
 */
int64_t wire_http1_request(const char *p,
                           size_t n,
                           unsigned max_fields,
                           struct http1_head *head,
                           struct http1_error *error) MUST_CHECK;

/**
 * Parse a response head.
 * @param method of the request it answers: HEAD and CONNECT change the framing; absent = neither.
 * Results as wire_http1_request(); 1xx heads are returned like others, with HTTP1_BODY_NONE.
 */
int64_t wire_http1_response(const char *p,
                            size_t n,
                            struct slice method,
                            struct http1_head *head,
                            struct http1_error *error) MUST_CHECK;

/** First field with this name (ASCII case ignored), or NULL. */
const struct http1_field *wire_http1_find(const struct http1_head *head, struct slice name);

/** Its value, or the absent slice. */
struct slice wire_http1_value(const struct http1_head *head, struct slice name);

/**
 * Must a proxy not pass this field on? True for the hop-by-hop fields (Connection, Keep-Alive, Proxy-Connection,
 * Transfer-Encoding, TE, Trailer, Upgrade, Proxy-Authenticate, Proxy-Authorization) and those named in Connection,
 * except Host and Content-Length, which no client may take away.
 */
bool wire_http1_hop_by_hop(const struct http1_head *head, const struct http1_field *field);

/** Standard reason phrase, or "Unknown". */
const char *wire_http1_reason(unsigned status);

#endif /* WEIR_WIRE_HTTP1_H */
