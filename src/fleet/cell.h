/* SPDX-License-Identifier: Apache-2.0 */
/** @file Cells: reference counts and the writer's side of the sample's sequence lock. */
#ifndef WEIR_FLEET_CELL_H
#define WEIR_FLEET_CELL_H

#include "base/mem.h"
#include "model/cell_t.h"

/** Publish a sample. Thread: one writer only (control loop). inflight_then is filled here from the ledger. */
void fleet_cell_publish(struct cell *c, const struct sample *s);

/** The same numbers again: fresh, but not a newer sample in the eyes of a reservation's promise (sched_settle). */
void fleet_cell_confirm(struct cell *c, const struct sample *s);

/** As fleet_cell_confirm(), with the inflight_then that the sample has: it is not of this moment. */
void fleet_cell_write(struct cell *c, const struct sample *s);

/** Copy the last published sample. Thread: the writer only; others use sched_sample_read(). */
void fleet_cell_last(const struct cell *c, struct sample *out);

#endif /* WEIR_FLEET_CELL_H */
