/* SPDX-License-Identifier: Apache-2.0 */
/** @file UTF-8 well-formedness (Unicode 15, table 3-7). */
#ifndef WEIR_BASE_UTF8_H
#define WEIR_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Bytes of the well-formed sequence at p (1..4), or 0 when there is none within n bytes. */
size_t utf8_len(const char *p, size_t n);

/** Are these n bytes well-formed from the first to the last? */
bool utf8_ok(const char *p, size_t n);

/** Write code point c as UTF-8. @return bytes written (1..4); an invalid c is written as U+FFFD. */
size_t utf8_put(char out[4], uint32_t c);

#endif /* WEIR_BASE_UTF8_H */
