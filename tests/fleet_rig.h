/* SPDX-License-Identifier: Apache-2.0 */
/* A fleet with one source, a pool of one model on it, and the few lines that every test of picks repeats. */
#ifndef WEIR_TESTS_FLEET_RIG_H
#define WEIR_TESTS_FLEET_RIG_H

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "fleet/fleet.h"
#include "heap_mem.h"
#include "sched/pool.h"

struct rig {
    struct test_heap heap;
    struct mem mem;
    struct fleet *fleet;
    const struct snapshot *snapshot;
    struct sched_pool *pool;
    struct sched_lore *lore;
    void *lore_memory;
    struct sched_scratch scratch;
    struct policy policy;
    struct route_queue queue;
    struct features f;
    struct decision d;
    struct member chosen;
    uint64_t now, seed;
};

#define RIG_MODEL SLICE("m")

enum { RIG_LORE_BYTES = 1 << 20 };

/** A zeroed cell. Static, not on the stack: gcc's AddressSanitizer does not keep the alignment of a cell there. */
#define RIG_CELL(name)                                                                             \
    static struct cell name;                                                                       \
    static struct address_count name##_address;                                                    \
    memset((void *)&name, 0, sizeof(name));                                                        \
    memset((void *)&name##_address, 0, sizeof(name##_address));                                    \
    name.address = &name##_address

#define RIG_MUST(call)                                                                             \
    do {                                                                                           \
        if ((call) != 0)                                                                           \
            abort();                                                                               \
    } while (0)

static inline void rig_open(struct rig *r, const char *policy)
{
    *r = (struct rig){.now = 1000 * NS_PER_S, .seed = 1};
    r->mem = test_heap_mem(&r->heap);
    struct fleet_options o = {.mem = &r->mem, .n_sources = 1};
    RIG_MUST(fleet_new(&o, &r->fleet));
    RIG_MUST(sched_policy_named(slice_str(policy), &r->policy));
    r->queue =
        (struct route_queue){.size = 512, .timeout_ns = 60 * NS_PER_S, .age_ns = 10 * NS_PER_S};
    r->lore_memory = aligned_alloc(64, RIG_LORE_BYTES);
    memset(r->lore_memory, 0, RIG_LORE_BYTES);
    RIG_MUST(sched_lore_new(&r->mem, r->lore_memory, RIG_LORE_BYTES, &r->lore));
    struct sched_pool_options po = {
        .mem = &r->mem, .policy = &r->policy, .queue = &r->queue, .lore = r->lore};
    RIG_MUST(sched_pool_new(&po, &r->pool));
    r->f = (struct features){.model = RIG_MODEL, .priority = PRIORITY_DEFAULT};
}

static inline void rig_close(struct rig *r)
{
    sched_pool_free(r->pool);
    sched_lore_free(r->lore);
    free(r->lore_memory);
    fleet_free(r->fleet);
    sched_scratch_fini(&r->scratch, &r->mem);
    if (r->heap.live != 0)
        abort();
}

/* "k=v k=v"; values without blanks. `into` holds the pairs while the instance is used. */
static inline uint32_t rig_kv(const char *text, struct kv *into)
{
    struct slice rest = slice_str(text);
    struct slice piece;
    uint32_t n = 0;

    while (slice_cut(&rest, ' ', &piece)) {
        size_t eq = slice_find(piece, '=');
        if (eq < piece.n)
            into[n++] = (struct kv){slice_of(piece.p, eq), slice_from(piece, eq + 1)};
    }
    return n;
}

struct rig_host {
    char text[32];
    struct model_ref model;
    struct kv kv[16];
    struct instance i;
};

/* An instance "10.0.x.y:8000", vouched for and healthy, that serves RIG_MODEL; change h->i before rig_put(). */
static inline void rig_host(struct rig_host *h, uint32_t n, const char *metadata)
{
    char *p = h->text;
    *h = (struct rig_host){.model = {.id = RIG_MODEL}};
    memcpy(p, "10.0.", 5);
    p += 5;
    for (int half = 0; half < 2; half++) {
        uint32_t v = half ? n % 250 : n / 250;
        if (v >= 100)
            *p++ = (char)('0' + v / 100);
        if (v >= 10)
            *p++ = (char)('0' + v / 10 % 10);
        *p++ = (char)('0' + v % 10);
        if (!half)
            *p++ = '.';
    }
    h->i = (struct instance){
        .key = slice_of(h->text, (size_t)(p - h->text)),
        .host = slice_of(h->text, (size_t)(p - h->text)),
        .port = 8000,
        .models = &h->model,
        .n_models = 1,
        .weight = WEIGHT_ONE,
        .enabled = true,
        .healthy = true,
        .vouched = true,
        .metadata = h->kv,
        .n_metadata = rig_kv(metadata, h->kv),
    };
}

static inline void rig_put(struct rig *r, const struct rig_host *h)
{
    RIG_MUST(fleet_upsert(r->fleet, 0, &h->i, r->now));
}

static inline void rig_add(struct rig *r, uint32_t n, const char *metadata)
{
    struct rig_host h;
    rig_host(&h, n, metadata);
    rig_put(r, &h);
}

static inline void rig_refresh(struct rig *r)
{
    RIG_MUST(fleet_build(r->fleet, r->now, &r->snapshot));
    RIG_MUST(sched_pool_refresh(r->pool, r->snapshot, RIG_MODEL));
    RIG_MUST(sched_scratch_reserve(&r->scratch, &r->mem, 1 + sched_pool_members(r->pool)));
}

static inline int rig_admit(struct rig *r, struct reservation *res)
{
    int rc = sched_pool_admit(r->pool, &r->f, NULL, r->now, r->seed++, &r->scratch, res, &r->chosen,
                              &r->d);
    if (rc == 0)
        sched_work_note(r->lore, res, &r->f);
    return rc;
}

static inline void rig_end(struct reservation *res)
{
    struct cell *c = sched_release(res);
    if (c)
        sched_cell_put(c);
}

/* Admit and end at once. @return the slot chosen, or -1. */
static inline int rig_once(struct rig *r)
{
    struct reservation res = {0};
    if (rig_admit(r, &res) != 0)
        return -1;
    int slot = (int)r->chosen.endpoint->slot;
    rig_end(&res);
    return slot;
}

#endif /* WEIR_TESTS_FLEET_RIG_H */
