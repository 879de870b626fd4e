/* SPDX-License-Identifier: Apache-2.0 */
/** @file Prometheus text format 0.0.4: writer and reader. */
#ifndef WEIR_WIRE_PROM_H
#define WEIR_WIRE_PROM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/slice.h"

#define PROM_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct prom_label {
    const char *name;
    struct slice value;
};

/** "# HELP" and "# TYPE" lines. @param type "counter", "gauge" or "histogram". */
void wire_prom_family(struct buf *out, const char *name, const char *type, const char *help);

/** One sample line; label values are escaped. An error sticks in out->err. */
void wire_prom_sample(struct buf *out,
                      const char *name,
                      const struct prom_label *labels,
                      unsigned n_labels,
                      double value);

/** Histogram with fixed bounds; counts are per bucket, not cumulative, one more than bounds (+Inf). */
void wire_prom_histogram(struct buf *out,
                         const char *name,
                         const struct prom_label *labels,
                         unsigned n_labels,
                         const double *bounds,
                         const uint64_t *counts,
                         unsigned n_bounds,
                         double sum);

/** One parsed sample; slices borrowed. */
struct prom_line {
    struct slice name;
    struct slice labels; /**< between the braces, raw; absent when none */
    double value;        /**< NaN and infinities possible */
};

/**
 * Next sample line of a text. Comments and blank lines are skipped; a malformed line is skipped and counted.
 * @param rest moved on. @param bad incremented per malformed line. @return false at the end.
 */
bool wire_prom_next(struct slice *rest, struct prom_line *line, uint32_t *bad);

/** The value of one label in a raw label text, unescaped into out. @return false when absent or malformed. */
bool wire_prom_label(struct slice labels, struct slice name, struct buf *out);

/** The same into max bytes. @return its length; -1 when absent, malformed or longer. */
int wire_prom_label_text(struct slice labels, struct slice name, char *out, size_t max);

#endif /* WEIR_WIRE_PROM_H */
