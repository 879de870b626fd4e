/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Pairing heap: a heap of intrusive nodes that needs no room of its own, so that any number of heaps may share any
 * number of nodes without allocating. Where one heap is enough, base/heap.h is faster.
 */
#ifndef WEIR_BASE_PAIRING_H
#define WEIR_BASE_PAIRING_H

#include <stdbool.h>
#include <stddef.h>

/** Embed this, zeroed, in the thing that is ordered. */
struct pairing_node {
    struct pairing_node *child; /**< the first of those below */
    struct pairing_node *next;  /**< the next one below the same node */
    struct pairing_node
        *prev; /**< the one before, of the first one the node above; NULL at the top */
};

/** a before b? A strict weak order that does not change while both are in the heap. */
typedef bool (*pairing_before_fn)(const struct pairing_node *a, const struct pairing_node *b);

/** Zeroed = empty. The same order in every call. Not thread-safe. */
struct pairing {
    struct pairing_node *top; /**< the first one; NULL = empty */
};

/** Cost: O(1). */
void pairing_push(struct pairing *p, struct pairing_node *node, pairing_before_fn before);
/** Take out a node that is in this heap. Cost: O(log n) amortised. */
void pairing_remove(struct pairing *p, struct pairing_node *node, pairing_before_fn before);

#endif /* WEIR_BASE_PAIRING_H */
