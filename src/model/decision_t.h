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
    uint32_t fit; /**< rows that passed every filter but capacity: full ones count */
    uint64_t
        late_us; /**< of REJECT_SLO_UNREACHABLE: the best prediction is this far from the target */
    uint64_t prefill_us; /**< it waits and has a target: its own prompt takes that at least */
};

/** Values of explain_row.dropped_by besides indexes in sched's filter table. */
enum { EXPLAIN_KEPT = -1, EXPLAIN_TRIED = -2, EXPLAIN_SLO = -3 };

/** Per row: which filter dropped it, or its score terms. */
struct explain_row {
    uint32_t slot, generation;
    int16_t
        dropped_by; /**< index in sched's filter table; EXPLAIN_KEPT: by none; EXPLAIN_TRIED: excluded; EXPLAIN_SLO: it would miss a target */
    uint64_t terms
        [POLICY_STEPS_MAX]; /**< per score of the policy, Q16.16, saturated: for people, never compared */
    uint64_t cost_num,
        cost_den; /**< what was compared: num/den, lower is better; den is also its share of ties */
    uint32_t load;   /**< as used */
    uint64_t weight; /**< millionths: registry weight x gpu weight */
    uint64_t share; /**< weight x dyn(util), as an endpoint's rightful share; millionths x Q16.16 */
    bool chosen;
};

#endif /* WEIR_MODEL_DECISION_T_H */
