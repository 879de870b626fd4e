/* SPDX-License-Identifier: Apache-2.0 */
/** @file SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a seeded, reproducible stream; not for secrets. */
#ifndef WEIR_BASE_PRNG_H
#define WEIR_BASE_PRNG_H

#include <stdint.h>

struct prng {
    uint64_t state; /**< the seed, then wherever the stream stands */
};

static inline uint64_t prng_next(struct prng *r)
{
    uint64_t z = (r->state += UINT64_C(0x9E3779B97F4A7C15));

    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/** Uniform in [0, n) by multiply-shift (Lemire 2019; bias below n/2^64). n must be > 0. */
static inline uint64_t prng_below(struct prng *r, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)prng_next(r) * n) >> 64);
}

/** Uniform in [0, 1) with 53 bits. */
static inline double prng_unit(struct prng *r)
{
    return (double)(prng_next(r) >> 11) * (1.0 / 9007199254740992.0);
}

#endif /* WEIR_BASE_PRNG_H */
