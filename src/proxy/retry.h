/* SPDX-License-Identifier: Apache-2.0 */
/** @file The retry budget: a share of the requests of the last 10 s, and a floor per second. Per loop; pure. */
#ifndef WEIR_PROXY_RETRY_H
#define WEIR_PROXY_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "model/route_t.h"

enum { RETRY_WINDOW_S = 10 };

/** Zero-initialise. */
struct retry_budget {
    uint64_t second; /**< the newest bucket's */
    uint32_t requests[RETRY_WINDOW_S];
    uint32_t retries[RETRY_WINDOW_S];
};

/** Count one request. */
void retry_count(struct retry_budget *b, uint64_t now_ns);

/** May one more be retried now? Takes it from the budget if so. */
bool retry_take(struct retry_budget *b, const struct route_retry *r, uint64_t now_ns);

#endif /* WEIR_PROXY_RETRY_H */
