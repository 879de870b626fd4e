/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include "base/bug.h"
#include "base/hash.h"

enum { MAP_FIRST = 16 };

void map_init(struct map *m, const struct mem *mem)
{
    *m = (struct map){.mem = mem};
}

void map_fini(struct map *m)
{
    mem_free(m->mem, m->entries);
    map_init(m, m->mem);
}

static struct map_entry *find(const struct map *m, struct slice key, uint64_t hash)
{
    uint32_t mask = m->cap - 1;

    for (uint32_t i = (uint32_t)hash & mask;; i = (i + 1) & mask) {
        struct map_entry *e = &m->entries[i];
        if (!e->key.p || (e->hash == hash && slice_eq(e->key, key)))
            return e;
    }
}

void *map_get(const struct map *m, struct slice key)
{
    if (m->n == 0)
        return NULL;
    struct map_entry *e = find(m, key, hash_slice(key, 0));
    return e->key.p ? e->value : NULL;
}

static int grow(struct map *m)
{
    uint32_t cap = m->cap ? m->cap * 2 : MAP_FIRST;

    BUG_ON(cap < m->cap);
    struct map bigger = {.mem = m->mem, .cap = cap, .n = m->n};
    bigger.entries = mem_array(m->mem, cap, sizeof(struct map_entry));
    if (!bigger.entries)
        return WEIR_E_NOMEM;
    map_foreach(e, m) * find(&bigger, e->key, e->hash) = *e;
    mem_free(m->mem, m->entries);
    *m = bigger;
    return 0;
}

int map_put(struct map *m, struct slice key, void *value)
{
    /* At most 3/4 full, so a probe always meets a free place. */
    if (m->n >= m->cap / 4 * 3) {
        int rc = grow(m);
        if (rc)
            return rc;
    }
    if (!key.p)
        key = SLICE("");
    uint64_t hash = hash_slice(key, 0);
    struct map_entry *e = find(m, key, hash);
    if (!e->key.p)
        m->n++;
    *e = (struct map_entry){.key = key, .hash = hash, .value = value};
    return 0;
}

void *map_del(struct map *m, struct slice key)
{
    if (m->n == 0)
        return NULL;
    struct map_entry *e = find(m, key, hash_slice(key, 0));
    if (!e->key.p)
        return NULL;
    void *value = e->value;
    uint32_t mask = m->cap - 1;
    uint32_t hole = (uint32_t)(e - m->entries);
    /* Backward-shift deletion: move later entries of the run into the hole when their home allows it. */
    for (uint32_t i = (hole + 1) & mask; m->entries[i].key.p; i = (i + 1) & mask) {
        uint32_t home = (uint32_t)m->entries[i].hash & mask;
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            m->entries[hole] = m->entries[i];
            hole = i;
        }
    }
    m->entries[hole] = (struct map_entry){.key = {NULL, 0}};
    m->n--;
    return value;
}
