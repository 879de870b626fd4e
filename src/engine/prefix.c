/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/prefix.h"

static struct slice key_of(const uint64_t *hash)
{
    return slice_of((const char *)hash, sizeof(*hash));
}

static struct engine_block *find(const struct engine_prefix *c, uint64_t hash)
{
    return map_get(&c->by_hash, key_of(&hash));
}

int engine_prefix_init(struct engine_prefix *c, const struct mem *mem, uint32_t blocks_max)
{
    *c = (struct engine_prefix){.mem = mem};
    map_init(&c->by_hash, mem);
    list_init(&c->spare);
    list_init(&c->idle);
    c->slab = mem_array(mem, blocks_max, sizeof(*c->slab));
    if (!c->slab)
        return WEIR_E_NOMEM;
    for (uint32_t i = 0; i < blocks_max; i++) {
        list_init(&c->slab[i].node);
        list_add(&c->spare, &c->slab[i].node);
    }
    return 0;
}

void engine_prefix_fini(struct engine_prefix *c)
{
    map_fini(&c->by_hash);
    mem_free(c->mem, c->slab);
    c->slab = NULL;
}

uint32_t engine_prefix_probe(const struct engine_prefix *c,
                             const uint64_t *chain,
                             uint32_t n,
                             uint32_t *idle)
{
    uint32_t hits = 0;

    *idle = 0;
    for (; hits < n; hits++) {
        const struct engine_block *b = find(c, chain[hits]);
        if (!b)
            break;
        *idle += b->users == 0;
    }
    return hits;
}

bool engine_prefix_use(struct engine_prefix *c, uint64_t hash, bool *was_idle)
{
    struct engine_block *b = find(c, hash);

    *was_idle = false;
    if (!b)
        return false;
    if (b->users++ == 0) {
        *was_idle = true;
        list_del(&b->node);
        c->n_idle--;
        c->n_used++;
    }
    return true;
}

int engine_prefix_add(struct engine_prefix *c, uint64_t hash)
{
    if (list_empty(&c->spare))
        return WEIR_E_FULL;
    struct engine_block *b = container_of(c->spare.next, struct engine_block, node);
    BUG_ON(find(c, hash));
    b->hash = hash;
    int rc = map_put(&c->by_hash, key_of(&b->hash), b);
    if (rc)
        return rc;
    list_del(&b->node);
    b->users = 1;
    c->n_used++;
    return 0;
}

bool engine_prefix_release(struct engine_prefix *c, uint64_t hash)
{
    struct engine_block *b = find(c, hash);

    BUG_ON(!b || b->users == 0);
    if (--b->users)
        return false;
    list_add(&c->idle, &b->node);
    c->n_used--;
    c->n_idle++;
    return true;
}

bool engine_prefix_evict(struct engine_prefix *c)
{
    if (list_empty(&c->idle))
        return false;
    struct engine_block *b = container_of(c->idle.next, struct engine_block, node);
    map_del(&c->by_hash, key_of(&b->hash));
    list_del(&b->node);
    list_add(&c->spare, &b->node);
    c->n_idle--;
    return true;
}
