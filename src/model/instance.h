/* SPDX-License-Identifier: Apache-2.0 */
/** @file Keeping what a source told of an instance: deep copies and a digest; and its pairs written out. */
#ifndef WEIR_MODEL_INSTANCE_H
#define WEIR_MODEL_INSTANCE_H

#include "base/arena.h"
#include "base/buf.h"
#include "model/update_t.h"

/**
 * Copy with all it points to into the arena.
 * @param to may be `from`. Undefined after a failure.
 * @return 0 or WEIR_E_NOMEM (also at the arena's cap).
 */
int model_instance_copy(struct arena *a,
                        const struct instance *from,
                        struct instance *to) MUST_CHECK;

/** Bytes that a copy takes of an arena (arena_reserve). Cost: linear in the number of texts. */
size_t model_instance_room(const struct instance *i);

/** Only its models; results as above. */
int model_copy_models(struct arena *a,
                      const struct model_ref *from,
                      uint32_t n,
                      const struct model_ref **to) MUST_CHECK;

/**
 * Digest of everything but key, epoch and the values of those metadata keys for which fast() is true: equal for equal
 * instances, absent and empty text differ.
 * @param fast NULL = none. Cost: linear in the text.
 */
uint64_t model_instance_hash(const struct instance *i, bool (*fast)(struct slice key));

/** Pairs as a JSON object of strings, for all documents that show them. Errors are sticky in out. */
void model_write_kv(struct buf *out, const struct kv *kv, uint32_t n);

#endif /* WEIR_MODEL_INSTANCE_H */
