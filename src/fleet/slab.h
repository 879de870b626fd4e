/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Equal pieces of memory, side by side and cache-line aligned, given back only with the whole slab.
 * Cells come from here: neighbours in the fleet are neighbours in memory, which is what a pick walks over.
 */
#ifndef WEIR_FLEET_SLAB_H
#define WEIR_FLEET_SLAB_H

#include <stdint.h>

#include "base/mem.h"

struct slab_chunk;

/** Not thread-safe. */
struct slab {
    const struct mem *mem;
    size_t size; /**< of one piece, rounded up by fleet_slab_init() */
    struct slab_chunk *chunks;
    void *free; /**< first free piece; each holds the next */
};

/** @param align a power of two, at most 64. */
void fleet_slab_init(struct slab *s, const struct mem *mem, size_t size, size_t align);
void fleet_slab_fini(struct slab *s);
/** Zeroed, or NULL. Pieces are given out in rising order of address while none came back. */
void *fleet_slab_get(struct slab *s);
void fleet_slab_put(struct slab *s, void *piece);

#endif /* WEIR_FLEET_SLAB_H */
