/* SPDX-License-Identifier: Apache-2.0 */
/** @file A sliding sum over the last window, in 20 buckets: busy time and token counts. */
#ifndef WEIR_ENGINE_METER_H
#define WEIR_ENGINE_METER_H

#include <stdint.h>

enum { ENGINE_METER_BUCKETS = 20 };

/** Fill by engine_meter_init(). Time must not go backwards by more than the window. */
struct engine_meter {
    uint64_t width_ns; /**< of one bucket */
    uint64_t start_ns; /**< nothing was measured before */
    struct {
        uint64_t index; /**< which bucket of time this place holds */
        uint64_t sum;
    } buckets[ENGINE_METER_BUCKETS];
};

void engine_meter_init(struct engine_meter *m, uint64_t window_ns, uint64_t start_ns);
void engine_meter_add(struct engine_meter *m, uint64_t at_ns, uint64_t amount);
/** Add the length of [from, to) to the buckets it covers. Cost: at most one pass over the buckets. */
void engine_meter_add_interval(struct engine_meter *m, uint64_t from_ns, uint64_t to_ns);
/** Sum per nanosecond over the buckets of the last window, the current one as far as it went; 0 before any time passed. */
double engine_meter_rate(const struct engine_meter *m, uint64_t now_ns);

#endif /* WEIR_ENGINE_METER_H */
