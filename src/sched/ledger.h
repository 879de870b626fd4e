/* SPDX-License-Identifier: Apache-2.0 */
/** @file Reservations: what we sent to an endpoint and have not seen end. Raised once, dropped exactly once. */
#ifndef WEIR_SCHED_LEDGER_H
#define WEIR_SCHED_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "model/cell_t.h"
#include "model/features_t.h"

struct sched_rates;
struct sched_tenant;

/** What the tenant of a request was charged for it (sched/tenants.h). Zeroed = nothing. */
struct sched_charge {
    struct sched_tenant *tenant; /**< NULL = not charged */
    uint64_t input, output;      /**< tokens */
    uint32_t weight;
};

/** One raised reservation; embed it in the request. Zeroed = none. Holds a reference on the cell. */
struct reservation {
    struct cell *cell;          /**< NULL = none */
    uint64_t prefill_tokens;    /**< still counted; 0 after the first byte */
    uint64_t bytes;             /**< still promised */
    uint64_t tokens;            /**< still promised */
    struct device_set *devices; /**< where bytes are promised too; NULL = nowhere */
    uint64_t sample_count;      /**< samples the cell had when promised */
    bool first_byte;            /**< seen */
    bool spilled;               /**< outside of the policy's place, as nobody there could take it */
    bool trial;                 /**< it holds the trial slot of a half-open breaker */
    /* sched/work.h; zero when the policy does not count work */
    bool counted, awaits, streamed, by_tokens;
    struct sched_rates *rates; /**< of endpoint and model; NULL = not learned from */
    uint64_t rates_key;
    uint64_t context;  /**< tokens counted in the cell */
    uint64_t own_us;   /**< predicted prefill or service time */
    uint64_t sent_ns;  /**< when it was (predicted to be) sent */
    uint64_t first_ns; /**< first byte */
    uint32_t computed; /**< prompt tokens to compute */
    uint32_t hits;     /**< prompt tokens expected in the cache, trust left out */
    uint32_t expected_step_us;
    uint32_t cache_blocks; /**< prefix blocks that its endpoint can keep; 0 = not known */
    bool unnoted;          /**< the prefix index does not know of it yet */
    struct sched_charge
        charge; /**< what its tenant was charged; sched_pool_settle() before the release */
};

/**
 * Raise the ledger, unless the address is at its limit. The caller's own reference (a snapshot's, a pool's) keeps the
 * cell alive during the call.
 * @param limit 0 = none. @return 0, or WEIR_E_FULL (nothing changed). Any thread, lock-free.
 */
int sched_reserve(struct reservation *r, struct cell *c, uint32_t limit, const struct features *f)
    MUST_CHECK;

/**
 * The same for an endpoint whose breaker was seen half-open: takes its trial slot too, unless the breaker closed meanwhile.
 * @return also WEIR_E_FULL when another request tries already.
 */
int sched_reserve_trial(struct reservation *r,
                        struct cell *c,
                        uint32_t limit,
                        const struct features *f,
                        uint64_t now_ns) MUST_CHECK;

/** The trial has its verdict: give the slot back, keep the rest. Harmless without one. */
void sched_trial_over(struct reservation *r);

/** First response byte: the prefill is over. Harmless when repeated, or on an empty reservation. */
void sched_first_byte(struct reservation *r);

/**
 * Drop the memory promise once a newer sample already shows it: the first byte was seen and at least two samples came
 * since the promise (the first of them may have been taken before the request arrived there). Harmless when repeated.
 */
void sched_settle(struct reservation *r);

/** Is its memory promised on devices that other endpoints use too? Then its end makes room for those as well. */
bool sched_shares_devices(const struct reservation *r);

/**
 * The end, whatever happened. Harmless on an empty reservation. @return the cell, still referenced: the caller offers
 * its capacity and then calls sched_cell_put(); NULL when empty.
 */
struct cell *sched_release(struct reservation *r) MUST_CHECK;

/** The caller holds a reference already. Any thread. */
void sched_cell_get(struct cell *c);
/** Drops a reference; with the last one the cell goes back to its home, which the fleet empties. Any thread. */
void sched_cell_put(struct cell *c);

#endif /* WEIR_SCHED_LEDGER_H */
