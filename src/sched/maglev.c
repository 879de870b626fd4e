/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maglev's table (Eisenbud and others, NSDI 2016): each endpoint walks the places in an order of its own, and they take
 * turns claiming the next free one, as often as their weights say. A change of members moves few places of the others.
 */
#include "base/bug.h"
#include "base/hash.h"
#include "sched/plugin.h"

/* Primes; at least a hundred places an endpoint, as the paper asks, up to Envoy's default size. */
static const uint32_t sizes[] = {251, 1021, 4093, 16381, 65537};
enum { PLACES_EACH = 100, FREE = UINT16_MAX };
_Static_assert((int)SCHED_ROWS_MAX < (int)FREE, "a row must have a number");

struct walk {
    uint32_t at, skip;
    uint64_t credit;
};

int sched_maglev_build(const struct mem *mem,
                       const struct sched_candidate *c,
                       uint32_t n,
                       uint16_t **table,
                       uint32_t *size)
{
    uint64_t heaviest = 1;
    uint32_t m = 0;

    *table = NULL;
    *size = 0;
    if (n == 0)
        return 0;
    for (uint32_t i = 0; i < ARRAY_LEN(sizes); i++) {
        m = sizes[i];
        if (m / PLACES_EACH >= n)
            break;
    }
    uint16_t *t = mem_array(mem, m, sizeof(*t));
    struct walk *w = mem_array(mem, n, sizeof(*w));
    if (!t || !w) {
        mem_free(mem, t);
        mem_free(mem, w);
        return WEIR_E_NOMEM;
    }
    for (uint32_t i = 0; i < m; i++)
        t[i] = FREE;
    for (uint32_t i = 0; i < n; i++) {
        heaviest = MAX(heaviest, c[i].weight);
        w[i].at = (uint32_t)(hash_pair(c[i].hash, 1) % m);
        w[i].skip = (uint32_t)(hash_pair(c[i].hash, 2) % (m - 1)) + 1;
    }
    for (uint32_t taken = 0; taken < m;)
        for (uint32_t i = 0; i < n && taken < m; i++) {
            w[i].credit += c[i].weight;
            if (w[i].credit < heaviest)
                continue;
            w[i].credit -= heaviest;
            while (t[w[i].at] != FREE)
                w[i].at = (w[i].at + w[i].skip) % m;
            t[w[i].at] = (uint16_t)i;
            taken++;
        }
    mem_free(mem, w);
    *table = t;
    *size = m;
    return 0;
}
