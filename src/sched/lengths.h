/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file How long answers get, by model, tenant and limit: mean, median and 90th percentile, learned one by one in
 * bounded memory; and how many bytes of text are one token of a model. Any thread; no locks: a sample that meets another
 * thread's is dropped.
 */
#ifndef WEIR_SCHED_LENGTHS_H
#define WEIR_SCHED_LENGTHS_H

#include <stdatomic.h>
#include <stdint.h>

#include "model/features_t.h"
#include "model/outcome_t.h"

enum { LENGTHS_MAX = 2048, LENGTHS_WINDOW = 8, LENGTH_DEFAULT = 256, LENGTH_ENOUGH = 8 };

/** One key's estimate; quantiles in 1/16 tokens. */
struct sched_length {
    atomic_ullong key; /**< 0 = free */
    atomic_uint lock;
    atomic_uint n; /**< samples, saturated */
    atomic_uint mean16, median16, p90_16;
    atomic_uint bytes_per_token; /**< Q8; of the keys of a model alone; 0 = not known */
    atomic_uint used;
};

struct sched_lengths {
    struct sched_length entries[LENGTHS_MAX];
    atomic_uint clock;
};

/** Tokens of an answer. */
struct sched_length_guess {
    uint32_t mean, median, p90;
};

/**
 * The narrowest of (model, tenant, limit), (model, limit) and model that was seen often enough; else half the limit, at
 * most LENGTH_DEFAULT. Never above the request's own limit.
 */
struct sched_length_guess sched_lengths_guess(const struct sched_lengths *l,
                                              const struct features *f);

/** Bytes of prompt text per token of this model, Q8; 4 (1,024) until it is known. */
uint32_t sched_lengths_bytes_per_token(const struct sched_lengths *l, struct slice model);

/** What an answer says it used. */
void sched_lengths_learn(struct sched_lengths *l, const struct features *f, const struct usage *u);

#endif /* WEIR_SCHED_LENGTHS_H */
