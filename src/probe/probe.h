/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Active checks: an engine reader (probe/engine.h) for each endpoint: its health, its model list where no source
 * tells one, and its numbers where nobody reports them. Says what it saw; what follows from it (up, down, kept because it makes progress) is decided by fleet/health.h.
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
    uint64_t scrape_ns;   /**< between two scrapes of one endpoint's numbers; 0 = none are read */
    struct slice path;    /**< absent: by the kind of engine; copied */
    const struct fetch_tls *tls; /**< for https endpoints; borrowed for the prober's life */
    void *ctx;
    /** One check ended. @param why words for a log line, never NULL. */
    void (*on_health)(
        void *ctx, uint32_t slot, uint32_t generation, enum probe_verdict verdict, const char *why);
    /** The models an endpoint lists; only for endpoints without models of their own. All borrowed.
     * @param told false: it gave no list that can be read, and n is 0. */
    void (*on_models)(void *ctx,
                      uint32_t slot,
                      uint32_t generation,
                      const struct model_ref *models,
                      uint32_t n,
                      bool told);
    /** Are numbers of this endpoint worth asking for? Asked before each scrape. */
    bool (*wants_sample)(void *ctx, uint32_t slot, uint32_t generation);
    /** Numbers were read: running, waiting, KV use, tokens/s. known is 0 when it told none. */
    void (*on_sample)(void *ctx, uint32_t slot, uint32_t generation, const struct sample *sample);
    /** It is another process than before. What follows in the same reading is of the new one. */
    void (*on_restart)(void *ctx, uint32_t slot, uint32_t generation);
    /** Its kind was found out, where no source tells it. */
    void (*on_kind)(void *ctx, uint32_t slot, uint32_t generation, enum engine_kind kind);
};

struct prober;

int prober_new(const struct probe_options *o, struct prober **out) MUST_CHECK;
void prober_free(struct prober *p);

/**
 * Follow a new snapshot: start checking who is new (at once), stop checking who is gone. Others keep their rhythm.
 * Cost: what has changed, and a glance at each of the others.
 */
int prober_sync(struct prober *p, const struct snapshot *s) MUST_CHECK;

/**
 * Other intervals, timeout or path (o's callbacks are not looked at): every endpoint of the snapshot is checked anew, at
 * once, by one reader each. WEIR_E_NOMEM: some go on as before.
 */
int prober_reconfigure(struct prober *p,
                       const struct probe_options *o,
                       const struct snapshot *s) MUST_CHECK;

/**
 * How many endpoints still have to say, for the first time, which models they serve. An answer of any kind counts,
 * silence does not.
 */
uint32_t prober_unasked(const struct prober *p);

#endif /* WEIR_PROBE_PROBE_H */
