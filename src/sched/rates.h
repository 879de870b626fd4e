/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file How fast one endpoint is with one model, learned from requests: time to first byte against tokens computed,
 * time between tokens against the batch, time of a whole request where tokens do not count. Starts from what is known
 * of its GPU. Read by any thread without a lock; who finds another thread learning drops its sample.
 */
#ifndef WEIR_SCHED_RATES_H
#define WEIR_SCHED_RATES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "sched/row.h"

/** What is known of a GPU type with an 8B model (the emulator's figures, engine/profile.c); of any other the A100's. */
struct sched_speed sched_speed_prior(struct slice gpu_type);

/** Sums of a regression that forgets, time against tokens. */
struct sched_fit {
    double n, x, xx, y, xy;
};

enum { SCHED_RATES_SURE = 16 /**< samples after which they say more than the prior */ };

struct sched_rates {
    atomic_ullong key; /**< of endpoint and model; a reader whose key differs takes a prior */
    atomic_uint lock;
    atomic_uint fixed_us, prefill_ns, step_us, context_ps, service_us, first_byte_us, trust;
    atomic_ullong first_byte_at_ns; /**< when first_byte_us was true */
    atomic_ullong used_ns;          /**< last learned from; who is idle longest is replaced first */
    atomic_uint firsts, answers;    /**< samples of either kind so far, up to SCHED_RATES_SURE */
    /* under the lock */
    struct sched_fit prefill;
    double step_scale, service;
    uint64_t last_first_ns, last_end_ns;
    uint32_t n_steps, n_service;
};

void sched_rates_reset(struct sched_rates *r, uint64_t key, const struct sched_speed *prior);

/**
 * @param now_ns what makes an endpoint look slow fades with time towards `prior` while it is not used.
 * @return from when on it does; UINT64_MAX: never, as it is.
 */
uint64_t sched_rates_read(const struct sched_rates *r,
                          const struct sched_speed *prior,
                          uint64_t now_ns,
                          struct sched_speed *out);

/**
 * A first byte came. @param tokens computed for it (hits left out). @param streamed false: it is the whole answer, so
 * it tells nothing of the prefill.
 */
void sched_rates_first_byte(
    struct sched_rates *r, uint64_t tokens, uint64_t sent_ns, uint64_t now_ns, bool streamed);

/** An answer of n tokens took this long after its first. @param expected_us of a step, as a pick would have said. */
void sched_rates_answer(struct sched_rates *r, uint64_t n, uint64_t ns, uint64_t expected_us);

/** A request whose tokens do not count ended. */
void sched_rates_service(struct sched_rates *r, uint64_t sent_ns, uint64_t now_ns);

/** The engine says how much of a prompt it found cached. */
void sched_rates_cached(struct sched_rates *r, uint64_t expected, uint64_t found);

#endif /* WEIR_SCHED_RATES_H */
