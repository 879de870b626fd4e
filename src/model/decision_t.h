/* SPDX-License-Identifier: Apache-2.0 */
/** @file The answer of one pick, and on request why. */
#ifndef WEIR_MODEL_DECISION_T_H
#define WEIR_MODEL_DECISION_T_H

#include <stdbool.h>
#include <stdint.h>

#include "model/error_t.h"
#include "model/policy_t.h"

enum { DECISION_NOBODY = UINT32_MAX };

struct decision {
    uint32_t row; /**< index of the chosen row, or DECISION_NOBODY */
    enum rejection
        rejection; /**< why nobody; REJECT_NONE with DECISION_NOBODY: all that fit are full, so wait */
    uint32_t fit; /**< rows that passed every filter, full or not */
};

/** Per row: which filter dropped it, or its score terms. */
struct explain_row {
    uint32_t slot, generation;
    int16_t dropped_by;               /**< index in sched's filter table; -1: not dropped */
    uint64_t terms[POLICY_STEPS_MAX]; /**< as added up, Q16.16 */
    uint64_t cost;                    /**< Q16.16, saturated; lower is better */
    bool chosen;
};

#endif /* WEIR_MODEL_DECISION_T_H */
