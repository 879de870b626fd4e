/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/rates.h"

#include "base/bug.h"
#include "base/num.h"

#define RELAXED(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define SET(field, v)  atomic_store_explicit(&(field), (v), memory_order_relaxed)

enum {
    PRIOR_NEAR = 128,  /* tokens at the two points that stand for what is known of a GPU */
    PRIOR_FAR = 4096,  /* */
    PRIOR_WEIGHT = 4,  /* samples that the prior is worth */
    MEMORY = 64,       /* samples after which the oldest have lost most of their weight */
    STEP_MEMORY = 128, /* the same for decode steps and service times */
    OUTLIER = 8,       /* a sample counts as at most this many times what was expected */
    DECAY_S = 10,      /* of the peak */
    FADE_S = 30,       /* of what was learned and is not used */
};

static bool try_lock(struct sched_rates *r)
{
    return RELAXED(r->lock) == 0 &&
           atomic_exchange_explicit(&r->lock, 1, memory_order_acquire) == 0;
}

static void unlock(struct sched_rates *r)
{
    atomic_store_explicit(&r->lock, 0, memory_order_release);
}

struct sched_speed sched_speed_prior(struct slice gpu_type)
{
    /* The fixed part holds the weights' pass and what HTTP and tokenizing take. */
    static const struct {
        struct slice gpu;
        struct sched_speed speed;
    } known[] = {
        {SLICE("A100"), {10600, 66500, 10600, 80000, 0, 0, SCHED_TRUST_FULL}},
        {SLICE("H100"), {6900, 22000, 6900, 49000, 0, 0, SCHED_TRUST_FULL}},
        {SLICE("H200"), {5000, 22000, 5000, 34000, 0, 0, SCHED_TRUST_FULL}},
        {SLICE("L40S"), {23500, 59000, 23500, 190000, 0, 0, SCHED_TRUST_FULL}},
        {SLICE("L4"), {36000, 145000, 36000, 270000, 0, 0, SCHED_TRUST_FULL}},
        {SLICE("3090"), {22000, 150000, 22000, 180000, 0, 0, SCHED_TRUST_FULL}},
        {SLICE("T4"), {22500, 330000, 22500, 510000, 0, 0, SCHED_TRUST_FULL}},
        {SLICE("CPU"), {120000, 4000000, 120000, 2000000, 0, 0, SCHED_TRUST_FULL}},
    };

    /* "NVIDIA A100-SXM4-80GB" is one too. L40S stands before L4. */
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        for (size_t at = 0; at + known[i].gpu.n <= gpu_type.n; at++)
            if (slice_eq_nocase(known[i].gpu, slice_of(gpu_type.p + at, known[i].gpu.n)))
                return known[i].speed;
    return known[0].speed;
}

static uint32_t u32(double v, double most)
{
    return v <= 0 ? 0 : (uint32_t)MIN(v, most);
}

static void add(struct sched_fit *f, double x, double y, double weight)
{
    f->n += weight;
    f->x += weight * x;
    f->xx += weight * x * x;
    f->y += weight * y;
    f->xy += weight * x * y;
}

void sched_rates_reset(struct sched_rates *r, uint64_t key, const struct sched_speed *prior)
{
    double fixed = prior->fixed_us * 1e3;

    r->prefill = (struct sched_fit){0};
    add(&r->prefill, PRIOR_NEAR, fixed + (double)prior->prefill_ns * PRIOR_NEAR, PRIOR_WEIGHT);
    add(&r->prefill, PRIOR_FAR, fixed + (double)prior->prefill_ns * PRIOR_FAR, PRIOR_WEIGHT);
    r->step_scale = 1;
    r->service = 0;
    r->last_first_ns = r->last_end_ns = 0;
    r->n_steps = r->n_service = 0;
    SET(r->fixed_us, prior->fixed_us);
    SET(r->prefill_ns, prior->prefill_ns);
    SET(r->step_us, prior->step_us);
    SET(r->context_ps, prior->context_ps);
    SET(r->service_us, 0);
    SET(r->first_byte_us, 0);
    SET(r->trust, SCHED_TRUST_FULL);
    SET(r->first_byte_at_ns, 0);
    SET(r->firsts, 0);
    SET(r->answers, 0);
    atomic_store_explicit(&r->key, key, memory_order_release);
}

/* What is left of a peak: half of it after DECAY_S. In 64 bits, which divide fast. */
static uint32_t decayed(uint32_t peak, uint64_t at_ns, uint64_t now_ns)
{
    uint64_t age_ms = now_ns > at_ns ? MIN((now_ns - at_ns) / NS_PER_MS, UINT64_C(1) << 40) : 0;
    uint64_t whole = DECAY_S * 1000;

    return peak ? (uint32_t)(peak * whole / (whole + age_ms)) : 0;
}

/* What keeps an endpoint from being used fades while it is not used: it would never be corrected else. */
static inline uint32_t fading(uint32_t learned, uint32_t prior, uint64_t age_ns)
{
    uint64_t whole = FADE_S * 1000;

    if (learned <= prior)
        return learned;
    uint64_t age_ms = MIN(age_ns / NS_PER_MS, UINT64_C(1) << 40);
    return prior + (uint32_t)((learned - prior) * whole / (whole + age_ms));
}

uint64_t sched_rates_read(const struct sched_rates *r,
                          const struct sched_speed *prior,
                          uint64_t now_ns,
                          struct sched_speed *out)
{
    uint64_t used = RELAXED(r->used_ns);
    uint64_t age = now_ns > used ? now_ns - used : 0;
    bool fades = age >= NS_PER_S;
    uint32_t fixed = RELAXED(r->fixed_us);
    uint32_t prefill = RELAXED(r->prefill_ns);
    uint32_t step = RELAXED(r->step_us);
    uint32_t context = RELAXED(r->context_ps);
    uint32_t peak = RELAXED(r->first_byte_us);

    out->fixed_us = fades ? fading(fixed, prior->fixed_us, age) : fixed;
    out->prefill_ns = fades ? fading(prefill, prior->prefill_ns, age) : prefill;
    out->step_us = fades ? fading(step, prior->step_us, age) : step;
    out->context_ps = fades ? fading(context, prior->context_ps, age) : context;
    out->service_us = RELAXED(r->service_us);
    out->first_byte_us = peak ? decayed(peak, RELAXED(r->first_byte_at_ns), now_ns) : 0;
    out->trust = RELAXED(r->trust);
    bool may = fixed > prior->fixed_us || prefill > prior->prefill_ns || step > prior->step_us ||
               context > prior->context_ps;
    return may ? used + NS_PER_S : UINT64_MAX;
}

/* Under the lock. */
static void sample(atomic_uint *n)
{
    uint32_t seen = RELAXED(*n);

    if (seen < SCHED_RATES_SURE)
        SET(*n, seen + 1);
}

/* One answer moves a step by a factor of 2 at most, however it was held up. */
static double clamp(double v, double expected)
{
    return v > expected * 2 ? expected * 2 : v < expected / 2 ? expected / 2 : v;
}

/* Time for x tokens by the line through what was seen; a line that falls, or lies below nothing, is held at 0. */
static void publish_prefill(struct sched_rates *r)
{
    struct sched_fit *f = &r->prefill;
    double spread = f->xx - f->x * f->x / f->n;
    double slope = spread > 1 ? (f->xy - f->x * f->y / f->n) / spread : 0;

    if (slope < 0)
        slope = 0;
    double fixed = (f->y - slope * f->x) / f->n;
    if (fixed < 0) {
        fixed = 0;
        slope = f->xy / f->xx;
    }
    SET(r->fixed_us, u32(fixed / 1e3, 1e8));
    SET(r->prefill_ns, MAX(u32(slope, 4e9), 1));
}

static void forget(struct sched_fit *f)
{
    double keep = 1.0 - 1.0 / MEMORY;

    f->n *= keep;
    f->x *= keep;
    f->xx *= keep;
    f->y *= keep;
    f->xy *= keep;
}

void sched_rates_first_byte(
    struct sched_rates *r, uint64_t tokens, uint64_t sent_ns, uint64_t now_ns, bool streamed)
{
    if (now_ns < sent_ns || !try_lock(r))
        return;
    uint64_t took_us = (now_ns - sent_ns) / NS_PER_US;
    uint32_t peak = decayed(RELAXED(r->first_byte_us), RELAXED(r->first_byte_at_ns), now_ns);
    /* A peak counts at once, what lies below it by and by. */
    uint32_t seen = (uint32_t)MIN(MAX(took_us, 1), UINT64_C(4000000000));
    SET(r->first_byte_us, seen > peak ? seen : peak - (peak - seen) / 8);
    SET(r->first_byte_at_ns, now_ns);
    SET(r->used_ns, now_ns);
    if (streamed) {
        /* Prefills go one after another: this one cannot have begun before the last one ended. */
        uint64_t from = MAX(sent_ns, MIN(r->last_first_ns, now_ns));
        double expected =
            RELAXED(r->fixed_us) * 1e3 + (double)RELAXED(r->prefill_ns) * (double)tokens;
        double took = (double)(now_ns - from);
        /* Several that end in one step share its time: the first has all of it, the others nothing. */
        took = took > expected * OUTLIER ? expected * OUTLIER : took;
        forget(&r->prefill);
        add(&r->prefill, (double)tokens, took, 1);
        publish_prefill(r);
        sample(&r->firsts);
        r->last_first_ns = MAX(r->last_first_ns, now_ns);
    }
    unlock(r);
}

void sched_rates_answer(struct sched_rates *r, uint64_t n, uint64_t ns, uint64_t expected_us)
{
    if (n < 8 || expected_us == 0 || !try_lock(r))
        return;
    double ratio = clamp((double)ns / 1e3 / (double)n / (double)expected_us, 1);
    double old = r->step_scale;
    sample(&r->answers);
    r->n_steps += r->n_steps < STEP_MEMORY;
    uint32_t share = r->n_steps + PRIOR_WEIGHT;

    r->step_scale = old * (1 + (ratio - 1) / share);
    r->step_scale = MAX(MIN(r->step_scale, 1e3), 1e-3);
    double change = r->step_scale / old;
    SET(r->step_us, MAX(u32(RELAXED(r->step_us) * change + 0.5, 1e8), 1));
    SET(r->context_ps, u32(RELAXED(r->context_ps) * change + 0.5, 4e9));
    unlock(r);
}

void sched_rates_service(struct sched_rates *r, uint64_t sent_ns, uint64_t now_ns)
{
    if (now_ns < sent_ns || !try_lock(r))
        return;
    uint64_t from = MAX(sent_ns, MIN(r->last_end_ns, now_ns));
    double took = (double)(now_ns - from) / 1e3;
    r->n_service += r->n_service < STEP_MEMORY;
    uint32_t share = r->n_service;

    if (r->service > 0 && took > r->service * OUTLIER)
        took = r->service * OUTLIER;
    r->service += (took - r->service) / share;
    r->last_end_ns = MAX(r->last_end_ns, now_ns);
    SET(r->service_us, MAX(u32(r->service, 4e9), 1));
    sample(&r->firsts);
    SET(r->used_ns, now_ns);
    unlock(r);
}

void sched_rates_cached(struct sched_rates *r, uint64_t expected, uint64_t found)
{
    if (expected == 0 || !try_lock(r))
        return;
    int32_t came_true = (int32_t)(MIN(found, expected) * SCHED_TRUST_FULL / expected);
    int32_t trust = (int32_t)RELAXED(r->trust);

    /* A sixteenth of the way, and at least one step, so that it reaches both ends. */
    int32_t step = (came_true - trust) / 16;
    if (step == 0)
        step = (came_true > trust) - (came_true < trust);
    SET(r->trust, (uint32_t)(trust + step));
    unlock(r);
}
