/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The immutable view of who is in the fleet. Built whole by the control thread, swapped by pointer,
 * freed when every loop has passed its sequence (fleet/fleet.h).
 */
#ifndef WEIR_MODEL_SNAPSHOT_T_H
#define WEIR_MODEL_SNAPSHOT_T_H

#include <stdbool.h>
#include <stdint.h>

#include "model/cell_t.h"
#include "model/endpoint_t.h"

/** One endpoint with its live state. */
struct member {
    const struct endpoint *endpoint; /**< borrowed from the snapshot */
    struct cell *cell;               /**< the snapshot holds a reference */
};

/** One model and who serves it. */
struct snapshot_model {
    struct slice id;
    const uint32_t *members; /**< indexes in snapshot.members, rising */
    uint32_t n_members;      /**< 0: known (config, or seen within 24 h) but nobody has it now */
};

struct snapshot {
    uint64_t seq;                 /**< rises by one with each build */
    const struct member *members; /**< sorted by slot */
    uint32_t n_members;
    const struct snapshot_model *models; /**< sorted by id, bytewise */
    uint32_t n_models;
    uint32_t n_live_models; /**< of them, with at least one member */
    bool synced;            /**< every source has synced or loaded its saved state */
};

/** The model by id, or NULL. Cost: O(log n). */
const struct snapshot_model *model_find(const struct snapshot *s, struct slice id);

#endif /* WEIR_MODEL_SNAPSHOT_T_H */
