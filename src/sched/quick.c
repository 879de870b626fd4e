/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/quick.h"

#include "sched/plugin.h"
#include "sched/queued.h"
#include "sched/swrr.h"

typedef float four __attribute__((vector_size(16)));
typedef int32_t steps __attribute__((vector_size(16)));
typedef uint64_t halves __attribute__((vector_size(16)));

/* Sign, exponent and four bits of a float: the step of a cost, as sched_queued_rounded() has it. */
enum { STEP_SHIFT = 19, STEP_MOST = INT32_MAX };
/* Of a longer prompt a float does not tell each token. */
enum { HUGE_TOKENS = 1 << 22 };

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

static inline four load(const float *column, uint32_t i)
{
    four v;

    memcpy(&v, column + i, sizeof(v));
    return v;
}

static inline four chosen(steps which, four a, four b)
{
    return (four)(((steps)a & which) | ((steps)b & ~which));
}

static inline four larger(four a, four b)
{
    return chosen(a > b, a, b);
}

static inline four smaller(four a, four b)
{
    return chosen(a < b, a, b);
}

bool sched_quick_policy(const struct policy *p)
{
    return p->n_scores == 1 && sched_scores[p->scores[0].plugin].cost == sched_score_queued_work &&
           sched_pickers[p->pick].pick == sched_pick_sticky;
}

/*
 * Lowest and highest step that each cost may be in. The formula is sched_queued_us(); what may be wrong of it is what
 * integers lose by rounding down (`slack` and `loss`, doubled for what is made of them) and some ten roundings of a
 * float, 2^-24 of the sum each.
 * @return the lowest of all is not above this.
 */
static int32_t bounds(const struct quick *q)
{
    static const float KEEP = 1.0F / (1 << 18);
    const struct sched_columns *c = q->m->columns;
    float output = (float)q->question.output;
    float now = (float)((double)(q->now_ns - c->base_ns) / 1e3);
    four context = splat((float)(q->question.prompt + q->question.output / 2));
    four prompt = splat((float)q->question.prompt);
    four told = splat((float)q->v->features->prompt_tokens);
    four fair = splat((float)q->fair_us);
    four loss = splat(8 + output / 4 + (float)q->fair_us / (1 << 24));
    bool capped = q->v->features->n_blocks * q->per > q->v->features->prompt_tokens;

    steps least = {STEP_MOST, STEP_MOST, STEP_MOST, STEP_MOST};

    for (uint32_t i = 0; i < c->n; i += 4) {
        four uncached = prompt;
        if (q->hits) {
            steps blocks;
            memcpy(&blocks, q->hits + i, sizeof(blocks));
            four hit = __builtin_convertvector(blocks, four) * (float)q->per;
            if (capped)
                hit = smaller(hit, told);
            uncached = prompt - hit * load(c->trust, i);
        }
        four fixed = load(c->fixed, i);
        four prefill = fixed + load(c->per_token, i) * larger(uncached, splat(1));
        four step = load(c->step, i) + load(c->per_context, i) * (load(c->context, i) + context);
        four backlog = larger(load(c->until, i) - now, load(c->least, i));
        four later = step * output + prefill * load(c->decoding, i);
        four us = backlog + load(c->foreign, i) + prefill + later * (1.0F / QUEUED_LATER);
        four over = larger(load(c->mine, i) - fair, splat(0)) * (1.0F / QUEUED_SLOWLY);
        us += smaller(over, us * (1.0F / QUEUED_MOST));
        four wrong = us * KEEP + (load(c->slack, i) + loss) * 2;
        steps low = (steps)(us - wrong) >> STEP_SHIFT;
        steps high = (steps)(us + wrong) >> STEP_SHIFT;
        memcpy(c->low + i, &low, sizeof(low));
        memcpy(c->high + i, &high, sizeof(high));
        steps less = high < least;
        least = (high & less) | (least & ~less);
    }
    return MIN(MIN(least[0], least[1]), MIN(least[2], least[3]));
}

static int32_t step_of(uint64_t rounded)
{
    float f = (float)rounded; /* five bits: exact */
    int32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    return bits >> STEP_SHIFT;
}

static uint64_t cost_of(int32_t step)
{
    int32_t bits = step << STEP_SHIFT;
    float f;

    memcpy(&f, &bits, sizeof(f));
    return (uint64_t)f;
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

    if (c->low[row] != c->high[row]) {
        const struct sched_work *w = fill(q, row);
        struct sched_forecast s = sched_work_forecast(&q->question, w);
        uint64_t us = sched_queued_us(&s, w->decoding, c->mine_us[row], q->fair_us);
        c->low[row] = c->high[row] = step_of(sched_queued_rounded(MIN(us, QUEUED_US_MOST)));
    }
    return c->low[row];
}

/* The rows that the filters dropped, when they left n in fit. @return how many. */
static uint32_t dropped(const uint32_t *fit, uint32_t n, uint32_t rows, uint32_t *out)
{
    uint32_t to = 0;

    for (uint32_t i = 0, k = 0; i < rows; i++) {
        bool kept = k < n && fit[k] == i;
        out[to] = i;
        to += !kept;
        k += kept;
    }
    return to;
}

/* The lowest step of all, and who may be in it. @param most it is not above this. */
static int32_t lowest(struct quick *q, int32_t most)
{
    const struct sched_columns *c = q->m->columns;

    for (uint32_t i = 0; i < c->n; i += 4) {
        steps low;
        memcpy(&low, c->low + i, sizeof(low));
        halves any = (halves)(low <= most);
        if (__builtin_expect((any[0] | any[1]) == 0, 1))
            continue;
        for (uint32_t k = i; k < MIN(i + 4, q->m->n); k++)
            if (c->low[k] <= most && settle(q, k) <= most) {
                most = c->low[k];
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
    if (home == q->m->n || q->m->columns->high[home] >= step_of(QUEUED_US_MOST))
        return false;
    unsigned __int128 ours = (unsigned __int128)cost_of(settle(q, home)) << 16;
    return ours <= (unsigned __int128)cost_of(best) * MAX(q->v->policy->bound_q16, Q16_ONE);
}

/* Those in the lowest step take turns: as pick_lowest.c, with equal shares. */
static uint32_t turn_of(const struct quick *q, int32_t best, struct sched_state *state)
{
    const int32_t *low = q->m->columns->low;
    struct swrr turn = {.state = state};
    uint32_t first = q->n_near;
    uint32_t ties = 0;

    for (uint32_t i = 0; i < q->n_near; i++)
        if (low[q->near[i]] == best) {
            first = ties ? first : i;
            ties++;
        }
    if (ties == 1)
        return q->near[first];
    for (uint32_t i = first; i < q->n_near; i++)
        if (low[q->near[i]] == best)
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
    struct sched_columns *c = m->columns;

    if (!c || sched_queued_whole(f) || f->prompt_tokens > HUGE_TOKENS)
        return false;
    uint32_t n = sched_filter_all(v, exclude, scratch->fit, out, NULL);
    if (n == 0)
        return true;
    sched_mirror_kind(m, sched_kind_of(f), now_ns);
    uint64_t others_us = c->sum_us;
    struct quick q = {.m = m,
                      .v = v,
                      .near = scratch->hits,
                      .hits = sched_mirror_hits(m, l, f),
                      .question = sched_work_question(f),
                      .per = sched_block_tokens(f),
                      .now_ns = now_ns};
    uint32_t n_out = n == m->n ? 0 : dropped(scratch->fit, n, m->n, scratch->hits);
    const uint32_t *gone = scratch->hits;
    for (uint32_t i = 0; i < n_out; i++) {
        others_us -= c->mine_us[gone[i]];
        c->foreign[gone[i]] = (float)QUEUED_US_MOST; /* they cost more than any other */
    }
    q.fair_us = others_us / n;
    int32_t most = bounds(&q);
    for (uint32_t i = 0; i < n_out; i++) {
        c->foreign[gone[i]] = (float)sched_work_foreign(&m->work[gone[i]]);
        /* Also where the column does not tell the cost, so that the exact one would be asked for. */
        c->low[gone[i]] = c->high[gone[i]] = STEP_MOST;
    }
    if (most >= step_of(QUEUED_US_MOST))
        return false; /* they are all as bad as can be told */
    int32_t best = lowest(&q, most);
    uint32_t home = home_of(&q, l);
    out->row = stays(&q, home, best) ? home : turn_of(&q, best, state);
    (void)fill(&q, out->row);
    if (out->row == home)
        m->work[home].flags = WORK_SESSION;
    return true;
}
