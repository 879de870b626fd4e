/* SPDX-License-Identifier: Apache-2.0 */
/** @file What the process may do, and giving most of it up once everything is open. */
#ifndef WEIR_APPS_SERVE_PRIVILEGES_H
#define WEIR_APPS_SERVE_PRIVILEGES_H

#include <sys/types.h>

#include "base/err.h"
#include "base/slice.h"

/** A user by name or number; its own group too, when gid is not NULL. WEIR_E_NOTFOUND. Blocks on the user database. */
int privileges_user(const char *name, uid_t *uid, gid_t *gid) MUST_CHECK;
int privileges_group(const char *name, gid_t *gid) MUST_CHECK;

/** No core dumps and no debugger of the same user: memory holds keys and prompts. Call it first. */
void privileges_hide_memory(void);

/**
 * Make a file that root has opened the user's, so that it can open it again: for logs, which are opened anew by SIGUSR1
 * and every reload. Does nothing without a user, without being root, or for what is no plain file. @param fd -1: none.
 */
void privileges_give(int fd, const char *user);

/**
 * Become this user and group, and give up every capability, for good; no program that is started later has more.
 * Without a user nothing changes but that, and root keeps what it has, with a warning. Call it after binding, with one
 * thread. @param user, group NULL = none. @return 0, or a negative error that was logged.
 */
int privileges_drop(const char *user, const char *group) MUST_CHECK;

#endif /* WEIR_APPS_SERVE_PRIVILEGES_H */
