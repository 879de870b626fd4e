/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The live state of one endpoint generation: ledger, last sample, health. Shared by all threads.
 *
 * Ledger: what we sent and have not seen end. Raised at the reservation by compare-and-swap within the limit,
 * lowered exactly once per reservation (sched/ledger.h); nothing else writes it: no health check, reload or timer.
 * Sample: written by the one control thread, read by any through a sequence lock (fleet/cell.h writes,
 * sched/row.h reads). Health: written by the control thread (probes) and by loops (passive evidence),
 * always through fleet/health.h and sched/evidence.h. Breaker: written by loops, always through sched/breaker.h.
 * A cell lives while the fleet or any reservation holds a reference.
 */
#ifndef WEIR_MODEL_CELL_T_H
#define WEIR_MODEL_CELL_T_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/slice.h"
#include "model/sample_t.h"

/** Requests in flight at one address, over all generations of it: limits and load count these. */
struct address_count {
    atomic_uint inflight;
    atomic_uint refs;
    atomic_uint changes; /**< raised by cell_changed() */
};

/** Memory promised on one GPU, over all endpoints that use it. */
struct device_count {
    atomic_ullong promised_bytes;
    uint32_t cells; /**< that promise on it, or did before they were bound elsewhere; the fleet's */
    struct slice uuid; /**< the fleet's */
};

/** The GPUs of an endpoint, of which each request takes an equal share. Lives as long as the fleet. */
struct device_set {
    uint32_t n;      /**< shares */
    uint32_t n_list; /**< those with a UUID */
    bool
        tokens; /**< its engine preallocates: only what a client asks for in bytes is the devices' */
    struct device_count *list[];
};

enum health {
    HEALTH_UNKNOWN = 0, /**< not probed yet; offered only when endpoint.vouched */
    HEALTH_UP,
    HEALTH_DOWN,
};

/** Bits of cell.health_flags. */
enum health_flag {
    HEALTH_SEEN_UP = 1, /**< it was up once, so when every endpoint looks down it may be tried */
    HEALTH_REFUSED = 2, /**< down because connections fail, not because a probe said so */
};

/** Bits of cell.gate: whether a pick has to look at the rest of the cell. 0 is the usual case. */
enum cell_gate {
    GATE_BREAKER = 1, /**< open or half-open */
    GATE_YOUNG = 2,   /**< its slow start is not known to be over */
    GATE_SHARED = 4,  /**< other cells promise memory on its devices too */
};

/** Bits of cell.known: which numbers of the digest the last sample told. */
enum cell_known {
    CELL_KNOWS_UTIL = 1,
    CELL_KNOWS_BYTES = 2,
    CELL_KNOWS_TOKENS = 4,
    CELL_KNOWS_TOTAL = 8,
};

enum { CELL_SAMPLE_WORDS = (sizeof(struct sample) + 7) / 8 };

/** Where cells go whose last reference was dropped: pushed by any thread, emptied whole by the fleet. */
struct cell_home {
    _Atomic(struct cell *) dead;
};

struct cell {
    /* One cache line with all that a pick reads of a typical endpoint. From sample_lock to state it is the
     * digest of the last sample, under the sequence lock: odd = being written. */
    alignas(64) struct address_count *address; /**< referenced */
    atomic_uint sample_lock;
    atomic_uint
        excess; /**< reported running + waiting, less what we had in flight there then; at least 0 */
    atomic_ullong
        fresh_until_ns; /**< the digest counts before this; UINT64_MAX while leased; 0 = none */
    atomic_ullong free_bytes; /**< device memory */
    atomic_uint free_tokens;  /**< KV capacity less used, saturated */
    atomic_uint total_tokens; /**< KV capacity, likewise; both are known or neither */
    atomic_ushort util_bp;
    atomic_uchar known;  /**< enum cell_known */
    atomic_uchar state;  /**< enum reported_state */
    atomic_short health; /**< enum health */
    atomic_uchar gate;   /**< enum cell_gate */
    /* ledger, first part */
    atomic_ullong
        promised_bytes; /**< device memory promised, until the end or until a newer sample shows it */
    atomic_ullong promised_tokens; /**< KV tokens promised, likewise */

    /* ledger, second part */
    atomic_uint inflight;         /**< requests reserved and not ended, of this generation */
    atomic_uint health_flags;     /**< enum health_flag */
    atomic_ullong prefill_tokens; /**< of requests without a first byte yet */
    atomic_ullong total_bytes;    /**< digest: device memory */
    atomic_ullong
        sample_count; /**< samples published so far; lets a reservation see "a newer sample" cheaply */

    _Atomic(struct device_set *) devices; /**< set by the fleet; NULL = none with a UUID */

    atomic_ullong last_progress_ns;   /**< last upstream byte seen by any loop, monotonic */
    atomic_uint consecutive_failures; /**< connect failures since the last success */

    /* work of requests whose policy counts it, sched/work.c */
    alignas(64) atomic_ullong
        work_until_ns; /**< when the prefills sent there will be done, by prediction */
    atomic_ullong
        await_us; /**< predicted work of those that tell when it is done, and have not yet */
    atomic_ullong context_tokens; /**< of all in flight, half their expected answer too */
    atomic_ullong
        recent_tokens; /**< computed for prompts lately: half of it is forgotten in RECENT_NS */
    atomic_ullong recent_at_ns; /**< when that was true */
    atomic_uint await; /**< how many those are: their first byte is the end of their prefill */
    atomic_uint whole; /**< requests in flight that are answered in one piece, long after it */
    atomic_uint reported_running; /**< digest: as reported; 0 when not told */
    atomic_uint reported_waiting; /**< digest: likewise */

    /* breaker, sched/breaker.c; failures and timeouts are only touched when something goes wrong */
    atomic_ullong breaker;     /**< state, cause, trips and deadline in one word; 0 = never open */
    atomic_uint trial;         /**< 1 while the one request of half-open is under way */
    atomic_uint failed_row;    /**< failures since the last good answer */
    atomic_uint timeouts_row;  /**< first-byte timeouts since the last good answer */
    atomic_uint window_failed; /**< failures since window_from_ns */
    atomic_uint window_ended;  /**< requests that had ended by then */
    atomic_ullong window_from_ns;   /**< first failure of the window; 0 = none yet */
    atomic_ullong slowest_ns;       /**< longest wait for a good answer's first byte */
    atomic_ullong slowest_at_ns;    /**< when that was; it is forgotten by halves */
    atomic_ullong silent_from_ns;   /**< since when somebody or other waits for a byte */
    atomic_ullong silent_seen_ns;   /**< last time that somebody was seen waiting */
    atomic_ullong offered_since_ns; /**< first pick that could choose it; 0 = none yet */

    /** How many pools have waiters that this endpoint might serve; kept by sched/pool.c. A hint for releases. */
    atomic_uint waiting_pools;

    /* lifetime totals, for metrics */
    atomic_ullong requests_total;
    atomic_ullong failures_total;

    atomic_ullong
        sample_words[CELL_SAMPLE_WORDS]; /**< the whole last sample, under the sequence lock */

    atomic_uint refs;
    uint32_t slot;
    uint32_t generation;
    struct cell_home *home;
    struct cell *next_dead;
};

/**
 * Whoever wrote what a pick reads of a cell says so afterwards: pools read a cell again only when it changed. Not needed
 * while cell.gate is set, when they always do, nor between the two halves of one step. Any thread.
 */
static inline void cell_changed(struct cell *c)
{
    atomic_fetch_add(&c->address->changes, 1);
}

#endif /* WEIR_MODEL_CELL_T_H */
