/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Active checks: one health request per endpoint and interval, and its model list where no source tells one.
 * Says what it saw; what follows from it (up, down, kept because it makes progress) is decided by fleet/health.h.
 * One loop, one thread.
 */
#ifndef WEIR_PROBE_PROBE_H
#define WEIR_PROBE_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "loop/loop.h"
#include "model/snapshot_t.h"
#include "net/fetch.h"

/** How one health check ended. */
enum probe_verdict {
    PROBE_OK,      /**< 2xx */
    PROBE_LOADING, /**< 503 with a body that says it is loading */
    PROBE_BAD,     /**< any other status, refused, timed out */
};

struct probe_options {
    struct loop *loop;
    struct fetcher *fetcher;
    uint64_t interval_ns; /**< between the start of two checks of one endpoint */
    uint64_t timeout_ns;  /**< of one check */
    struct slice
        path; /**< absent: auto = /health, and /v1/models where that gives 404 or 405; copied */
    void *ctx;
    /** One check ended. @param why words for a log line, never NULL. */
    void (*on_health)(
        void *ctx, uint32_t slot, uint32_t generation, enum probe_verdict verdict, const char *why);
    /** The models an endpoint lists; only for endpoints without models of their own. n is 0 when it gave no
     * list. All borrowed. */
    void (*on_models)(
        void *ctx, uint32_t slot, uint32_t generation, const struct model_ref *models, uint32_t n);
};

struct prober;

int prober_new(const struct probe_options *o, struct prober **out) MUST_CHECK;
void prober_free(struct prober *p);

/**
 * Follow a new snapshot: start checking who is new (at once), stop checking who is gone. Others keep their rhythm.
 * Cost: O(endpoints).
 */
int prober_sync(struct prober *p, const struct snapshot *s) MUST_CHECK;

/**
 * How many endpoints still have to say, for the first time, which models they serve. An answer of any kind counts, and
 * so does none within the timeout.
 */
uint32_t prober_unasked(const struct prober *p);

#endif /* WEIR_PROBE_PROBE_H */
