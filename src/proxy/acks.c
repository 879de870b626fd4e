/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/acks.h"

bool acks_note(struct acks *a, uint8_t *held, uint64_t gap_ns)
{
    if (gap_ns >= ACKS_FAST_NS) {
        bool trial = a->reads >= ACKS_AFTER && a->reads < ACKS_AFTER + ACKS_TRIAL;
        if (trial && gap_ns < ACKS_LATE_NS && *held < ACKS_HELD_MAX)
            (*held)++;
        /* The kernel has given up waiting by itself. */
        a->reads = 0;
        return false;
    }
    if (a->reads == ACKS_AFTER + ACKS_TRIAL)
        return false;
    a->reads++;
    if (*held >= ACKS_HELD_MAX)
        return false;
    if (a->reads == ACKS_AFTER + ACKS_TRIAL && a->lazy)
        *held = 0;
    a->lazy = a->lazy || a->reads == ACKS_AFTER;
    return a->reads == ACKS_AFTER;
}
