/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file libweir: Weir's fleet and scheduler as a library, for those who bring their own data plane.
 *
 * The library is pure: no clock, socket, thread or allocation of its own. Time comes in as nanoseconds of one monotonic
 * clock, randomness as a seed, memory as a struct mem. Headers say per function which thread may call it.
 *
 *   1. fleet_new(), then fleet_upsert() for every endpoint and fleet_sample() for every load report.
 *   2. fleet_build() gives a snapshot; keep it from fleet_reclaim() while anybody uses it.
 *   3. sched_policy_named(), sched_pool_new() for each model, sched_pool_refresh() with the newest snapshot.
 *   4. sched_pool_admit() chooses and reserves. Send the request to chosen.endpoint, then sched_first_byte(),
 *      sched_release() and sched_cell_put(). WEIR_E_AGAIN: all that fit are full; sched_pool_enqueue() waits, and every
 *      release is followed by sched_pool_offer().
 *
 * Why was it this endpoint? sched_pool_explain(), or a record (sched/record.h) of any admit: it can be written as JSON
 * and decided again by sched_replay().
 *
 * tests/libweir/example.c is a whole program. Until 1.0 the interface may change with every minor version.
 */
#ifndef WEIR_WEIR_H
#define WEIR_WEIR_H

#include "fleet/cell.h"
#include "fleet/fleet.h"
#include "fleet/health.h"
#include "sched/breaker.h"
#include "sched/evidence.h"
#include "sched/ledger.h"
#include "sched/pick.h"
#include "sched/pool.h"
#include "sched/record.h"
#include "sched/row.h"

#endif /* WEIR_WEIR_H */
