/* SPDX-License-Identifier: Apache-2.0 */
/** @file Small files, whole. Internal to confio. */
#ifndef WEIR_CONFIO_FILE_H
#define WEIR_CONFIO_FILE_H

#include "base/buf.h"
#include "conf/error.h"

/**
 * Append the content to `out`, whose cap is the limit. Follows links, takes pipes, refuses directories.
 * @param at names the file in errors.
 * @return 0; WEIR_E_IO with an error; WEIR_E_NOMEM.
 */
int confio_read_file(const char *path,
                     struct buf *out,
                     const struct conf_place *at,
                     struct conf_errors *errors) MUST_CHECK;

#endif /* WEIR_CONFIO_FILE_H */
