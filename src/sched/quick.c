/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/quick.h"

#include "sched/plugin.h"
#include "sched/queued.h"
#include "sched/swrr.h"

typedef float four __attribute__((vector_size(4 * SCHED_LANES)));
typedef int32_t steps __attribute__((vector_size(4 * SCHED_LANES)));
typedef uint64_t halves __attribute__((vector_size(4 * SCHED_LANES)));

/* Sign, exponent and four bits of a float: the step of a cost, as sched_queued_rounded() has it. */
enum { STEP_SHIFT = 19 };
/* Of a longer prompt a float does not tell each token. */
enum { HUGE_TOKENS = 1 << 22 };

/* Added to the cost of who does not fit: also where no bound is known it is above all others. */
#define GONE 1e36F

/* One pick. */
struct quick {
    struct sched_mirror *m;
    const struct sched_view *v;
    uint32_t *near; /* rows whose step was the lowest when it was looked at, rising */
    uint32_t n_near;
    const uint32_t *hits; /* NULL: none */
    struct sched_question question;
    uint64_t per, fair_us, now_ns;
};

static inline four splat(float v)
{
    return (four){v, v, v, v};
}

static inline four load(const float *from)
{
    four v;

    memcpy(&v, from, sizeof(v));
    return v;
}

/* One instruction on most machines, which compilers find in this form. */
static inline four larger(four a, four b)
{
    four v;

    for (uint32_t k = 0; k < SCHED_LANES; k++)
        v[k] = a[k] > b[k] ? a[k] : b[k];
    return v;
}

static inline four smaller(four a, four b)
{
    four v;

    for (uint32_t k = 0; k < SCHED_LANES; k++)
        v[k] = a[k] < b[k] ? a[k] : b[k];
    return v;
}

bool sched_quick_policy(const struct policy *p)
{
    return p->n_scores == 1 && sched_scores[p->scores[0].plugin].cost == sched_score_queued_work &&
           sched_pickers[p->pick].pick == sched_pick_sticky;
}

static inline int32_t bits_of(float f)
{
    int32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

static inline float of_bits(int32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

/* Steps are in the order of their costs; those of costs below 0 are below 0. */
static inline int32_t step_of(float cost)
{
    return bits_of(cost) >> STEP_SHIFT;
}

/* The lowest cost of a step: five bits, so it is an integer if it is not small. */
static inline float start_of(int32_t step)
{
    return of_bits(step << STEP_SHIFT);
}

/*
 * Lowest and highest number that each cost may be. The formula is sched_queued_us(); what may be wrong of it is what
 * integers lose by rounding down (`slack` and `loss`, doubled for what is made of them) and some ten roundings of a
 * float, 2^-24 of the sum each.
 * @return the lowest of all is not above this.
 */
static float bounds(const struct quick *q)
{
    const struct sched_columns *c = q->m->columns;
    float output = (float)q->question.output;
    float now = (float)((double)(q->now_ns - c->base_ns) / 1e3);
    float per = (float)q->per;
    float context = (float)(q->question.prompt + q->question.output / 2);
    four prompt = splat((float)q->question.prompt);
    four one = splat(1);
    bool capped = q->v->features->n_blocks * q->per > q->v->features->prompt_tokens;
    four told = splat(capped ? (float)q->v->features->prompt_tokens : __FLT_MAX__);
    float fair = (float)q->fair_us / QUEUED_SLOWLY;
    float loss = 2 * (8 + output / 4 + (float)q->fair_us / (1 << 24));
    four least = splat(__FLT_MAX__);

    for (uint32_t i = 0; i < c->n; i += SCHED_LANES) {
        const struct sched_lanes *l = &c->lanes[i / SCHED_LANES];
        four uncached = larger(prompt, one);
        if (q->hits) {
            steps blocks;
            memcpy(&blocks, q->hits + i, sizeof(blocks));
            four hit = smaller(__builtin_convertvector(blocks, four) * per, told);
            uncached = larger(prompt - hit * load(l->trust), one);
        }
        four prefill = load(l->fixed) + load(l->per_token) * uncached;
        four step = load(l->step) + load(l->per_context) * context;
        four us = larger(load(l->until) - now, load(l->least)) + prefill +
                  (step * output + prefill * load(l->decoding)) * (1.0F / QUEUED_LATER);
        four over = larger(load(l->mine) - fair, splat(0));
        us += smaller(over, us * (1.0F / QUEUED_MOST)) + load(c->gone + i);
        four wrong = us * (1.0F / (1 << 18)) + (load(l->slack) + loss);
        four low = us - wrong;
        four high = us + wrong;
        memcpy(c->low + i, &low, sizeof(low));
        memcpy(c->high + i, &high, sizeof(high));
        least = smaller(least, high);
    }
    return MIN(MIN(least[0], least[1]), MIN(least[2], least[3]));
}

/* Fill the work of a row. */
static const struct sched_work *fill(const struct quick *q, uint32_t row)
{
    sched_mirror_work(q->m, q->v->features, row, q->hits ? q->hits[row] : 0, q->per, q->now_ns);
    return &q->m->work[row];
}

/* The step of this row, exactly. */
static int32_t settle(const struct quick *q, uint32_t row)
{
    struct sched_columns *c = q->m->columns;

    if (step_of(c->low[row]) != step_of(c->high[row])) {
        const struct sched_work *w = fill(q, row);
        struct sched_forecast s = sched_work_forecast(&q->question, w);
        uint64_t us = sched_queued_us(&s, w->decoding, c->mine_us[row], q->fair_us);
        c->low[row] = c->high[row] = (float)sched_queued_rounded(MIN(us, QUEUED_US_MOST));
    }
    return step_of(c->low[row]);
}

/* Mark rows that the filters dropped, when they left n in fit. @return the sum of mine_us of the others. */
static uint64_t drop(struct sched_mirror *m, const uint32_t *fit, uint32_t n)
{
    struct sched_columns *c = m->columns;
    float *gone = c->gone;
    const uint64_t *mine_us = c->mine_us;
    four all = splat(n == m->n ? 0 : GONE);
    uint64_t sum_us = 0;

    if (n == m->n && !c->any_gone)
        return c->sum_us;
    c->any_gone = n != m->n;
    for (uint32_t i = 0; i < c->n; i += SCHED_LANES)
        memcpy(gone + i, &all, sizeof(all));
    if (n == m->n)
        return c->sum_us;
    for (uint32_t i = 0; i < n; i++) {
        gone[fit[i]] = 0;
        sum_us += mine_us[fit[i]];
    }
    return sum_us;
}

/* The lowest step of all, and who may be in it. @param most it is not above this. */
static int32_t lowest(struct quick *q, int32_t most)
{
    enum { AT_ONCE = 4 * SCHED_LANES };
    const float *low = q->m->columns->low;
    uint32_t n = q->m->n;
    float end = start_of(most + 1);

    for (uint32_t i = 0; i < n; i += AT_ONCE) {
        if (i + AT_ONCE <= n) {
            halves any = (halves)((load(low + i) < end) | (load(low + i + SCHED_LANES) < end) |
                                  (load(low + i + 2 * SCHED_LANES) < end) |
                                  (load(low + i + 3 * SCHED_LANES) < end));
            if ((any[0] | any[1]) == 0)
                continue;
        }
        for (uint32_t k = i; k < MIN(i + AT_ONCE, n); k++)
            if (low[k] < end && settle(q, k) <= most) {
                most = step_of(low[k]);
                end = start_of(most + 1);
                q->near[q->n_near++] = k;
            }
    }
    return most;
}

/* Where the session was, when that fits and is no worse than the bound: as pick_sticky.c. @return m->n: nowhere. */
static uint32_t home_of(const struct quick *q, const struct sched_lore *l)
{
    const struct features *f = q->v->features;
    uint32_t slot;
    uint32_t generation;

    if (!f->has_session || !sched_lore_session(l, f->session, &slot, &generation))
        return q->m->n;
    uint32_t row = sched_candidate_find(q->v->candidates, q->m->n, slot);
    return row < q->m->n && q->v->candidates[row].generation == generation ? row : q->m->n;
}

static bool stays(const struct quick *q, uint32_t home, int32_t best)
{
    if (home == q->m->n || q->m->columns->gone[home] != 0)
        return false; /* nowhere, or it does not fit */
    unsigned __int128 ours = (unsigned __int128)start_of(settle(q, home)) << 16;
    return ours <= (unsigned __int128)start_of(best) * MAX(q->v->policy->bound_q16, Q16_ONE);
}

/* Those in the lowest step take turns: as pick_lowest.c, with equal shares. */
static uint32_t turn_of(const struct quick *q, int32_t best, struct sched_state *state)
{
    const float *low = q->m->columns->low;
    struct swrr turn = {.state = state};
    uint32_t first = q->n_near;
    uint32_t ties = 0;

    for (uint32_t i = 0; i < q->n_near; i++)
        if (step_of(low[q->near[i]]) == best) {
            first = ties ? first : i;
            ties++;
        }
    if (ties == 1)
        return q->near[first];
    for (uint32_t i = first; i < q->n_near; i++)
        if (step_of(low[q->near[i]]) == best)
            swrr_add(&turn, q->near[i], q->near[i], QUEUED_SHARE);
    return swrr_serve(&turn);
}

bool sched_quick_pick(struct sched_mirror *m,
                      struct sched_lore *l,
                      struct sched_view *v,
                      const struct sched_exclude *exclude,
                      uint64_t now_ns,
                      struct sched_state *state,
                      struct sched_scratch *scratch,
                      struct decision *out)
{
    const struct features *f = v->features;

    if (!m->columns || sched_queued_whole(f) || f->prompt_tokens > HUGE_TOKENS)
        return false;
    uint32_t n = sched_filter_all(v, exclude, scratch->fit, out, NULL);
    if (n == 0)
        return true;
    sched_mirror_kind(m, sched_kind_of(f), now_ns);
    struct quick q = {.m = m,
                      .v = v,
                      .near = scratch->hits,
                      .hits = sched_mirror_hits(m, l, f),
                      .question = sched_work_question(f),
                      .per = sched_block_tokens(f),
                      .fair_us = drop(m, scratch->fit, n) / n,
                      .now_ns = now_ns};
    int32_t most = step_of(bounds(&q));
    if (most >= step_of((float)QUEUED_US_MOST))
        return false; /* they are all as bad as can be told */
    int32_t best = lowest(&q, most);
    uint32_t home = home_of(&q, l);
    out->row = stays(&q, home, best) ? home : turn_of(&q, best, state);
    (void)fill(&q, out->row);
    if (out->row == home)
        m->work[home].flags = WORK_SESSION;
    return true;
}
