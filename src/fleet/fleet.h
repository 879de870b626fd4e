/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The fleet table: updates from all sources merged into endpoints, published as immutable snapshots.
 * Belongs to one thread (the control loop), except where a function says "any thread".
 */
#ifndef WEIR_FLEET_FLEET_H
#define WEIR_FLEET_FLEET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"
#include "fleet/health.h"
#include "model/snapshot_t.h"
#include "model/update_t.h"

struct fleet;

struct fleet_options {
    const struct mem *mem;
    uint16_t n_sources;     /**< in config order: the first source wins field by field */
    uint32_t endpoints_max; /**< default 65536 */
    uint64_t remember_ns;   /**< a model seen this long ago is still known; default 24 h */
    const struct slice *known_models; /**< from the config; copied */
    uint32_t n_known_models;
    struct health_rules health; /**< zeros are defaults */
};

int fleet_new(const struct fleet_options *o, struct fleet **out) MUST_CHECK;
/** All snapshots must have been reclaimed or be unused. */
void fleet_free(struct fleet *f);

/**
 * As struct update_sink: merge one instance. Metadata of the contract fills typed fields where the typed one is not set,
 * and a sample: while leased, or, when report_time_ms is among it, for three of its intervals (15 s until two report
 * times are known) from when we first saw that time, so that clocks need not agree. A fresh typed report beats metadata.
 * A changed epoch, or a key that comes back after it was removed, starts a new generation. What changes nothing but
 * the fast keys (memory, utilization, requests, queue, status, time) does not make the fleet dirty: endpoint.metadata
 * of a snapshot shows those as they were when it was built.
 * WEIR_E_INVALID (bad host, port 0, weight or text beyond the limits of model/endpoint_t.h), WEIR_E_FULL, WEIR_E_NOMEM:
 * nothing changed.
 */
int fleet_upsert(struct fleet *f, uint16_t source, const struct instance *i, uint64_t now_ns)
    MUST_CHECK;
void fleet_remove(struct fleet *f, uint16_t source, struct slice key, uint64_t now_ns);
int fleet_sample(struct fleet *f,
                 uint16_t source,
                 struct slice key,
                 const struct sample *s,
                 uint64_t now_ns) MUST_CHECK;
/** The live cell of what a source calls `key`, borrowed until the next upsert or remove; NULL when unknown. */
struct cell *fleet_cell_of(const struct fleet *f, uint16_t source, struct slice key);
void fleet_synced(struct fleet *f, uint16_t source);
/**
 * As struct update_sink: while a source cannot be asked, what its metadata says of load is stale, except where it carries
 * its own time; who is there stays. Cost: O(records of the source) when it changes.
 */
void fleet_silent(struct fleet *f, uint16_t source, bool silent, uint64_t now_ns);

/**
 * A probe saw which models an endpoint serves (GET /v1/models). They count where no source tells any, until the next
 * generation. WEIR_E_STALE: that generation is gone. WEIR_E_INVALID, WEIR_E_NOMEM, WEIR_E_FULL: nothing changed.
 */
int fleet_set_models(struct fleet *f,
                     uint32_t slot,
                     uint32_t generation,
                     const struct model_ref *models,
                     uint32_t n) MUST_CHECK;

/** Which kind of engine it is was found out by asking. It counts where no source tells, until the next generation. */
int fleet_set_engine(struct fleet *f, uint32_t slot, uint32_t generation, enum engine_kind kind)
    MUST_CHECK;

/**
 * Numbers that we asked the engine for. They count only while no source's report, typed or in metadata, is fresh: a
 * reporter sees more. known == 0 changes nothing: what was known goes stale on its own. fresh_for_ns is the caller's,
 * received_ns is set here. WEIR_E_STALE: that generation is gone.
 */
int fleet_scraped(struct fleet *f,
                  uint32_t slot,
                  uint32_t generation,
                  const struct sample *s,
                  uint64_t now_ns) MUST_CHECK;
/**
 * The engine is another process than before, as its own numbers say: a new generation. WEIR_E_STALE: that generation is
 * gone. WEIR_E_NOMEM: nothing changed.
 */
int fleet_restarted(struct fleet *f, uint32_t slot, uint32_t generation, uint64_t now_ns)
    MUST_CHECK;
/**
 * What somebody else says of its devices (an exporter on its host): utilization, memory. Each number counts where no
 * fresh sample tells it; known == 0 takes them back. fresh_for_ns is the caller's, received_ns is set here.
 * WEIR_E_STALE: that generation is gone.
 */
int fleet_device_sample(struct fleet *f,
                        uint32_t slot,
                        uint32_t generation,
                        const struct sample *s,
                        uint64_t now_ns) MUST_CHECK;
/**
 * And which devices those are: they count where no source tells any, until the next generation.
 * WEIR_E_STALE: that generation is gone. WEIR_E_INVALID, WEIR_E_NOMEM, WEIR_E_FULL: nothing changed.
 */
int fleet_set_devices(struct fleet *f,
                      uint32_t slot,
                      uint32_t generation,
                      const struct device *devices,
                      uint32_t n) MUST_CHECK;
/**
 * Time has passed: where an endpoint's sample went stale, what is known of its devices counts alone. Call it every now and
 * then. Cost: O(endpoints), nothing where fleet_device_sample() was never called.
 */
void fleet_tick(struct fleet *f, uint64_t now_ns);
/** Would they count now? */
bool fleet_wants_scrape(const struct fleet *f, uint32_t slot, uint32_t generation, uint64_t now_ns);

/** One probe result, by the rules of the options. @return the health from now on; HEALTH_UNKNOWN when that generation is gone. */
enum health
fleet_probe(struct fleet *f, uint32_t slot, uint32_t generation, bool green, uint64_t now_ns);

/** The config's models changed: these replace the old ones. On failure nothing changed. */
int fleet_set_known_models(struct fleet *f, const struct slice *models, uint32_t n) MUST_CHECK;

/** Operator's drain switch by endpoint id; survives updates from sources. WEIR_E_NOTFOUND. */
int fleet_set_drain(struct fleet *f, struct slice id, bool drain) MUST_CHECK;

/** Did anything change since the last build? (Samples do not count: they live in cells.) */
bool fleet_dirty(const struct fleet *f);

/**
 * Build the next snapshot. The fleet keeps every snapshot until fleet_reclaim().
 * @param out the newest; also when nothing changed (then the same as before).
 * Cost: what has changed, and O(endpoints + models) pointers; allocates.
 */
int fleet_build(struct fleet *f, uint64_t now_ns, const struct snapshot **out) MUST_CHECK;

/** The config's health rules changed. */
void fleet_set_health_rules(struct fleet *f, const struct health_rules *r);

/** Free snapshots for which in_use() says no, except the newest. */
void fleet_reclaim(struct fleet *f, bool (*in_use)(void *ctx, const struct snapshot *s), void *ctx);

/** In flight at an address over all generations, for registry lists; 0 when unknown. */
uint32_t fleet_inflight(const struct fleet *f, struct slice host, uint16_t port);

#endif /* WEIR_FLEET_FLEET_H */
