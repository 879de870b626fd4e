/* SPDX-License-Identifier: Apache-2.0 */
/** @file Fields "model" and "stream" of a multipart/form-data body (RFC 7578), while it streams in. */
#ifndef WEIR_PEEK_MULTIPART_H
#define WEIR_PEEK_MULTIPART_H

#include "peek/peek.h"

enum { MULTIPART_BOUNDARY_MAX = 70, MULTIPART_HEAD_MAX = 4096 };

/** One body being scanned, about 6 KB. Fill by peek_multipart_init(). */
struct multipart {
    struct peek_found found; /**< model, user, stream; bytes of prompt; files named image or file */
    uint64_t bytes;          /**< body bytes fed */
    bool complete;           /**< the closing boundary was seen */

    /* The rest is the walk's own. */
    uint8_t state;
    uint8_t field;       /**< which known field the current part is */
    uint8_t flag_len;    /**< of the value of stream */
    uint8_t end_matched; /**< bytes of the empty line that ends a part's head */
    uint16_t delimiter_len;
    uint16_t matched; /**< bytes of the delimiter seen */
    uint16_t head_len;
    char flag[8];
    char delimiter[MULTIPART_BOUNDARY_MAX + 4]; /**< CRLF -- boundary */
    char head[MULTIPART_HEAD_MAX];
};

/** @param content_type the whole header value. @return 0, or WEIR_E_INVALID without a usable boundary. */
int peek_multipart_init(struct multipart *m, struct slice content_type) MUST_CHECK;

/**
 * Feed body bytes (after transfer decoding). What stands after the closing boundary is ignored.
 * @return 0, or WEIR_E_PROTO when the body is not multipart with that boundary: it does not begin with it, a part's
 * head is longer than MULTIPART_HEAD_MAX, or a boundary is followed by neither a line end nor "--".
 */
int peek_multipart_feed(struct multipart *m, const char *p, size_t n) MUST_CHECK;

/** The name in the head of a part, borrowed; absent when it has none. @return whether the part is a file. */
bool peek_multipart_name(struct slice head, struct slice *name);

#endif /* WEIR_PEEK_MULTIPART_H */
