/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One epoll descriptor, level triggered: no lost-edge class of bug, and a mask is changed only when it differs.
 * A turn: wait, read the clock, dispatch events (posted jobs are one), run due timers. Timers that are set by timers in
 * the same turn run in the next one, so that no callback can starve the loop.
 * Posted jobs form a lock-free stack (exchange to take all, then reversed); the eventfd is written only by the poster
 * that finds it empty.
 */
#include "loop/loop.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "loop/alloc.h"
#include "loop/log.h"
#include "loop/wheel.h"

enum { BATCH = 256 };

struct loop {
    int epoll;
    uint64_t now;
    struct wheel wheel;
    struct epoll_event batch[BATCH];
    int batch_at, batch_n; /* events [at, n) are still to be dispatched */
    _Atomic(struct loop_job *) posted;
    atomic_bool stop;
    bool coarse; /* no epoll_pwait2 here */
    struct list cleanups;
    struct loop_watch wake;
    struct loop_watch signals;
    void (*on_signal)(void *ctx, int signal);
    void *signal_ctx;
    void (*before_wait)(void *ctx);
    void (*after_wait)(void *ctx);
    void *hook_ctx;
    char scratch[LOOP_SCRATCH];
};

static uint64_t clock_ns(clockid_t id)
{
    struct timespec ts;

    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t loop_clock(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t loop_wall_clock(void)
{
    return clock_ns(CLOCK_REALTIME);
}

uint64_t loop_now(const struct loop *l)
{
    return l->now;
}

char *loop_scratch(struct loop *l)
{
    return l->scratch;
}

static void run_posted(struct loop *l)
{
    struct loop_job *j = atomic_load_explicit(&l->posted, memory_order_relaxed);
    struct loop_job *in_order = NULL;

    if (!j)
        return;
    j = atomic_exchange_explicit(&l->posted, NULL, memory_order_acquire);
    while (j) {
        struct loop_job *next = j->next;
        j->next = in_order;
        in_order = j;
        j = next;
    }
    while (in_order) {
        struct loop_job *next = in_order->next;
        in_order->run(in_order);
        in_order = next;
    }
}

static void on_wake(struct loop_watch *w, uint32_t events)
{
    uint64_t count;

    (void)events;
    /* Clear first, take then: a job posted in between is taken now or wakes the loop again, never lost. */
    ssize_t n = read(w->fd, &count, sizeof(count));
    (void)n;
    run_posted(container_of(w, struct loop, wake));
}

int loop_new(struct loop **out)
{
    struct loop *l = mem_zalloc(loop_mem(), sizeof(*l));

    if (!l)
        return WEIR_E_NOMEM;
    l->now = loop_clock();
    wheel_init(&l->wheel, l->now);
    list_init(&l->cleanups);
    l->signals.fd = -1;
    l->wake.on_event = on_wake;
    l->wake.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (l->wake.fd < 0 || l->epoll < 0 || loop_watch(l, &l->wake, EPOLLIN) != 0) {
        loop_free(l);
        return WEIR_E_IO;
    }
    *out = l;
    return 0;
}

void loop_free(struct loop *l)
{
    if (!l)
        return;
    while (!list_empty(&l->cleanups)) {
        struct loop_cleanup *c = container_of(l->cleanups.next, struct loop_cleanup, node);
        list_del(&c->node);
        c->run(c);
    }
    if (l->signals.fd >= 0)
        close(l->signals.fd);
    if (l->wake.fd >= 0)
        close(l->wake.fd);
    if (l->epoll >= 0)
        close(l->epoll);
    mem_free(loop_mem(), l);
}

int loop_watch(struct loop *l, struct loop_watch *w, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = w};

    BUG_ON(w->loop != NULL);
    if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, w->fd, &e) != 0)
        return errno == ENOMEM || errno == ENOSPC ? WEIR_E_NOMEM : WEIR_E_IO;
    w->loop = l;
    w->events = events;
    return 0;
}

int loop_rewatch(struct loop_watch *w, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = w};

    BUG_ON(w->loop == NULL);
    if (events == w->events)
        return 0;
    if (epoll_ctl(w->loop->epoll, EPOLL_CTL_MOD, w->fd, &e) != 0)
        return WEIR_E_IO;
    w->events = events;
    return 0;
}

void loop_unwatch(struct loop_watch *w)
{
    struct loop *l = w->loop;

    if (!l)
        return;
    epoll_ctl(l->epoll, EPOLL_CTL_DEL, w->fd, NULL);
    w->loop = NULL;
    w->events = 0;
    for (int i = l->batch_at; i < l->batch_n; i++)
        if (l->batch[i].data.ptr == w)
            l->batch[i].data.ptr = NULL;
}

void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t at_ns)
{
    loop_timer_cancel(t);
    t->loop = l;
    t->at_ns = at_ns;
    list_init(&t->node);
    wheel_add(&l->wheel, t);
}

void loop_timer_cancel(struct loop_timer *t)
{
    if (!t->loop)
        return;
    /* The slot's pending bit may stay set: an empty slot costs one early wake-up, no more. */
    list_del(&t->node);
    t->loop = NULL;
}

void loop_cleanup_add(struct loop *l, struct loop_cleanup *c)
{
    list_init(&c->node);
    list_add(&l->cleanups, &c->node);
}

void loop_cleanup_del(struct loop_cleanup *c)
{
    list_del(&c->node);
}

void loop_set_hooks(struct loop *l,
                    void (*before_wait)(void *ctx),
                    void (*after_wait)(void *ctx),
                    void *ctx)
{
    l->before_wait = before_wait;
    l->after_wait = after_wait;
    l->hook_ctx = ctx;
}

void loop_post(struct loop *l, struct loop_job *j)
{
    struct loop_job *head = atomic_load_explicit(&l->posted, memory_order_relaxed);

    do {
        j->next = head;
    } while (!atomic_compare_exchange_weak_explicit(&l->posted, &head, j, memory_order_release,
                                                    memory_order_relaxed));
    if (!head) {
        uint64_t one = 1;
        /* Fails only when the counter is full, and then the loop wakes anyway. */
        ssize_t n = write(l->wake.fd, &one, sizeof(one));
        (void)n;
    }
}

void loop_stop(struct loop *l)
{
    uint64_t one = 1;

    atomic_store_explicit(&l->stop, true, memory_order_release);
    ssize_t n = write(l->wake.fd, &one, sizeof(one));
    (void)n;
}

static void run_timers(struct loop *l)
{
    struct list due;

    wheel_advance(&l->wheel, l->now);
    if (list_empty(&l->wheel.due))
        return;
    due = l->wheel.due;
    due.next->prev = due.prev->next = &due;
    list_init(&l->wheel.due);
    while (!list_empty(&due)) {
        struct loop_timer *t = container_of(due.next, struct loop_timer, node);
        list_del(&t->node);
        t->loop = NULL;
        t->on_timer(t);
    }
}

static int wait_events(struct loop *l, uint64_t wait)
{
    struct timespec ts = {.tv_sec = (time_t)(wait / 1000000000u),
                          .tv_nsec = (long)(wait % 1000000000u)};

    if (!l->coarse) {
        int n = epoll_pwait2(l->epoll, l->batch, BATCH, wait == UINT64_MAX ? NULL : &ts, NULL);
        if (n >= 0 || (errno != ENOSYS && errno != EPERM))
            return n;
        /* Kernels before 5.11 and strict container profiles lack it: whole milliseconds, rounded up, do as well. */
        l->coarse = true;
    }
    int ms = wait >= UINT64_C(60000000000) ? 60000 : (int)((wait + 999999u) / 1000000u);
    return epoll_wait(l->epoll, l->batch, BATCH, wait == UINT64_MAX ? -1 : ms);
}

static void wait_and_dispatch(struct loop *l)
{
    uint64_t wait = wheel_wait(&l->wheel, loop_clock());

    if (l->before_wait)
        l->before_wait(l->hook_ctx);
    int n = wait_events(l, wait);
    l->now = loop_clock();
    if (l->after_wait)
        l->after_wait(l->hook_ctx);
    if (n < 0 && errno != EINTR)
        log_error("loop", "epoll_wait failed: errno=%d", errno);
    l->batch_n = n > 0 ? n : 0;
    for (l->batch_at = 0; l->batch_at < l->batch_n;) {
        struct epoll_event *e = &l->batch[l->batch_at++];
        struct loop_watch *w = e->data.ptr;
        if (w)
            w->on_event(w, e->events);
    }
    l->batch_n = 0;
    run_timers(l);
}

void loop_run(struct loop *l)
{
    l->now = loop_clock();
    while (!atomic_load_explicit(&l->stop, memory_order_acquire))
        wait_and_dispatch(l);
    run_posted(l);
    atomic_store_explicit(&l->stop, false, memory_order_relaxed);
}

static void on_signal_event(struct loop_watch *w, uint32_t events)
{
    struct loop *l = container_of(w, struct loop, signals);
    struct signalfd_siginfo info;

    (void)events;
    while (read(w->fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        l->on_signal(l->signal_ctx, (int)info.ssi_signo);
}

int loop_signals(struct loop *l,
                 const int *signals,
                 unsigned n,
                 void (*on_signal)(void *ctx, int signal),
                 void *ctx)
{
    sigset_t set;

    sigemptyset(&set);
    for (unsigned i = 0; i < n; i++)
        sigaddset(&set, signals[i]);
    if (pthread_sigmask(SIG_BLOCK, &set, NULL) != 0)
        return WEIR_E_IO;
    l->signals.fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (l->signals.fd < 0)
        return WEIR_E_IO;
    l->on_signal = on_signal;
    l->signal_ctx = ctx;
    l->signals.on_event = on_signal_event;
    return loop_watch(l, &l->signals, EPOLLIN);
}
