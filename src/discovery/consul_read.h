/* SPDX-License-Identifier: Apache-2.0 */
/** @file Reading what Consul's /v1/health/service answers. Asks nothing, keeps nothing.
 *
 * An answer has all instances of a service, nearly all of them as before: those are found by a hash and not read again. */
#ifndef WEIR_DISCOVERY_CONSUL_READ_H
#define WEIR_DISCOVERY_CONSUL_READ_H

#include "base/arena.h"
#include "discovery/json_cut.h"
#include "model/update_t.h"

/** What an answer had, to be recognised in the next. */
struct consul_seen {
    struct json_seen text;
    struct slice key;
};

struct consul_entry {
    struct json_seen text;
    struct instance instance; /**< when it is the same: only its key */
    bool same;                /**< word for word one of the answer before */
};

struct consul_answer {
    struct consul_entry *entries;
    uint32_t n;
    uint32_t n_bad; /**< entries without an address, a port, an id: left out */
};

/**
 * Key of an instance: "node/service id". Meta becomes metadata as it is; tags, node and datacenter are added under these
 * names where Meta has none, and a tag is a label too ("k=v", or "tag" with the value "true").
 * @param before of the last answer, as it was or without some; a server names them in the same order, so each is looked for
 * near the place of the one before it. NULL with 0.
 * @param seed of what was seen, the same for all answers; see discovery/json_cut.h.
 * @param out borrowed from the arena, and keys of the same ones from `before`.
 * @return 0; WEIR_E_INVALID: no such answer; WEIR_E_NOMEM (also at the arena's cap).
 */
int consul_read(struct arena *a,
                struct slice body,
                const struct consul_seen *before,
                uint32_t n_before,
                uint64_t seed,
                struct consul_answer *out) MUST_CHECK;

#endif /* WEIR_DISCOVERY_CONSUL_READ_H */
