/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/work.h"

#include "base/bug.h"
#include "base/num.h"
#include "model/prefix.h"

#define RELAXED(field) atomic_load_explicit(&(field), memory_order_relaxed)

enum {
    MEDIA_TOKENS = 1024, /* of an image or a piece of audio, whose bytes say nothing */
    BYTES_PER_TOKEN_Q8 = 4 << 8,
};

#define TOKENS_MOST SCHED_TOKENS_MOST

static uint32_t u32(uint64_t v)
{
    return v > UINT32_MAX ? UINT32_MAX : (uint32_t)v;
}

/* Does its time depend on tokens? */
static bool by_tokens(const struct features *f)
{
    return sched_kind_of(f) != SCHED_KIND_OTHER;
}

static uint64_t prompt_of(const struct features *f)
{
    uint64_t media = (uint64_t)(f->n_images + f->n_audio) * MEDIA_TOKENS;

    return MIN(MIN(f->prompt_tokens, TOKENS_MOST) + MIN(media, TOKENS_MOST), TOKENS_MOST);
}

uint64_t sched_work_uncached(const struct features *f, const struct sched_work *w)
{
    return sched_question_uncached(prompt_of(f), w);
}

struct sched_question sched_work_question(const struct features *f)
{
    return (struct sched_question){
        .prompt = prompt_of(f),
        .output = MIN(f->expected_output, UINT32_C(1) << 24),
        .by_tokens = by_tokens(f),
    };
}

uint64_t sched_work_speed(const struct sched_candidate *c,
                          enum sched_kind kind,
                          uint64_t now_ns,
                          struct sched_speed *out)
{
    const struct sched_rates *r = c->rates[kind];

    if (r && atomic_load_explicit(&r->key, memory_order_acquire) == c->rates_key[kind])
        return sched_rates_read(r, &c->prior, now_ns, out);
    *out = c->prior;
    return UINT64_MAX;
}

static inline uint64_t recent(const struct cell *c, uint64_t now_ns)
{
    return sched_work_recent(RELAXED(c->recent_tokens), RELAXED(c->recent_at_ns), now_ns);
}

static inline void fill(const struct sched_candidate *k,
                        const struct sched_row *row,
                        uint64_t now_ns,
                        struct sched_work *w)
{
    struct cell *c = k->cell;
    uint64_t until = RELAXED(c->work_until_ns);
    uint64_t await = RELAXED(c->await);
    uint64_t foreign = row->load - row->inflight;
    bool fresh = (row->flags & SCHED_FRESH) != 0;

    *w = (struct sched_work){.flags = 0};
    w->waiting_tokens = u32(RELAXED(c->prefill_tokens));
    w->recent_tokens = u32(recent(c, now_ns));
    w->context_tokens = u32(RELAXED(c->context_tokens));
    w->reported_running = fresh ? RELAXED(c->reported_running) : 0;
    w->reported_waiting = fresh ? RELAXED(c->reported_waiting) : 0;
    uint64_t late = RELAXED(c->await_us) / SCHED_LATE;
    /* Of what others have there, some waits and the rest is in the batch. */
    uint64_t waits = MIN(foreign, (uint64_t)w->reported_waiting);
    w->foreign_waiting = u32(waits);
    w->backlog_us = sched_work_backlog(row->inflight ? until : 0, late, now_ns);
    w->decoding = u32((row->inflight > await ? row->inflight - await : 0) + foreign - waits);
}

void sched_work_fill(const struct sched_candidate *c,
                     const struct sched_row *rows,
                     uint32_t n,
                     uint64_t now_ns,
                     struct sched_work *work)
{
    for (uint32_t i = 0; i < n; i++) {
        if (i + 6 < n)
            __builtin_prefetch(&c[i + 6].cell->work_until_ns);
        fill(&c[i], &rows[i], now_ns, &work[i]);
    }
}

uint64_t sched_block_tokens(const struct features *f)
{
    uint64_t bpt = f->bytes_per_token ? f->bytes_per_token : BYTES_PER_TOKEN_Q8;

    return MAX(((uint64_t)PREFIX_BLOCK_BYTES << 8) / bpt, 1);
}

void sched_work_hits(const struct sched_lore *l,
                     const struct features *f,
                     const struct sched_candidate *c,
                     uint32_t n,
                     const uint32_t *hits,
                     struct sched_work *work)
{
    uint32_t slot;
    uint32_t generation;
    uint64_t per = sched_block_tokens(f);

    for (uint32_t i = 0; i < n; i++) {
        work[i].flags = 0;
        work[i].hit_tokens = hits ? sched_hit_tokens(f, per, hits[i], &work[i].speed) : 0;
    }
    if (!f->has_session || !sched_lore_session(l, f->session, &slot, &generation))
        return;
    uint32_t home = sched_candidate_find(c, n, slot);
    if (home < n && c[home].generation == generation)
        work[home].flags = WORK_SESSION;
}

void sched_work_request(struct sched_lore *l,
                        const struct features *f,
                        const struct sched_candidate *c,
                        uint32_t n,
                        uint64_t now_ns,
                        struct sched_prefix_ask *ask,
                        uint32_t *hits,
                        struct sched_work *work)
{
    enum sched_kind kind = sched_kind_of(f);
    bool blocks = l && f->n_blocks > 0;

    for (uint32_t i = 0; i < n; i++) {
        if (i + 4 < n)
            __builtin_prefetch(c[i + 4].rates[kind]);
        sched_work_speed(&c[i], kind, now_ns, &work[i].speed);
    }
    if (blocks) {
        for (uint32_t i = 0; i < n; i++)
            ask[i] = (struct sched_prefix_ask){c[i].slot, c[i].generation, 0};
        sched_prefix_hits(&l->prefix, f->blocks, f->n_blocks, ask, n);
        for (uint32_t i = 0; i < n; i++)
            hits[i] = ask[i].hits;
    }
    sched_work_hits(l, f, c, n, blocks ? hits : NULL, work);
}

static void push_back(struct cell *c, uint64_t now_ns, uint64_t by)
{
    unsigned long long until = RELAXED(c->work_until_ns);

    while (!atomic_compare_exchange_weak_explicit(&c->work_until_ns, &until,
                                                  MAX(until, now_ns) + by, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
}

void sched_work_begin(struct sched_lore *l,
                      struct reservation *r,
                      const struct features *f,
                      const struct sched_candidate *c,
                      const struct sched_row *row,
                      const struct sched_work *w,
                      uint64_t now_ns)
{
    enum sched_kind kind = sched_kind_of(f);
    struct cell *cell = r->cell;

    if (!w)
        return;
    struct sched_question q = sched_work_question(f);
    struct sched_forecast s = sched_work_forecast(&q, w);
    uint64_t computed = sched_work_uncached(f, w);
    r->by_tokens = by_tokens(f);
    r->streamed = f->stream && r->by_tokens;
    /* The end of an answer without text is the end of its prefill as well. */
    r->awaits = r->streamed || !r->by_tokens || f->expected_output <= 1;
    r->rates = c->rates[kind];
    r->rates_key = c->rates_key[kind];
    r->own_us = s.prefill_us;
    r->sent_ns = now_ns;
    r->computed = u32(computed);
    r->hits = w->speed.trust ? u32((uint64_t)w->hit_tokens * SCHED_TRUST_FULL / w->speed.trust) : 0;
    r->context = r->by_tokens ? prompt_of(f) + f->expected_output / 2 : 0;
    r->expected_step_us = u32(sched_step_us(w, w->context_tokens + r->context));
    r->counted = true;
    /* What is in the cache need not be computed. */
    uint64_t less = MIN(r->prefill_tokens, (uint64_t)w->hit_tokens);
    if (less) {
        atomic_fetch_sub_explicit(&cell->prefill_tokens, less, memory_order_acq_rel);
        r->prefill_tokens -= less;
    }
    atomic_fetch_add_explicit(&cell->context_tokens, r->context, memory_order_acq_rel);
    if (r->awaits) {
        atomic_fetch_add_explicit(&cell->await_us, r->own_us, memory_order_acq_rel);
        atomic_fetch_add_explicit(&cell->await, 1, memory_order_acq_rel);
    } else {
        atomic_fetch_add_explicit(&cell->whole, 1, memory_order_acq_rel);
    }
    if (r->by_tokens) {
        /* Two threads at once may lose one of two requests: it is a mean. */
        atomic_store_explicit(&cell->recent_tokens, recent(cell, now_ns) + r->computed,
                              memory_order_relaxed);
        atomic_store_explicit(&cell->recent_at_ns, now_ns, memory_order_relaxed);
    }
    push_back(cell, now_ns, r->own_us * NS_PER_US);
    cell_changed(cell);
    if (!l)
        return;
    r->unnoted = f->n_blocks > 0;
    if (r->unnoted)
        r->cache_blocks = u32(row->total_tokens / sched_block_tokens(f));
    if (f->has_session && !(w->flags & WORK_SESSION))
        sched_lore_session_put(l, f->session, c->slot, c->generation);
}

void sched_work_note(struct sched_lore *l, struct reservation *r, const struct features *f)
{
    if (!l || !r->cell || !r->unnoted)
        return;
    r->unnoted = false;
    sched_prefix_note(&l->prefix, f->blocks, f->n_blocks, r->cell->slot, r->cell->generation,
                      r->cache_blocks);
}

void sched_work_sent(struct reservation *r, uint64_t now_ns)
{
    if (r->counted)
        r->sent_ns = now_ns;
}

static struct sched_rates *rates_of(const struct reservation *r)
{
    return r->rates && RELAXED(r->rates->key) == r->rates_key ? r->rates : NULL;
}

void sched_work_first_byte(struct reservation *r, uint64_t now_ns)
{
    struct sched_rates *rates = rates_of(r);
    struct cell *c = r->cell;

    if (!c || r->first_byte || !r->counted) {
        sched_first_byte(r);
        return;
    }
    r->first_ns = now_ns;
    if (rates && r->by_tokens)
        sched_rates_first_byte(rates, r->computed, r->sent_ns, now_ns, r->awaits);
    sched_first_byte(r);
    if (!r->awaits)
        return;
    /* Work is done in turn: what still waits begins now. Answers in one piece do not say when their turn ended. */
    uint64_t rest = RELAXED(c->await_us) * NS_PER_US;
    unsigned long long until = RELAXED(c->work_until_ns);
    unsigned long long next;
    do {
        next = RELAXED(c->whole) ? MAX(until, now_ns + rest) : now_ns + rest;
    } while (!atomic_compare_exchange_weak_explicit(&c->work_until_ns, &until, next,
                                                    memory_order_relaxed, memory_order_relaxed));
    cell_changed(c);
}

void sched_work_end(struct sched_lore *l,
                    struct reservation *r,
                    const struct features *f,
                    const struct usage *u,
                    uint64_t now_ns)
{
    struct sched_rates *rates = rates_of(r);

    if (!r->cell || !r->counted)
        return;
    if (l && u && u->known)
        sched_lengths_learn(l->lengths, f, u);
    if (!rates)
        return;
    if (!r->by_tokens) {
        sched_rates_service(rates, r->sent_ns, now_ns);
        return;
    }
    if (u && usage_has(u, USAGE_CACHED))
        sched_rates_cached(rates, r->hits, u->cached_tokens);
    if (u && usage_has(u, USAGE_COMPLETION) && u->completion_tokens > 1 && r->streamed &&
        r->first_ns && now_ns > r->first_ns)
        sched_rates_answer(rates, u->completion_tokens - 1, now_ns - r->first_ns,
                           r->expected_step_us);
}
