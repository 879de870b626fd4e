/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A log-linear histogram of nanoseconds: 64 steps per power of two, so a percentile is off by less than 1.6 %.
 * Fixed size, no allocation, one addition per sample.
 */
#ifndef BENCH_HIST_H
#define BENCH_HIST_H

#include <stdint.h>
#include <stdio.h>

#define HIST_BUCKETS (128 + 57 * 64)

struct hist {
    uint64_t n, max, sum;
    uint64_t bucket[HIST_BUCKETS];
};

static inline unsigned hist_index(uint64_t ns)
{
    if (ns < 128)
        return (unsigned)ns;
    unsigned shift = 57U - (unsigned)__builtin_clzll(ns); /* leaves 64..127 */
    return 128 + (shift - 1) * 64 + (unsigned)(ns >> shift) - 64;
}

/** The middle of bucket i, in nanoseconds. */
static inline uint64_t hist_middle(unsigned i)
{
    if (i < 128)
        return i;
    unsigned shift = (i - 128) / 64 + 1;
    return ((uint64_t)((i - 128) % 64 + 64) << shift) + (1ULL << (shift - 1));
}

static inline void hist_add(struct hist *h, uint64_t ns)
{
    h->n++;
    h->sum += ns;
    if (ns > h->max)
        h->max = ns;
    h->bucket[hist_index(ns)]++;
}

/** The value that a share q (0..1) of the samples does not exceed; 0 without samples. */
static inline uint64_t hist_quantile(const struct hist *h, double q)
{
    uint64_t need = (uint64_t)((double)h->n * q + 0.5), seen = 0;
    if (need < 1)
        need = 1;
    for (unsigned i = 0; i < HIST_BUCKETS; i++) {
        seen += h->bucket[i];
        if (h->n > 0 && seen >= need)
            return hist_middle(i) < h->max ? hist_middle(i) : h->max;
    }
    return 0;
}

/** Write "name":{...} in microseconds. */
static inline void hist_json(const struct hist *h, const char *name, FILE *to)
{
    double mean = h->n > 0 ? (double)h->sum / (double)h->n : 0;
    fprintf(to, "\"%s\":{\"n\":%llu,\"mean\":%.1f", name, (unsigned long long)h->n, mean / 1e3);
    static const struct {
        const char *name;
        double q;
    } cut[] = {{"p50", 0.5}, {"p90", 0.9}, {"p95", 0.95}, {"p99", 0.99}, {"p999", 0.999}};
    for (unsigned i = 0; i < sizeof(cut) / sizeof(cut[0]); i++)
        fprintf(to, ",\"%s\":%.1f", cut[i].name, (double)hist_quantile(h, cut[i].q) / 1e3);
    fprintf(to, ",\"max\":%.1f}", (double)h->max / 1e3);
}

#endif /* BENCH_HIST_H */
