/* SPDX-License-Identifier: Apache-2.0 */
/** @file How an endpoint is: one fast observation. Unknown is a value of its own (a clear bit), never 0. */
#ifndef WEIR_MODEL_SAMPLE_T_H
#define WEIR_MODEL_SAMPLE_T_H

#include <stdbool.h>
#include <stdint.h>

/** Bit numbers of struct sample.known. */
enum sample_field {
    SAMPLE_GPU_UTIL,
    SAMPLE_MEMBW_UTIL,
    SAMPLE_SM_ACTIVE,
    SAMPLE_MEMORY_FREE,
    SAMPLE_MEMORY_TOTAL,
    SAMPLE_KV_CAPACITY,
    SAMPLE_KV_USED,
    SAMPLE_RUNNING,
    SAMPLE_WAITING,
    SAMPLE_BATCH,
    SAMPLE_TOKENS_PER_S,
    SAMPLE_STATE,
};

/** What the endpoint says of itself (metadata health_status). */
enum reported_state {
    REPORTED_HEALTHY = 0,
    REPORTED_BUSY,
    REPORTED_LOADING,
    REPORTED_UNHEALTHY,
    REPORTED_DRAINING,
};

/** Percentages are basis points: 10000 is 100 %. */
struct sample {
    uint32_t known;         /**< bit set over enum sample_field */
    uint16_t source;        /**< which source reported; index as in endpoint.source */
    bool while_leased;      /**< true: fresh as long as the lease holds; false: for fresh_for_ns */
    uint64_t epoch;         /**< of the reporter's run; a new one starts a new generation */
    uint64_t seq;           /**< within the epoch */
    uint64_t received_ns;   /**< monotonic, when we got it */
    uint64_t fresh_for_ns;  /**< 3 report intervals for typed reports */
    uint32_t inflight_then; /**< our own ledger when it was received */
    uint32_t gpu_util_bp;
    uint32_t membw_util_bp;
    uint32_t sm_active_bp;
    uint64_t memory_free_bytes;
    uint64_t memory_total_bytes;
    uint64_t kv_capacity_tokens;
    uint64_t kv_used_tokens;
    uint32_t running;
    uint32_t waiting;
    uint32_t batch;
    uint32_t tokens_per_s;
    enum reported_state state;
};

static inline bool sample_has(const struct sample *s, enum sample_field f)
{
    return (s->known >> f) & 1;
}

/** Is it young enough to be used at now_ns? */
static inline bool sample_fresh(const struct sample *s, uint64_t now_ns)
{
    /* A reader's clock may stand a little before the control thread's: such a sample is new, not old. */
    return s->known != 0 && (s->while_leased || now_ns <= s->received_ns ||
                             now_ns - s->received_ns < s->fresh_for_ns);
}

#endif /* WEIR_MODEL_SAMPLE_T_H */
