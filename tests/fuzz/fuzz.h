/* SPDX-License-Identifier: Apache-2.0 */
/* What every fuzz target shares: a check that ends the process, and a way to cut an input into pieces. */
#ifndef WEIR_TESTS_FUZZ_H
#define WEIR_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The target: called by libFuzzer, and by replay_main.c for every file of a corpus. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_CHECK(cond)                                                                           \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                             \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* Ways to cut one input. The seed comes from the input, so that a corpus file is nothing but the input itself. */
enum fuzz_cutting { FUZZ_WHOLE, FUZZ_BYTES, FUZZ_SHORT, FUZZ_LONG, FUZZ_CUTTINGS };

struct fuzz_cutter {
    enum fuzz_cutting how;
    uint64_t seed;
};

static inline uint64_t fuzz_hash(uint64_t h, const void *p, size_t n)
{
    const uint8_t *bytes = p;

    for (size_t i = 0; i < n; i++)
        h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    return h;
}

static inline struct fuzz_cutter
fuzz_cutter(enum fuzz_cutting how, const uint8_t *data, size_t size)
{
    return (struct fuzz_cutter){.how = how,
                                .seed = fuzz_hash(UINT64_C(0xcbf29ce484222325), data, size) | 1};
}

/* Length of the next piece of the `left` bytes that remain. */
static inline size_t fuzz_piece(struct fuzz_cutter *c, size_t left)
{
    size_t most = c->how == FUZZ_BYTES ? 1 : c->how == FUZZ_SHORT ? 5 : 64;

    if (c->how == FUZZ_WHOLE || left <= 1)
        return left;
    c->seed ^= c->seed << 13;
    c->seed ^= c->seed >> 7;
    c->seed ^= c->seed << 17;
    size_t n = 1 + (size_t)(c->seed % most);
    return n < left ? n : left;
}

#endif
