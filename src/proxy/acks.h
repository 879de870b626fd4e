/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file When the events of a stream may be acknowledged two at a time. Pure.
 *
 * A stream sends small events and hears nothing back, so the kernel answers each with an empty packet, a tenth of what
 * relaying an event costs. It can be asked to wait for a second segment, or 40 ms, instead. That harms a worker that
 * holds an event back until the one before it is acknowledged (Nagle's algorithm, no TCP_NODELAY): its next event comes
 * 40 ms late. So it is asked only for streams whose events follow each other fast anyway, and no more for an endpoint
 * that was seen holding back as often as ACKS_HELD_MAX times in a row.
 */
#ifndef WEIR_PROXY_ACKS_H
#define WEIR_PROXY_ACKS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    ACKS_AFTER = 4,    /* reads in a row that came fast before waiting begins */
    ACKS_TRIAL = 3,    /* reads after that, among which a held one would be */
    ACKS_HELD_MAX = 3, /* late ones in a row after which an endpoint is left alone */
};
/** Faster than this is fast; the kernel's wait is longer. A late one comes before the second: others are pauses. */
#define ACKS_FAST_NS (35 * UINT64_C(1000000))
#define ACKS_LATE_NS (100 * UINT64_C(1000000))

/** Of one stream; zero-initialise. */
struct acks {
    uint8_t reads; /**< in a row that came fast, saturated */
    bool lazy;     /**< the kernel was asked at least once */
};

/**
 * Bytes of the stream arrived.
 * @param gap_ns since those before. @param held of the endpoint: late ones in a row; starts at 0.
 * @return true: ask the kernel now.
 */
bool acks_note(struct acks *a, uint8_t *held, uint64_t gap_ns);

#endif /* WEIR_PROXY_ACKS_H */
