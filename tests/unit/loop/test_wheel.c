/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include "base/bug.h"
#include "base/prng.h"
#include "loop/wheel.h"

#define TICK (UINT64_C(1) << WHEEL_TICK_SHIFT)

struct timed {
    struct loop_timer timer;
    bool set;
};

/* Against the definition: after advance(now) exactly the timers whose rounded-up tick has passed are due. */
static void due_timers_are_exactly_those_that_passed(void **state)
{
    (void)state;
    static struct wheel w;
    static struct timed timers[400];
    struct prng r = {11};
    uint64_t now = 123456789012345;

    wheel_init(&w, now);
    for (int round = 0; round < 3000; round++) {
        for (size_t i = 0; i < ARRAY_LEN(timers); i++) {
            if (timers[i].set || prng_below(&r, 4))
                continue;
            /* Spans of every level: from below a tick to years. */
            uint64_t span = prng_next(&r) >> (8 + prng_below(&r, 50));
            timers[i].timer.at_ns = now + span;
            list_init(&timers[i].timer.node);
            wheel_add(&w, &timers[i].timer);
            timers[i].set = true;
        }
        uint64_t wait = wheel_wait(&w, now);
        if (prng_below(&r, 2) && wait != UINT64_MAX)
            now += wait;
        else
            now += prng_next(&r) >> (20 + prng_below(&r, 40));
        wheel_advance(&w, now);
        while (!list_empty(&w.due)) {
            struct loop_timer *t = container_of(w.due.next, struct loop_timer, node);
            list_del(&t->node);
            assert_true((t->at_ns >> WHEEL_TICK_SHIFT) + 1 <= now >> WHEEL_TICK_SHIFT);
            container_of(t, struct timed, timer)->set = false;
        }
        for (size_t i = 0; i < ARRAY_LEN(timers); i++)
            if (timers[i].set)
                assert_true((timers[i].timer.at_ns >> WHEEL_TICK_SHIFT) + 1 > now >>
                            WHEEL_TICK_SHIFT);
    }
}

/* Sleeping exactly as long as told never passes a timer by more than a tick. */
static void waiting_as_told_is_never_late(void **state)
{
    (void)state;
    static struct wheel w;
    struct prng r = {5};
    uint64_t now = 77 * TICK + 5;

    for (int i = 0; i < 2000; i++) {
        struct loop_timer t = {0};
        wheel_init(&w, now);
        t.at_ns = now + (prng_next(&r) >> (10 + prng_below(&r, 44)));
        list_init(&t.node);
        wheel_add(&w, &t);
        int wakes = 0;
        while (list_empty(&w.due)) {
            uint64_t wait = wheel_wait(&w, now);
            assert_true(wait != UINT64_MAX);
            now += wait;
            wheel_advance(&w, now);
            assert_true(++wakes <= WHEEL_LEVELS + 1);
        }
        assert_true(now > t.at_ns);
        assert_true(now - t.at_ns <= 2 * TICK);
        list_del(&t.node);
        assert_true(wheel_wait(&w, now) == UINT64_MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(due_timers_are_exactly_those_that_passed),
        cmocka_unit_test(waiting_as_told_is_never_late),
    };
    return cmocka_run_group_tests_name("wheel", tests, NULL, NULL);
}
