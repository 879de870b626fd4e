/* SPDX-License-Identifier: Apache-2.0 */
/** @file The malloc-backed allocator: the one place that calls malloc and free. */
#ifndef WEIR_LOOP_ALLOC_H
#define WEIR_LOOP_ALLOC_H

#include "base/mem.h"

/** Shared, thread-safe, never NULL. */
const struct mem *loop_mem(void);

/** Pages that are free in the middle of the heap go back to the system. Cost: O(heap), some milliseconds for 50 MB. */
void loop_mem_trim(void);

/**
 * Fresh zeroed pages: n bytes of address space that take memory only where they are touched. NULL when refused. Give
 * them back by loop_pages_free() with the same n.
 */
void *loop_pages(size_t n);
/** NULL is allowed. */
void loop_pages_free(void *p, size_t n);

#endif /* WEIR_LOOP_ALLOC_H */
