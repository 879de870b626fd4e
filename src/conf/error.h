/* SPDX-License-Identifier: Apache-2.0 */
/** @file What is wrong with a configuration: complete lines for people, kept without any allocation. */
#ifndef WEIR_CONF_ERROR_H
#define WEIR_CONF_ERROR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

enum {
    CONF_ERRORS_MAX = 20,  /**< kept; later ones are only counted */
    CONF_ERROR_TEXT = 512, /**< bytes of one, terminator included; longer ones are cut */
};

struct conf_error {
    uint32_t line;              /**< 1 = first; 0 = not about a place in the file */
    uint32_t column;            /**< 1 = first */
    char text[CONF_ERROR_TEXT]; /**< "weir.yaml:12:5: unknown key ..." or "--port: ..."; one line */
    uint32_t message;           /**< where in text the part after the place starts */
};

/** About 11 KB: embed it in something on the heap or near the top of a stack. Zeroed = empty. */
struct conf_errors {
    struct conf_error list[CONF_ERRORS_MAX]; /**< by line and column, those without a place last */
    uint32_t n;                              /**< in list */
    uint32_t total;                          /**< found */
};

/** Where an error is: a place in a file, or the flag that said it. */
struct conf_place {
    struct slice file;     /**< or the flag; absent: no prefix */
    uint32_t line, column; /**< 0 = only `file` is named */
    bool flag;             /**< it is a flag, whose name says which option is meant */
};

/**
 * Add one error, keeping the order. Text from the file is shown with control characters escaped.
 * @param parts n pieces that are put together.
 */
void conf_error_add(struct conf_errors *e,
                    const struct conf_place *at,
                    const struct slice *parts,
                    uint32_t n);

/** The known word nearest to `got`, at most two edits and less than half of it away; absent when there is none. */
struct slice conf_nearest(struct slice got, const char *const *known, uint32_t n);

#endif /* WEIR_CONF_ERROR_H */
