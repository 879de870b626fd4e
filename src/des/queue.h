/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The event queue of a simulation: what happens next on a virtual clock. Events of one instant come in the order
 * in which they were set, so that a run is a function of its inputs.
 */
#ifndef WEIR_DES_QUEUE_H
#define WEIR_DES_QUEUE_H

#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"

#define DES_NEVER UINT64_MAX

/** Embed this in whatever has a future, zeroed. */
struct des_event {
    uint64_t at_ns; /**< when, while it is set */
    uint64_t order; /**< the queue's */
    uint32_t place; /**< position + 1; 0 = not set */
    uint32_t kind;  /**< the owner's */
};

/** Earliest first: a heap of four children, whose keys lie beside the pointers. */
struct des_queue {
    const struct mem *mem;
    struct des_slot {
        uint64_t at_ns, order;
        struct des_event *event;
    } * slots;
    uint32_t n;
    uint32_t cap;
    uint64_t orders;
    uint64_t now_ns; /**< of the last event taken */
};

void des_queue_init(struct des_queue *q, const struct mem *mem);
/** Frees the heap; events are the caller's. */
void des_queue_fini(struct des_queue *q);

/** Room for n events, so that des_set() cannot fail before there are more. */
int des_queue_reserve(struct des_queue *q, uint32_t n) MUST_CHECK;

/**
 * Set, or move, an event; DES_NEVER takes it out. A time before now is now. Beyond what was reserved is a bug.
 * Cost: O(log n).
 */
void des_set(struct des_queue *q, struct des_event *e, uint64_t at_ns);
void des_cancel(struct des_queue *q, struct des_event *e);

/** When the next event is; DES_NEVER when there is none. */
static inline uint64_t des_next_at(const struct des_queue *q)
{
    return q->n ? q->slots[0].at_ns : DES_NEVER;
}

/** Take the next event and move the clock to it; NULL when there is none. */
struct des_event *des_take(struct des_queue *q);

#endif /* WEIR_DES_QUEUE_H */
