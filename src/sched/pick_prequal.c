/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Pick prequal (Wydrowski and others, NSDI 2024), with the paper's parameters: each request sends 3 probes to
 * endpoints drawn at random, whose answers are in a pool of at most 16 by the time of the next. Those of the pool with
 * more requests in flight than its 0.84 quantile are hot. Chosen is the cold one of the lowest latency, of hot ones alone
 * the one with the fewest requests; with fewer than two in the pool, any. An answer lasts for a second and for b uses, and
 * with each request one more goes, the worst and the oldest by turns.
 * Here an answer is what Weir knows of the endpoint at that time: requests by its ledger and its last report, and the
 * peak-EWMA of its first byte. The paper has hundreds of servers; of fewer than 32 half of them are in the pool.
 */
#include "base/bug.h"
#include "base/num.h"
#include "sched/plugin.h"

enum {
    POOL = 16,
    POOL_ENOUGH = 2,
    PROBES = 3,
    QUANTILE_PERCENT = 84,
    AGE_MS = 1000,
    USES_MOST = 16,
};

/* Who of the pool may be chosen. */
struct probed {
    uint32_t n;
    uint32_t hot; /* above so many requests in flight */
    struct {
        uint32_t at; /* index into fit */
        uint32_t row;
    } of[POOL];
};

static void look(const struct sched_view *v,
                 const uint32_t *fit,
                 uint32_t n,
                 struct sched_state *s,
                 struct probed *p)
{
    uint32_t rifs[POOL];

    p->n = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct sched_probe *a = &s->probes[fit[i]];
        if (a->uses == 0)
            continue;
        if (v->now_ns > a->at_ns && (v->now_ns - a->at_ns) / NS_PER_MS >= AGE_MS) {
            a->uses = 0;
            continue;
        }
        if (p->n == POOL)
            continue;
        uint32_t j = p->n;
        for (; j > 0 && rifs[j - 1] > a->rif; j--)
            rifs[j] = rifs[j - 1];
        rifs[j] = a->rif;
        p->of[p->n].at = i;
        p->of[p->n++].row = fit[i];
    }
    p->hot = p->n ? rifs[(p->n - 1) * QUANTILE_PERCENT / 100] : 0;
}

/* Hot after cold; of two cold ones the slower, of two hot ones the busier is worse. */
static bool worse(const struct sched_probe *a, const struct sched_probe *b, uint32_t hot)
{
    bool a_hot = a->rif > hot;
    bool b_hot = b->rif > hot;

    if (a_hot != b_hot)
        return a_hot;
    return a_hot ? a->rif > b->rif : a->us > b->us;
}

static void remove_one(const struct probed *p, struct sched_state *s)
{
    struct sched_probe *gone = NULL;

    s->probe_turn = !s->probe_turn;
    for (uint32_t k = 0; k < p->n; k++) {
        struct sched_probe *a = &s->probes[p->of[k].row];
        if (a->uses && (!gone || (s->probe_turn ? worse(a, gone, p->hot) : a->at_ns < gone->at_ns)))
            gone = a;
    }
    if (gone)
        gone->uses = 0;
}

/* b = max(1, 2 / ((1 - m / n) 3 - 1)), the fraction by lot. */
static uint32_t uses_of(uint32_t room, uint32_t n, struct prng *r)
{
    if (2 * n <= 3 * room)
        return USES_MOST;
    uint32_t part = 2 * n - 3 * room;
    uint32_t uses = 2 * n / part + (prng_below(r, part) < 2 * n % part);
    return MIN(MAX(uses, 1), (uint32_t)USES_MOST);
}

static void make_room(struct sched_state *s, uint32_t room)
{
    for (;;) {
        struct sched_probe *oldest = NULL;
        uint32_t held = 0;
        for (uint32_t i = 0; i < s->n; i++) {
            struct sched_probe *a = &s->probes[i];
            held += a->uses > 0;
            if (a->uses && (!oldest || a->at_ns < oldest->at_ns))
                oldest = a;
        }
        if (held <= room)
            return;
        oldest->uses = 0;
    }
}

static void probe(const struct sched_view *v,
                  const uint32_t *fit,
                  uint32_t n,
                  uint32_t chosen,
                  struct sched_state *s,
                  struct prng *r)
{
    uint32_t room = MIN(MAX(v->n / 2, (uint32_t)POOL_ENOUGH), (uint32_t)POOL);
    uint32_t m = MIN(n, (uint32_t)PROBES);
    uint32_t drawn[PROBES];

    for (uint32_t k = 0; k < m; k++) {
        /* m of n without repetition (Floyd). */
        uint32_t t = (uint32_t)prng_below(r, n - m + k + 1);
        for (uint32_t j = 0; j < k; j++)
            if (drawn[j] == t)
                t = n - m + k;
        drawn[k] = t;
        s->probes[fit[t]] = (struct sched_probe){.at_ns = v->now_ns,
                                                 .rif = v->rows[fit[t]].load + (t == chosen),
                                                 .us = v->work[fit[t]].speed.first_byte_us,
                                                 .uses = uses_of(room, v->n, r)};
    }
    make_room(s, room);
}

uint32_t sched_pick_prequal(const struct sched_view *v,
                            const uint32_t *fit,
                            uint32_t n,
                            const struct sched_cost *costs,
                            struct sched_state *state,
                            uint64_t seed)
{
    struct prng r = {seed};
    struct probed p;
    uint32_t best = 0;

    (void)costs;
    if (!state->probes)
        return (uint32_t)prng_below(&r, n);
    look(v, fit, n, state, &p);
    uint32_t chosen = (uint32_t)prng_below(&r, n);
    if (p.n >= POOL_ENOUGH) {
        for (uint32_t k = 1; k < p.n; k++)
            if (worse(&state->probes[p.of[best].row], &state->probes[p.of[k].row], p.hot))
                best = k;
        chosen = p.of[best].at;
    }
    struct sched_probe *used = &state->probes[fit[chosen]];
    if (used->uses) {
        used->uses--;
        used->rif++;
    }
    remove_one(&p, state);
    probe(v, fit, n, chosen, state, &r);
    return chosen;
}
