/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <stdint.h>
#include <string.h>

void *mem_zalloc(const struct mem *m, size_t n)
{
    void *p = mem_alloc(m, n);

    if (p)
        memset(p, 0, n);
    return p;
}

void *mem_array(const struct mem *m, size_t count, size_t size)
{
    if (size && count > SIZE_MAX / size)
        return NULL;
    return mem_zalloc(m, count * size);
}

void *mem_resize(const struct mem *m, void *p, size_t count, size_t size)
{
    if (size && count > SIZE_MAX / size)
        return NULL;
    size_t n = count * size;
    return m->resize(m->ctx, p, n ? n : 1);
}

char *mem_strdup(const struct mem *m, struct slice s)
{
    char *copy = mem_alloc(m, s.n + 1);

    if (!copy)
        return NULL;
    if (s.n)
        memcpy(copy, s.p, s.n);
    copy[s.n] = '\0';
    return copy;
}
