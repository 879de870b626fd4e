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

static int new_block(struct arena *a, size_t n)
{
    if (a->total > a->max || n > a->max - a->total)
        return WEIR_E_NOMEM;
    struct arena_block *b = mem_alloc(a->mem, sizeof(*b) + n);
    if (!b)
        return WEIR_E_NOMEM;
    b->older = a->blocks;
    a->blocks = b;
    a->next = b->bytes;
    a->left = n;
    a->total += n;
    return 0;
}

static size_t aligned(size_t n)
{
    const size_t align = alignof(max_align_t);

    return (n + align - 1) / align * align;
}

int arena_reserve(struct arena *a, size_t n)
{
    return n <= a->left ? 0 : n > SIZE_MAX / 2 ? WEIR_E_NOMEM : new_block(a, aligned(n));
}

static int make_room(struct arena *a, size_t n)
{
    size_t want = a->total ? a->total : ARENA_FIRST;

    if (n <= a->left)
        return 0;
    if (want > ARENA_LARGEST)
        want = ARENA_LARGEST;
    if (want < n || a->total > a->max || aligned(want) > a->max - a->total)
        want = n;
    return new_block(a, aligned(want));
}

void *arena_alloc(struct arena *a, size_t n)
{
    if (n > SIZE_MAX / 2)
        return NULL;
    n = n ? aligned(n) : aligned(1);
    if (make_room(a, n))
        return NULL;
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
    if (s.n > SIZE_MAX / 2 || make_room(a, s.n + 1))
        return WEIR_E_NOMEM;
    /* From the other end of the block, where nothing has to be aligned. */
    a->left -= s.n + 1;
    char *copy = a->next + a->left;
    if (s.n)
        memcpy(copy, s.p, s.n);
    copy[s.n] = '\0';
    *out = slice_of(copy, s.n);
    return 0;
}
