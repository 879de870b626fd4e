/* SPDX-License-Identifier: Apache-2.0 */
/** @file Reading what Consul's /v1/health/service answers. Asks nothing, keeps nothing. */
#ifndef WEIR_DISCOVERY_CONSUL_READ_H
#define WEIR_DISCOVERY_CONSUL_READ_H

#include "base/arena.h"
#include "model/update_t.h"

struct consul_answer {
    struct instance *instances;
    uint32_t n;
    uint32_t n_bad; /**< entries without an address, a port, an id: left out */
};

/**
 * Key of an instance: "node/service id". Meta becomes metadata as it is; tags, node and datacenter are added under these
 * names where Meta has none, and a tag is a label too ("k=v", or "tag" with the value "true").
 * @param out borrowed from the arena. @return 0; WEIR_E_INVALID: no such answer; WEIR_E_NOMEM (also at the arena's cap).
 */
int consul_read(struct arena *a, struct slice body, struct consul_answer *out) MUST_CHECK;

#endif /* WEIR_DISCOVERY_CONSUL_READ_H */
