/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Which endpoints are believed to hold which prefix blocks: what was sent where lately, and how much each can keep.
 *
 * One table of fixed size for all threads, pools and models: that is the memory budget. It is read and written without
 * a lock. What two writers do to one place at once can make an estimate wrong, never a number invalid: it is a guess
 * about caches that other programs keep, and usage that comes back corrects it.
 *
 * A place holds the stamps of 24 neighbouring slots for one block. A stamp is a reading of the endpoint's own clock,
 * which ticks each time a 64th of its cache was touched; blocks not touched within the last readings that fill the
 * cache have left it. So each endpoint is an LRU cache of its own size, and forgetting one costs nothing. When a set of
 * places is full, the one touched least lately goes.
 */
#ifndef WEIR_SCHED_PREFIX_INDEX_H
#define WEIR_SCHED_PREFIX_INDEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"

enum {
    PREFIX_SLOTS_MAX = 16384,    /**< endpoints with a higher slot are not remembered */
    PREFIX_GROUP = 24,           /**< slots that share a place */
    PREFIX_WAYS = 8,             /**< places of a set */
    PREFIX_PARTS = 64,           /**< ticks of the clock for one cache full */
    PREFIX_RING = 128,           /**< readings of a clock that are told apart */
    PREFIX_CACHE_UNKNOWN = 2048, /**< blocks that an endpoint keeps when nobody says */
};

struct sched_prefix_set;
struct sched_prefix_page;

/** Fill by sched_prefix_init(). Any thread may use it. */
struct sched_prefix {
    const struct mem *mem;
    struct sched_prefix_set *sets; /**< borrowed */
    uint32_t n_sets;
    struct sched_prefix_page
        *_Atomic pages[PREFIX_SLOTS_MAX / PREFIX_GROUP + 1]; /**< one a group */
    atomic_uint clock;                                       /**< of all */
    atomic_uint guess; /**< where the last look ended; the next one begins there */
};

/** Bytes of one set. */
enum { PREFIX_SET_BYTES = 64 + PREFIX_WAYS * PREFIX_GROUP * 2 };

/**
 * @param zeroed borrowed until fini; aligned to 64, zeroed (fresh pages of the system are): memory is touched only as it
 * is needed. @param bytes of it: the budget. Below one set nothing is remembered.
 */
void sched_prefix_init(struct sched_prefix *x, const struct mem *mem, void *zeroed, size_t bytes);
void sched_prefix_fini(struct sched_prefix *x);

/** Room for the state of this slot, 13 KB for 24 neighbours. Call it where allocation is allowed; without memory the
 * slot is not remembered. */
void sched_prefix_expect(struct sched_prefix *x, uint32_t slot);

/** One endpoint to ask about. */
struct sched_prefix_ask {
    uint32_t slot, generation;
    uint32_t hits; /**< out: leading blocks believed to be there */
};

/** Have the places that a look for these blocks will begin with brought near. Worth it when there is other work before. */
void sched_prefix_ahead(const struct sched_prefix *x, const uint64_t *blocks, uint32_t n_blocks);

/** Endpoints with neighbouring slots that are asked about together. Zeroed = none. */
struct sched_prefix_group {
    uint32_t group;
    uint32_t members; /**< bit per slot */
    uint32_t generation[PREFIX_GROUP];
};

/** One more, with a higher slot than those before. @return false: it belongs to another group. */
bool sched_prefix_join(struct sched_prefix_group *g, uint32_t slot, uint32_t generation);

/** As sched_prefix_hits(), for groups made once and asked about often. @param hits out, one of each member, by slot; room
 * for PREFIX_GROUP more, whose values are left undefined. */
void sched_prefix_look(struct sched_prefix *x,
                       const uint64_t *blocks,
                       uint32_t n_blocks,
                       const struct sched_prefix_group *groups,
                       uint32_t n,
                       uint32_t *hits);

/**
 * @param ask sorted by slot. Cost: few places per 24 endpoints; those that hold the same are resolved together.
 * Memory order: none; what another thread notes at this moment may be seen or not.
 */
void sched_prefix_hits(struct sched_prefix *x,
                       const uint64_t *blocks,
                       uint32_t n_blocks,
                       struct sched_prefix_ask *ask,
                       uint32_t n);

/**
 * These blocks are (about to be) in the cache of this endpoint. Another generation than before empties it first.
 * @param cache_blocks how many it can keep; 0 = not known. Cost: one place a block.
 */
void sched_prefix_note(struct sched_prefix *x,
                       const uint64_t *blocks,
                       uint32_t n_blocks,
                       uint32_t slot,
                       uint32_t generation,
                       uint32_t cache_blocks);

#endif /* WEIR_SCHED_PREFIX_INDEX_H */
