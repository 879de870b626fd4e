/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/agent/child.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/close_range.h>

/* Between fork and exec: only what is safe there. The errno of a failure goes through the pipe, which exec closes. */
static void run(char **argv, const sigset_t *mask, int first_fd, pid_t parent, int report)
{
    static const int defaults[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM,
                                   SIGPIPE, SIGCHLD, SIGUSR1, SIGUSR2};
    int failed = 0;

    if (setpgid(0, 0) != 0 || prctl(PR_SET_PDEATHSIG, SIGTERM) != 0)
        failed = errno;
    if (!failed && getppid() != parent)
        _exit(1); /* the agent is gone already */
    for (size_t i = 0; i < sizeof(defaults) / sizeof(*defaults); i++) {
        const struct sigaction a = {.sa_handler = SIG_DFL};
        sigaction(defaults[i], &a, NULL);
    }
    sigprocmask(SIG_SETMASK, mask, NULL); /* NOLINT(concurrency-mt-unsafe): one thread here */
    /* What we opened (sockets, NVIDIA's devices) is not the engine's; what we were given is. */
    if (!failed)
        (void)close_range((unsigned)first_fd, ~0U, CLOSE_RANGE_CLOEXEC);
    if (!failed) {
        execvp(argv[0], argv);
        failed = errno;
    }
    ssize_t n = write(report, &failed, sizeof(failed));
    (void)n;
    _exit(127);
}

int child_start(struct child *c, char **argv, const sigset_t *mask, int first_fd)
{
    int report[2];
    int failed = 0;
    ssize_t n;
    pid_t parent = getpid();

    if (pipe2(report, O_CLOEXEC) != 0)
        return errno;
    pid_t pid = fork();
    if (pid < 0) {
        failed = errno;
        close(report[0]);
        close(report[1]);
        return failed;
    }
    if (pid == 0)
        run(argv, mask, first_fd, parent, report[1]);
    (void)setpgid(pid, pid); /* whoever of the two is first */
    close(report[1]);
    do
        n = read(report[0], &failed, sizeof(failed));
    while (n < 0 && errno == EINTR);
    close(report[0]);
    if (n == (ssize_t)sizeof(failed)) {
        (void)waitpid(pid, NULL, 0);
        return failed;
    }
    *c = (struct child){.pid = pid};
    return 0;
}

void child_signal(const struct child *c, int signal)
{
    if (c->pid > 0)
        (void)kill(c->pid, signal);
}

void child_kill(const struct child *c)
{
    if (c->pid > 0)
        (void)kill(-c->pid, SIGKILL);
}

bool child_ended(struct child *c)
{
    siginfo_t info = {.si_pid = 0};
    int status = 0;

    if (c->pid == 0 || waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0)
        return false;
    /* While it is not reaped its number, and so its group's, is nobody else's. */
    child_kill(c);
    (void)waitpid(c->pid, &status, 0);
    c->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    c->pid = 0;
    return true;
}
