/* SPDX-License-Identifier: Apache-2.0 */
/** @file The allocator table: pure code gets its memory from whoever calls it, so a test can fail any allocation. */
#ifndef WEIR_BASE_MEM_H
#define WEIR_BASE_MEM_H

#include <stddef.h>

#include "base/slice.h"

/** An allocator. The malloc-backed one is loop_mem() in loop/alloc.h. */
struct mem {
    /** Like realloc: NULL pointer allocates, size 0 frees and returns NULL; NULL when out of memory. */
    void *(*resize)(void *ctx, void *p, size_t n);
    void *ctx; /**< handed to resize; borrowed */
};

static inline void *mem_alloc(const struct mem *m, size_t n)
{
    return m->resize(m->ctx, NULL, n ? n : 1);
}

static inline void mem_free(const struct mem *m, void *p)
{
    if (p)
        m->resize(m->ctx, p, 0);
}

/** Zeroed memory, or NULL. */
void *mem_zalloc(const struct mem *m, size_t n);

/** count * size bytes, zeroed; NULL on overflow too. */
void *mem_array(const struct mem *m, size_t count, size_t size);

/** Grow or shrink an array; NULL (and the old one untouched) on overflow or no memory. */
void *mem_resize(const struct mem *m, void *p, size_t count, size_t size);

/** A terminated copy of s, owned by the caller; NULL when out of memory. */
char *mem_strdup(const struct mem *m, struct slice s);

#endif /* WEIR_BASE_MEM_H */
