/* SPDX-License-Identifier: Apache-2.0 */
/** @file Chunks of pieces with a free list through them. */
#include "fleet/slab.h"

#include "base/bug.h"

enum { SLAB_PIECES = 64, SLAB_ALIGN = 64 };

struct slab_chunk {
    struct slab_chunk *next;
};

void fleet_slab_init(struct slab *s, const struct mem *mem, size_t size, size_t align)
{
    BUG_ON(align > SLAB_ALIGN || (align & (align - 1)) || align < sizeof(void *));
    *s = (struct slab){.mem = mem, .size = (size + align - 1) / align * align};
}

void fleet_slab_fini(struct slab *s)
{
    while (s->chunks) {
        struct slab_chunk *next = s->chunks->next;
        mem_free(s->mem, s->chunks);
        s->chunks = next;
    }
    s->free = NULL;
}

static void push(struct slab *s, void *piece)
{
    memcpy(piece, &s->free, sizeof(s->free));
    s->free = piece;
}

void *fleet_slab_get(struct slab *s)
{
    if (!s->free) {
        struct slab_chunk *c = mem_alloc(s->mem, sizeof(*c) + SLAB_ALIGN + SLAB_PIECES * s->size);
        if (!c)
            return NULL;
        c->next = s->chunks;
        s->chunks = c;
        uintptr_t first = ((uintptr_t)(c + 1) + SLAB_ALIGN - 1) & ~(uintptr_t)(SLAB_ALIGN - 1);
        for (size_t i = SLAB_PIECES; i-- > 0;)
            push(s, (char *)c + (first - (uintptr_t)c) + i * s->size);
    }
    void *piece = s->free;
    memcpy(&s->free, piece, sizeof(s->free));
    memset(piece, 0, s->size);
    return piece;
}

void fleet_slab_put(struct slab *s, void *piece)
{
    push(s, piece);
}
