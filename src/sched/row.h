/* SPDX-License-Identifier: Apache-2.0 */
/** @file One candidate of a pick, as plain numbers: all that filters, scores and picks may look at. */
#ifndef WEIR_SCHED_ROW_H
#define WEIR_SCHED_ROW_H

#include <stdbool.h>
#include <stdint.h>

#include "model/cell_t.h"
#include "model/endpoint_t.h"
#include "model/policy_t.h"
#include "model/snapshot_t.h"

/** Filled by sched_row_fill(); a logged decision carries these values. Unknown numbers have their flag false. */
struct sched_row {
    const struct endpoint *endpoint; /**< identity; borrowed */
    struct cell *cell;               /**< for the reservation only, never read by filters, scores or picks */
    uint32_t slot, generation;
    uint32_t inflight;         /**< our ledger */
    uint32_t address_inflight; /**< over all generations: what the limit counts */
    uint32_t limit;            /**< 0 = none */
    uint32_t load;             /**< ledger + max(0, reported - our own when it reported); design section 3 */
    uint64_t weight;           /**< thousandths: registry weight x gpu weight */
    uint64_t dyn_weight;       /**< weight x dyn(util), thousandths */
    uint32_t gpu_util_bp;
    bool has_gpu_util;
    bool fresh;                /**< the sample counts */
    bool has_free;             /**< free_* says what is left, promises subtracted */
    bool counts_tokens;        /**< free and need are KV tokens; else bytes */
    uint64_t free_bytes;
    uint64_t free_tokens;
    uint64_t total_bytes;      /**< 0 = unknown */
    uint32_t waiting;          /**< reported */
    uint8_t health;            /**< enum health */
    uint8_t state;             /**< enum reported_state; healthy when unknown */
};

/** dyn(util) of a policy, Q16.16: 1.0 when the utilization is unknown. Linear between points, flat outside. */
uint32_t sched_dyn(const struct policy *p, uint32_t util_bp, bool known);

/** The gpu weight of a type, thousandths; WEIGHT_ONE when not listed. */
uint32_t sched_gpu_weight(const struct policy *p, struct slice gpu_type);

/** Copy a cell's last sample. Any thread; retries while a writer is at work. */
void sched_sample_read(struct cell *c, struct sample *out);

/** Fill one row from a member. Any thread. Cost: constant. */
void sched_row_fill(const struct member *m, const struct policy *p, uint64_t now_ns, struct sched_row *row);

#endif /* WEIR_SCHED_ROW_H */
