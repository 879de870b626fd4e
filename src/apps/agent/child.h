/* SPDX-License-Identifier: Apache-2.0 */
/** @file The engine as a child: its own process group, and not left behind when the agent dies. */
#ifndef WEIR_APPS_AGENT_CHILD_H
#define WEIR_APPS_AGENT_CHILD_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

struct child {
    pid_t pid;  /**< 0 = none, or it has ended */
    int status; /**< once it has ended: its exit status, or 128 + the signal */
};

/**
 * Start argv[0], searched in PATH, with stdio and environment of ours, the signal mask `mask`, and no descriptor from
 * first_fd on. Gets SIGTERM when this thread ends. Waits until it runs, so a command that cannot be started is an error here.
 * @return 0, or the errno of what failed.
 */
int child_start(struct child *c, char **argv, const sigset_t *mask, int first_fd) MUST_CHECK;
/** To the command alone; what it started is its own business. Harmless once it has ended. */
void child_signal(const struct child *c, int signal);
/** SIGKILL to its whole group. */
void child_kill(const struct child *c);
/** After SIGCHLD. @return true once, when it has ended: what is left of its group is killed. */
bool child_ended(struct child *c);

#endif /* WEIR_APPS_AGENT_CHILD_H */
