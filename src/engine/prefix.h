/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The prefix cache of an inference server: which prompt blocks are resident, who uses them, and which go first.
 * A block is named by its chain hash (model/prefix.h), so equal names mean equal text before it. A block in use is never
 * evicted; the others go least recently used first, and of one prompt the later blocks before the earlier ones.
 */
#ifndef WEIR_ENGINE_PREFIX_H
#define WEIR_ENGINE_PREFIX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"
#include "base/map.h"

struct engine_block {
    uint64_t hash;
    uint32_t users;
    struct list node; /**< in idle or spare */
};

struct engine_prefix {
    const struct mem *mem;
    struct map by_hash;
    struct engine_block *slab; /**< owned: all blocks there can be */
    struct list spare;
    struct list idle; /**< resident and unused, the next to go first */
    uint32_t n_used;
    uint32_t n_idle;
};

/** @param blocks_max most blocks resident. WEIR_E_NOMEM. */
int engine_prefix_init(struct engine_prefix *c,
                       const struct mem *mem,
                       uint32_t blocks_max) MUST_CHECK;
void engine_prefix_fini(struct engine_prefix *c);

/** Leading blocks of a chain that are resident. @param idle out: how many of them nobody uses. Changes nothing. */
uint32_t engine_prefix_probe(const struct engine_prefix *c,
                             const uint64_t *chain,
                             uint32_t n,
                             uint32_t *idle);

/** Use a resident block. @return false when it is not resident. @param was_idle out. */
bool engine_prefix_use(struct engine_prefix *c, uint64_t hash, bool *was_idle);

/** Add a block that is not resident, used once. @return WEIR_E_FULL or WEIR_E_NOMEM: it is not cached then. */
int engine_prefix_add(struct engine_prefix *c, uint64_t hash) MUST_CHECK;

/** Give back one use; a block without users becomes the most recently used idle one. @return it is idle now. */
bool engine_prefix_release(struct engine_prefix *c, uint64_t hash);

/** Drop the least recently used idle block. @return false when there is none. */
bool engine_prefix_evict(struct engine_prefix *c);

#endif /* WEIR_ENGINE_PREFIX_H */
