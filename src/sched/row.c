/* SPDX-License-Identifier: Apache-2.0 */
/** @file Members and cells to candidates and rows: the only place of the room that reads shared state for a pick. */
#include "sched/row.h"

#include "base/bug.h"
#include "base/hash.h"
#include "base/prng.h"
#include "sched/breaker.h"
#include "sched/pick.h"
#include "sched/rates.h"

#define RELAXED(field) atomic_load_explicit(&(field), memory_order_relaxed)
/* Inside the sequence lock: no load may pass the last look at the lock. Not a fence, which ThreadSanitizer cannot follow. */
#define ACQUIRE(field) atomic_load_explicit(&(field), memory_order_acquire)

uint32_t sched_dyn(const struct policy *p, uint32_t util_bp, bool known)
{
    if (!known || p->n_curve == 0)
        return Q16_ONE;
    /* Utilizations are as good as random, so this finds the segment by counting, without a branch to mispredict.
     * Before the first and behind the last point both ends are the same point and the step is 0. */
    const struct curve_point *c = p->curve;
    uint32_t n = p->n_curve;
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++)
        at += util_bp > c[i].util_bp;
    const struct curve_point *from = &c[at ? at - 1 : 0];
    const struct curve_point *to = &c[at < n ? at : n - 1];
    bool falls = to->q16 < from->q16;
    uint64_t rise = falls ? from->q16 - to->q16 : to->q16 - from->q16;
    uint64_t product = rise * (util_bp - from->util_bp);
    /* The step is rounded towards the earlier point, so that both ends are met exactly. The product is below 2^46 and
     * the run below 2^14, so a multiplication by 2^64 / run, rounded up, divides exactly. */
    uint64_t step = (uint64_t)(((unsigned __int128)product * to->inverse) >> 64);
    if (to->inverse == 0 && rise != 0)
        step = product / (to->util_bp - from->util_bp);
    return (uint32_t)(falls ? from->q16 - step : from->q16 + step);
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
        unsigned before = ACQUIRE(c->sample_lock);
        for (uint32_t i = 0; i < CELL_SAMPLE_WORDS; i++)
            words[i] = ACQUIRE(c->sample_words[i]);
        if (!(before & 1) && RELAXED(c->sample_lock) == before)
            break;
    }
    memcpy(out, words, sizeof(*out));
}

static const struct model_ref *model_of(const struct endpoint *e, struct slice model)
{
    const struct model_ref *found = NULL;

    /* Of several versions one that is ready. */
    for (uint32_t i = 0; model.p && i < e->n_models && (!found || found->loading); i++)
        if (slice_eq(e->models[i].id, model) && !(found && e->models[i].loading))
            found = &e->models[i];
    return found;
}

static bool same_part(struct slice wanted, struct slice there)
{
    return wanted.n == 0 || slice_eq(wanted, there);
}

/* In every part that is said. For Nacos an instance whose cluster nobody told is in DEFAULT. */
static bool is_near(const struct endpoint *e, const struct place *p)
{
    return sched_placed(p) && same_part(p->region, e->region) && same_part(p->zone, e->zone) &&
           same_part(p->cluster, e->cluster.n ? e->cluster : SLICE("DEFAULT"));
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
    if (model_preallocates(e->engine))
        flags |= SCHED_TOKENS;
    if (is_near(e, &p->place))
        flags |= SCHED_NEAR;
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
        .prior = sched_speed_prior(e->gpu_type),
    };
}

static uint64_t left(uint64_t free, uint64_t promised)
{
    return free > promised ? free - promised : 0;
}

static bool willing(uint16_t flags, uint8_t state)
{
    return (flags & SCHED_ENABLED) && (state == REPORTED_HEALTHY || state == REPORTED_BUSY);
}

/* What is promised on the endpoint's devices by anybody: its requests need room on the fullest of them. */
static uint64_t promised_on_devices(const struct cell *c)
{
    const struct device_set *d = ACQUIRE(c->devices);
    uint64_t most = 0;

    for (uint32_t i = 0; d && i < d->n_list; i++)
        most = MAX(most, (uint64_t)RELAXED(d->list[i]->promised_bytes));
    return d ? most * d->n : 0;
}

/* The breaker's word on a row that is usable else. It is in the cell's second line, and rarely looked at. */
static uint16_t judge_breaker(uint16_t flags, const struct cell *c, uint64_t now_ns)
{
    switch (sched_breaker_pass(c, now_ns)) {
    case BREAKER_TRIAL:
        return flags | SCHED_TRIAL;
    case BREAKER_BLOCKED:
        return (uint16_t)((flags & ~SCHED_USABLE) | SCHED_LAST_RESORT);
    case BREAKER_FREE:
        break;
    }
    return flags;
}

static uint16_t judge(uint16_t flags,
                      const struct sched_row *row,
                      const struct cell *c,
                      uint8_t gate,
                      uint32_t limit,
                      uint64_t now_ns)
{
    if (limit != 0 && row->inflight >= limit)
        flags |= SCHED_FULL;
    /* The usual case, in a few steps. */
    if (gate == 0 && row->health == HEALTH_UP && willing(flags, row->state))
        return flags | SCHED_WILLING | SCHED_USABLE;
    if (!willing(flags, row->state))
        return flags;
    flags |= SCHED_WILLING;
    if (row->health == HEALTH_UP || (row->health == HEALTH_UNKNOWN && (flags & SCHED_VOUCHED)))
        flags |= SCHED_USABLE;
    else if (row->health == HEALTH_DOWN && RELAXED(c->health_flags) == HEALTH_SEEN_UP)
        flags |= SCHED_LAST_RESORT;
    if (gate == 0)
        return flags;
    if (gate & GATE_YOUNG)
        flags |= SCHED_YOUNG;
    if ((gate & GATE_BREAKER) && (flags & SCHED_USABLE))
        flags = judge_breaker(flags, c, now_ns);
    return flags;
}

/* What of the digest does not go into the row as it is. */
struct digest {
    uint64_t fresh_until;
    uint32_t excess;
    uint8_t known, state;
};

/* The digest of a cell, its plain numbers straight into the row. @return false when a writer was at work: once more. */
static inline bool
read_digest(const struct sched_candidate *k, struct digest *d, struct sched_row *row)
{
    const struct cell *c = k->cell;
    unsigned before = ACQUIRE(c->sample_lock);

    d->fresh_until = ACQUIRE(c->fresh_until_ns);
    d->excess = ACQUIRE(c->excess);
    d->known = ACQUIRE(c->known);
    d->state = ACQUIRE(c->state);
    row->free_bytes = ACQUIRE(c->free_bytes);
    row->free_tokens = ACQUIRE(c->free_tokens);
    row->total_tokens = ACQUIRE(c->total_tokens);
    row->util_bp = ACQUIRE(c->util_bp);
    row->total_bytes = k->total_bytes;
    /* A device's size does not go stale with the report that told it. It lies in the cell's second line. */
    if (k->total_bytes == 0 && (d->known & CELL_KNOWS_TOTAL))
        row->total_bytes = ACQUIRE(c->total_bytes);
    return !(before & 1) && RELAXED(c->sample_lock) == before;
}

static inline uint16_t fill(const struct sched_candidate *k, uint64_t now_ns, struct sched_row *row)
{
    const struct cell *c = k->cell;
    struct digest d;

    /* Not one loop: written so, the usual case keeps its values in registers. */
    if (__builtin_expect(!read_digest(k, &d, row), 0))
        while (!read_digest(k, &d, row)) {
        }
    uint32_t inflight = RELAXED(c->address->inflight);
    bool fresh = now_ns < d.fresh_until;
    uint16_t flags = k->flags;
    if (fresh)
        flags |=
            (uint16_t)(SCHED_FRESH | (d.known & (SCHED_HAS_UTIL | SCHED_HAS_BYTES | SCHED_HAS_KV)));
    uint32_t excess = fresh ? d.excess : 0;
    uint8_t gate = RELAXED(c->gate);
    uint64_t promised = RELAXED(c->promised_bytes);
    if (__builtin_expect(gate & GATE_SHARED, 0))
        promised = MAX(promised, promised_on_devices(c));
    row->free_bytes = left(row->free_bytes, promised);
    row->free_tokens = (uint32_t)left(row->free_tokens, RELAXED(c->promised_tokens));
    row->inflight = inflight;
    row->load = excess > UINT32_MAX - inflight ? UINT32_MAX : inflight + excess;
    row->health = (uint8_t)RELAXED(c->health);
    row->state = fresh ? d.state : (uint8_t)REPORTED_HEALTHY;
    row->ramp = SCHED_RAMP_FULL;
    row->flags = judge(flags, row, c, gate, k->limit, now_ns);
    return row->flags;
}

struct sched_common sched_rows_fill(const struct sched_candidate *c,
                                    uint32_t n,
                                    uint64_t now_ns,
                                    struct sched_row *rows)
{
    enum { AHEAD = 6 };
    struct sched_common common = {UINT16_MAX, 0};

    for (uint32_t i = 0; i < n; i++) {
        if (i + AHEAD < n)
            __builtin_prefetch(c[i + AHEAD].cell);
        uint16_t flags = fill(&c[i], now_ns, &rows[i]);
        common.all &= flags;
        common.any |= flags;
    }
    return common;
}

/* How far a newcomer's slow start is; it begins when it is first offered. */
static uint16_t ramp_of(struct cell *c, uint64_t slow_start_ns, uint64_t now_ns, bool begin)
{
    unsigned long long since = RELAXED(c->offered_since_ns);

    if (since == 0 && slow_start_ns != 0 &&
        (!begin || atomic_compare_exchange_strong(&c->offered_since_ns, &since, now_ns)))
        since = now_ns;
    uint64_t age = now_ns > since ? now_ns - since : 0;
    if (age >= slow_start_ns) {
        if (begin)
            atomic_fetch_and(&c->gate, (unsigned char)~GATE_YOUNG);
        return SCHED_RAMP_FULL;
    }
    uint64_t more = SCHED_RAMP_FULL - SCHED_RAMP_FIRST;
    return (uint16_t)(SCHED_RAMP_FIRST + (unsigned __int128)more * age / slow_start_ns);
}

void sched_rows_ramp(const struct policy *p,
                     const struct sched_candidate *c,
                     uint32_t n,
                     uint64_t now_ns,
                     uint64_t seed,
                     bool begin,
                     struct sched_row *rows)
{
    /* Drawn twice as often as its share. Who draws two knows no turns among the idle either. */
    bool two = sched_pickers[p->pick].draws_two;
    bool grown = false;
    bool idle = false;
    uint64_t weights = 0;

    for (uint32_t i = 0; i < n; i++) {
        struct sched_row *r = &rows[i];
        if (!(r->flags & SCHED_USABLE))
            continue;
        if (r->flags & SCHED_YOUNG)
            r->ramp = ramp_of(c[i].cell, p->slow_start_ns, now_ns, begin);
        weights += c[i].weight;
        if (r->ramp == SCHED_RAMP_FULL) {
            grown = true;
            idle = idle || (r->load == 0 && !(r->flags & SCHED_FULL));
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        struct sched_row *r = &rows[i];
        if (r->ramp == SCHED_RAMP_FULL)
            continue;
        if (!grown) {
            r->ramp = SCHED_RAMP_FULL;
            continue;
        }
        struct prng draw = {seed ^ ((uint64_t)c[i].slot + 1) * UINT64_C(0x9E3779B97F4A7C15)};
        bool held = two ? prng_below(&draw, 2 * SCHED_RAMP_FULL) >= r->ramp
                        : !idle && prng_below(&draw, weights) >= sched_ramped(c[i].weight, r);
        if (held && r->load < UINT32_MAX)
            r->load++;
    }
}

struct sched_context sched_context_of(const struct features *f)
{
    enum { BYTES_PER_TOKEN_MOST = 16 };
    uint64_t prompts = f->n_prompts ? f->n_prompts : 1;
    uint64_t bytes = f->prompt_bytes / prompts;
    struct sched_context c = {.likely = f->prompt_tokens / prompts};

    if (f->task == 0 || (f->task & (TASK_CHAT | TASK_COMPLETION)))
        c.least = bytes / BYTES_PER_TOKEN_MOST + (bytes % BYTES_PER_TOKEN_MOST != 0);
    c.likely = c.likely > UINT64_MAX - f->output_tokens ? UINT64_MAX : c.likely + f->output_tokens;
    c.least = c.least > UINT64_MAX - f->output_tokens ? UINT64_MAX : c.least + f->output_tokens;
    c.least = MIN(c.least, c.likely);
    return c;
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
