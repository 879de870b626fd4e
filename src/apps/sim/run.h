/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file One run: a trace through the scheduler onto emulated engines, on a virtual clock. A run is a function of its
 * options: the same give the same result to the bit. Uses no clock, file or thread.
 */
#ifndef WEIR_APPS_SIM_RUN_H
#define WEIR_APPS_SIM_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "apps/sim/fleet.h"
#include "apps/sim/trace_codec.h"
#include "model/error_t.h"
#include "model/policy_t.h"

struct sim_options {
    const struct mem *mem;
    const struct sim_fleet *fleet;
    const struct sim_trace *trace;
    const struct policy *policy;
    uint64_t seed;
    double rate_scale; /**< requests come so many times as fast as in the trace */
    bool jitter;       /**< spread within the trace's slot */
    bool one_tenant;   /**< the queue does not tell tenants apart */
    bool oracle; /**< the scheduler is told the length of every answer: a bound, nothing to run */
    uint32_t
        closed; /**< so many clients, each with one request at a time, instead of the trace's times; 0 = open */
    uint64_t report_ns; /**< between two load reports of one worker */
    uint64_t stale_ns;  /**< age of a report when it arrives */
    double loss;        /**< share of reports that never arrive */
    double noise;       /**< standard deviation of reported numbers, of their value */
    uint32_t queue_size;
    uint64_t queue_timeout_ns;
    uint64_t slo_ttft_ns, slo_tpot_ns; /**< targets that the scheduler is told; 0 = none */
    uint64_t (*clock)(
        void); /**< NULL, or a real clock in ns to time decisions by; it changes nothing else */
    void (*progress)(void *ctx, uint32_t done, uint32_t total); /**< may be NULL */
    void *ctx;
};

enum sim_end {
    SIM_PENDING = 0,
    SIM_OK,
    SIM_REJECTED, /**< by Weir; see rejection */
    SIM_MEMORY,   /**< the worker could not hold it */
};

/** What became of one request. Times are virtual, since the start of the run. */
struct sim_outcome {
    uint64_t at_ns;
    uint64_t sent_ns; /**< to the worker; 0 = never */
    uint64_t first_ns;
    uint64_t end_ns;
    uint32_t cached_tokens;
    uint16_t worker;
    uint8_t end;       /**< enum sim_end */
    uint8_t rejection; /**< enum rejection */
};

/** The load map: ticks of a run, and looks in each. */
enum { SIM_TICKS = 240, SIM_LOOKS = 8 };

struct sim_worker_result {
    char id[24];
    const struct sim_group *group;
    uint64_t requests;
    uint64_t prompt_tokens, cached_tokens;
    uint64_t preemptions;
    uint64_t busy_ns;         /**< while requests came */
    uint64_t present_ns;      /**< in the fleet while requests came */
    uint32_t load[SIM_TICKS]; /**< requests there, added up over the SIM_LOOKS looks of a tick */
};

/** Owned: sim_result_fini(). */
struct sim_result {
    const struct mem *mem;
    struct sim_outcome *outcomes; /**< beside the trace's requests */
    uint32_t n;
    struct sim_worker_result *workers;
    uint32_t n_workers;
    uint64_t arrivals_ns; /**< when the last request came */
    uint64_t end_ns;      /**< when the last one ended */
    uint64_t tick_ns;     /**< length of a tick of the load map */
    uint32_t n_ticks;
    uint64_t events;
    uint32_t *decision_ns; /**< of each decision, sorted; NULL without a clock */
    uint32_t n_decisions;
};

/** WEIR_E_NOMEM; WEIR_E_INVALID: an engine that cannot be. */
int sim_run(const struct sim_options *o, struct sim_result *out) MUST_CHECK;
/**
 * Requests take no time: each goes where the policy says, finds what the prefix cache there holds, and is gone. Counts
 * blocks, partial ones too, as if each were full. A group without kv_blocks holds everything. WEIR_E_NOMEM.
 */
int sim_run_untimed(const struct sim_options *o, struct sim_result *out) MUST_CHECK;
void sim_result_fini(struct sim_result *r);

#endif /* WEIR_APPS_SIM_RUN_H */
