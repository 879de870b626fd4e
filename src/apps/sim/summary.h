/* SPDX-License-Identifier: Apache-2.0 */
/** @file What a run was worth, in numbers, and the numbers of several seeds with their intervals. */
#ifndef WEIR_APPS_SIM_SUMMARY_H
#define WEIR_APPS_SIM_SUMMARY_H

#include "apps/sim/run.h"

/** X(name, unit, decimals in reports, words) */
#define SIM_METRICS(X)                                                                             \
    X(requests, "", 0, "requests in the trace")                                                    \
    X(ok, "", 0, "answered in full")                                                               \
    X(rejected, "", 0, "refused by Weir")                                                          \
    X(memory_failures, "", 0, "refused by a worker that could not hold it")                        \
    X(preemptions, "", 0, "thrown back for want of KV memory")                                     \
    X(requests_per_s, "1/s", 3, "answered, until the last ended")                                  \
    X(input_tokens_per_s, "1/s", 0, "prompt tokens of those")                                      \
    X(output_tokens_per_s, "1/s", 0, "generated")                                                  \
    X(goodput, "", 4, "share of all requests that met the targets")                                \
    X(goodput_per_s, "1/s", 3, "those, per second")                                                \
    X(ttft_mean, "s", 4, "arrival to first token")                                                 \
    X(ttft_p50, "s", 4, "")                                                                        \
    X(ttft_p90, "s", 4, "")                                                                        \
    X(ttft_p95, "s", 4, "")                                                                        \
    X(ttft_p99, "s", 4, "")                                                                        \
    X(tpot_mean, "ms", 3, "per token after the first")                                             \
    X(tpot_p50, "ms", 3, "")                                                                       \
    X(tpot_p95, "ms", 3, "")                                                                       \
    X(tpot_p99, "ms", 3, "")                                                                       \
    X(e2e_mean, "s", 4, "arrival to end")                                                          \
    X(e2e_p50, "s", 4, "")                                                                         \
    X(e2e_p95, "s", 4, "")                                                                         \
    X(e2e_p99, "s", 4, "")                                                                         \
    X(wait_mean, "s", 4, "in Weir's queue")                                                        \
    X(wait_p95, "s", 4, "")                                                                        \
    X(hit_ratio, "", 4, "prompt tokens found in prefix caches")                                    \
    X(busy_mean, "", 4, "share of the time that workers computed, while requests came")            \
    X(busy_min, "", 4, "of the least busy worker")                                                 \
    X(busy_max, "", 4, "of the busiest")                                                           \
    X(busy_away, "", 4, "farthest worker from the mean")                                           \
    X(uncached_spread, "", 4, "uncached prompt tokens: most of a worker over the mean")            \
    X(requests_spread, "", 4, "requests: likewise")

enum sim_metric {
#define SIM_METRIC_ENUM(name, unit, decimals, words) SIM_M_##name,
    SIM_METRICS(SIM_METRIC_ENUM)
#undef SIM_METRIC_ENUM
        SIM_METRIC_COUNT
};

struct sim_metric_word {
    const char *name, *unit, *words;
    unsigned decimals;
};
extern const struct sim_metric_word sim_metric_words[SIM_METRIC_COUNT];

struct sim_targets {
    uint64_t ttft_ns; /**< 0 = none */
    uint64_t tpot_ns; /**< 0 = none */
};

struct sim_tenant_summary {
    uint64_t requests, ok;
    double wait_p95, ttft_p95, e2e_p95; /**< seconds */
};

struct sim_summary {
    double m[SIM_METRIC_COUNT];
    struct sim_tenant_summary tenants[SIM_TENANTS_MAX];
};

/** Cost: a sort of all outcomes. WEIR_E_NOMEM. */
int sim_summarise(const struct sim_result *r,
                  const struct sim_trace *t,
                  const struct sim_targets *targets,
                  struct sim_summary *out) MUST_CHECK;

/** Mean and half-width of its 95 % interval over n summaries. */
struct sim_mean {
    double mean, half;
};
struct sim_mean sim_metric_mean(const struct sim_summary *s, uint32_t n, enum sim_metric m);

/** Did it meet the targets? */
bool sim_good(const struct sim_outcome *o,
              const struct sim_request *r,
              const struct sim_targets *t);

/** Arrival to first token in seconds, and the others; of answered requests. */
double sim_ttft(const struct sim_outcome *o);
double sim_e2e(const struct sim_outcome *o);
/** Milliseconds; below 0: it has none, for there is at most one token. */
double sim_tpot(const struct sim_outcome *o, const struct sim_request *r);

#endif /* WEIR_APPS_SIM_SUMMARY_H */
