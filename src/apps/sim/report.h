/* SPDX-License-Identifier: Apache-2.0 */
/** @file Reports of runs, as text of three kinds. Same runs, same bytes. */
#ifndef WEIR_APPS_SIM_REPORT_H
#define WEIR_APPS_SIM_REPORT_H

#include "apps/sim/options.h"
#include "apps/sim/saturation.h"

/** All runs with one policy. */
struct sim_entry {
    const struct policy *policy;
    struct sim_summary *summaries; /**< one for each seed */
    struct sim_result first;       /**< of the first seed, for what is drawn and listed */
    struct sim_saturation saturation;
};

struct sim_report {
    const struct sim_command *command;
    const struct sim_trace *trace;
    const struct sim_fleet *fleet;
    const struct sim_entry *entries;
    uint32_t n;
};

void sim_report_table(const struct sim_report *r, struct buf *out);
void sim_report_json(const struct sim_report *r, struct buf *out);
/** Of --saturation: as a table, or JSON when the command says so. */
void sim_report_saturation(const struct sim_report *r, struct buf *out);
/** One page, without anything from outside. WEIR_E_NOMEM. */
int sim_report_html(const struct sim_report *r, struct buf *out) MUST_CHECK;

#endif /* WEIR_APPS_SIM_REPORT_H */
