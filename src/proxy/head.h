/* SPDX-License-Identifier: Apache-2.0 */
/** @file Inside the room: copying the fields of a head, all but some, in whole runs. */
#ifndef WEIR_PROXY_HEAD_H
#define WEIR_PROXY_HEAD_H

#include "base/buf.h"
#include "wire/http1.h"

/**
 * Append the field lines as they came, without those that drop() names.
 * @param end just past the head's empty line.
 */
void head_copy_fields(struct buf *out,
                      const struct http1_head *h,
                      const char *end,
                      bool (*drop)(const struct http1_head *h,
                                   const struct http1_field *f,
                                   void *ctx),
                      void *ctx);

/** Append "<name_colon>value CRLF"; nothing for an empty value. */
void head_put(struct buf *out, const char *name_colon, struct slice value);

#endif /* WEIR_PROXY_HEAD_H */
