/* SPDX-License-Identifier: Apache-2.0 */
/** @file Where a policy saturates: the lowest rate at which less than 90 % of the requests meet the targets. */
#ifndef WEIR_APPS_SIM_SATURATION_H
#define WEIR_APPS_SIM_SATURATION_H

#include <stdint.h>

#include "base/err.h"

/** Two rate scales within 1 % of each other, and the goodput at each. */
struct sim_saturation {
    double good_scale, good; /**< the highest that is still good enough; 0 = none is */
    double bad_scale, bad;   /**< the lowest that is not */
};

/** @return 0 or what ends the search. */
typedef int (*sim_goodput_fn)(void *ctx, uint32_t policy, double scale, double *goodput);

/** Double or halve from `start`, then bisect. About 15 runs. */
int sim_saturation_find(sim_goodput_fn goodput,
                        void *ctx,
                        uint32_t policy,
                        double start,
                        struct sim_saturation *out) MUST_CHECK;

#endif /* WEIR_APPS_SIM_SATURATION_H */
