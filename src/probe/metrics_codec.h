/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Prometheus text of inference servers to numbers, by a table of series for each kind. A series that is absent
 * is unknown, never 0.
 */
#ifndef WEIR_PROBE_METRICS_CODEC_H
#define WEIR_PROBE_METRICS_CODEC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"
#include "model/sample_t.h"
#include "wire/prom.h"

/** What a series means. */
enum engine_number {
    NUMBER_RUNNING,
    NUMBER_WAITING,
    NUMBER_KV_RATIO,    /**< 0..1 of the KV cache in use */
    NUMBER_KV_USED,     /**< tokens */
    NUMBER_KV_CAPACITY, /**< tokens */
    NUMBER_KV_BLOCKS,   /**< blocks, and the tokens of one: capacity where no series tells it */
    NUMBER_KV_BLOCK_TOKENS,
    NUMBER_TOKENS_PER_S,  /**< generated, now */
    NUMBER_TOKENS_TOTAL,  /**< generated, a counter */
    NUMBER_PREFIX_RATIO,  /**< 0..1 */
    NUMBER_PREFIX_HITS,   /**< tokens, a counter */
    NUMBER_PREFIX_LOOKED, /**< tokens, a counter */
    NUMBER_MEMORY_TOTAL,  /**< device memory, bytes */
    NUMBER_MEMORY_USED,
    NUMBER_MEMORY_FREE, /**< told instead of used */
    NUMBER_GPU_RATIO,   /**< 0..1 of the devices busy */
    NUMBER_COUNT
};

/** How the lines of one series (data-parallel ranks, models) become one number. */
enum engine_join { JOIN_SUM, JOIN_MEAN };

struct engine_series {
    const char *name;
    enum engine_number what;
    enum engine_join join;
    const char *label, *value; /**< only lines with this label; NULL = all */
};

enum { ENGINE_LORAS_MAX = 512 };

struct engine_metrics {
    uint32_t known; /**< bit set over enum engine_number */
    double v[NUMBER_COUNT];
    double start_s;      /**< when the process started, seconds since 1970; 0 = not told */
    uint32_t lines, bad; /**< sample lines read, lines that are none */
    char loras[ENGINE_LORAS_MAX];
    uint32_t n_loras; /**< bytes of `loras`: running LoRA adapters, comma-joined; vLLM only */
    /* working state */
    uint8_t rank[NUMBER_COUNT]; /**< place in the table of the series that told it, + 1 */
    uint32_t count[NUMBER_COUNT];
    double newest_lora;
};

static inline bool engine_metrics_has(const struct engine_metrics *m, enum engine_number n)
{
    return (m->known >> n) & 1;
}

struct engine_metrics_shape {
    /** Ends with a NULL name. Of two series with one meaning the first in the table that is there counts. */
    const struct engine_series *series;
    /** Lines to leave out: these labels, where present, must be "0" (tensor and pipeline ranks repeat numbers). */
    const char *const *zero_labels; /**< NULL-terminated; NULL = none */
    /** Looks at every line besides; NULL = none. */
    void (*on_line)(struct engine_metrics *m, const struct prom_line *line);
};

/** Read a page. *out is overwritten. */
void engine_metrics_read(struct slice text,
                         const struct engine_metrics_shape *shape,
                         struct engine_metrics *out);

/** One label of a line as a number; false when absent or no number. */
bool engine_metrics_label(const struct prom_line *line, const char *name, double *out);

/** Its text, unescaped. @return its length, at most max; -1 when absent, malformed or longer. */
int engine_metrics_text(const struct prom_line *line, const char *name, char *out, size_t max);

/** Add a number that on_line worked out, to a sum. */
void engine_metrics_add(struct engine_metrics *m, enum engine_number what, double v);

/**
 * What the gateway knows from it. Counters become rates from the page before; one that fell restarted and gives none.
 * @param before NULL: no page before. @param elapsed_ns between the two.
 * @param prefix_ratio 0..1, or < 0: unknown (no lookups in between, too).
 */
void engine_metrics_sample(const struct engine_metrics *now,
                           const struct engine_metrics *before,
                           uint64_t elapsed_ns,
                           struct sample *out,
                           double *prefix_ratio);

#endif /* WEIR_PROBE_METRICS_CODEC_H */
