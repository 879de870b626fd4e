/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Flat fields of the objects of a JSON list, or of one object: all that the answers of inference servers need.
 * No tree is built: an answer of several megabytes takes the memory of one row.
 */
#ifndef WEIR_PROBE_ROWS_CODEC_H
#define WEIR_PROBE_ROWS_CODEC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

enum { ENGINE_ROWS_FIELDS_MAX = 12 };

struct engine_rows_shape {
    /** Keys of the top-level object under which lists of rows stand; NULL-terminated. NULL: the object itself is the one
     * row. A list at the top is always read. */
    const char *const *lists;
    /** Fields wanted: "id", or "status.value" for one inside an object of the row. NULL-terminated. */
    const char *const *fields;
};

/**
 * @param values beside shape.fields: the text of a string, number, "true" or "false"; absent where there is none, it is
 * null, or its text is longer than 512 bytes.
 * @return 0 to go on; anything else ends the reading and is returned.
 */
typedef int (*engine_rows_fn)(void *ctx, const struct slice *values);

/** @return 0; WEIR_E_INVALID: not JSON, or none of the lists is there; what on_row returned. */
int engine_rows_read(struct slice body,
                     const struct engine_rows_shape *shape,
                     engine_rows_fn on_row,
                     void *ctx) MUST_CHECK;

#endif /* WEIR_PROBE_ROWS_CODEC_H */
