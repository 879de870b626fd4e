/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#define XXH_INLINE_ALL
#define XXH_NO_STREAM
#include <xxhash.h>

uint64_t hash_slice(struct slice s, uint64_t seed)
{
    return XXH3_64bits_withSeed(s.p, s.n, seed);
}

uint64_t hash_pair(uint64_t a, uint64_t b)
{
    uint64_t both[2] = {a, b};

    return XXH3_64bits(both, sizeof(both));
}
