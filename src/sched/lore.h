/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file What the scheduler has learned and all its pools share: where prefixes lie, where sessions are, how fast
 * endpoints are, how long answers get. Any thread may read and write it; there are no locks to wait for.
 */
#ifndef WEIR_SCHED_LORE_H
#define WEIR_SCHED_LORE_H

#include "base/err.h"
#include "base/mem.h"
#include "model/features_t.h"
#include "sched/lengths.h"
#include "sched/prefix_index.h"
#include "sched/rates.h"

enum {
    LORE_RATES_MAX = 16384, /**< endpoints, models and kinds of request whose rates are kept */
    LORE_RATES_WINDOW = 16,
    LORE_SESSIONS_MAX = 65536,
    LORE_SESSION_WAYS = 4,
};

/** Where a session was served last. */
struct sched_session {
    atomic_ullong key; /**< 0 = free */
    atomic_ullong who; /**< slot and generation */
    atomic_uint used;
};

struct sched_lore {
    const struct mem *mem;
    struct sched_prefix prefix;
    struct sched_lengths *lengths;
    struct sched_rates *_Atomic rates[LORE_RATES_MAX];
    struct sched_session *sessions;
    uint32_t n_sessions; /**< a multiple of LORE_SESSION_WAYS, or 0 */
    atomic_uint session_clock;
};

/**
 * @param zeroed 64-aligned, zeroed memory of `bytes` for prefix index and sessions, borrowed until sched_lore_free(); it
 * is touched only as it is needed. NULL and 0: neither is remembered. @return 0 or WEIR_E_NOMEM.
 */
int sched_lore_new(const struct mem *mem, void *zeroed, size_t bytes, struct sched_lore **out)
    MUST_CHECK;
void sched_lore_free(struct sched_lore *l);

/** What key the rates of an endpoint with a model stand under. @param endpoint hash of its address. @param kind of request. */
uint64_t sched_lore_key(uint64_t endpoint, struct slice model, uint32_t kind);

/**
 * The rates of an endpoint with a model, made from the prior of its GPU when new. They live as long as the lore, but may be
 * given to another key when thousands are in use. NULL without memory. Allocates. Any thread.
 */
struct sched_rates *sched_lore_rates(struct sched_lore *l, uint64_t key, struct slice gpu_type);

/** Fill what the features do not know of themselves: tokens by the model's bytes per token, expected output. */
void sched_lore_prepare(const struct sched_lore *l, struct features *f);

/** Where the session was last. @return false when not known. */
bool sched_lore_session(const struct sched_lore *l,
                        uint64_t session,
                        uint32_t *slot,
                        uint32_t *generation);
void sched_lore_session_put(struct sched_lore *l,
                            uint64_t session,
                            uint32_t slot,
                            uint32_t generation);

#endif /* WEIR_SCHED_LORE_H */
