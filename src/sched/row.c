/* SPDX-License-Identifier: Apache-2.0 */
/** @file Members and cells to candidates and rows: the only place of the room that reads shared state for a pick. */
#include "sched/row.h"

#include "base/bug.h"
#include "base/hash.h"

uint32_t sched_dyn(const struct policy *p, uint32_t util_bp, bool known)
{
    if (!known || p->n_curve == 0)
        return Q16_ONE;
    const struct curve_point *c = p->curve;
    if (util_bp <= c[0].util_bp)
        return c[0].q16;
    for (uint32_t i = 1; i < p->n_curve; i++) {
        if (util_bp > c[i].util_bp)
            continue;
        if (c[i].q16 == c[i - 1].q16)
            return c[i].q16;
        /* Rounded down in magnitude of the step, so that both ends are met exactly. */
        int64_t rise = (int64_t)c[i].q16 - (int64_t)c[i - 1].q16;
        int64_t run = (int64_t)c[i].util_bp - (int64_t)c[i - 1].util_bp;
        return (uint32_t)((int64_t)c[i - 1].q16 +
                          rise * (int64_t)(util_bp - c[i - 1].util_bp) / run);
    }
    return c[p->n_curve - 1].q16;
}

uint32_t sched_gpu_weight(const struct policy *p, struct slice gpu_type)
{
    for (uint32_t i = 0; i < p->n_gpu_weights; i++)
        if (slice_eq_nocase(p->gpu_weights[i].gpu_type, gpu_type))
            return MIN(p->gpu_weights[i].weight, (uint32_t)WEIGHT_MAX);
    return WEIGHT_ONE;
}

uint64_t
sched_share(const struct policy *p, const struct sched_candidate *c, const struct sched_row *r)
{
    unsigned __int128 share =
        (unsigned __int128)c->weight * sched_dyn(p, r->util_bp, (r->flags & SCHED_HAS_UTIL) != 0);

    return share > UINT64_MAX ? UINT64_MAX : (uint64_t)share;
}

void sched_sample_read(struct cell *c, struct sample *out)
{
    uint64_t words[CELL_SAMPLE_WORDS];

    for (;;) {
        unsigned before = atomic_load_explicit(&c->sample_lock, memory_order_acquire);
        for (uint32_t i = 0; i < CELL_SAMPLE_WORDS; i++)
            words[i] = atomic_load_explicit(&c->sample_words[i], memory_order_relaxed);
        atomic_thread_fence(memory_order_acquire);
        if (!(before & 1) && atomic_load_explicit(&c->sample_lock, memory_order_relaxed) == before)
            break;
    }
    memcpy(out, words, sizeof(*out));
}

static const struct model_ref *model_of(const struct endpoint *e, struct slice model)
{
    if (!model.p)
        return NULL;
    for (uint32_t i = 0; i < e->n_models; i++)
        if (slice_eq(e->models[i].id, model))
            return &e->models[i];
    return NULL;
}

static bool preallocates(enum engine_kind k)
{
    return k == ENGINE_VLLM || k == ENGINE_SGLANG || k == ENGINE_WEIR_WORKER;
}

void sched_candidate_fill(const struct member *m,
                          const struct policy *p,
                          struct slice model,
                          struct sched_candidate *out)
{
    const struct endpoint *e = m->endpoint;
    uint64_t weight =
        (uint64_t)MIN(e->weight, (uint32_t)WEIGHT_MAX) * sched_gpu_weight(p, e->gpu_type);
    uint16_t flags = 0;

    if (e->enabled && weight != 0 && !e->draining && e->registry_healthy)
        flags |= SCHED_ENABLED;
    if (e->vouched)
        flags |= SCHED_VOUCHED;
    if (preallocates(e->engine))
        flags |= SCHED_TOKENS;
    *out = (struct sched_candidate){
        .cell = m->cell,
        .weight = weight ? weight : 1,
        .hash = hash_slice(e->authority, e->tls),
        .limit = e->max_concurrency,
        .flags = flags,
        .slot = e->slot,
        .generation = e->generation,
        .total_bytes = e->memory_total_bytes,
        .endpoint = e,
        .model = model_of(e, model),
    };
}

static uint64_t left(uint64_t free, uint64_t promised)
{
    return free > promised ? free - promised : 0;
}

#define RELAXED(field) atomic_load_explicit(&(field), memory_order_relaxed)

void sched_row_fill(const struct sched_candidate *k, uint64_t now_ns, struct sched_row *row)
{
    struct cell *c = k->cell;
    uint64_t fresh_until, free_bytes, free_tokens, total_bytes, total_tokens;
    uint32_t excess;
    uint16_t util;
    uint8_t known, state;

    for (;;) {
        unsigned before = atomic_load_explicit(&c->sample_lock, memory_order_acquire);
        fresh_until = RELAXED(c->fresh_until_ns);
        excess = RELAXED(c->excess);
        free_bytes = RELAXED(c->free_bytes);
        free_tokens = RELAXED(c->free_tokens);
        total_bytes = RELAXED(c->total_bytes);
        total_tokens = RELAXED(c->total_tokens);
        util = RELAXED(c->util_bp);
        known = RELAXED(c->known);
        state = RELAXED(c->state);
        atomic_thread_fence(memory_order_acquire);
        if (!(before & 1) && RELAXED(c->sample_lock) == before)
            break;
    }
    uint16_t flags = k->flags;
    int health = RELAXED(c->health);
    uint32_t inflight = RELAXED(c->address->inflight);

    if (health == HEALTH_DOWN && RELAXED(c->health_flags) == HEALTH_SEEN_UP)
        flags |= SCHED_LAST_RESORT;
    /* A device's size does not go stale with the report that told it. */
    row->total_bytes = k->total_bytes               ? k->total_bytes
                       : (known & CELL_KNOWS_TOTAL) ? total_bytes
                                                    : 0;
    row->inflight = inflight;
    row->health = (uint8_t)health;
    if (now_ns < fresh_until) {
        flags |= SCHED_FRESH;
        if (known & CELL_KNOWS_UTIL)
            flags |= SCHED_HAS_UTIL;
        if (known & CELL_KNOWS_BYTES)
            flags |= SCHED_HAS_BYTES;
        if (known & CELL_KNOWS_TOKENS)
            flags |= SCHED_HAS_KV;
        row->free_bytes = left(free_bytes, RELAXED(c->promised_bytes));
        row->free_tokens = left(free_tokens, RELAXED(c->promised_tokens));
        row->total_tokens = total_tokens;
        row->load = excess > UINT32_MAX - inflight ? UINT32_MAX : inflight + excess;
        row->util_bp = util;
        row->state = state;
    } else {
        row->free_bytes = row->free_tokens = row->total_tokens = 0;
        row->load = inflight;
        row->util_bp = 0;
        row->state = REPORTED_HEALTHY;
    }
    row->flags = flags;
}

struct sched_need sched_need_of(const struct features *f)
{
    struct sched_need need = {.kv_bytes_per_token = f->kv_bytes_per_token};
    uint64_t kv = f->kv_bytes_per_token;

    need.tokens = f->prompt_tokens + f->output_tokens;
    if (need.tokens < f->prompt_tokens)
        need.tokens = UINT64_MAX;
    if (f->required_bytes) {
        need.explicit_bytes = true;
        need.bytes = f->required_bytes;
        if (kv)
            need.tokens = need.bytes / kv + (need.bytes % kv != 0);
    } else if (kv) {
        need.bytes = need.tokens > UINT64_MAX / kv ? UINT64_MAX : need.tokens * kv;
    }
    return need;
}
