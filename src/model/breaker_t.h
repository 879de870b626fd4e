/* SPDX-License-Identifier: Apache-2.0 */
/** @file When traffic is kept from an endpoint that fails: the rules of the config. The step is sched/breaker.h. */
#ifndef WEIR_MODEL_BREAKER_T_H
#define WEIR_MODEL_BREAKER_T_H

#include <stdbool.h>
#include <stdint.h>

/** Zeroed = off. */
struct breaker_rules {
    bool enabled;
    uint32_t consecutive;         /**< failures with no good answer between them; 0 = off */
    uint32_t first_byte_timeouts; /**< likewise, requests that got no byte in time; 0 = off */
    uint32_t error_percent;   /**< failures among the requests of a window that open it; 0 = off */
    uint32_t min_requests;    /**< that many requests make a window worth judging */
    uint32_t successes;       /**< good answers in half-open that close it; 0 counts as 1 */
    uint64_t window_ns;       /**< from its first failure */
    uint64_t cooldown_ns;     /**< the first time; doubled each time a trial fails */
    uint64_t cooldown_max_ns; /**< no longer than this, or than cooldown_ns when that is longer */
    uint64_t stall_ns;        /**< nothing new is sent to one that is silent this long; 0 = off */
};

#endif /* WEIR_MODEL_BREAKER_T_H */
