/* SPDX-License-Identifier: Apache-2.0 */
/** @file What /metrics of the emulated worker tells, under vLLM's names. */
#ifndef WEIR_APPS_WORKER_METRICS_H
#define WEIR_APPS_WORKER_METRICS_H

#include <stdint.h>

#include "base/buf.h"
#include "engine/engine.h"

enum { METRICS_BUCKETS_MAX = 24 };

struct metrics_histogram {
    uint64_t counts[METRICS_BUCKETS_MAX];
    double sum;
};

enum finish { FINISH_STOP, FINISH_LENGTH, FINISH_ABORT, N_FINISH };

struct metrics {
    struct metrics_histogram first_token; /**< seconds of real time, as all of these */
    struct metrics_histogram between_tokens;
    struct metrics_histogram whole;
    struct metrics_histogram queue;
    uint64_t finished[N_FINISH];
};

void metrics_first_token(struct metrics *m, double seconds);
void metrics_between_tokens(struct metrics *m, double seconds);
void metrics_whole(struct metrics *m, double seconds);
void metrics_queue(struct metrics *m, double seconds);

/** @param memory_free_bytes see worker_server_sample(). */
void metrics_write(struct buf *out,
                   const struct metrics *m,
                   const struct engine_stats *s,
                   struct slice model,
                   uint64_t memory_free_bytes);

#endif /* WEIR_APPS_WORKER_METRICS_H */
