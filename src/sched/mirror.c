/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/mirror.h"

#include "sched/breaker.h"

#define RELAXED(field) atomic_load_explicit(&(field), memory_order_relaxed)

_Static_assert(SCHED_YOUNG == 1 << (SCHED_FLAG_BITS - 1), "the last flag is counted too");

int sched_mirror_new(const struct mem *mem,
                     const struct sched_candidate *c,
                     uint32_t n,
                     bool work,
                     bool peaks,
                     struct sched_mirror **out)
{
    struct sched_mirror *m = mem_zalloc(mem, sizeof(*m));

    if (!m)
        return WEIR_E_NOMEM;
    *m = (struct sched_mirror){.mem = mem, .candidates = c, .n = n, .stale = true, .peaks = peaks};
    m->rows = mem_array(mem, n, sizeof(*m->rows));
    m->changes = mem_array(mem, n, sizeof(*m->changes));
    m->seen = mem_array(mem, n, sizeof(*m->seen));
    m->due_ns = mem_array(mem, n, sizeof(*m->due_ns));
    if (work) {
        m->work = mem_array(mem, n, sizeof(*m->work));
        m->still = mem_array(mem, n, sizeof(*m->still));
        m->hits = mem_array(mem, n, sizeof(*m->hits));
        m->groups = mem_array(mem, n, sizeof(*m->groups));
    }
    if (!m->rows || !m->changes || !m->seen || !m->due_ns ||
        (work && (!m->work || !m->still || !m->hits || !m->groups))) {
        sched_mirror_free(m);
        return WEIR_E_NOMEM;
    }
    for (uint32_t i = 0; i < n; i++)
        m->changes[i] = &c[i].cell->address->changes;
    for (uint32_t i = 0; work && i < n; i++)
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
    mem_free(m->mem, m->groups);
    mem_free(m->mem, m);
}

static void count(struct sched_mirror *m, uint16_t was, uint16_t is)
{
    for (unsigned change = was ^ is; change; change &= change - 1) {
        unsigned bit = (unsigned)__builtin_ctz(change);
        m->counts[bit] += (is >> bit & 1) ? 1 : UINT32_MAX;
    }
}

static void fill_speed(struct sched_mirror *m, uint32_t i, uint64_t now_ns)
{
    m->still[i].speed_due_ns =
        sched_work_speed(&m->candidates[i], m->kind, now_ns, &m->work[i].speed);
    if (m->peaks && m->work[i].speed.first_byte_us)
        m->still[i].speed_due_ns = 0;
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
    };
    fill_speed(m, i, now_ns);
}

static struct sched_common common_of(const struct sched_mirror *m)
{
    struct sched_common common = {0, 0};

    for (unsigned bit = 0; bit < SCHED_FLAG_BITS; bit++) {
        common.all |= (uint16_t)((m->counts[bit] == m->n) << bit);
        common.any |= (uint16_t)((m->counts[bit] != 0) << bit);
    }
    return common;
}

struct sched_common sched_mirror_refresh(struct sched_mirror *m, uint64_t now_ns)
{
    if (m->stale) {
        m->next_due_ns = UINT64_MAX;
        for (uint32_t i = 0; i < m->n; i++)
            fill(m, i, now_ns);
        m->stale = false;
        return common_of(m);
    }
    for (uint32_t i = 0; i < m->n; i++)
        if (__builtin_expect(atomic_load(m->changes[i]) != m->seen[i], 0))
            fill(m, i, now_ns);
    if (now_ns >= m->next_due_ns) {
        uint64_t next = UINT64_MAX;
        for (uint32_t i = 0; i < m->n; i++) {
            if (now_ns >= m->due_ns[i])
                fill(m, i, now_ns);
            next = MIN(next, m->due_ns[i]);
        }
        m->next_due_ns = next;
    }
    return common_of(m);
}

struct sched_common sched_mirror_row(struct sched_mirror *m, uint32_t i, uint64_t now_ns)
{
    fill(m, i, now_ns);
    return common_of(m);
}

void sched_mirror_request(struct sched_mirror *m,
                          struct sched_lore *l,
                          const struct features *f,
                          uint64_t now_ns)
{
    uint32_t kind = sched_kind_of(f);
    bool other = kind != m->kind;

    m->kind = kind;
    for (uint32_t i = 0; i < m->n; i++) {
        const struct sched_still *s = &m->still[i];
        struct sched_work *w = &m->work[i];
        w->backlog_us = sched_work_backlog(s->until_ns, s->least_us, now_ns);
        w->recent_tokens = (uint32_t)MIN(
            sched_work_recent(s->recent_tokens, s->recent_at_ns, now_ns), (uint64_t)UINT32_MAX);
        if (other || now_ns >= s->speed_due_ns)
            fill_speed(m, i, now_ns);
    }
    uint32_t *hits = NULL;
    if (l && f->n_blocks > 0) {
        hits = m->hits;
        sched_prefix_look(&l->prefix, f->blocks, f->n_blocks, m->groups, m->n_groups, hits);
    }
    sched_work_hits(l, f, m->candidates, m->n, hits, m->work);
}
