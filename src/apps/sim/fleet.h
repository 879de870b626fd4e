/* SPDX-License-Identifier: Apache-2.0 */
/** @file The workers of a simulation, read from a YAML file (docs/simulator.md). */
#ifndef WEIR_APPS_SIM_FLEET_H
#define WEIR_APPS_SIM_FLEET_H

#include <stdbool.h>
#include <stdint.h>

#include "apps/sim/yaml.h"
#include "engine/profile.h"

enum { SIM_GROUPS_MAX = 32, SIM_WORKERS_MAX = 4096 };

/** Equal workers. */
struct sim_group {
    char gpu[SIM_WORD_MAX]; /**< of engine/profile.h; a label of its own with `fixed` */
    uint32_t count;
    uint32_t kv_blocks; /**< of 512 tokens; 0 = the profile's */
    uint32_t max_num_seqs;
    uint32_t max_batched_tokens;
    uint32_t
        max_concurrency; /**< as registered; 0 = max_num_seqs, of a server of fixed costs none */
    uint32_t weight;     /**< thousandths */
    uint32_t tasks;      /**< 0 = any */
    double speed;        /**< 1 = as the profile says */
    uint64_t join_ns;    /**< joins the fleet so long after the start of the trace */
    uint64_t load_ns;    /**< then its model loads: requests wait at the worker meanwhile */
    uint64_t fixed_ns; /**< a server of fixed costs: a batch takes this and the work of its jobs */
    struct engine_profile profile;
};

struct sim_fleet {
    char model[SIM_WORD_MAX];
    struct sim_group groups[SIM_GROUPS_MAX];
    uint32_t n_groups;
    uint32_t n_workers;
};

/** Defaults of a group. */
void sim_group_init(struct sim_group *g);
/** Add a group that is filled in; finds its profile. WEIR_E_NOTFOUND: no such GPU; WEIR_E_FULL. */
int sim_fleet_add(struct sim_fleet *f, const struct sim_group *given) MUST_CHECK;

/** WEIR_E_INVALID or WEIR_E_IO with errors; WEIR_E_NOMEM. */
int sim_fleet_load(struct sim_fleet *f,
                   const struct mem *mem,
                   const char *path,
                   struct conf_errors *errors) MUST_CHECK;

#endif /* WEIR_APPS_SIM_FLEET_H */
