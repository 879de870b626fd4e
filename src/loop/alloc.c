/* SPDX-License-Identifier: Apache-2.0 */
#include "loop/alloc.h"

#include <malloc.h>
#include <stdlib.h>
#include <sys/mman.h>

static void *resize(void *ctx, void *p, size_t n)
{
    (void)ctx;
    if (n == 0) {
        free(p);
        return NULL;
    }
    return realloc(p, n);
}

const struct mem *loop_mem(void)
{
    static const struct mem mem = {.resize = resize};

    return &mem;
}

void loop_mem_trim(void)
{
    (void)malloc_trim(0);
}

void *loop_pages(size_t n)
{
    void *p =
        mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

void loop_pages_free(void *p, size_t n)
{
    if (p)
        (void)munmap(p, n);
}
