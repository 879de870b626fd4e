/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/serve/systemd.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/bug.h"
#include "base/num.h"
#include "loop/log.h"

enum { FIRST_FD = 3, NAME_BYTES = 256 };

static struct {
    int n_fds;
    struct {
        char name[NAME_BYTES];
        bool wanted;
    } fds[SYSTEMD_FDS_MAX];
    struct sockaddr_un notify;
    socklen_t notify_len; /* 0 = nobody wants to know */
    uint64_t watchdog_ns;
} manager;

/* A number, when the variable is for this process. */
static uint64_t number_for_us(const char *name, const char *pid_name)
{
    const char *text = getenv(name);
    const char *pid = getenv(pid_name);
    uint64_t v = 0;
    uint64_t whose = 0;

    if (!text || num_u64(slice_str(text), &v) != 0)
        return 0;
    if (pid && (num_u64(slice_str(pid), &whose) != 0 || whose != (uint64_t)getpid()))
        return 0;
    return v;
}

static void read_fds(void)
{
    uint64_t n = getenv("LISTEN_PID") ? number_for_us("LISTEN_FDS", "LISTEN_PID") : 0;
    const char *names = getenv("LISTEN_FDNAMES");
    struct slice rest = slice_str(names ? names : "");
    struct slice name;

    manager.n_fds = (int)MIN(n, (uint64_t)SYSTEMD_FDS_MAX);
    for (int i = 0; i < manager.n_fds; i++) {
        if (!slice_cut(&rest, ':', &name) || name.n == 0 || name.n >= NAME_BYTES)
            name = SLICE("unknown"); /* as sd_listen_fds_with_names() calls it */
        memcpy(manager.fds[i].name, name.p, name.n);
        manager.fds[i].name[name.n] = '\0';
        (void)fcntl(FIRST_FD + i, F_SETFD, FD_CLOEXEC);
    }
}

static void read_notify(void)
{
    const char *path = getenv("NOTIFY_SOCKET");
    size_t n = path ? strlen(path) : 0;

    if (n < 2 || n >= sizeof(manager.notify.sun_path) || (path[0] != '/' && path[0] != '@'))
        return;
    manager.notify.sun_family = AF_UNIX;
    memcpy(manager.notify.sun_path, path, n);
    if (path[0] == '@')
        manager.notify.sun_path[0] = '\0';
    manager.notify_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
}

void systemd_init(void)
{
    static const char *const names[] = {"LISTEN_FDS",    "LISTEN_PID",    "LISTEN_FDNAMES",
                                        "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"};

    read_fds();
    read_notify();
    manager.watchdog_ns = number_for_us("WATCHDOG_USEC", "WATCHDOG_PID") * 1000;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        unsetenv(names[i]);
}

int systemd_listener(struct slice name)
{
    for (int i = 0; i < manager.n_fds; i++)
        if (slice_eq(name, slice_str(manager.fds[i].name))) {
            manager.fds[i].wanted = true;
            return FIRST_FD + i;
        }
    return -1;
}

void systemd_close_unused(void)
{
    for (int i = 0; i < manager.n_fds; i++) {
        if (manager.fds[i].wanted)
            continue;
        log_warn("serve",
                 "socket %s was passed by the service manager, but no listener has systemd:%s",
                 manager.fds[i].name, manager.fds[i].name);
        close(FIRST_FD + i);
        manager.fds[i].name[0] = '\0'; /* a reload cannot have it back */
    }
}

void systemd_notify(const char *state)
{
    if (!manager.notify_len)
        return;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&manager.notify,
               manager.notify_len) < 0)
        log_warn("serve", "cannot notify the service manager: %s", strerror(errno));
    close(fd);
}

void systemd_notify_reloading(void)
{
    char text[80];

    snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%llu",
             (unsigned long long)(loop_clock() / 1000));
    systemd_notify(text);
}

/* ---- the watchdog ---- */

static void on_loop(struct loop_job *j)
{
    struct watchdog_job *job = container_of(j, struct watchdog_job, job);

    atomic_fetch_add_explicit(&job->watchdog->answered, 1, memory_order_release);
}

static void on_timer(struct loop_timer *t)
{
    struct systemd_watchdog *w = container_of(t, struct systemd_watchdog, timer);

    /* A job that did not run yet is not posted again: the next look finds it. */
    if (atomic_load_explicit(&w->answered, memory_order_acquire) == w->n_loops) {
        systemd_notify("WATCHDOG=1");
        atomic_store_explicit(&w->answered, 0, memory_order_relaxed);
        for (unsigned i = 0; i < w->n_loops; i++)
            loop_post(w->loops[i], &w->jobs[i].job);
    }
    loop_timer_set(w->control, t, loop_now(w->control) + w->interval_ns / 4);
}

void systemd_watchdog_start(struct systemd_watchdog *w,
                            struct loop *control,
                            struct loop *const *loops,
                            unsigned n_loops)
{
    BUG_ON(n_loops > SYSTEMD_LOOPS_MAX);
    w->interval_ns = manager.watchdog_ns;
    if (!w->interval_ns)
        return;
    w->control = control;
    w->n_loops = n_loops;
    w->answered = n_loops;
    w->timer.on_timer = on_timer;
    for (unsigned i = 0; i < n_loops; i++) {
        w->loops[i] = loops[i];
        w->jobs[i] = (struct watchdog_job){.job.run = on_loop, .watchdog = w};
    }
    loop_timer_set(control, &w->timer, 0);
}

void systemd_watchdog_stop(struct systemd_watchdog *w)
{
    loop_timer_cancel(&w->timer);
}
