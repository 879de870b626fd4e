/* SPDX-License-Identifier: Apache-2.0 */
/** @file 64-bit hashing: XXH3 (https://github.com/Cyan4973/xxHash), compiled in. */
#ifndef WEIR_BASE_HASH_H
#define WEIR_BASE_HASH_H

#include <stdint.h>

#include "base/slice.h"

/** XXH3-64 of s with a seed. Stable across machines and releases. Cost: O(n). */
uint64_t hash_slice(struct slice s, uint64_t seed);

/** Mix two hashes into one; not commutative. */
uint64_t hash_pair(uint64_t a, uint64_t b);

#endif /* WEIR_BASE_HASH_H */
