/* SPDX-License-Identifier: Apache-2.0 */
#include "model/prefix.h"

#include "base/bug.h"
#include "base/hash.h"

uint64_t
model_prefix_root(struct slice model, struct slice version, struct slice lora, struct slice salt)
{
    const struct slice parts[] = {model, version, lora, salt};
    uint64_t root = 0;

    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        root = hash_slice(parts[i].p ? parts[i] : SLICE(""), root);
    return root;
}

uint64_t model_prefix_next(uint64_t before, const char *block)
{
    return hash_slice(slice_of(block, PREFIX_BLOCK_BYTES), before);
}

void model_prefix_begin(struct prefix_chain *c, uint64_t root, uint64_t *names, uint32_t max)
{
    c->last = root;
    c->bytes = 0;
    c->names = names;
    c->n = 0;
    c->max = max;
    c->have = 0;
}

static void name(struct prefix_chain *c, const char *block)
{
    c->last = model_prefix_next(c->last, block);
    c->names[c->n++] = c->last;
}

void model_prefix_feed(struct prefix_chain *c, struct slice text)
{
    c->bytes += text.n;
    while (text.n > 0 && c->n < c->max) {
        if (c->have == 0 && text.n >= PREFIX_BLOCK_BYTES) {
            name(c, text.p);
            text = slice_from(text, PREFIX_BLOCK_BYTES);
            continue;
        }
        size_t n = MIN(text.n, (size_t)(PREFIX_BLOCK_BYTES - c->have));
        memcpy(c->block + c->have, text.p, n);
        c->have += (uint32_t)n;
        text = slice_from(text, n);
        if (c->have == PREFIX_BLOCK_BYTES) {
            c->have = 0;
            name(c, c->block);
        }
    }
}

void model_prefix_separate(struct prefix_chain *c)
{
    static const char separator = PREFIX_SEPARATOR;

    model_prefix_feed(c, slice_of(&separator, 1));
}
