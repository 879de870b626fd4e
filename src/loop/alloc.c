/* SPDX-License-Identifier: Apache-2.0 */
#include "loop/alloc.h"

#include <stdlib.h>

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
