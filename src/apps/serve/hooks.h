/* SPDX-License-Identifier: Apache-2.0 */
/** @file What the admin API says and does, on the control loop. */
#ifndef WEIR_APPS_SERVE_HOOKS_H
#define WEIR_APPS_SERVE_HOOKS_H

#include "admin/admin.h"
#include "apps/serve/state.h"

/** All hooks, on this gateway. */
struct admin_hooks hooks_for(struct serve *s);

#endif /* WEIR_APPS_SERVE_HOOKS_H */
