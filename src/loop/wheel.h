/* SPDX-License-Identifier: Apache-2.0 */
/** @file Hierarchical timer wheel (Varghese and Lauck 1987): O(1) set and cancel, 2^20 ns ticks. Used by loop.c only. */
#ifndef WEIR_LOOP_WHEEL_H
#define WEIR_LOOP_WHEEL_H

#include "loop/loop.h"

enum { WHEEL_LEVELS = 7, WHEEL_SLOTS = 64, WHEEL_TICK_SHIFT = 20 };

struct wheel {
    uint64_t tick;                  /**< all timers due at or before it have been given out */
    uint64_t pending[WHEEL_LEVELS]; /**< bit per slot that holds timers */
    struct list slots[WHEEL_LEVELS][WHEEL_SLOTS];
    struct list due; /**< given out by wheel_advance(), not run yet */
};

void wheel_init(struct wheel *w, uint64_t now_ns);
/** Put t->node where t->at_ns belongs; it must be in no list. */
void wheel_add(struct wheel *w, struct loop_timer *t);
/** Move everything due at now_ns to w->due. */
void wheel_advance(struct wheel *w, uint64_t now_ns);
/** Nanoseconds from now_ns until something may be due (a lower bound); UINT64_MAX when no timer is set. */
uint64_t wheel_wait(const struct wheel *w, uint64_t now_ns);

#endif /* WEIR_LOOP_WHEEL_H */
