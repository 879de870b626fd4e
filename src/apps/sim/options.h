/* SPDX-License-Identifier: Apache-2.0 */
/** @file The command line of `weir sim`. */
#ifndef WEIR_APPS_SIM_OPTIONS_H
#define WEIR_APPS_SIM_OPTIONS_H

#include "apps/sim/run.h"
#include "apps/sim/summary.h"

enum { SIM_POLICIES_MAX = 64, SIM_SEEDS_MAX = 100 };

struct sim_command {
    const char *trace;
    const char *fleet;
    const char *policies; /**< names, comma between them */
    const char *html;     /**< NULL: no page */
    const char *replay;   /**< a log of decisions to decide again, instead of a trace; or NULL */
    const char *config;   /**< of a gateway, whose policies may be named too; or NULL */
    uint64_t from_ns, to_ns;
    uint32_t limit;
    uint32_t repeat;
    uint32_t seeds;
    bool json;
    bool timing;
    bool saturation;
    bool untimed;
    bool slo; /**< requests carry the targets */
    struct sim_targets targets;
    struct sim_options
        run; /**< all that comes from the command line; trace, fleet and policy are not yet there */
};

/** @return -1 to go on, else the exit status: what is wrong, or help, was printed. */
int sim_command_parse(int argc, char **argv, struct sim_command *c);

#endif /* WEIR_APPS_SIM_OPTIONS_H */
