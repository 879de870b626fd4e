/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/lengths.h"

#include "base/bug.h"
#include "base/hash.h"

#define RELAXED(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define SET(field, v)  atomic_store_explicit(&(field), (v), memory_order_relaxed)

enum { KEYS = 3, FORGET = 64, BYTES_PER_TOKEN = 4 << 8, LENGTH_MOST = 1 << 24 };

static void keys_of(const struct features *f, uint64_t key[KEYS])
{
    uint64_t model = hash_slice(f->model.p ? f->model : SLICE(""), 1) | 1;
    uint64_t limit = f->output_tokens ? 64 - (unsigned)__builtin_clzll(f->output_tokens) : 0;

    key[0] = hash_pair(hash_pair(model, limit), f->tenant.n ? hash_slice(f->tenant, 2) : 0) | 1;
    key[1] = hash_pair(model, limit) | 1;
    key[2] = model;
}

static const struct sched_length *find(const struct sched_lengths *l, uint64_t key)
{
    uint32_t at = (uint32_t)(key >> 32) % LENGTHS_MAX;

    for (uint32_t i = 0; i < LENGTHS_WINDOW; i++) {
        const struct sched_length *e = &l->entries[(at + i) % LENGTHS_MAX];
        if (RELAXED(e->key) == key)
            return e;
    }
    return NULL;
}

static uint32_t within(uint32_t sixteenths, uint64_t limit)
{
    uint32_t tokens = MAX((sixteenths + 8) / 16, 1);

    return limit && tokens > limit ? (uint32_t)limit : tokens;
}

struct sched_length_guess sched_lengths_guess(const struct sched_lengths *l,
                                              const struct features *f)
{
    uint64_t key[KEYS];

    keys_of(f, key);
    for (uint32_t i = 0; l && i < KEYS; i++) {
        const struct sched_length *e = find(l, key[i]);
        if (e && RELAXED(e->n) >= LENGTH_ENOUGH)
            return (struct sched_length_guess){within(RELAXED(e->mean16), f->output_tokens),
                                               within(RELAXED(e->median16), f->output_tokens),
                                               within(RELAXED(e->p90_16), f->output_tokens)};
    }
    uint64_t half = f->output_tokens ? (f->output_tokens + 1) / 2 : LENGTH_DEFAULT;
    uint32_t guess = (uint32_t)MIN(half, (uint64_t)LENGTH_DEFAULT);
    return (struct sched_length_guess){
        guess, guess,
        f->output_tokens ? (uint32_t)MIN(f->output_tokens, (uint64_t)LENGTH_MOST) : 4 * guess};
}

uint32_t sched_lengths_bytes_per_token(const struct sched_lengths *l, struct slice model)
{
    struct features f = {.model = model};
    uint64_t key[KEYS];

    keys_of(&f, key);
    const struct sched_length *e = l ? find(l, key[KEYS - 1]) : NULL;
    uint32_t bpt = e ? RELAXED(e->bytes_per_token) : 0;
    return bpt ? bpt : BYTES_PER_TOKEN;
}

/* Its entry, made in the place that was used least lately if need be, and locked; NULL when somebody else is there. */
static struct sched_length *take(struct sched_lengths *l, uint64_t key, uint32_t now)
{
    uint32_t at = (uint32_t)(key >> 32) % LENGTHS_MAX;
    struct sched_length *best = NULL;
    uint32_t age = 0;

    for (uint32_t i = 0; i < LENGTHS_WINDOW; i++) {
        struct sched_length *e = &l->entries[(at + i) % LENGTHS_MAX];
        uint64_t k = RELAXED(e->key);
        if (k == key) {
            best = e;
            break;
        }
        uint32_t a = k == 0 ? UINT32_MAX : now - RELAXED(e->used);
        if (!best || a > age) {
            best = e;
            age = a;
        }
    }
    if (RELAXED(best->lock) || atomic_exchange_explicit(&best->lock, 1, memory_order_acquire))
        return NULL;
    if (RELAXED(best->key) != key) {
        SET(best->n, 0);
        SET(best->bytes_per_token, 0);
        SET(best->key, key);
    }
    SET(best->used, now);
    return best;
}

/* A quantile moves up by `up` parts and down by `down` parts of a small step: at rest it splits the samples so. */
static uint32_t nudge(uint32_t q, uint32_t x, uint32_t up, uint32_t down, uint32_t n)
{
    uint32_t step = q / MIN(8 + n, (uint32_t)FORGET) + 1;

    if (x > q)
        return MIN(q + MAX(step * up / 8, 1), x);
    if (x < q) {
        uint32_t less = MAX(step * down / 8, 1);
        return q > less && q - less > x ? q - less : x;
    }
    return q;
}

static void learn_length(struct sched_length *e, uint64_t tokens)
{
    uint32_t x = (uint32_t)MIN(tokens, (uint64_t)LENGTH_MOST) * 16;
    uint32_t n = RELAXED(e->n);

    if (n == 0) {
        SET(e->mean16, x);
        SET(e->median16, x);
        SET(e->p90_16, x);
    } else {
        int64_t mean = RELAXED(e->mean16);
        mean += ((int64_t)x - mean) / (int64_t)MIN(n + 1, (uint32_t)FORGET);
        SET(e->mean16, (uint32_t)mean);
        SET(e->median16, nudge(RELAXED(e->median16), x, 8, 8, n));
        SET(e->p90_16, nudge(RELAXED(e->p90_16), x, 18, 2, n));
    }
    SET(e->n, n < UINT32_MAX ? n + 1 : n);
}

static void learn_bytes(struct sched_length *e, uint64_t bytes, uint64_t tokens)
{
    uint64_t q8 = (bytes << 8) / tokens;
    uint32_t old = RELAXED(e->bytes_per_token);

    /* Templates and images make the count of short prompts say little of text. */
    q8 = MIN(MAX(q8, UINT64_C(128)), UINT64_C(16) << 8);
    int64_t next = old ? (int64_t)old + ((int64_t)q8 - (int64_t)old) / 16 : (int64_t)q8;
    SET(e->bytes_per_token, (uint32_t)next);
}

void sched_lengths_learn(struct sched_lengths *l, const struct features *f, const struct usage *u)
{
    enum { BYTES_ENOUGH = 1024 };
    uint64_t key[KEYS];
    uint32_t now = atomic_fetch_add_explicit(&l->clock, 1, memory_order_relaxed) + 1;
    bool bytes = usage_has(u, USAGE_PROMPT) && u->prompt_tokens && f->prompt_complete &&
                 f->prompt_bytes >= BYTES_ENOUGH && !f->n_images && !f->n_audio;

    keys_of(f, key);
    for (uint32_t i = 0; i < KEYS; i++) {
        bool model = i == KEYS - 1;
        if (!usage_has(u, USAGE_COMPLETION) && !(model && bytes))
            continue;
        struct sched_length *e = take(l, key[i], now);
        if (!e)
            continue;
        if (usage_has(u, USAGE_COMPLETION))
            learn_length(e, u->completion_tokens);
        if (model && bytes)
            learn_bytes(e, f->prompt_bytes, u->prompt_tokens);
        atomic_store_explicit(&e->lock, 0, memory_order_release);
    }
}
