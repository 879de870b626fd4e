/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The event loop: level-triggered epoll, a timer wheel, an eventfd for other threads, signalfd.
 * One loop belongs to one thread; only loop_post() and loop_stop() may be called from others.
 * Order inside one turn: wait, clock update, descriptor events and posted jobs, due timers.
 */
#ifndef WEIR_LOOP_LOOP_H
#define WEIR_LOOP_LOOP_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "base/err.h"
#include "base/list.h"

struct loop;

/** A watched descriptor; embed it. Zero-initialise, then loop_watch(). */
struct loop_watch {
    struct loop *loop;
    int fd;
    uint32_t events; /**< EPOLL* mask in force */
    /** Called with the ready EPOLL* bits. May call loop_unwatch() on this or any other watch, and free it. */
    void (*on_event)(struct loop_watch *w, uint32_t events);
};

/** A one-shot timer; embed it. Zero-initialise. */
struct loop_timer {
    struct list node;
    struct loop *loop; /**< NULL while not set */
    uint64_t at_ns;    /**< monotonic */
    /** Called once, at or up to about 1 ms after at_ns; the timer is unset before. May free it. */
    void (*on_timer)(struct loop_timer *t);
};

/** Work handed to a loop from any thread; embed it. One job must not be posted again before it ran. */
struct loop_job {
    struct loop_job *next;
    void (*run)(struct loop_job *j); /**< on the loop's thread; may free the job */
};

/** @return 0, WEIR_E_NOMEM, WEIR_E_IO. The loop is freed by loop_free(). */
int loop_new(struct loop **out) MUST_CHECK;
/** Runs what was left by loop_cleanup_add(). NULL is fine. Thread: the loop's, after loop_run(), or any before it. */
void loop_free(struct loop *l);

/** Run until loop_stop(). Remaining posted jobs are run before it returns. */
void loop_run(struct loop *l);

/** Any thread: make loop_run() return after the current turn. */
void loop_stop(struct loop *l);

/** Any thread: run j on the loop's thread, in order of posting. Cost: one atomic swap; one write() when the loop was idle. */
void loop_post(struct loop *l, struct loop_job *j);

/** Monotonic time at the start of this turn. Cost: a load. */
uint64_t loop_now(const struct loop *l);

/** Read the monotonic clock, wherever. */
uint64_t loop_clock(void);
/** Wall clock in ns since 1970, for logs and wire timestamps only. */
uint64_t loop_wall_clock(void);

/** Start watching w->fd (set fd and on_event first). The loop does not own the descriptor. */
int loop_watch(struct loop *l, struct loop_watch *w, uint32_t events) MUST_CHECK;
/** Change the mask; no system call when it is the same. */
int loop_rewatch(struct loop_watch *w, uint32_t events) MUST_CHECK;
/** Stop watching; no event of the current batch reaches w any more. Harmless when not watched. Call before close(). */
void loop_unwatch(struct loop_watch *w);

/** Set or move a timer (set on_timer first). Cost: O(1). A time in the past fires this turn. */
void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t at_ns);
/** Harmless when not set. */
void loop_timer_cancel(struct loop_timer *t);
static inline bool loop_timer_active(const struct loop_timer *t)
{
    return t->loop != NULL;
}

/** Something that must be released when the loop ends before it has ended itself; embed it. */
struct loop_cleanup {
    struct list node;
    void (*run)(
        struct loop_cleanup *c); /**< called by loop_free(), out of the list already; may free it */
};
void loop_cleanup_add(struct loop *l, struct loop_cleanup *c);
/** Harmless when it was not added but its node was initialised. */
void loop_cleanup_del(struct loop_cleanup *c);

/** Called on the loop's thread around each wait; for reclaiming shared snapshots. Either may be NULL. */
void loop_set_hooks(struct loop *l,
                    void (*before_wait)(void *ctx),
                    void (*after_wait)(void *ctx),
                    void *ctx);

/**
 * Deliver these signals (blocked for the whole process by this call; call it before threads start).
 * @param on_signal called on this loop's thread.
 */
int loop_signals(struct loop *l,
                 const int *signals,
                 unsigned n,
                 void (*on_signal)(void *ctx, int signal),
                 void *ctx) MUST_CHECK;

/** A scratch buffer of LOOP_SCRATCH bytes, one per loop, valid inside one callback. */
enum { LOOP_SCRATCH = 65536 };
char *loop_scratch(struct loop *l);

#endif /* WEIR_LOOP_LOOP_H */
