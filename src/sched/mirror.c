/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/mirror.h"

#include "sched/breaker.h"
#include "sched/queued.h"

/* Beyond these the columns do not tell a cost. */
#define HUGE_CONTEXT (UINT32_C(1) << 29)
#define HUGE_US      4e9
#define NO_BOUND     1e30F
/* How long the columns count from the same moment. */
#define BASE_NS        (4 * NS_PER_S)
#define RELAXED(field) atomic_load_explicit(&(field), memory_order_relaxed)

_Static_assert(SCHED_NEAR == 1 << (SCHED_FLAG_BITS - 1), "the last flag is counted too");

static int new_columns(struct sched_mirror *m)
{
    uint32_t n = (m->n + SCHED_LANES - 1) / SCHED_LANES * SCHED_LANES;
    struct sched_columns *c = mem_zalloc(m->mem, sizeof(*c));

    m->columns = c;
    if (!c)
        return WEIR_E_NOMEM;
    c->n = n;
    c->lanes = mem_array(m->mem, n / SCHED_LANES, sizeof(*c->lanes));
    c->low = mem_array(m->mem, n, sizeof(*c->low));
    c->high = mem_array(m->mem, n, sizeof(*c->high));
    c->gone = mem_array(m->mem, n, sizeof(*c->gone));
    c->mine_us = mem_array(m->mem, n, sizeof(*c->mine_us));
    if (!c->lanes || !c->low || !c->high || !c->gone || !c->mine_us)
        return WEIR_E_NOMEM;
    /* Those that make it a multiple are never the lowest. */
    for (uint32_t i = m->n; i < n; i++)
        c->lanes[i / SCHED_LANES].least[i % SCHED_LANES] = (float)QUEUED_US_MOST;
    return 0;
}

static void free_columns(struct sched_mirror *m)
{
    struct sched_columns *c = m->columns;

    if (!c)
        return;
    mem_free(m->mem, c->lanes);
    mem_free(m->mem, c->low);
    mem_free(m->mem, c->high);
    mem_free(m->mem, c->gone);
    mem_free(m->mem, c->mine_us);
    mem_free(m->mem, c);
}

static int new_costs(struct sched_mirror *m)
{
    struct sched_costs *c = &m->costs;

    c->costs = mem_array(m->mem, m->n, sizeof(*c->costs));
    c->about = mem_array(m->mem, m->n, sizeof(*c->about));
    c->todo = mem_array(m->mem, m->n, sizeof(*c->todo));
    return c->costs && c->about && c->todo ? 0 : WEIR_E_NOMEM;
}

/* Beside the rows. */
static int new_beside(struct sched_mirror *m, struct sched_mirror_use use)
{
    uint32_t n = m->n;

    m->rows = mem_array(m->mem, n, sizeof(*m->rows));
    m->changes = mem_array(m->mem, n, sizeof(*m->changes));
    m->seen = mem_array(m->mem, n, sizeof(*m->seen));
    m->due_ns = mem_array(m->mem, n, sizeof(*m->due_ns));
    if (!m->rows || !m->changes || !m->seen || !m->due_ns)
        return WEIR_E_NOMEM;
    if (use.steady && new_costs(m))
        return WEIR_E_NOMEM;
    if (!use.work)
        return 0;
    m->work = mem_array(m->mem, n, sizeof(*m->work));
    m->still = mem_array(m->mem, n, sizeof(*m->still));
    m->hits = mem_array(m->mem, n + PREFIX_GROUP, sizeof(*m->hits)); /* sched_prefix_look() */
    m->groups = mem_array(m->mem, n, sizeof(*m->groups));
    if (!m->work || !m->still || !m->hits || !m->groups)
        return WEIR_E_NOMEM;
    return use.quick && n > SCHED_EXACT_ROWS ? new_columns(m) : 0;
}

int sched_mirror_new(const struct mem *mem,
                     const struct sched_candidate *c,
                     uint32_t n,
                     struct sched_mirror_use use,
                     struct sched_mirror **out)
{
    struct sched_mirror *m = mem_zalloc(mem, sizeof(*m));

    if (!m)
        return WEIR_E_NOMEM;
    *m = (struct sched_mirror){
        .mem = mem, .candidates = c, .n = n, .stale = true, .peaks = use.peaks};
    if (new_beside(m, use)) {
        sched_mirror_free(m);
        return WEIR_E_NOMEM;
    }
    for (uint32_t i = 0; i < n; i++)
        m->changes[i] = &c[i].cell->address->changes;
    for (uint32_t i = 0; m->work && i < n; i++)
        if (m->n_groups == 0 ||
            !sched_prefix_join(&m->groups[m->n_groups - 1], c[i].slot, c[i].generation))
            (void)sched_prefix_join(&m->groups[m->n_groups++], c[i].slot, c[i].generation);
    *out = m;
    return 0;
}

void sched_mirror_free(struct sched_mirror *m)
{
    if (!m)
        return;
    mem_free(m->mem, m->rows);
    mem_free(m->mem, m->changes);
    mem_free(m->mem, m->seen);
    mem_free(m->mem, m->due_ns);
    mem_free(m->mem, m->work);
    mem_free(m->mem, m->still);
    mem_free(m->mem, m->hits);
    free_columns(m);
    mem_free(m->mem, m->costs.costs);
    mem_free(m->mem, m->costs.about);
    mem_free(m->mem, m->costs.todo);
    mem_free(m->mem, m->groups);
    mem_free(m->mem, m);
}

/* A pick may come between any two changes, and asks what rows have in common each time. */
static void count(struct sched_mirror *m, uint16_t was, uint16_t is)
{
    for (unsigned change = was ^ is; change; change &= change - 1) {
        unsigned bit = (unsigned)__builtin_ctz(change);
        uint16_t flag = (uint16_t)(1U << bit);
        m->counts[bit] += (is & flag) ? 1 : UINT32_MAX;
        m->common.all = m->counts[bit] == m->n ? m->common.all | flag : m->common.all & ~flag;
        m->common.any = m->counts[bit] != 0 ? m->common.any | flag : m->common.any & ~flag;
    }
}

/* When our work and then that of others is done, from the base on. */
static void fill_until(struct sched_mirror *m, uint32_t i)
{
    struct sched_lanes *l = &m->columns->lanes[i / SCHED_LANES];
    uint32_t k = i % SCHED_LANES;
    double foreign = (double)sched_work_foreign(&m->work[i]);
    uint64_t until = m->still[i].until_ns;
    double us = until ? ((double)until - (double)m->columns->base_ns) / 1e3 : 0;

    l->until[k] = (float)(us + foreign);
    l->least[k] = (float)((double)m->still[i].least_us + foreign);
    /* What the exact formula would cut off: then it alone knows. */
    if (us > HUGE_US || (double)m->still[i].least_us > HUGE_US)
        l->slack[k] = NO_BOUND;
}

/* The numbers of a row once more, as quick.c reads them. */
static void fill_columns(struct sched_mirror *m, uint32_t i)
{
    struct sched_columns *c = m->columns;
    struct sched_lanes *l = &c->lanes[i / SCHED_LANES];
    uint32_t k = i % SCHED_LANES;
    const struct sched_work *w = &m->work[i];
    const struct sched_speed *s = &w->speed;

    c->sum_us -= c->mine_us[i];
    c->mine_us[i] = (uint64_t)m->still[i].recent * s->prefill_ns / 1000;
    c->sum_us += c->mine_us[i];
    l->fixed[k] = (float)s->fixed_us;
    l->per_token[k] = (float)s->prefill_ns / 1000;
    l->trust[k] = (float)s->trust / SCHED_TRUST_FULL;
    l->per_context[k] = (float)s->context_ps / 1000000;
    l->step[k] = (float)s->step_us + l->per_context[k] * (float)w->context_tokens;
    l->decoding[k] = (float)w->decoding;
    l->mine[k] = (float)c->mine_us[i] / QUEUED_SLOWLY;
    /* What rounding down may take away: a token of hits and a microsecond of prefill, for it and for those it delays.
     * Doubled for what is made of it. */
    l->slack[k] = 2 * ((2 + 2 * l->per_token[k]) * (1 + l->decoding[k] / QUEUED_LATER) +
                       (float)c->mine_us[i] / (1 << 24));
    if (w->context_tokens > HUGE_CONTEXT)
        l->slack[k] = NO_BOUND;
    fill_until(m, i);
}

static void fill_speed(struct sched_mirror *m, uint32_t i, uint64_t now_ns)
{
    m->still[i].speed_due_ns =
        sched_work_speed(&m->candidates[i], m->kind, now_ns, &m->work[i].speed);
    if (m->peaks && m->work[i].speed.first_byte_us)
        m->still[i].speed_due_ns = 0;
    if (m->columns)
        fill_columns(m, i);
}

static void fill(struct sched_mirror *m, uint32_t i, uint64_t now_ns)
{
    const struct sched_candidate *c = &m->candidates[i];
    struct cell *cell = c->cell;
    struct sched_row *r = &m->rows[i];
    uint16_t was = m->stale ? 0 : r->flags;

    m->seen[i] =
        atomic_load(m->changes[i]); /* before the rest: what comes later is another change */
    bool gate = RELAXED(cell->gate) != 0;
    sched_rows_fill(c, 1, now_ns, r);
    count(m, was, r->flags);
    if (m->costs.about && m->costs.about[i] >= 0) {
        m->costs.about[i] = -1;
        m->costs.todo[m->costs.n_todo++] = i;
    }
    uint64_t until = RELAXED(cell->fresh_until_ns);
    m->due_ns[i] = gate ? 0 : until > now_ns ? until : UINT64_MAX;
    m->next_due_ns = MIN(m->next_due_ns, m->due_ns[i]);
    if (!m->work)
        return;
    sched_work_fill(c, r, 1, now_ns, &m->work[i]);
    m->still[i] = (struct sched_still){
        .until_ns = r->inflight ? RELAXED(cell->work_until_ns) : 0,
        .least_us = RELAXED(cell->await_us) / SCHED_LATE,
        .recent_tokens = RELAXED(cell->recent_tokens),
        .recent_at_ns = RELAXED(cell->recent_at_ns),
        .recent = m->work[i].recent_tokens,
    };
    fill_speed(m, i, now_ns);
}

/* So that what is near now is told apart to the microsecond. */
static void rebase(struct sched_mirror *m, uint64_t now_ns)
{
    m->columns->base_ns = now_ns;
    for (uint32_t i = 0; i < m->n; i++)
        fill_until(m, i);
}

/* A few rows in turn, so that each is filled once in SCHED_LAG_NS. */
static void fill_aged(struct sched_mirror *m, uint64_t now_ns)
{
    uint64_t age = now_ns > m->aged_ns ? MIN(now_ns - m->aged_ns, SCHED_LAG_NS) : 0;
    uint64_t due = m->n * age / SCHED_LAG_NS;

    if (due == 0)
        return;
    m->aged_ns = due == m->n ? now_ns : m->aged_ns + due * SCHED_LAG_NS / m->n;
    for (; due > 0; due--) {
        fill(m, m->aged, now_ns);
        m->aged = m->aged + 1 == m->n ? 0 : m->aged + 1;
    }
}

static void fill_changed(struct sched_mirror *m, uint64_t now_ns)
{
    /* In locals: what stands behind a pointer is read again after each of these loads else. */
    const atomic_uint *const *changes = m->changes;
    const uint32_t *seen = m->seen;
    uint32_t n = m->n;
    uint32_t i = 0;
    for (; i + 4 <= n; i += 4) {
        unsigned differ = (atomic_load(changes[i]) ^ seen[i]) |
                          (atomic_load(changes[i + 1]) ^ seen[i + 1]) |
                          (atomic_load(changes[i + 2]) ^ seen[i + 2]) |
                          (atomic_load(changes[i + 3]) ^ seen[i + 3]);
        for (uint32_t k = i; __builtin_expect(differ != 0, 0) && k < i + 4; k++)
            if (atomic_load(changes[k]) != seen[k])
                fill(m, k, now_ns);
    }
    for (; i < n; i++)
        if (atomic_load(changes[i]) != seen[i])
            fill(m, i, now_ns);
}

struct sched_common sched_mirror_refresh(struct sched_mirror *m, uint64_t now_ns)
{
    if (m->columns && now_ns - m->columns->base_ns > BASE_NS)
        rebase(m, now_ns);
    if (m->stale) {
        m->aged_ns = now_ns;
        m->next_due_ns = UINT64_MAX;
        for (uint32_t i = 0; i < m->n; i++)
            fill(m, i, now_ns);
        m->stale = false;
        return m->common;
    }
    fill_changed(m, now_ns);
    if (m->columns)
        fill_aged(m, now_ns);
    if (now_ns >= m->next_due_ns) {
        uint64_t next = UINT64_MAX;
        for (uint32_t i = 0; i < m->n; i++) {
            if (now_ns >= m->due_ns[i])
                fill(m, i, now_ns);
            next = MIN(next, m->due_ns[i]);
        }
        m->next_due_ns = next;
    }
    return m->common;
}

struct sched_common sched_mirror_row(struct sched_mirror *m, uint32_t i, uint64_t now_ns)
{
    fill(m, i, now_ns);
    return m->common;
}

void sched_mirror_kind(struct sched_mirror *m, enum sched_kind kind, uint64_t now_ns)
{
    if (m->kind == kind)
        return;
    m->kind = kind;
    for (uint32_t i = 0; i < m->n; i++)
        fill_speed(m, i, now_ns);
}

const uint32_t *
sched_mirror_hits(struct sched_mirror *m, struct sched_lore *l, const struct features *f)
{
    if (!l || f->n_blocks == 0)
        return NULL;
    sched_prefix_look(&l->prefix, f->blocks, f->n_blocks, m->groups, m->n_groups, m->hits);
    return m->hits;
}

void sched_mirror_work(struct sched_mirror *m,
                       const struct features *f,
                       uint32_t i,
                       uint32_t blocks,
                       uint64_t per,
                       uint64_t now_ns)
{
    const struct sched_still *s = &m->still[i];
    struct sched_work *w = &m->work[i];

    w->flags = 0;
    w->backlog_us = sched_work_backlog(s->until_ns, s->least_us, now_ns);
    w->recent_tokens = s->recent;
    w->hit_tokens = sched_hit_tokens(f, per, blocks, &w->speed);
}

void sched_mirror_request(struct sched_mirror *m,
                          struct sched_lore *l,
                          const struct features *f,
                          uint64_t now_ns)
{
    sched_mirror_kind(m, sched_kind_of(f), now_ns);
    for (uint32_t i = 0; i < m->n; i++) {
        const struct sched_still *s = &m->still[i];
        struct sched_work *w = &m->work[i];
        w->backlog_us = sched_work_backlog(s->until_ns, s->least_us, now_ns);
        w->recent_tokens = (uint32_t)MIN(
            sched_work_recent(s->recent_tokens, s->recent_at_ns, now_ns), (uint64_t)UINT32_MAX);
        if (now_ns >= s->speed_due_ns)
            fill_speed(m, i, now_ns);
    }
    sched_work_hits(l, f, m->candidates, m->n, sched_mirror_hits(m, l, f), m->work);
}
