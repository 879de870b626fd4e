/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The circuit breaker of one endpoint generation: its state in atomics of the cell, its steps as functions with
 * the time passed in. Any thread, no lock. A new generation is a new cell, so it starts closed.
 *
 *   closed --failures--> open --cooldown over--> half-open --a good answer--> closed
 *                          ^                         |
 *                          +---- the trial failed ---+   cooldown doubled, up to its maximum
 *
 * Half-open is no state of its own in memory: it is open with the deadline passed, so nobody has to wake up for it.
 * In half-open one request at a time may try (sched_breaker_enter()); its reservation holds the slot and gives it back
 * with everything else it holds, so it cannot leak.
 *
 * Counted are failures and silence, never a 4xx, never 429 or 503 (busy is not broken), never how long a request took.
 */
#ifndef WEIR_SCHED_BREAKER_H
#define WEIR_SCHED_BREAKER_H

#include <stdbool.h>
#include <stdint.h>

#include "model/breaker_t.h"
#include "model/cell_t.h"

/** Values of weir_breaker_state. */
enum breaker_state { BREAKER_CLOSED, BREAKER_HALF_OPEN, BREAKER_OPEN };

/** Why it opened. Of two, the later one in this list is kept. */
enum breaker_cause {
    BREAKER_NONE,
    BREAKER_SILENT,  /**< no byte: the next byte of a good answer closes it at once */
    BREAKER_CONNECT, /**< connections fail: a passed probe ends the cooldown */
    BREAKER_FAILED,  /**< answers break off, or are 5xx */
    BREAKER_CAUSES
};

/** For people. */
struct breaker_look {
    enum breaker_state state;
    enum breaker_cause cause; /**< of an open or half-open one */
    uint64_t left_ns;         /**< of the cooldown; 0 unless open */
    uint32_t trips;           /**< times in a row that it opened */
    bool trial;               /**< one request tries */
};
struct breaker_look sched_breaker_look(const struct cell *c, uint64_t now_ns);

/** "failures in a row", and so on: what to tell an operator. */
const char *sched_breaker_why(enum breaker_cause cause);

/** What one step did. */
enum breaker_step { BREAKER_SAME, BREAKER_OPENED, BREAKER_REOPENED, BREAKER_CLOSED_AGAIN };

/**
 * A failure: an answer broke off or is a 5xx, or a connection failed.
 * @param trial the request held the trial slot: half-open ends with a longer cooldown.
 */
enum breaker_step sched_breaker_failed(struct cell *c,
                                       const struct breaker_rules *r,
                                       enum breaker_cause cause,
                                       bool trial,
                                       uint64_t now_ns);

/** No first byte in time. Not counted while the endpoint sends others theirs: then it is busy. @param sent_ns when the request was sent. */
enum breaker_step sched_breaker_timed_out(
    struct cell *c, const struct breaker_rules *r, bool trial, uint64_t sent_ns, uint64_t now_ns);

/**
 * A request still waits for its first byte; call it a few times a second. Opens when nobody got a byte for
 * breaker.stall, and for longer than twice the longest wait that ended well lately, while one or another request
 * waited. The request itself goes on. @param since_ns its last byte, or when it was sent.
 */
enum breaker_step sched_breaker_waits(
    struct cell *c, const struct breaker_rules *r, bool trial, uint64_t since_ns, uint64_t now_ns);

/** A good answer (below 400) began. @param waited_ns from the request sent. Cost: three loads when all is well. */
enum breaker_step sched_breaker_answered(struct cell *c,
                                         const struct breaker_rules *r,
                                         uint64_t waited_ns,
                                         uint64_t now_ns);

/** A good answer goes on: one that was taken for hung is not. Cost: one load when all is well. */
enum breaker_step sched_breaker_alive(struct cell *c, uint64_t now_ns);

/** A probe connected: if it was for connections that it opened, the trial may come now. */
void sched_breaker_reached(struct cell *c, uint64_t now_ns);

/** What a pick may do with an endpoint whose gate says GATE_BREAKER. */
enum breaker_pass { BREAKER_BLOCKED, BREAKER_TRIAL, BREAKER_FREE };
enum breaker_pass sched_breaker_pass(const struct cell *c, uint64_t now_ns);

/** Take the trial slot. @return BREAKER_TRIAL: taken; FREE: not needed, it is closed; BLOCKED: taken by another, or open. */
enum breaker_pass sched_breaker_enter(struct cell *c, uint64_t now_ns);
/** Give it back. Exactly once for each time taken; sched/ledger.c does. */
void sched_breaker_leave(struct cell *c);

/** Are so many of them red that all shall be used? @param percent as policy.panic_percent. */
bool sched_panic(uint32_t usable, uint32_t red, uint32_t percent);

#endif /* WEIR_SCHED_BREAKER_H */
