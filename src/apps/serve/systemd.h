/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The service manager: sockets that it opened (LISTEN_FDS), and what it wants to be told (NOTIFY_SOCKET, the
 * watchdog). Without one, all of it does nothing. No library: both protocols are a few lines.
 */
#ifndef WEIR_APPS_SERVE_SYSTEMD_H
#define WEIR_APPS_SERVE_SYSTEMD_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/slice.h"
#include "loop/loop.h"

enum { SYSTEMD_FDS_MAX = 64, SYSTEMD_LOOPS_MAX = 64 };

/** Read the environment and clear it, so that no child believes it. Call it once, before threads start. */
void systemd_init(void);

/** The listening descriptor of that name (FileDescriptorName=), borrowed; -1 = none. Marks it as wanted. */
int systemd_listener(struct slice name);
/** Close what was passed and nobody wanted, with a warning. */
void systemd_close_unused(void);

/** Tell it: "READY=1", "STOPPING=1"... Any thread. */
void systemd_notify(const char *state);
/** "RELOADING=1" with the time that it asks for; "READY=1" ends it. */
void systemd_notify_reloading(void);

/** Tells it in good time, as long as all loops turn; when one hangs, it is not told any more. */
struct systemd_watchdog {
    struct loop *control;
    struct loop_timer timer;
    uint64_t interval_ns; /**< 0 = none is asked for */
    struct loop *loops[SYSTEMD_LOOPS_MAX];
    unsigned n_loops;
    atomic_uint answered;
    struct watchdog_job {
        struct loop_job job;
        struct systemd_watchdog *watchdog;
    } jobs[SYSTEMD_LOOPS_MAX];
};
/** @param loops the data loops, running. Thread: control. */
void systemd_watchdog_start(struct systemd_watchdog *w,
                            struct loop *control,
                            struct loop *const *loops,
                            unsigned n_loops);
/** The loops must not run any more. */
void systemd_watchdog_stop(struct systemd_watchdog *w);

#endif /* WEIR_APPS_SERVE_SYSTEMD_H */
