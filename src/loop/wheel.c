/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Level l has 64 slots of 64^l ticks each. A timer lives on the level of the highest 6-bit digit in which its tick
 * differs from the current one, in the slot of that digit. When time passes a slot, its timers are due or move to a
 * lower level. Slots hold what is in the future only, so a slot's bit says exactly whether it must be visited.
 */
#include "loop/wheel.h"

enum { DIGIT = 6 };

void wheel_init(struct wheel *w, uint64_t now_ns)
{
    w->tick = now_ns >> WHEEL_TICK_SHIFT;
    for (int l = 0; l < WHEEL_LEVELS; l++) {
        w->pending[l] = 0;
        for (int s = 0; s < WHEEL_SLOTS; s++)
            list_init(&w->slots[l][s]);
    }
    list_init(&w->due);
}

void wheel_add(struct wheel *w, struct loop_timer *t)
{
    /* Round up: a timer never fires early. */
    uint64_t tick = (t->at_ns >> WHEEL_TICK_SHIFT) + 1;

    if (t->at_ns == 0 || tick <= w->tick) {
        list_add(&w->due, &t->node);
        return;
    }
    unsigned level = (unsigned)(63 - __builtin_clzll(tick ^ w->tick)) / DIGIT;
    if (level >= WHEEL_LEVELS) {
        /* Beyond the horizon (centuries): the farthest slot, looked at again when it comes round. */
        level = WHEEL_LEVELS - 1;
        tick = w->tick + (UINT64_C(63) << (DIGIT * level));
    }
    unsigned slot = (tick >> (DIGIT * level)) % WHEEL_SLOTS;
    list_add(&w->slots[level][slot], &t->node);
    w->pending[level] |= UINT64_C(1) << slot;
}

static void take_slot(struct wheel *w, unsigned level, unsigned slot, struct list *out)
{
    struct list *head = &w->slots[level][slot];

    while (!list_empty(head)) {
        struct list *node = head->next;
        list_del(node);
        list_add(out, node);
    }
    w->pending[level] &= ~(UINT64_C(1) << slot);
}

void wheel_advance(struct wheel *w, uint64_t now_ns)
{
    uint64_t now = now_ns >> WHEEL_TICK_SHIFT;
    struct list passed;

    if (now <= w->tick)
        return;
    list_init(&passed);
    for (unsigned level = 0; level < WHEEL_LEVELS; level++) {
        uint64_t from = w->tick >> (DIGIT * level);
        uint64_t to = now >> (DIGIT * level);
        if (from == to)
            break;
        uint64_t mask = UINT64_MAX;
        if (to - from < WHEEL_SLOTS) {
            /* Slots (from, to], as bits that may wrap around. */
            uint64_t span = (UINT64_C(1) << (to - from)) - 1;
            unsigned first = (unsigned)((from + 1) % WHEEL_SLOTS);
            mask = first ? (span << first) | (span >> (WHEEL_SLOTS - first)) : span;
        }
        for (uint64_t hit = w->pending[level] & mask; hit; hit &= hit - 1)
            take_slot(w, level, (unsigned)__builtin_ctzll(hit), &passed);
    }
    w->tick = now;
    while (!list_empty(&passed)) {
        struct loop_timer *t = container_of(passed.next, struct loop_timer, node);
        list_del(&t->node);
        wheel_add(w, t);
    }
}

uint64_t wheel_wait(const struct wheel *w, uint64_t now_ns)
{
    uint64_t best = UINT64_MAX;

    if (!list_empty(&w->due))
        return 0;
    for (unsigned level = 0; level < WHEEL_LEVELS; level++) {
        if (!w->pending[level])
            continue;
        uint64_t at = w->tick >> (DIGIT * level);
        unsigned shift = (unsigned)(at % WHEEL_SLOTS);
        uint64_t turned =
            shift ? (w->pending[level] >> shift) | (w->pending[level] << (WHEEL_SLOTS - shift))
                  : w->pending[level];
        uint64_t ahead = (uint64_t)__builtin_ctzll(turned);
        uint64_t tick = (at + ahead) << (DIGIT * level);
        if (tick < best)
            best = tick;
    }
    if (best == UINT64_MAX)
        return UINT64_MAX;
    uint64_t ns = best << WHEEL_TICK_SHIFT;
    return ns > now_ns ? ns - now_ns : 0;
}
