/* SPDX-License-Identifier: Apache-2.0 */
/** @file Binary heap of intrusive nodes, ordered by a comparator; any node can be taken out. */
#ifndef WEIR_BASE_HEAP_H
#define WEIR_BASE_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"

/** Embed this in the thing that waits. at == 0 means "in no heap". */
struct heap_node {
    uint32_t at; /**< position + 1; written by the heap */
};

/** a before b? Must be a strict weak order that does not change while both are in the heap. */
typedef bool (*heap_before_fn)(const struct heap_node *a, const struct heap_node *b);

/** Smallest (by `before`) on top. Not thread-safe. */
struct heap {
    const struct mem *mem;
    struct heap_node **slots;
    uint32_t n;
    uint32_t cap;
    heap_before_fn before;
};

void heap_init(struct heap *h, const struct mem *mem, heap_before_fn before);
/** Frees the array only; nodes belong to the caller. */
void heap_fini(struct heap *h);
/** Room for at least n nodes, so that later pushes do not allocate. */
int heap_reserve(struct heap *h, uint32_t n) MUST_CHECK;
/** Cost: O(log n); allocates only beyond what was reserved. */
int heap_push(struct heap *h, struct heap_node *node) MUST_CHECK;
/** The first node, or NULL; it stays in the heap. */
static inline struct heap_node *heap_top(const struct heap *h)
{
    return h->n ? h->slots[0] : NULL;
}
/** Take a node out, O(log n). It must be in this heap. */
void heap_remove(struct heap *h, struct heap_node *node);
/** Restore the order after the key of a node in the heap changed, O(log n). */
void heap_update(struct heap *h, struct heap_node *node);

#endif /* WEIR_BASE_HEAP_H */
