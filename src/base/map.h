/* SPDX-License-Identifier: Apache-2.0 */
/** @file Hash map from bytes to pointers: open addressing, linear probing, keys borrowed from the values. */
#ifndef WEIR_BASE_MAP_H
#define WEIR_BASE_MAP_H

#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"

struct map_entry {
    struct slice
        key; /**< borrowed; must live while the entry does. key.p == NULL marks a free place */
    uint64_t hash; /**< of key */
    void *value;   /**< the caller's */
};

/** Not thread-safe. Iterate with map_foreach; do not insert or remove meanwhile. */
struct map {
    const struct mem *mem;
    struct map_entry *entries;
    uint32_t cap; /**< a power of two, or 0 */
    uint32_t n;
};

void map_init(struct map *m, const struct mem *mem);
/** Frees the table only. */
void map_fini(struct map *m);
/** The value, or NULL. Cost: O(1) expected. */
void *map_get(const struct map *m, struct slice key);
/** Insert or replace; on replace the new key is borrowed instead of the old. WEIR_E_NOMEM leaves all as it was. */
int map_put(struct map *m, struct slice key, void *value) MUST_CHECK;
/** Take an entry out. @return its value, or NULL when there was none. */
void *map_del(struct map *m, struct slice key);

#define map_foreach(e, m)                                                                          \
    for (struct map_entry *e = (m)->entries; e && e < (m)->entries + (m)->cap; e++)                \
        if (e->key.p)

#endif /* WEIR_BASE_MAP_H */
