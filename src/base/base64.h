/* SPDX-License-Identifier: Apache-2.0 */
/** @file Base64 of RFC 4648, section 4, with padding. */
#ifndef WEIR_BASE_BASE64_H
#define WEIR_BASE_BASE64_H

#include "base/buf.h"

/** Append the text of `bytes`. @return 0, or the buffer's sticky error. */
int base64_put(struct buf *out, struct slice bytes);

/** Append the bytes of `text`. WEIR_E_INVALID for what is no whole base64 (also blanks); or the buffer's sticky error. */
int base64_read(struct slice text, struct buf *out) MUST_CHECK;

#endif /* WEIR_BASE_BASE64_H */
