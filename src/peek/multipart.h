/* SPDX-License-Identifier: Apache-2.0 */
/** @file Fields "model" and "stream" of a multipart/form-data body (RFC 7578), while it streams in. */
#ifndef WEIR_PEEK_MULTIPART_H
#define WEIR_PEEK_MULTIPART_H

#include "peek/peek.h"

enum { MULTIPART_BOUNDARY_MAX = 70, MULTIPART_HEAD_MAX = 4096 };

struct multipart {
    struct peek_found found; /**< model, user, stream */
    bool complete;           /**< the closing boundary was seen */
    uint8_t state;
    uint16_t boundary_len, matched, head_len, value_len;
    char boundary[MULTIPART_BOUNDARY_MAX + 4]; /**< CRLF -- boundary */
    char head[MULTIPART_HEAD_MAX];
    uint8_t field; /**< which known field the current part is */
};

/** @param content_type the whole header value. @return 0, or WEIR_E_INVALID without a usable boundary. */
int peek_multipart_init(struct multipart *m, struct slice content_type) MUST_CHECK;

/** @return 0, or WEIR_E_PROTO when the body is not multipart with that boundary. */
int peek_multipart_feed(struct multipart *m, const char *p, size_t n) MUST_CHECK;

#endif /* WEIR_PEEK_MULTIPART_H */
