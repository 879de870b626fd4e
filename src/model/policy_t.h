/* SPDX-License-Identifier: Apache-2.0 */
/** @file A compiled policy: which filters, which scores, which pick. Built by conf, read by sched. */
#ifndef WEIR_MODEL_POLICY_T_H
#define WEIR_MODEL_POLICY_T_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

/** Fixed point with 16 fraction bits. */
#define Q16_ONE UINT32_C(65536)

enum {
    POLICY_STEPS_MAX = 16, /**< filters or scores in one policy */
    POLICY_CURVE_MAX = 16, /**< points of the utilization curve */
    POLICY_GPU_WEIGHTS_MAX = 64,
    POLICY_HASH_ON_MAX = 8,
};

/** One point of the piecewise linear curve dyn(util). */
struct curve_point {
    uint32_t util_bp; /**< basis points, rising */
    uint32_t q16;     /**< factor, Q16.16 */
    uint64_t inverse; /**< filled by sched_policy_seal(); 0 = not yet, slower but the same */
};

struct gpu_weight {
    struct slice gpu_type; /**< compared without case */
    uint32_t weight;       /**< thousandths */
};

/** Where something is; absent or empty: not said. */
struct place {
    struct slice region, zone, cluster;
};

/** A score and its weight in the sum, Q16.16. */
struct policy_score {
    uint8_t plugin; /**< index in sched's table of scores */
    uint32_t q16;
};

enum hash_source {
    HASH_ON_HEADER,
    HASH_ON_COOKIE,
    HASH_ON_BODY_USER,
    HASH_ON_PROMPT_CACHE_KEY,
    HASH_ON_PREVIOUS_RESPONSE,
    HASH_ON_CLIENT_IP
};

/** Where a session key may come from; the first present one counts. */
struct hash_on {
    enum hash_source source;
    struct slice name; /**< of the header or cookie */
};

struct policy {
    struct slice name;                 /**< what the user calls it */
    uint8_t filters[POLICY_STEPS_MAX]; /**< indexes in sched's table of filters, in order */
    uint32_t n_filters;
    struct policy_score scores[POLICY_STEPS_MAX];
    uint32_t n_scores;
    uint8_t pick; /**< index in sched's table of picks */
    struct curve_point curve[POLICY_CURVE_MAX];
    uint32_t n_curve;
    struct gpu_weight gpu_weights[POLICY_GPU_WEIGHTS_MAX];
    uint32_t n_gpu_weights;
    uint32_t
        bound_q16; /**< bounded load: no endpoint above this multiple of the mean; default 1.25 */
    uint32_t
        panic_percent; /**< above this share of red endpoints all are used; 0 = as 100: only when all are red */
    uint64_t
        slow_start_ns; /**< a newcomer's share rises from a tenth to all of it in this time; 0 = off */
    struct place place; /**< where this gateway is, for filter locality */
    uint64_t hash;      /**< over all of the above: names the policy in decision logs */
};

#endif /* WEIR_MODEL_POLICY_T_H */
