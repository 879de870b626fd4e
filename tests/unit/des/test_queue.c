/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <stdbool.h>
#include <string.h>

#include "base/bug.h"
#include "base/prng.h"
#include "des/queue.h"
#include "heap_mem.h"

enum { EVENTS = 500 };

static void events_come_in_order_of_time_then_of_setting(void **state)
{
    (void)state;
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct des_queue q;
    struct des_event e[4] = {0};

    des_queue_init(&q, &mem);
    assert_int_equal(des_queue_reserve(&q, 4), 0);
    assert_true(des_next_at(&q) == DES_NEVER);
    assert_null(des_take(&q));
    des_set(&q, &e[0], 20);
    des_set(&q, &e[1], 10);
    des_set(&q, &e[2], 20);
    des_set(&q, &e[3], 20);
    des_set(&q, &e[3], 5);
    des_set(&q, &e[3], 20); /* moved away and back: now the last of its instant */
    assert_ptr_equal(des_take(&q), &e[1]);
    assert_int_equal(q.now_ns, 10);
    assert_ptr_equal(des_take(&q), &e[0]);
    des_set(&q, &e[1], 3); /* the past is now */
    assert_ptr_equal(des_take(&q), &e[2]);
    assert_ptr_equal(des_take(&q), &e[3]);
    assert_ptr_equal(des_take(&q), &e[1]);
    assert_int_equal(q.now_ns, 20);
    assert_null(des_take(&q));
    des_queue_fini(&q);
    assert_int_equal(heap.live, 0);
}

static void never_takes_an_event_out(void **state)
{
    (void)state;
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct des_queue q;
    struct des_event e = {0};

    des_queue_init(&q, &mem);
    assert_int_equal(des_queue_reserve(&q, 1), 0);
    des_set(&q, &e, 7);
    des_set(&q, &e, DES_NEVER);
    assert_int_equal(e.place, 0);
    des_cancel(&q, &e);
    assert_null(des_take(&q));
    des_queue_fini(&q);
}

/* Against the plainest model: an array that is searched. */
static void it_does_what_a_list_would_do(void **state)
{
    (void)state;
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct des_queue q;
    static struct des_event e[EVENTS];
    static struct {
        bool set;
        uint64_t at, order;
    } model[EVENTS];
    struct prng prng = {7};
    uint64_t orders = 0;
    uint64_t taken = 0;

    memset(e, 0, sizeof(e));
    memset(model, 0, sizeof(model));
    des_queue_init(&q, &mem);
    assert_int_equal(des_queue_reserve(&q, EVENTS), 0);
    for (int step = 0; step < 50000; step++) {
        uint64_t which = prng_below(&prng, EVENTS);
        switch (prng_below(&prng, 4)) {
        case 0:
        case 1: {
            uint64_t at = q.now_ns + prng_below(&prng, 100);
            if (!model[which].set || model[which].at != at)
                model[which].order = ++orders;
            model[which].set = true;
            model[which].at = at;
            des_set(&q, &e[which], at);
            break;
        }
        case 2:
            model[which].set = false;
            des_cancel(&q, &e[which]);
            break;
        default: {
            size_t first = EVENTS;
            for (size_t i = 0; i < EVENTS; i++)
                if (model[i].set &&
                    (first == EVENTS || model[i].at < model[first].at ||
                     (model[i].at == model[first].at && model[i].order < model[first].order)))
                    first = i;
            struct des_event *got = des_take(&q);
            assert_ptr_equal(got, first == EVENTS ? NULL : &e[first]);
            if (got) {
                model[first].set = false;
                taken++;
            }
        }
        }
    }
    assert_true(taken > 5000);
    des_queue_fini(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_come_in_order_of_time_then_of_setting),
        cmocka_unit_test(never_takes_an_event_out),
        cmocka_unit_test(it_does_what_a_list_would_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
