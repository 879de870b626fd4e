/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of consistent hashing (Karger and others, STOC 1997): every endpoint stands at many points of it. */
#include "base/bug.h"
#include "base/hash.h"
#include "sched/plugin.h"

/* KubeAI's replication, and a limit for large pools. */
enum { POINTS_EACH = 256, POINTS_MOST = 65536 };

static bool point_less(const struct sched_ring_point *a, const struct sched_ring_point *b)
{
    return a->hash != b->hash ? a->hash < b->hash : a->row < b->row;
}

static void sift(struct sched_ring_point *p, uint32_t i, uint32_t n)
{
    for (;;) {
        uint32_t big = i;
        for (uint32_t c = 2 * i + 1; c <= 2 * i + 2 && c < n; c++)
            if (point_less(&p[big], &p[c]))
                big = c;
        if (big == i)
            return;
        struct sched_ring_point swap = p[i];
        p[i] = p[big];
        p[big] = swap;
        i = big;
    }
}

int sched_ring_build(const struct mem *mem,
                     const struct sched_candidate *c,
                     uint32_t n,
                     struct sched_ring_point **ring,
                     uint32_t *size)
{
    *ring = NULL;
    *size = 0;
    if (n == 0)
        return 0;
    uint32_t each = MIN((uint32_t)POINTS_EACH, MAX((uint32_t)POINTS_MOST / n, UINT32_C(1)));
    uint32_t m = n * each;
    struct sched_ring_point *p = mem_array(mem, m, sizeof(*p));
    if (!p)
        return WEIR_E_NOMEM;
    for (uint32_t i = 0; i < m; i++)
        p[i] = (struct sched_ring_point){hash_pair(c[i / each].hash, i % each), i / each};
    for (uint32_t i = m / 2; i-- > 0;)
        sift(p, i, m);
    for (uint32_t end = m; end-- > 1;) {
        struct sched_ring_point swap = p[0];
        p[0] = p[end];
        p[end] = swap;
        sift(p, 0, end);
    }
    *ring = p;
    *size = m;
    return 0;
}
