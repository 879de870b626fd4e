/* SPDX-License-Identifier: Apache-2.0 */
/** @file Memory that dies together: allocate piece by piece, free all at once. */
#ifndef WEIR_BASE_ARENA_H
#define WEIR_BASE_ARENA_H

#include "base/err.h"
#include "base/mem.h"

struct arena_block;

/** A bump allocator over blocks of growing size. Not thread-safe. */
struct arena {
    const struct mem *mem;      /**< where blocks come from; borrowed */
    struct arena_block *blocks; /**< newest first; owned */
    char *next;                 /**< first free byte of the newest block */
    size_t left;                /**< bytes free in it */
    size_t total;               /**< bytes taken from mem */
    size_t max;                 /**< cap on total; allocation fails above it */
};

/** @param max cap in bytes on all blocks together. */
void arena_init(struct arena *a, const struct mem *mem, size_t max);

/** Free every block. The arena can be used again. */
void arena_fini(struct arena *a);

/**
 * Have n bytes at hand, in a block of that size where there is none yet: for those who know how much they will need.
 * WEIR_E_NOMEM (at the cap too).
 */
int arena_reserve(struct arena *a, size_t n) MUST_CHECK;

/** What an array takes of a reserve; text takes its bytes and one. */
#define ARENA_ROOM(count, size) (((count) * (size) + 15) / 16 * 16)

/** n bytes aligned for any type, uninitialised, or NULL. Cost: constant, amortised. */
void *arena_alloc(struct arena *a, size_t n);

/** Zeroed array, or NULL (on overflow too). */
void *arena_array(struct arena *a, size_t count, size_t size);

/**
 * Copy of s that lives as long as the arena, terminated after its n bytes.
 * @param out the copy. An absent slice stays absent.
 */
int arena_slice(struct arena *a, struct slice s, struct slice *out) MUST_CHECK;

#endif /* WEIR_BASE_ARENA_H */
