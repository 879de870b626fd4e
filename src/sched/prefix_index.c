/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/prefix_index.h"

#include <stdalign.h>
#include <string.h>

#include "base/bug.h"
#include "base/err.h"

#define RELAXED(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define SET(field, v)  atomic_store_explicit(&(field), (v), memory_order_relaxed)
#define ADD(field, v)  atomic_fetch_add_explicit(&(field), (v), memory_order_relaxed)

enum {
    WORDS = PREFIX_GROUP / 4,
    TAG_FREE = 0,
    TAG_CLAIMED = 1,
    TAG_FIRST = 2,
    SPINS = 2000,
    YOUNG = PREFIX_PARTS / 16
};

/* The tags stand together: a look for a block that is not there reads one cache line. */
struct sched_prefix_set {
    alignas(64) atomic_uint tag[PREFIX_WAYS];
    atomic_uint used[PREFIX_WAYS]; /* reading of the common clock */
    atomic_ullong stamps[PREFIX_WAYS][WORDS];
};
_Static_assert(sizeof(struct sched_prefix_set) == PREFIX_SET_BYTES, "as the header says");

/* How full the cache of one endpoint is. Readings run from 1 to 65,535; 0 is "never". */
struct slot {
    atomic_uint lock;
    uint32_t held;    /* blocks in the cache; this and the rest under the lock */
    uint32_t touched; /* in the present reading */
    uint32_t count[PREFIX_RING];
};

/* What a look reads of the slots of a group stands together. */
struct sched_prefix_page {
    atomic_uint generation[PREFIX_GROUP];
    /* low half: the clock; high half: readings before it that are still in the cache */
    atomic_uint reading[PREFIX_GROUP];
    struct slot slots[PREFIX_GROUP];
};

void sched_prefix_init(struct sched_prefix *x, const struct mem *mem, void *zeroed, size_t bytes)
{
    memset(x, 0, sizeof(*x));
    x->mem = mem;
    x->sets = zeroed;
    x->n_sets = (uint32_t)MIN(bytes / sizeof(struct sched_prefix_set), (size_t)1 << 30);
    BUG_ON((uintptr_t)zeroed % 64 != 0);
}

void sched_prefix_fini(struct sched_prefix *x)
{
    for (uint32_t i = 0; i < ARRAY_LEN(x->pages); i++)
        mem_free(x->mem, RELAXED(x->pages[i]));
    memset(x, 0, sizeof(*x));
}

void sched_prefix_expect(struct sched_prefix *x, uint32_t slot)
{
    if (slot >= PREFIX_SLOTS_MAX || x->n_sets == 0)
        return;
    struct sched_prefix_page *_Atomic *at = &x->pages[slot / PREFIX_GROUP];
    struct sched_prefix_page *none = NULL;
    if (RELAXED(*at))
        return;
    struct sched_prefix_page *page = mem_zalloc(x->mem, sizeof(*page));
    if (page && !atomic_compare_exchange_strong(at, &none, page))
        mem_free(x->mem, page);
}

static struct sched_prefix_page *page_of(const struct sched_prefix *x, uint32_t group)
{
    return group < ARRAY_LEN(x->pages)
               ? atomic_load_explicit(&x->pages[group], memory_order_acquire)
               : NULL;
}

/* Where a block's place for a group of slots may be. */
struct where {
    struct sched_prefix_set *set;
    uint32_t tag;
};

/* A block's part of that, the same for all groups. */
struct spot {
    uint64_t at;
    uint32_t tag;
};

static inline struct spot spot(const struct sched_prefix *x, uint64_t block)
{
    uint64_t h = block * UINT64_C(0x9E3779B97F4A7C15);

    h ^= h >> 32;
    h *= UINT64_C(0xD6E8FEB86659FD93);
    return (struct spot){(uint64_t)(uint32_t)(h >> 32) * x->n_sets >> 32, (uint32_t)h};
}

/* The groups of one block stand one behind the other: who asks for all of them walks through memory. */
static inline struct where where_of(const struct sched_prefix *x, struct spot s, uint32_t group)
{
    uint64_t at = s.at + group;
    if (at >= x->n_sets)
        at %= x->n_sets;
    uint32_t tag = s.tag ^ group * UINT32_C(0x9E3779B1);
    return (struct where){&x->sets[at], tag < TAG_FIRST ? tag + TAG_FIRST : tag};
}

static inline struct where where(const struct sched_prefix *x, uint64_t block, uint32_t group)
{
    return where_of(x, spot(x, block), group);
}

/* Four numbers at a time, or eight, in the compiler's own vectors: no intrinsics of one machine. */
enum { LANES = 8, VECTORS = PREFIX_GROUP / LANES, QUADS = PREFIX_GROUP / 4 };
typedef uint16_t lanes __attribute__((vector_size(2 * LANES)));
typedef uint32_t quad __attribute__((vector_size(16)));
typedef uint64_t pair __attribute__((vector_size(16)));
_Static_assert(VECTORS == 3, "as holders() puts them together");

/* Four of them; each is whole, together they may be of several moments. */
static inline quad four(const atomic_uint *from)
{
    const atomic_ullong *two = (const atomic_ullong *)(uintptr_t)from;

    return (quad)(pair){RELAXED(two[0]), RELAXED(two[1])};
}

/* Each lane has its own bit: what is left is to put the lanes on top of each other. */
static inline uint32_t folded(quad q)
{
    pair p = (pair)q;
    uint64_t both = p[0] | p[1];

    return (uint32_t)both | (uint32_t)(both >> 32);
}

static inline int way_of(const struct where *w)
{
    static const quad FIRST = {1, 2, 4, 8};
    quad tag = (quad){0} + w->tag;
    quad low = (quad)(four(w->set->tag) == tag) & FIRST;
    quad high = (quad)(four(w->set->tag + 4) == tag) & FIRST << 4;
    uint32_t found = folded(low | high);

    return found ? __builtin_ctz(found) : -1;
}

/* The clocks of one group, as plain numbers. */
struct clocks {
    union {
        uint16_t now[PREFIX_GROUP];
        lanes nows[VECTORS];
    };
    union {
        uint16_t span[PREFIX_GROUP];
        lanes spans[VECTORS];
    };
    uint32_t known; /* bit per slot whose generation is asked for */
};

/* All ones where the stamp is of a reading that is still in the cache. */
static inline lanes held(const atomic_ullong *stamps, lanes now, lanes span)
{
    lanes s = (lanes)(pair){RELAXED(stamps[0]), RELAXED(stamps[1])};

    return (lanes)(s != 0) & (lanes)((now - s) <= span);
}

/* Which slots of the group hold the block of this place. */
static inline uint32_t holders_at(const struct where *w, const struct clocks *c)
{
    static const lanes FIRST = {1, 2, 4, 8, 16, 32, 64, 128};
    int way = way_of(w);

    if (way < 0)
        return 0;
    const atomic_ullong *stamps = w->set->stamps[way];
    pair low = (pair)((held(stamps, c->nows[0], c->spans[0]) & FIRST) |
                      (held(stamps + 2, c->nows[1], c->spans[1]) & FIRST << 8));
    pair high = (pair)(held(stamps + 4, c->nows[2], c->spans[2]) & FIRST);
    /* Each lane has its own bit: what is left is to put the lanes on top of each other. */
    uint64_t bits = low[0] | low[1];
    uint64_t more = high[0] | high[1];
    bits |= bits >> 32;
    more |= more >> 32;
    bits |= bits >> 16;
    more |= more >> 16;
    return ((uint32_t)(bits & 0xffff) | (uint32_t)(more & 0xffff) << 16) & c->known;
}

static uint32_t
holders(const struct sched_prefix *x, uint64_t block, uint32_t group, const struct clocks *c)
{
    struct where w = where(x, block, group);

    return holders_at(&w, c);
}

/* What is still to be told apart: slots that hold the first `low` blocks, and not more than `high`. */
struct range {
    uint32_t low, high, slots;
};

static void tell(uint32_t *hits, uint32_t members, uint32_t slots, uint32_t low)
{
    if (slots == members) {
        quad all = (quad){0} + low;
        for (uint32_t k = 0; k < PREFIX_GROUP; k += 4)
            memcpy(hits + k, &all, sizeof(all));
        return;
    }
    for (; slots; slots &= slots - 1)
        hits[__builtin_ctz(slots)] = low;
}

/* @return where the shallowest of the group ended. */
static uint32_t resolve(const struct sched_prefix *x,
                        const uint64_t *blocks,
                        uint32_t n_blocks,
                        const struct sched_prefix_group *g,
                        const struct clocks *c,
                        uint32_t guess,
                        uint32_t *hits)
{
    enum { DEPTH = 80 }; /* each level leaves one part behind; halving 32 bits, and two guesses */
    struct range todo[DEPTH];
    uint32_t shallowest = n_blocks;
    uint32_t n = 0;

    /* Who holds a block holds all before it: whoever touches it touches them. Neighbours often share just the same, so
     * where the last group ended is looked at first. */
    uint32_t most = guess ? holders(x, blocks[guess - 1], g->group, c) : 0;
    uint32_t first = most;
    if (most != c->known && guess != 1)
        first |= holders(x, blocks[0], g->group, c);
    if (first & ~most)
        todo[n++] = (struct range){1, guess ? guess - 1 : n_blocks, first & ~most};
    if (most)
        todo[n++] = (struct range){guess, n_blocks, most};
    while (n > 0) {
        struct range r = todo[--n];
        if (r.low == r.high) {
            tell(hits, g->members, r.slots, r.low);
            shallowest = MIN(shallowest, r.low);
            continue;
        }
        /* And the next behind it. Who has more than they, has all of it as often as not. */
        uint32_t mid = r.low + (r.high - r.low + 1) / 2;
        if (r.low == guess && guess < r.high)
            mid = guess + 1;
        else if (r.low > guess && r.high == n_blocks)
            mid = n_blocks;
        uint32_t have = holders(x, blocks[mid - 1], g->group, c) & r.slots;
        BUG_ON(n + 2 > DEPTH);
        if (r.slots & ~have)
            todo[n++] = (struct range){r.low, mid - 1, r.slots & ~have};
        if (have)
            todo[n++] = (struct range){mid, r.high, have};
    }
    return first ? shallowest : guess;
}

/* Blocks that most groups look at; their places are far apart in memory. */
enum { USUAL = 3, USUAL_OF_ALL = 2 /* the last block is where few groups look */ };
struct usual {
    struct spot spots[USUAL];
    uint32_t n;
    uint32_t guess; /* the first of them is its last block */
};

static struct usual
usual(const struct sched_prefix *x, const uint64_t *blocks, uint32_t n_blocks, uint32_t guess)
{
    struct usual u = {.n = 0, .guess = guess};

    u.spots[u.n++] = spot(x, blocks[guess ? guess - 1 : 0]);
    if (guess < n_blocks)
        u.spots[u.n++] = spot(x, blocks[guess]);
    if (guess + 1 < n_blocks)
        u.spots[u.n++] = spot(x, blocks[n_blocks - 1]);
    return u;
}

static inline void
ahead(const struct sched_prefix *x, const struct usual *u, uint32_t n, uint32_t group)
{
    for (uint32_t i = 0; i < MIN(u->n, n); i++)
        __builtin_prefetch(where_of(x, u->spots[i], group).set);
    const struct sched_prefix_page *page = page_of(x, group);
    if (page) {
        __builtin_prefetch(page->generation);
        __builtin_prefetch(page->reading);
    }
}

/* The tags of this block are here: have its stamps brought near too. @return is the block there? */
static inline bool stamps_ahead(const struct sched_prefix *x, struct spot s, uint32_t group)
{
    struct where w = where_of(x, s, group);
    int way = way_of(&w);

    if (way < 0)
        return false;
    __builtin_prefetch(w.set->stamps[way]);
    __builtin_prefetch(&w.set->stamps[way][WORDS - 1]);
    return true;
}

/* How many groups ahead of the one that is resolved places are brought near: tags, then what stands under them, which
 * only few groups have, then the same of the last block. */
enum { FAR = 8, NEAR = 4, NEXT = 2 };
struct herald {
    struct usual usual;
    uint64_t deep; /* bit per group, of the last 64: it has the block behind the guess */
};

static inline void announce(const struct sched_prefix *x,
                            struct herald *h,
                            const struct sched_prefix_group *groups,
                            uint32_t n,
                            uint32_t i)
{
    const struct usual *u = &h->usual;

    if (i + FAR < n)
        ahead(x, u, USUAL_OF_ALL, groups[i + FAR].group);
    if (u->n < USUAL || i + NEXT >= n)
        return;
    if (i + NEAR < n) {
        uint32_t group = groups[i + NEAR].group;
        bool deep = stamps_ahead(x, u->spots[1], group);
        uint64_t bit = UINT64_C(1) << (i + NEAR) % 64;
        h->deep = deep ? h->deep | bit : h->deep & ~bit;
        if (deep)
            __builtin_prefetch(where_of(x, u->spots[2], group).set);
    }
    if (h->deep >> (i + NEXT) % 64 & 1)
        (void)stamps_ahead(x, u->spots[2], groups[i + NEXT].group);
}

/* Does each slot of a group hold just the blocks up to the guess? As resolve() would find, without its search. */
static inline bool end_together(const struct sched_prefix *x,
                                const struct herald *h,
                                const struct sched_prefix_group *g,
                                uint32_t i,
                                const struct clocks *c)
{
    const struct usual *u = &h->usual;

    if (u->guess == 0 || u->n < USUAL || h->deep >> i % 64 & 1 || i < NEAR)
        return false;
    struct where w = where_of(x, u->spots[0], g->group);
    return c->known == g->members && holders_at(&w, c) == c->known;
}

static uint32_t *put_all(const struct sched_prefix_group *g, uint32_t blocks, uint32_t *hits)
{
    quad all = (quad){0} + blocks;

    for (uint32_t k = 0; k < PREFIX_GROUP; k += 4)
        memcpy(hits + k, &all, sizeof(all));
    return hits + __builtin_popcount(g->members);
}

static uint32_t *
put_each(const struct sched_prefix_group *g, const uint32_t found[PREFIX_GROUP], uint32_t *hits)
{
    uint32_t members = g->members;

    if ((members & (members + 1)) == 0) { /* the first ones, as almost always */
        memcpy(hits, found, PREFIX_GROUP * sizeof(*found));
        return hits + __builtin_ctz(~members);
    }
    for (; members; members &= members - 1)
        *hits++ = found[__builtin_ctz(members)];
    return hits;
}

void sched_prefix_ahead(const struct sched_prefix *x, const uint64_t *blocks, uint32_t n_blocks)
{
    enum { GROUPS = 3 };

    if (n_blocks == 0 || x->n_sets == 0)
        return;
    struct usual u = usual(x, blocks, n_blocks, MIN(RELAXED(x->guess), n_blocks));
    for (uint32_t group = 0; group < GROUPS; group++)
        ahead(x, &u, USUAL, group);
}

static void
read_clocks(const struct sched_prefix_page *p, const struct sched_prefix_group *g, struct clocks *c)
{
    static const quad BITS = {1, 2, 4, 8};
    quad known = {0};

    for (uint32_t i = 0; i < QUADS; i++) {
        quad asked;
        memcpy(&asked, &g->generation[i * 4], sizeof(asked));
        known |= (quad)(four(&p->generation[i * 4]) == asked) & BITS << (i * 4);
    }
    c->known = folded(known) & g->members;
    for (uint32_t i = 0; i < VECTORS; i++) {
        lanes low = (lanes)four(&p->reading[i * LANES]);
        lanes high = (lanes)four(&p->reading[i * LANES + 4]);
        c->nows[i] = __builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14);
        c->spans[i] = __builtin_shufflevector(low, high, 1, 3, 5, 7, 9, 11, 13, 15);
    }
}

bool sched_prefix_join(struct sched_prefix_group *g, uint32_t slot, uint32_t generation)
{
    if (g->members == 0) {
        *g = (struct sched_prefix_group){.group = slot / PREFIX_GROUP};
    } else if (slot / PREFIX_GROUP != g->group) {
        return false;
    }
    g->members |= UINT32_C(1) << slot % PREFIX_GROUP;
    g->generation[slot % PREFIX_GROUP] = generation;
    return true;
}

void sched_prefix_look(struct sched_prefix *x,
                       const uint64_t *blocks,
                       uint32_t n_blocks,
                       const struct sched_prefix_group *groups,
                       uint32_t n,
                       uint32_t *hits)
{
    bool any = n_blocks != 0 && x->n_sets != 0;
    uint32_t guess = MIN(RELAXED(x->guess), n_blocks);
    struct herald herald = {.deep = 0};

    if (any)
        herald.usual = usual(x, blocks, n_blocks, guess);
    for (uint32_t i = 0; any && i < MIN(n, (uint32_t)FAR); i++)
        ahead(x, &herald.usual, USUAL_OF_ALL, groups[i].group);
    for (uint32_t i = 0; i < n; i++) {
        const struct sched_prefix_group *g = &groups[i];
        const struct sched_prefix_page *page = page_of(x, g->group);
        struct clocks c = {.known = 0};
        if (any)
            announce(x, &herald, groups, n, i);
        if (any && page)
            read_clocks(page, g, &c);
        if (c.known == 0) {
            hits = put_all(g, 0, hits);
        } else if (guess == herald.usual.guess && end_together(x, &herald, g, i, &c)) {
            hits = put_all(g, guess, hits);
        } else {
            uint32_t found[PREFIX_GROUP] = {0};
            guess = resolve(x, blocks, n_blocks, g, &c, guess, found);
            hits = put_each(g, found, hits);
        }
    }
    if (guess != RELAXED(x->guess))
        SET(x->guess, guess);
}

void sched_prefix_hits(struct sched_prefix *x,
                       const uint64_t *blocks,
                       uint32_t n_blocks,
                       struct sched_prefix_ask *ask,
                       uint32_t n)
{
    for (uint32_t i = 0; i < n;) {
        struct sched_prefix_group g = {.members = 0};
        uint32_t hits[PREFIX_GROUP];
        uint32_t from = i;
        while (i < n && sched_prefix_join(&g, ask[i].slot, ask[i].generation))
            i++;
        sched_prefix_look(x, blocks, n_blocks, &g, 1, hits);
        for (uint32_t k = from; k < i; k++)
            ask[k].hits = hits[k - from];
    }
}

static bool lock(struct slot *s)
{
    for (uint32_t i = 0; i < SPINS; i++)
        if (RELAXED(s->lock) == 0 &&
            atomic_exchange_explicit(&s->lock, 1, memory_order_acquire) == 0)
            return true;
    return false;
}

/* The place of a block, made if need be; NULL when another thread is making it. */
static atomic_ullong *place(struct sched_prefix *x, uint64_t block, uint32_t group, uint32_t now)
{
    struct where w = where(x, block, group);
    uint32_t oldest = 0;
    uint32_t age = 0;
    int way = way_of(&w);

    if (way >= 0) {
        SET(w.set->used[way], now);
        return w.set->stamps[way];
    }
    for (uint32_t i = 0; i < PREFIX_WAYS; i++) {
        uint32_t a =
            RELAXED(w.set->tag[i]) == TAG_FREE ? UINT32_MAX : now - RELAXED(w.set->used[i]);
        if (i == 0 || a > age) {
            age = a;
            oldest = i;
        }
    }
    unsigned before = RELAXED(w.set->tag[oldest]);
    if (before == TAG_CLAIMED ||
        !atomic_compare_exchange_strong(&w.set->tag[oldest], &before, TAG_CLAIMED))
        return NULL;
    for (uint32_t k = 0; k < WORDS; k++)
        SET(w.set->stamps[oldest][k], 0);
    SET(w.set->used[oldest], now);
    atomic_store_explicit(&w.set->tag[oldest], w.tag, memory_order_release);
    return w.set->stamps[oldest];
}

/* One 16-bit stamp inside its word. @return the one before. */
static uint16_t stamp(atomic_ullong *words, uint32_t k, uint16_t to)
{
    atomic_ullong *word = &words[k / 4];
    unsigned long long before = RELAXED(*word);
    unsigned long long after;
    uint16_t parts[4];
    uint16_t was;

    do {
        uint64_t plain = before;
        memcpy(parts, &plain, sizeof(parts));
        was = parts[k % 4];
        if (was == to)
            return was;
        parts[k % 4] = to;
        memcpy(&plain, parts, sizeof(parts));
        after = plain;
    } while (!atomic_compare_exchange_weak_explicit(word, &before, after, memory_order_relaxed,
                                                    memory_order_relaxed));
    return was;
}

/* The oldest reading leaves the cache. */
static uint32_t drop_oldest(struct slot *s, uint16_t now, uint32_t span)
{
    uint32_t *count = &s->count[(uint16_t)(now - span) % PREFIX_RING];

    s->held -= MIN(s->held, *count);
    *count = 0;
    return span - 1;
}

static void tick(struct slot *s, uint16_t *now, uint32_t *span)
{
    if (*span == PREFIX_RING - 1)
        *span = drop_oldest(s, *now, *span);
    *now = (uint16_t)(*now + 1);
    /* A stamp of 0 means never. The skipped reading keeps its place in the ring, empty. */
    if (*now == 0)
        *now = 1;
    (*span)++;
    s->count[*now % PREFIX_RING] = 0;
    s->touched = 0;
}

/* How many leading blocks were touched so lately that another touch would say little: who has a block that young has
 * all before it at least as young. */
static uint32_t young(const struct sched_prefix *x,
                      const uint64_t *blocks,
                      uint32_t n_blocks,
                      uint32_t slot,
                      uint16_t now)
{
    struct clocks c = {.known = UINT32_C(1) << slot % PREFIX_GROUP};
    uint32_t low = 0;
    uint32_t high = n_blocks;
    uint32_t mid = n_blocks; /* all of them, as often as not */

    c.now[slot % PREFIX_GROUP] = now;
    c.span[slot % PREFIX_GROUP] = YOUNG;
    while (low < high) {
        if (holders(x, blocks[mid - 1], slot / PREFIX_GROUP, &c))
            low = mid;
        else
            high = mid - 1;
        mid = low + (high - low + 1) / 2;
    }
    return low;
}

void sched_prefix_note(struct sched_prefix *x,
                       const uint64_t *blocks,
                       uint32_t n_blocks,
                       uint32_t slot,
                       uint32_t generation,
                       uint32_t cache_blocks)
{
    uint32_t group = slot / PREFIX_GROUP;
    uint32_t k = slot % PREFIX_GROUP;
    struct sched_prefix_page *page = slot < PREFIX_SLOTS_MAX ? page_of(x, group) : NULL;

    if (!page || n_blocks == 0 || x->n_sets == 0 || !lock(&page->slots[k]))
        return;
    struct slot *s = &page->slots[k];
    uint32_t cap = cache_blocks ? cache_blocks : PREFIX_CACHE_UNKNOWN;
    uint32_t part = cap / PREFIX_PARTS ? cap / PREFIX_PARTS : 1;
    uint32_t now_all = ADD(x->clock, 1) + 1;
    uint16_t now = (uint16_t)RELAXED(page->reading[k]);
    uint32_t span = RELAXED(page->reading[k]) >> 16;

    if (RELAXED(page->generation[k]) != generation || now == 0) {
        /* All that was stamped before is older than the span. */
        now = now == UINT16_MAX || now == 0 ? 1 : (uint16_t)(now + 1);
        span = s->held = s->touched = 0;
        memset(s->count, 0, sizeof(s->count));
    }
    if (s->touched >= part)
        tick(s, &now, &span);
    uint32_t first = span > YOUNG ? young(x, blocks, n_blocks, slot, now) : 0;
    for (uint32_t i = first; i < n_blocks; i++) {
        if (i + 12 < n_blocks)
            __builtin_prefetch(where(x, blocks[i + 12], group).set, 1);
        atomic_ullong *words = place(x, blocks[i], group, now_all);
        if (!words)
            continue;
        uint16_t was = stamp(words, k, now);
        if (was == now)
            continue;
        s->touched++;
        s->count[now % PREFIX_RING]++;
        if (was != 0 && (uint16_t)(now - was) <= span)
            s->count[was % PREFIX_RING] -= MIN(s->count[was % PREFIX_RING], 1);
        else
            s->held++;
    }
    while (s->held > cap && span > 0)
        span = drop_oldest(s, now, span);
    SET(page->reading[k], now | span << 16);
    SET(page->generation[k], generation);
    atomic_store_explicit(&s->lock, 0, memory_order_release);
}
