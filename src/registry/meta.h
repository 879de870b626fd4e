/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The metadata of one instance, written by several hands: merged key by key, so nobody's keys are lost.
 *
 * Clients repeat themselves (each beat carries the whole map), operators and sidecars speak once. So what a client
 * says is news only when it differs from what the client said before: a beat that repeats an old value does not undo
 * an operator's edit of that key. An empty value deletes a key. A deleted key that a client keeps repeating stays deleted.
 */
#ifndef WEIR_REGISTRY_META_H
#define WEIR_REGISTRY_META_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"
#include "model/endpoint_t.h"

struct meta_entry {
    struct slice key;
    struct slice value; /**< absent: the key is not in effect */
    struct slice told;  /**< what a client last said; absent: never, empty: it deleted the key */
};

/** Immutable and one allocation; free with mem_free(). NULL stands for an empty one. */
struct meta {
    uint32_t n_entries;
    uint32_t n_kv;
    const struct meta_entry *entries;
    const struct kv *kv; /**< what is in effect, in the order the keys first came */
};

enum meta_writer {
    META_CLIENT,   /**< register, beat: repeats itself */
    META_OPERATOR, /**< PUT, PATCH, batch: every write counts */
};

/**
 * What `old` becomes when `writer` says `delta`.
 * @param out the new table, owned by the caller, or NULL when nothing changed at all; old stays the caller's.
 * @param visible out: the keys in effect or their values changed.
 * @return 0, WEIR_E_FULL (more than ENDPOINT_KV_MAX keys), WEIR_E_NOMEM.
 */
int meta_merge(const struct mem *mem,
               const struct meta *old,
               const struct kv *delta,
               uint32_t n_delta,
               enum meta_writer writer,
               struct meta **out,
               bool *visible) MUST_CHECK;

/** Value of a key in effect, or the absent slice. */
struct slice meta_get(const struct kv *kv, uint32_t n, struct slice key);

#endif /* WEIR_REGISTRY_META_H */
