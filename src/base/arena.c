/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdalign.h>
#include <stdint.h>

enum { ARENA_FIRST = 1024, ARENA_LARGEST = 65536 };

struct arena_block {
    struct arena_block *older;
    alignas(max_align_t) char bytes[];
};

void arena_init(struct arena *a, const struct mem *mem, size_t max)
{
    *a = (struct arena){.mem = mem, .max = max};
}

void arena_fini(struct arena *a)
{
    while (a->blocks) {
        struct arena_block *older = a->blocks->older;
        mem_free(a->mem, a->blocks);
        a->blocks = older;
    }
    arena_init(a, a->mem, a->max);
}

void *arena_alloc(struct arena *a, size_t n)
{
    const size_t align = alignof(max_align_t);

    if (n > SIZE_MAX / 2)
        return NULL;
    n = (n + align - 1) / align * align;
    if (n == 0)
        n = align;
    if (n > a->left) {
        size_t want = a->total < ARENA_FIRST ? ARENA_FIRST : a->total;
        if (want > ARENA_LARGEST)
            want = ARENA_LARGEST;
        if (want < n)
            want = n;
        if (a->total > a->max || want > a->max - a->total)
            want = n;
        if (a->total > a->max || want > a->max - a->total)
            return NULL;
        struct arena_block *b = mem_alloc(a->mem, sizeof(*b) + want);
        if (!b)
            return NULL;
        b->older = a->blocks;
        a->blocks = b;
        a->next = b->bytes;
        a->left = want;
        a->total += want;
    }
    void *p = a->next;
    a->next += n;
    a->left -= n;
    return p;
}

void *arena_array(struct arena *a, size_t count, size_t size)
{
    if (size && count > SIZE_MAX / size)
        return NULL;
    void *p = arena_alloc(a, count * size);
    if (p)
        memset(p, 0, count * size);
    return p;
}

int arena_slice(struct arena *a, struct slice s, struct slice *out)
{
    *out = (struct slice){NULL, 0};
    if (!s.p)
        return 0;
    char *copy = arena_alloc(a, s.n + 1);
    if (!copy)
        return WEIR_E_NOMEM;
    if (s.n)
        memcpy(copy, s.p, s.n);
    copy[s.n] = '\0';
    *out = slice_of(copy, s.n);
    return 0;
}
