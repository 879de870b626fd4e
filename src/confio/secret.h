/* SPDX-License-Identifier: Apache-2.0 */
/** @file A secret that a command line names: "env:NAME" or "file:PATH", as in the configuration, without a configuration. */
#ifndef WEIR_CONFIO_SECRET_H
#define WEIR_CONFIO_SECRET_H

#include <stddef.h>

#include "base/err.h"

enum { CONFIO_TOKEN_SIZE = 4096 }; /**< room that every token fits in, terminator included */

/**
 * Read it, without trailing newlines.
 * @param out terminated, empty on failure. @param size most bytes, terminator included.
 * @param wanted on failure: what it should have been, to follow "is not"; static.
 * @return 0; WEIR_E_INVALID: `where` names no place, and may be the secret itself: do not repeat it; WEIR_E_IO: it names
 * one, where there is no secret of one line of visible ASCII. Blocks on the file. Thread: none other may call setenv.
 */
int confio_secret_named(const char *where, char *out, size_t size, const char **wanted) MUST_CHECK;

#endif /* WEIR_CONFIO_SECRET_H */
