/* SPDX-License-Identifier: Apache-2.0 */
/** @file The metrics page: what the contract names, from the data plane's counters and the fleet's cells. */
#ifndef WEIR_APPS_SERVE_METRICS_H
#define WEIR_APPS_SERVE_METRICS_H

#include "base/buf.h"
#include "discovery/source.h"
#include "model/snapshot_t.h"
#include "proxy/stats.h"

/** Delay from a source's word to its publication, since the start. */
struct metrics_source {
    struct slice name;
    double delay_seconds;             /**< of the last update */
    const struct source_stats *stats; /**< NULL: it cannot fail */
};

/** All borrowed for the length of the call. */
struct metrics_input {
    const struct snapshot *snapshot;
    const struct proxy_stats *stats;
    const struct metrics_source *sources;
    uint32_t n_sources;
    uint32_t panic_percent; /**< of the config */
    uint64_t now_ns;
    uint64_t reloads_ok, reloads_failed;
};

/** Prometheus text. An error sticks in out->err. Cost: O(endpoints + series). */
void metrics_render(const struct metrics_input *in, struct buf *out);

#endif /* WEIR_APPS_SERVE_METRICS_H */
