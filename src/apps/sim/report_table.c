/* SPDX-License-Identifier: Apache-2.0 */
/* A table for people: a line for each metric, a column for each policy, and the interval where there are several seeds. */
#include "apps/sim/report.h"
#include "base/bug.h"

enum { NAME_WIDTH = 24, CELL_WIDTH = 22, CELL_WIDTH_PLAIN = 16 };

static void pad(struct buf *out, size_t from, uint32_t width)
{
    while (buf_len(out) - from < width)
        buf_put_char(out, ' ');
}

static void pad_left(struct buf *out, const struct buf *text, uint32_t width)
{
    for (size_t n = buf_len(text); n < width; n++)
        buf_put_char(out, ' ');
    buf_put_slice(out, buf_slice(text));
}

static void
put_cell(const struct sim_report *r, const struct sim_entry *e, enum sim_metric m, struct buf *out)
{
    uint32_t seeds = r->command->seeds;
    struct sim_mean v = sim_metric_mean(e->summaries, seeds, m);
    unsigned decimals = sim_metric_words[m].decimals;
    struct buf cell;

    buf_init(&cell, out->mem, 256);
    buf_put_f64(&cell, v.mean, decimals);
    if (seeds > 1) {
        buf_put_str(&cell, " +-");
        buf_put_f64(&cell, v.half, decimals);
    }
    pad_left(out, &cell, seeds > 1 ? CELL_WIDTH : CELL_WIDTH_PLAIN);
    buf_fini(&cell);
}

static void put_head(const struct sim_report *r, struct buf *out)
{
    buf_put_str(out, "trace ");
    buf_put_str(out, r->command->trace);
    buf_put_str(out, ": ");
    buf_put_u64(out, r->trace->n);
    buf_put_str(out, " requests; fleet ");
    buf_put_str(out, r->command->fleet);
    buf_put_str(out, ": ");
    buf_put_u64(out, r->fleet->n_workers);
    buf_put_str(out, " workers; rate x ");
    buf_put_f64(out, r->command->run.rate_scale, 6);
    buf_put_str(out, "; seeds ");
    buf_put_u64(out, r->command->run.seed);
    if (r->command->seeds > 1) {
        buf_put_str(out, "..");
        buf_put_u64(out, r->command->run.seed + r->command->seeds - 1);
    }
    buf_put_char(out, '\n');
    if (r->trace->guessed) {
        buf_put_str(out, "the trace does not say how long the answer was of ");
        buf_put_u64(out, r->trace->guessed);
        buf_put_str(out, " requests: at most 200 tokens are assumed\n");
    }
}

void sim_report_table(const struct sim_report *r, struct buf *out)
{
    uint32_t width = r->command->seeds > 1 ? CELL_WIDTH : CELL_WIDTH_PLAIN;

    put_head(r, out);
    buf_put_char(out, '\n');
    size_t from = buf_len(out);
    pad(out, from, NAME_WIDTH);
    for (uint32_t i = 0; i < r->n; i++) {
        struct slice name = r->entries[i].policy->name;
        for (size_t n = name.n; n < width; n++)
            buf_put_char(out, ' ');
        buf_put_slice(out, name);
    }
    buf_put_char(out, '\n');
    for (unsigned m = 0; m < SIM_METRIC_COUNT; m++) {
        from = buf_len(out);
        buf_put_str(out, sim_metric_words[m].name);
        if (sim_metric_words[m].unit[0]) {
            buf_put_str(out, " (");
            buf_put_str(out, sim_metric_words[m].unit);
            buf_put_char(out, ')');
        }
        pad(out, from, NAME_WIDTH);
        for (uint32_t i = 0; i < r->n; i++)
            put_cell(r, &r->entries[i], (enum sim_metric)m, out);
        buf_put_char(out, '\n');
    }
}
