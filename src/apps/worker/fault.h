/* SPDX-License-Identifier: Apache-2.0 */
/** @file Scripted faults of the emulated worker: what its --fault option and POST /fault say. */
#ifndef WEIR_APPS_WORKER_FAULT_H
#define WEIR_APPS_WORKER_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

enum { FAULT_NEVER = UINT32_MAX };

struct fault {
    double slow;          /**< steps take so many times as long */
    bool hang;            /**< inference requests are taken and never answered */
    bool reset;           /**< inference requests are answered by RST */
    uint32_t hang_after;  /**< a stream stands still after so many events */
    uint32_t reset_after; /**< a stream is reset after so many events */
    unsigned status;      /**< answer instead of the real one; 0 = none */
    double status_share;  /**< of the requests, 0..1 */
    uint32_t die_after;   /**< the process exits when so many requests were answered */
    bool metrics_garbage;
    unsigned health;        /**< status of /health; 0 = the true one */
    bool health_hang;       /**< /health is never answered */
    uint64_t close_idle_ns; /**< idle connections are closed; 0 = the default. At the start only */
};

/**
 * Parse "slow=3x,status=503:0.1". Empty = no fault.
 * @param out filled on success only. @param bad the item that was refused, on WEIR_E_INVALID.
 */
int fault_parse(struct slice spec, struct fault *out, struct slice *bad) MUST_CHECK;

/** For --help. */
extern const char fault_help[];

#endif /* WEIR_APPS_WORKER_FAULT_H */
