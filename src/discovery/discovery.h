/* SPDX-License-Identifier: Apache-2.0 */
/** @file One configured source of endpoints, whatever its type: started, watched, ended. Thread: the control loop. */
#ifndef WEIR_DISCOVERY_DISCOVERY_H
#define WEIR_DISCOVERY_DISCOVERY_H

#include "conf/conf.h"
#include "discovery/source.h"
#include "loop/loop.h"
#include "net/fetch.h"

/** What sources stand on; borrowed for their whole life. */
struct discovery_env {
    struct loop *loop;
    struct fetcher *fetcher;
    const struct update_sink *sink;
    /** As source_options.passing. */
    bool (*passing)(void *ctx, bool tls, struct slice host, uint16_t port);
    /** As registry_options.current_requests. NULL: nothing is written back. */
    uint32_t (*requests)(void *ctx, struct slice host, uint16_t port);
    void *ctx;
};

struct discovery;

/**
 * Start a source of any type but static. What it finds reaches the sink from the loop; what its state file has, at once.
 * @param conf copied.
 * @param before taken, unless it fails: the source whose place it takes. Lists of the same name keep what is in them until
 * they are answered. NULL: none.
 * @return 0; WEIR_E_INVALID, WEIR_E_IO (said in the log: a secret or certificate that cannot be read); WEIR_E_NOMEM.
 */
int discovery_start(const struct discovery_env *env,
                    const struct conf_source *conf,
                    uint16_t index,
                    struct discovery *before,
                    struct discovery **out) MUST_CHECK;

/** The sink is told that all its instances are gone. NULL is fine. */
void discovery_free(struct discovery *d);

const struct source_stats *discovery_stats(const struct discovery *d);

#endif /* WEIR_DISCOVERY_DISCOVERY_H */
