/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file An endpoint as snapshots show it. All snapshots that were built while it did not change share it, so a change costs
 * what has changed, and a pointer for each of the others. Private to the room.
 */
#ifndef WEIR_FLEET_SHOWN_H
#define WEIR_FLEET_SHOWN_H

#include "fleet/table.h"

struct shown {
    struct cell *cell;          /**< holds a reference */
    struct known_model **known; /**< its models, while it is enabled: `one`, or in arena */
    struct known_model *one;
    uint32_t n_known;
    struct endpoint endpoint;
    struct record
        *record; /**< whose text is shown as it is, with a reference; NULL: all is in arena */
    struct arena arena;
    uint64_t last_seq;    /**< when retired: no later snapshot has it */
    struct shown *next;   /**< retired after it; during a build: made before it */
    struct shown *before; /**< during a build: what it stands in for, or NULL */
};

/** From what the sources say now. WEIR_E_NOMEM, WEIR_E_FULL. */
int fleet_shown_new(struct fleet *f, const struct entry *e, struct shown **out) MUST_CHECK;
void fleet_shown_free(struct fleet *f, struct shown *s);
/** The next snapshot does not have it. */
void fleet_shown_retire(struct fleet *f, struct shown *s);
/** Free retired ones that no snapshot from `oldest` on has. */
void fleet_shown_reclaim(struct fleet *f, uint64_t oldest);

#endif /* WEIR_FLEET_SHOWN_H */
