/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/meter.h"

#include "base/bug.h"

void engine_meter_init(struct engine_meter *m, uint64_t window_ns, uint64_t start_ns)
{
    *m = (struct engine_meter){.width_ns = MAX(window_ns / ENGINE_METER_BUCKETS, 1),
                               .start_ns = start_ns};
}

static void add(struct engine_meter *m, uint64_t index, uint64_t amount)
{
    unsigned place = (unsigned)(index % ENGINE_METER_BUCKETS);

    if (m->buckets[place].index != index) {
        m->buckets[place].index = index;
        m->buckets[place].sum = 0;
    }
    m->buckets[place].sum += amount;
}

void engine_meter_add(struct engine_meter *m, uint64_t at_ns, uint64_t amount)
{
    add(m, at_ns / m->width_ns, amount);
}

void engine_meter_add_interval(struct engine_meter *m, uint64_t from_ns, uint64_t to_ns)
{
    uint64_t window = m->width_ns * ENGINE_METER_BUCKETS;

    if (to_ns - from_ns > window)
        from_ns = to_ns - window;
    while (from_ns < to_ns) {
        uint64_t index = from_ns / m->width_ns;
        uint64_t end = MIN((index + 1) * m->width_ns, to_ns);
        add(m, index, end - from_ns);
        from_ns = end;
    }
}

double engine_meter_rate(const struct engine_meter *m, uint64_t now_ns)
{
    uint64_t last = now_ns / m->width_ns;
    uint64_t first = last >= ENGINE_METER_BUCKETS ? last - ENGINE_METER_BUCKETS + 1 : 0;
    uint64_t from = MAX(first * m->width_ns, m->start_ns);
    uint64_t sum = 0;

    for (unsigned i = 0; i < ENGINE_METER_BUCKETS; i++)
        if (m->buckets[i].index >= first && m->buckets[i].index <= last)
            sum += m->buckets[i].sum;
    return now_ns > from ? (double)sum / (double)(now_ns - from) : 0;
}
