/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/retry.h"

#include "base/bug.h"
#include "base/num.h"

/* Forget the buckets that left the window. */
static unsigned advance(struct retry_budget *b, uint64_t now_ns)
{
    uint64_t second = now_ns / NS_PER_S;

    if (second > b->second) {
        uint64_t steps = MIN(second - b->second, (uint64_t)RETRY_WINDOW_S);
        for (uint64_t i = 0; i < steps; i++) {
            unsigned at = (unsigned)((second - i) % RETRY_WINDOW_S);
            b->requests[at] = b->retries[at] = 0;
        }
        b->second = second;
    }
    return (unsigned)(b->second % RETRY_WINDOW_S);
}

void retry_count(struct retry_budget *b, uint64_t now_ns)
{
    b->requests[advance(b, now_ns)]++;
}

bool retry_take(struct retry_budget *b, const struct route_retry *r, uint64_t now_ns)
{
    unsigned at = advance(b, now_ns);
    uint64_t requests = 0;
    uint64_t retries = 0;

    for (unsigned i = 0; i < RETRY_WINDOW_S; i++) {
        requests += b->requests[i];
        retries += b->retries[i];
    }
    /* The floor counts seconds one by one, so that ten quiet ones do not pay for a burst of thirty. */
    if (b->retries[at] >= r->budget_min_per_s && retries * 100 >= requests * r->budget_percent)
        return false;
    b->retries[at]++;
    return true;
}
