/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The one definition of prefix blocks, for whoever reads, guesses, emulates or simulates prompts.
 *
 * The canonical prompt is a run of bytes, every text JSON-unescaped:
 *   1. tools: each key and each string value inside `tools` in document order, each followed by PREFIX_SEPARATOR;
 *      numbers, booleans and null are left out;
 *   2. each message: role, PREFIX_SEPARATOR, content, PREFIX_SEPARATOR. A content of parts is their texts in order; an
 *      image or audio part stands as the 16 hex digits of its hash (seed 0) over the URL or base64 text;
 *   3. a completion or embedding prompt is its string alone.
 * It is cut into blocks of 2,048 bytes; what is left over at the end is no block. Each block's name is a hash over its
 * bytes and the name of the one before it, the first over a root made of model, version, LoRA and cache salt: so equal
 * names mean equal text from the start on.
 */
#ifndef WEIR_MODEL_PREFIX_H
#define WEIR_MODEL_PREFIX_H

#include <stdint.h>

#include "base/slice.h"

enum { PREFIX_BLOCK_BYTES = 2048, PREFIX_SEPARATOR = 0x1f };

/** Where a chain starts; absent parts are as empty ones. */
uint64_t
model_prefix_root(struct slice model, struct slice version, struct slice lora, struct slice salt);

/** Name of the block after `before`. @param block PREFIX_BLOCK_BYTES bytes. */
uint64_t model_prefix_next(uint64_t before, const char *block);

/** A chain under way, text fed in any pieces. Fill by model_prefix_begin(). */
struct prefix_chain {
    uint64_t last;   /**< name of the last whole block, or the root */
    uint64_t bytes;  /**< canonical bytes fed */
    uint64_t *names; /**< the caller's array */
    uint32_t n;      /**< names written */
    uint32_t max;    /**< places in names; later blocks are not named */
    uint32_t have;   /**< bytes of the block under way */
    char block[PREFIX_BLOCK_BYTES];
};

/** @param names borrowed while the chain is fed; NULL with max 0 to count bytes only. */
void model_prefix_begin(struct prefix_chain *c, uint64_t root, uint64_t *names, uint32_t max);
/** Cost: O(n), each byte hashed once; whole blocks are hashed where they lie. */
void model_prefix_feed(struct prefix_chain *c, struct slice text);
void model_prefix_separate(struct prefix_chain *c);

#endif /* WEIR_MODEL_PREFIX_H */
