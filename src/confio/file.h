/* SPDX-License-Identifier: Apache-2.0 */
/** @file Small files, whole. Internal to confio. */
#ifndef WEIR_CONFIO_FILE_H
#define WEIR_CONFIO_FILE_H

#include <sys/types.h>

#include "base/buf.h"
#include "conf/error.h"

/** To be read with confio_read(). Never waits. @return a descriptor, or -1 with errno. */
int confio_open(const char *path) MUST_CHECK;
/** As read(2), whole signals aside. Waits for who writes into a pipe, but not for ever: ETIMEDOUT after 10 s of silence. */
ssize_t confio_read(int fd, char *to, size_t n) MUST_CHECK;

/**
 * Append the content to `out`, whose cap is the limit. Follows links, takes pipes (10 s of silence are an error), refuses
 * directories.
 * @param at names the file in errors.
 * @return 0; WEIR_E_IO with an error; WEIR_E_NOMEM.
 */
int confio_read_file(const char *path,
                     struct buf *out,
                     const struct conf_place *at,
                     struct conf_errors *errors) MUST_CHECK;

#endif /* WEIR_CONFIO_FILE_H */
