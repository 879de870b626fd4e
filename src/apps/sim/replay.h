/* SPDX-License-Identifier: Apache-2.0 */
/** @file What if: the decisions of a gateway's log, decided again by other policies. */
#ifndef WEIR_APPS_SIM_REPLAY_H
#define WEIR_APPS_SIM_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "model/policy_t.h"

/**
 * Print to standard output, for each policy, how often it would have chosen another endpoint, why, and how many seconds
 * it would have taken by the predictions of then.
 * @param path of a log as JSON lines. @return the exit status; what is wrong was printed. Blocks on the file.
 */
int sim_replay(const char *path, const struct policy *policies, uint32_t n, bool json);

#endif /* WEIR_APPS_SIM_REPLAY_H */
