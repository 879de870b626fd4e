/* SPDX-License-Identifier: Apache-2.0 */
/** @file Reservations: what we sent to an endpoint and have not seen end. Raised once, dropped exactly once. */
#ifndef WEIR_SCHED_LEDGER_H
#define WEIR_SCHED_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "model/cell_t.h"
#include "model/features_t.h"

/** One raised reservation; embed it in the request. Zeroed = none. Holds a reference on the cell. */
struct reservation {
    struct cell *cell;       /**< NULL = none */
    uint64_t prefill_tokens; /**< still counted; 0 after the first byte */
    uint64_t bytes;          /**< still promised */
    uint64_t tokens;         /**< still promised */
    uint64_t sample_count;   /**< samples the cell had when promised */
};

/**
 * Raise the ledger, unless the address is at its limit.
 * @param limit 0 = none. @return 0, or WEIR_E_FULL (nothing changed). Any thread, lock-free.
 */
int sched_reserve(struct reservation *r, struct cell *c, uint32_t limit, const struct features *f) MUST_CHECK;

/** First response byte: the prefill is over. Harmless when repeated. */
void sched_first_byte(struct reservation *r);

/** Drop the memory promise if a sample newer by one whole report than the promise already shows it. */
void sched_settle(struct reservation *r);

/** The end, whatever happened. Harmless on an empty reservation. @return the cell, still referenced: the caller offers its capacity and then calls sched_cell_put(); NULL when empty. */
struct cell *sched_release(struct reservation *r) MUST_CHECK;

void sched_cell_get(struct cell *c);
/** Drops a reference; the last one hands the memory back through the fleet's free list (see fleet/cell.h). */
void sched_cell_put(struct cell *c);

#endif /* WEIR_SCHED_LEDGER_H */
