/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file What a source of endpoints (embedded registry, static list, later Nacos, DNS, ...) tells the fleet.
 * A source describes each instance by a key of its own; the fleet merges by (scheme, host, port).
 */
#ifndef WEIR_MODEL_UPDATE_T_H
#define WEIR_MODEL_UPDATE_T_H

#include <stdbool.h>
#include <stdint.h>

#include "model/endpoint_t.h"
#include "model/sample_t.h"

/** One instance as its source describes it. All borrowed for the length of the call; the fleet copies. */
struct instance {
    struct slice key; /**< unique within the source and stable while the instance lives */
    struct slice id;  /**< absent: host:port */
    const struct slice *services;
    uint32_t n_services;
    bool tls;
    struct slice host;
    uint16_t port;
    const struct model_ref *models;
    uint32_t n_models;
    uint32_t tasks;
    const struct device *devices;
    uint32_t n_devices;
    uint32_t weight; /**< thousandths */
    bool enabled;
    bool healthy; /**< as the registry says; a source that judges nothing says true */
    bool
        vouched; /**< a live lease: usable before the first probe. Registries set it, static lists do not */
    bool draining;
    bool probation; /**< came from saved state: not used until a check passes or it renews */
    enum endpoint_role role;
    enum engine_kind engine;
    uint32_t max_concurrency;
    uint32_t max_model_len; /**< for models that do not carry their own */
    struct slice region, zone, cluster;
    const struct kv *labels;
    uint32_t n_labels;
    /** Raw metadata. The fleet turns the contract's keys into typed fields where the typed one is not set. */
    const struct kv *metadata;
    uint32_t n_metadata;
    uint64_t epoch; /**< of this registration: a changed one starts a new generation */
};

/** Where a source sends what it learns. Thread: the control loop only. */
struct update_sink {
    void *ctx;
    /** Add or replace. Nothing changed unless 0: WEIR_E_INVALID, WEIR_E_DENIED (it is Weir itself), WEIR_E_FULL, WEIR_E_NOMEM. */
    int (*upsert)(void *ctx, uint16_t source, const struct instance *instance);
    /** The source no longer has it. Unknown keys are ignored. */
    void (*remove)(void *ctx, uint16_t source, struct slice key);
    /** A typed load report. @return 0, WEIR_E_NOTFOUND, WEIR_E_STALE (epoch and seq not newer; nothing changed). */
    int (*sample)(void *ctx, uint16_t source, struct slice key, const struct sample *sample);
    /** The source has told everything it has (or loaded its saved state). */
    void (*synced)(void *ctx, uint16_t source);
    /** The source cannot be asked, or can be again: loads that its metadata told are stale meanwhile. May be NULL. */
    void (*silent)(void *ctx, uint16_t source, bool silent);
};

#endif /* WEIR_MODEL_UPDATE_T_H */
