/* SPDX-License-Identifier: Apache-2.0 */
/** @file The one table of plugins. Indexes stand in compiled policies; names stand in configs, logs and explanations. */
#include "base/bug.h"
#include "sched/plugin.h"

const struct sched_filter sched_filters[] = {
    {.name = "usable",
     .why = "disabled, weight 0, draining, not healthy, loading, or its breaker is open",
     .keep = sched_filter_usable},
    {.name = "model",
     .why = "does not have this model, version or task, or is still loading it",
     .keep = sched_filter_model},
    {.name = "context",
     .why = "context too short for prompt and output",
     .reads_body = true,
     .keep = sched_filter_context},
    {.name = "memory_total",
     .why = "needs more memory than the endpoint has at all",
     .keep = sched_filter_memory_total},
    {.name = "memory",
     .why = "not enough free memory now",
     .passes = true,
     .reads_body = true,
     .keep = sched_filter_memory},
    {.name = "concurrency",
     .why = "at its limit of concurrent requests",
     .passes = true,
     .capacity = true,
     .keep = sched_filter_concurrency},
    {.name = "locality",
     .why = "outside of the gateway's own region, zone or cluster, where another one fits and has "
            "room",
     .keep = sched_filter_locality},
    {.name = "memory_known",
     .why = "free memory unknown, while others are known to fit",
     .reads_body = true,
     .keep = sched_filter_memory_known},
};
const uint32_t sched_n_filters = ARRAY_LEN(sched_filters);

/* Candidates' weights are in millionths. */
#define WEIGHT_UNIT UINT64_C(1000000)

const struct sched_score sched_scores[] = {
    {.name = "load", .unit = WEIGHT_UNIT, .steady = true, .cost = sched_score_load},
    {.name = "dynamic_load",
     .unit = WEIGHT_UNIT * Q16_ONE,
     .steady = true,
     .cost = sched_score_dynamic_load},
    {.name = "queued_work", .unit = 1, .reads_work = true, .cost = sched_score_queued_work},
    {.name = "uncached", .unit = 1, .reads_work = true, .cost = sched_score_uncached},
    {.name = "response_time",
     .unit = 1,
     .reads_work = true,
     .reads_peak = true,
     .cost = sched_score_response_time},
    {.name = "peak_ewma",
     .unit = 1,
     .reads_work = true,
     .reads_peak = true,
     .cost = sched_score_peak_ewma},
    {.name = "token_load", .unit = 1, .reads_work = true, .cost = sched_score_token_load},
    {.name = "reported", .unit = 1, .reads_work = true, .cost = sched_score_reported},
};
const uint32_t sched_n_scores = ARRAY_LEN(sched_scores);

const struct sched_picker sched_pickers[] = {
    {.name = "lowest", .pick = sched_pick_lowest},
    {.name = "power_of_two", .draws_two = true, .pick = sched_pick_power_of_two},
    {.name = "random", .pick = sched_pick_random},
    {.name = "weighted_random", .pick = sched_pick_weighted_random},
    {.name = "round_robin", .pick = sched_pick_round_robin},
    {.name = "weighted_round_robin", .pick = sched_pick_weighted_round_robin},
    {.name = "consistent_hash", .pick = sched_pick_consistent_hash},
    {.name = "maglev", .needs_table = true, .pick = sched_pick_maglev},
    {.name = "bounded", .pick = sched_pick_bounded},
    {.name = "sticky", .reads_work = true, .pick = sched_pick_sticky},
    {.name = "prefix_hash",
     .reads_work = true,
     .needs_ring = true,
     .reads_prefix_key = true,
     .pick = sched_pick_prefix_hash},
    {.name = "cache_aware", .reads_work = true, .pick = sched_pick_cache_aware},
    {.name = "affinity", .reads_work = true, .pick = sched_pick_affinity},
    {.name = "prequal",
     .reads_work = true,
     .reads_peak = true,
     .needs_probes = true,
     .pick = sched_pick_prequal},
};
const uint32_t sched_n_pickers = ARRAY_LEN(sched_pickers);
