/* SPDX-License-Identifier: Apache-2.0 */
/** @file Values back to text. Internal to conf. */
#ifndef WEIR_CONF_PRINT_H
#define WEIR_CONF_PRINT_H

#include "base/buf.h"
#include "conf/option.h"

/** One option with all below it, as one line of JSON. Absent values are left out. */
void conf_value_print(const struct conf_option *o, const void *at, struct buf *out);

/** A whole section, the same way. */
void conf_section_print(const struct conf_section *s, const void *base, struct buf *out);

#endif /* WEIR_CONF_PRINT_H */
