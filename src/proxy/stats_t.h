/* SPDX-License-Identifier: Apache-2.0 */
/** @file Inside the room: the counters of one lane. Written by its thread alone, read by any. */
#ifndef WEIR_PROXY_STATS_T_H
#define WEIR_PROXY_STATS_T_H

#include <stdatomic.h>
#include <stdbool.h>

#include "model/outcome_t.h"
#include "proxy/stats.h"

typedef atomic_ullong stat_counter;

/** One writer: a load and a store, no locked instruction. */
static inline void stat_add(stat_counter *c, uint64_t n)
{
    atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n,
                          memory_order_relaxed);
}
static inline void stat_sub(stat_counter *c, uint64_t n)
{
    atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) - n,
                          memory_order_relaxed);
}
static inline uint64_t stat_get(const stat_counter *c)
{
    return atomic_load_explicit(c, memory_order_relaxed);
}

struct stat_hist {
    stat_counter counts[PROXY_BOUNDS + 1];
    stat_counter sum_ns;
};

struct stat_series {
    stat_counter requests[OUTCOME_COUNT];
    struct stat_hist compute;
    stat_counter picks, fit_sum, offered_sum;
    struct stat_tokens {
        stat_counter counts[PROXY_TOKEN_BOUNDS + 1];
        stat_counter sum;
    } tokens[OPERATION_COUNT][TOKENS_KINDS];
    stat_counter cached_tokens, cached_of, usage_unknown;
};

enum { SERIES_BLOCK = 64, SERIES_BLOCKS = 1024 };

struct lane_stats {
    stat_counter rejections[REJECT_COUNT];
    stat_counter retries[RETRY_COUNT];
    stat_counter spilled;
    struct stat_hist duration, first_byte, queue, decision;
    stat_counter log_lost, connections, refused, active, sockets, buffered, upstreams;
    _Atomic(struct stat_series *)
        blocks[SERIES_BLOCKS]; /**< SERIES_BLOCK series each, made when first used */
};

/** Room for series must be made from memory; without it the counts of that series are lost, nothing else. */
struct stat_series *stats_series(struct lane_stats *s, uint32_t index);
void stats_hist_add(struct stat_hist *h, const double *bounds, uint64_t ns);
/** Count what a good answer says it used. @param task one enum task bit, or 0. */
void stats_usage_add(struct stat_series *s, uint32_t task, const struct usage *u);
void stats_fini(struct lane_stats *s);

#endif /* WEIR_PROXY_STATS_T_H */
