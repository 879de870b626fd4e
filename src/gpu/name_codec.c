/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bug.h"
#include "gpu/reading_codec.h"

/* Words of makers and product lines, which say nothing about the chip. */
static bool is_filler(struct slice word)
{
    static const char *const fillers[] = {"NVIDIA", "Tesla", "GeForce", "Quadro",   "RTX",
                                          "GTX",    "GRID",  "AMD",     "Instinct", "Radeon",
                                          "Pro",    "RX",    "Graphics"};

    for (size_t i = 0; i < ARRAY_LEN(fillers); i++)
        if (slice_eq_nocase(word, slice_str(fillers[i])))
            return true;
    return word.n == 0;
}

struct slice gpu_type_of(struct slice name)
{
    struct slice word;

    while (slice_cut(&name, ' ', &word)) {
        if (is_filler(word))
            continue;
        word.n = slice_find(word, '-'); /* A100-SXM4-80GB */
        return word.n ? word : (struct slice){NULL, 0};
    }
    return (struct slice){NULL, 0};
}
