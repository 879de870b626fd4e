/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Drawn workloads: a trace made of independent streams of Poisson arrivals, each of one kind of request. What it
 * stands in for is a trace that nobody has: mixes of tasks, tenants, floods. Another seed draws another trace.
 */
#ifndef WEIR_APPS_SIM_WORKLOAD_H
#define WEIR_APPS_SIM_WORKLOAD_H

#include "apps/sim/trace_codec.h"
#include "apps/sim/yaml.h"

enum { SIM_STREAMS_MAX = 64 };

/** How a number is distributed. */
enum sim_shape { SIM_CONSTANT, SIM_UNIFORM, SIM_EXPONENTIAL };
struct sim_draw {
    enum sim_shape shape;
    double a; /**< the value, the least, the mean */
    double b; /**< the most */
};

struct sim_stream {
    char name[SIM_WORD_MAX];
    double rate;                    /**< requests a second */
    uint64_t from_ns, to_ns;        /**< requests come in this time; to_ns 0 = all */
    uint32_t task;                  /**< enum task bit */
    uint32_t priority;              /**< 1..9; 0 = the default */
    char tenant[SIM_WORD_MAX];      /**< "" = none */
    struct sim_draw prompt, output; /**< tokens; output 0 = the answer is no text */
    struct sim_draw work;           /**< fixed work, ns */
    uint32_t limit;                 /**< of the answer, as told; 0 = not told */
    uint32_t images;
    uint32_t sessions; /**< so many, each with a session key and prompts that grow; 0 = none */
    uint32_t prefixes; /**< so many common beginnings, of prefix_blocks each; 0 = none */
    uint32_t prefix_blocks;
};

struct sim_workload {
    uint64_t duration_ns;
    struct sim_stream streams[SIM_STREAMS_MAX];
    uint32_t n;
};

/** WEIR_E_INVALID or WEIR_E_IO with errors; WEIR_E_NOMEM. */
int sim_workload_load(struct sim_workload *w,
                      const struct mem *mem,
                      const char *path,
                      struct conf_errors *errors) MUST_CHECK;

/** Draw. The trace is replaced. WEIR_E_FULL, WEIR_E_NOMEM. */
int sim_workload_draw(const struct sim_workload *w, uint64_t seed, struct sim_trace *t) MUST_CHECK;

#endif /* WEIR_APPS_SIM_WORKLOAD_H */
