/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The prefix blocks of a request's body (model/prefix.h), once it is here whole. Tools come before messages and a
 * role before its content whatever the order of the keys, and the model may stand last: so the blocks are cut in a pass
 * of their own over the kept body, not while it streams in. Each text is found by skipping and read once.
 */
#ifndef WEIR_PEEK_PREFIX_H
#define WEIR_PEEK_PREFIX_H

#include <stdint.h>

#include "base/mem.h"
#include "base/slice.h"

/** Blocks named at most: 1 MiB of text, some 260,000 tokens. What comes after them does not count as prefix. */
enum { PEEK_BLOCKS_MAX = 512 };

/**
 * @param body one JSON object. What is not JSON, or no prompt that this knows, gives the blocks up to there.
 * @param task enum task bit; other tasks than chat and completion have no blocks.
 * @param mem for an image whose text has escapes; its failure ends the chain there.
 * @param names room for `max`. @return how many were written. Cost: O(body), hashing the text up to the last block.
 */
uint32_t peek_prefix(struct slice body,
                     uint32_t task,
                     struct slice model,
                     struct slice version,
                     const struct mem *mem,
                     uint64_t *names,
                     uint32_t max);

/**
 * Hash of the first 100 characters of the first user's text, or of the prompt: what KubeAI routes by.
 * @param body, task as above. @return 0: there is no such text. Cost: O(body).
 */
uint64_t peek_prefix_key(struct slice body, uint32_t task);

#endif /* WEIR_PEEK_PREFIX_H */
