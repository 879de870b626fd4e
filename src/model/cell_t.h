/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The live state of one endpoint generation: ledger, last sample, health. Shared by all threads.
 *
 * Ledger: what we sent and have not seen end. Raised at the reservation by compare-and-swap within the limit,
 * lowered exactly once per reservation (sched/ledger.h); nothing else writes it: no health check, reload or timer.
 * Sample: written by the one control thread, read by any through a sequence lock (fleet/cell.h writes,
 * sched/row.h reads). Health: written by the control thread (probes) and by loops (passive evidence).
 * A cell lives while the fleet or any reservation holds a reference.
 */
#ifndef WEIR_MODEL_CELL_T_H
#define WEIR_MODEL_CELL_T_H

#include <stdatomic.h>
#include <stdint.h>

#include "model/sample_t.h"

/** Requests in flight at one address, over all generations of it: the concurrency limit counts these. */
struct address_count {
    atomic_uint inflight;
    atomic_uint refs;
};

enum health {
    HEALTH_UNKNOWN = 0, /**< not probed yet; not offered, unless its source vouches for it */
    HEALTH_UP,
    HEALTH_DOWN,
};

enum { CELL_SAMPLE_WORDS = (sizeof(struct sample) + 7) / 8 };

struct cell {
    atomic_uint refs;
    uint32_t slot;
    uint32_t generation;
    struct address_count *address; /**< referenced */

    /* ledger */
    atomic_uint inflight;         /**< requests reserved and not ended */
    atomic_ullong prefill_tokens; /**< of requests without a first byte yet */
    atomic_ullong
        promised_bytes; /**< device memory promised, until the end or until a newer sample shows it */
    atomic_ullong promised_tokens; /**< KV tokens promised, likewise */

    /* sample, by sequence lock: odd = being written */
    atomic_uint sample_lock;
    atomic_ullong sample_words[CELL_SAMPLE_WORDS];
    atomic_ullong
        sample_count; /**< samples published so far; lets a reservation see "a newer sample" cheaply */

    /* health */
    atomic_int health;              /**< enum health */
    atomic_ullong last_progress_ns; /**< last upstream byte seen by any loop, monotonic */
    atomic_uint
        consecutive_failures; /**< connect failures and answers that broke off, since the last success */

    /* lifetime totals, for metrics */
    atomic_ullong requests_total;
    atomic_ullong failures_total;

    /** pools that may hold waiters for this endpoint: a cheap hint, raised while anybody waits */
    atomic_uint waiting_pools;
};

#endif /* WEIR_MODEL_CELL_T_H */
