/* SPDX-License-Identifier: Apache-2.0 */
/* An allocator for tests: counts what is out, and can fail the n-th allocation. */
#ifndef WEIR_TESTS_HEAP_MEM_H
#define WEIR_TESTS_HEAP_MEM_H

#include <stdlib.h>

#include "base/mem.h"

struct test_heap {
    long live;    /* allocations not freed */
    long fail_at; /* 1 = the next allocation fails, counted down; 0 = never */
};

static inline void *test_heap_resize(void *ctx, void *p, size_t n)
{
    struct test_heap *h = ctx;

    if (n == 0) {
        if (p)
            h->live--;
        free(p);
        return NULL;
    }
    if (h->fail_at > 0 && --h->fail_at == 0)
        return NULL;
    void *q = realloc(p, n);
    if (q && !p)
        h->live++;
    return q;
}

static inline struct mem test_heap_mem(struct test_heap *h)
{
    return (struct mem){.resize = test_heap_resize, .ctx = h};
}

#endif
