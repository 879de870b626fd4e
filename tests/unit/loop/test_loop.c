/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <pthread.h>
#include <unistd.h>

#include "base/bug.h"
#include "loop/loop.h"

enum { POSTERS = 4, POSTS = 5000 };

struct numbered_job {
    struct loop_job job;
    unsigned poster, number;
    struct counter *counter;
};

struct counter {
    struct loop *loop;
    unsigned next[POSTERS];
    unsigned total;
    bool in_order;
};

static struct numbered_job jobs[POSTERS][POSTS];

static void run_numbered(struct loop_job *j)
{
    struct numbered_job *n = container_of(j, struct numbered_job, job);

    if (n->number != n->counter->next[n->poster]++)
        n->counter->in_order = false;
    if (++n->counter->total == POSTERS * POSTS)
        loop_stop(n->counter->loop);
}

static void *post_all(void *arg)
{
    struct numbered_job *mine = arg;

    for (unsigned i = 0; i < POSTS; i++)
        loop_post(mine[i].counter->loop, &mine[i].job);
    return NULL;
}

static void posted_jobs_all_run_in_each_posters_order(void **state)
{
    (void)state;
    struct counter c = {.in_order = true};
    pthread_t threads[POSTERS];

    assert_int_equal(loop_new(&c.loop), 0);
    for (unsigned p = 0; p < POSTERS; p++) {
        for (unsigned i = 0; i < POSTS; i++)
            jobs[p][i] = (struct numbered_job){
                .job.run = run_numbered, .poster = p, .number = i, .counter = &c};
        assert_int_equal(pthread_create(&threads[p], NULL, post_all, jobs[p]), 0);
    }
    loop_run(c.loop);
    for (unsigned p = 0; p < POSTERS; p++)
        pthread_join(threads[p], NULL);
    assert_int_equal(c.total, POSTERS * POSTS);
    assert_true(c.in_order);
    loop_free(c.loop);
}

struct fired {
    struct loop_timer timer;
    struct loop *loop;
    unsigned *order;
    unsigned me;
    uint64_t at;
};

static unsigned order_seen;

static void on_fire(struct loop_timer *t)
{
    struct fired *f = container_of(t, struct fired, timer);

    f->me = ++order_seen;
    f->at = loop_now(f->loop);
    if (order_seen == 3)
        loop_stop(f->loop);
}

static void timers_fire_in_order_and_never_early(void **state)
{
    (void)state;
    struct loop *l;
    struct fired f[4];

    assert_int_equal(loop_new(&l), 0);
    order_seen = 0;
    uint64_t start = loop_now(l);
    const uint64_t after_ms[] = {30, 5, 60, 10};
    for (size_t i = 0; i < ARRAY_LEN(f); i++) {
        f[i] = (struct fired){.timer.on_timer = on_fire, .loop = l};
        loop_timer_set(l, &f[i].timer, start + after_ms[i] * 1000000);
    }
    loop_timer_cancel(&f[3].timer);
    loop_run(l);
    assert_int_equal(f[1].me, 1);
    assert_int_equal(f[0].me, 2);
    assert_int_equal(f[2].me, 3);
    assert_int_equal(f[3].me, 0);
    for (size_t i = 0; i < 3; i++)
        assert_true(f[i].at >= start + after_ms[i] * 1000000);
    loop_free(l);
}

struct pair {
    struct loop_watch watch;
    struct loop *loop;
    struct pair *other;
    unsigned events;
};

static void unwatch_other(struct loop_watch *w, uint32_t events)
{
    struct pair *p = container_of(w, struct pair, watch);

    (void)events;
    p->events++;
    loop_unwatch(&p->other->watch);
    loop_unwatch(w);
    loop_stop(p->loop);
}

static void a_watch_taken_out_gets_no_event_of_the_same_batch(void **state)
{
    (void)state;
    struct loop *l;
    int a[2], b[2];

    assert_int_equal(loop_new(&l), 0);
    assert_int_equal(pipe(a), 0);
    assert_int_equal(pipe(b), 0);
    assert_int_equal(write(a[1], "x", 1), 1);
    assert_int_equal(write(b[1], "x", 1), 1);
    struct pair one = {.watch = {.fd = a[0], .on_event = unwatch_other}, .loop = l};
    struct pair two = {.watch = {.fd = b[0], .on_event = unwatch_other}, .loop = l, .other = &one};
    one.other = &two;
    assert_int_equal(loop_watch(l, &one.watch, EPOLLIN), 0);
    assert_int_equal(loop_watch(l, &two.watch, EPOLLIN), 0);
    loop_run(l);
    assert_int_equal(one.events + two.events, 1);
    loop_free(l);
    for (int i = 0; i < 2; i++) {
        close(a[i]);
        close(b[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(posted_jobs_all_run_in_each_posters_order),
        cmocka_unit_test(timers_fire_in_order_and_never_early),
        cmocka_unit_test(a_watch_taken_out_gets_no_event_of_the_same_batch),
    };
    return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}
