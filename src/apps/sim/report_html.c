/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One page that needs nothing else: inputs, the table of metrics, how latencies are distributed, and how loaded each
 * worker was over time. Plots are SVG written here; no script, no font, no image from anywhere.
 */
#include <stdlib.h>

#include "apps/sim/report.h"
#include "base/bug.h"
#include "base/num.h"
#include "des/draw.h"

enum {
    WIDTH = 640,
    HEIGHT = 300,
    LEFT = 48,
    RIGHT = 12,
    TOP = 12,
    BOTTOM = 36,
    POINTS = 160,
    CELL = 14
};

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>weir "
    "sim</title>\n<style>\n"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 "
    "1rem;color:#1d2530;background:#fff}\n"
    "h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2.2rem}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}\n"
    "th,td{padding:.18rem .7rem;text-align:right;border-bottom:1px solid "
    "#e3e7ec;white-space:nowrap}\n"
    "th:first-child,td:first-child{text-align:left}td small{color:#68727f}\n"
    "tbody tr:hover{background:#f4f7fa}.scroll{overflow-x:auto}svg{max-width:100%;height:auto}\n"
    "svg text{font:11px "
    "system-ui,sans-serif;fill:#4a5562}.grid{stroke:#e3e7ec}.key{margin-right:1.2rem;white-space:"
    "nowrap}\n"
    ".key "
    "i{display:inline-block;width:1.1rem;height:.25rem;margin-right:.4rem;vertical-align:middle}\n"
    "</style></head><body>\n";

static const char *const colours[] = {"#0b6bcb", "#d1495b", "#2e8b57", "#e08a00", "#7b4fb5",
                                      "#00838f", "#a0522d", "#5c6b7a", "#c2185b", "#6b8e23"};

static const char *colour_of(uint32_t i)
{
    return colours[i % ARRAY_LEN(colours)];
}

static void put_text(struct buf *out, struct slice s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '<')
            buf_put_str(out, "&lt;");
        else if (s.p[i] == '&')
            buf_put_str(out, "&amp;");
        else if (s.p[i] == '"')
            buf_put_str(out, "&quot;");
        else
            buf_put_char(out, s.p[i]);
    }
}

static void attribute(struct buf *out, const char *name, double v)
{
    buf_put_char(out, ' ');
    buf_put_str(out, name);
    buf_put_str(out, "=\"");
    buf_put_f64(out, v, 1);
    buf_put_char(out, '"');
}

static void line(struct buf *out, double x1, double y1, double x2, double y2)
{
    buf_put_str(out, "<line class=\"grid\"");
    attribute(out, "x1", x1);
    attribute(out, "y1", y1);
    attribute(out, "x2", x2);
    attribute(out, "y2", y2);
    buf_put_str(out, "/>");
}

static void
label(struct buf *out, double x, double y, const char *anchor, double v, const char *unit)
{
    buf_put_str(out, "<text");
    attribute(out, "x", x);
    attribute(out, "y", y);
    buf_put_str(out, " text-anchor=\"");
    buf_put_str(out, anchor);
    buf_put_str(out, "\">");
    buf_put_f64(out, v, 3);
    buf_put_str(out, unit);
    buf_put_str(out, "</text>");
}

static void open_svg(struct buf *out, uint32_t width, uint32_t height, const char *title)
{
    buf_put_str(out, "<svg role=\"img\" viewBox=\"0 0 ");
    buf_put_u64(out, width);
    buf_put_char(out, ' ');
    buf_put_u64(out, height);
    buf_put_str(out, "\" width=\"");
    buf_put_u64(out, width);
    buf_put_str(out, "\"><title>");
    buf_put_str(out, title);
    buf_put_str(out, "</title>\n");
}

/* --- distributions --- */

enum plot { PLOT_TTFT, PLOT_TPOT, PLOT_E2E };

/* Sorted values of answered requests; seconds or milliseconds. */
struct values {
    double *v;
    uint32_t n;
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static int values_of(const struct sim_report *r,
                     const struct sim_entry *e,
                     enum plot which,
                     struct values *out)
{
    const struct sim_result *run = &e->first;

    *out = (struct values){.v = mem_array(run->mem, run->n, sizeof(double))};
    if (!out->v)
        return WEIR_E_NOMEM;
    for (uint32_t i = 0; i < run->n; i++) {
        const struct sim_outcome *o = &run->outcomes[i];
        if (o->end != SIM_OK)
            continue;
        double v = which == PLOT_TTFT  ? sim_ttft(o)
                   : which == PLOT_E2E ? sim_e2e(o)
                                       : sim_tpot(o, &r->trace->requests[i]);
        if (v >= 0)
            out->v[out->n++] = MAX(v, 1e-6);
    }
    if (out->n)
        qsort(out->v, out->n, sizeof(double), by_value);
    return 0;
}

/* The decades that hold all values. */
static void decades(const struct values *v, uint32_t n, double *low, double *high)
{
    double least = 1e300;
    double most = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (v[i].n == 0)
            continue;
        /* The first percent may be far away and is of no interest. */
        least = MIN(least, v[i].v[v[i].n / 100]);
        most = MAX(most, v[i].v[v[i].n - 1]);
    }
    *low = 1e-6;
    *high = 1e-5;
    if (most <= 0)
        return;
    while (*low * 10 <= least)
        *low *= 10;
    *high = *low * 10;
    while (*high < most)
        *high *= 10;
}

static double x_of(double v, double low, double high)
{
    double share = des_log(MAX(v, low) / low) / des_log(high / low);

    return LEFT + share * (WIDTH - LEFT - RIGHT);
}

static double y_of(double share)
{
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM);
}

static void put_axes(struct buf *out, double low, double high, const char *unit)
{
    for (uint32_t i = 0; i <= 4; i++) {
        line(out, LEFT, y_of(i / 4.0), WIDTH - RIGHT, y_of(i / 4.0));
        label(out, LEFT - 6, y_of(i / 4.0) + 4, "end", i * 25, " %");
    }
    double v = low;
    while (v <= high * 1.01) {
        line(out, x_of(v, low, high), TOP, x_of(v, low, high), HEIGHT - BOTTOM);
        label(out, x_of(v, low, high), HEIGHT - BOTTOM + 16, v > high * 0.99 ? "end" : "middle", v,
              unit);
        v *= 10;
    }
}

static void
put_curve(struct buf *out, const struct values *v, double low, double high, const char *colour)
{
    buf_put_str(out, "<polyline fill=\"none\" stroke-width=\"1.8\" stroke=\"");
    buf_put_str(out, colour);
    buf_put_str(out, "\" points=\"");
    for (uint32_t i = 0; i <= POINTS && v->n; i++) {
        uint64_t rank = (uint64_t)(v->n - 1) * i / POINTS;
        buf_put_f64(out, x_of(v->v[rank], low, high), 1);
        buf_put_char(out, ',');
        buf_put_f64(out, y_of((double)i / POINTS), 1);
        buf_put_char(out, ' ');
    }
    buf_put_str(out, "\"/>\n");
}

static int put_plot(const struct sim_report *r,
                    enum plot which,
                    const char *title,
                    const char *unit,
                    struct buf *out)
{
    struct values v[SIM_POLICIES_MAX] = {{.n = 0}};
    double low;
    double high;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < r->n; i++)
        rc = values_of(r, &r->entries[i], which, &v[i]);
    decades(v, r->n, &low, &high);
    buf_put_str(out, "<h2>");
    buf_put_str(out, title);
    buf_put_str(out, "</h2>\n<p>");
    for (uint32_t i = 0; i < r->n; i++) {
        buf_put_str(out, "<span class=\"key\"><i style=\"background:");
        buf_put_str(out, colour_of(i));
        buf_put_str(out, "\"></i>");
        put_text(out, r->entries[i].policy->name);
        buf_put_str(out, "</span>\n");
    }
    buf_put_str(out, "</p>\n");
    open_svg(out, WIDTH, HEIGHT, title);
    put_axes(out, low, high, unit);
    for (uint32_t i = 0; i < r->n; i++)
        put_curve(out, &v[i], low, high, colour_of(i));
    buf_put_str(out, "</svg>\n");
    for (uint32_t i = 0; i < r->n; i++)
        mem_free(r->entries[i].first.mem, v[i].v);
    return rc;
}

/* --- load over time --- */

static uint32_t heaviest(const struct sim_report *r)
{
    uint32_t most = 1;

    for (uint32_t i = 0; i < r->n; i++)
        for (uint32_t k = 0; k < r->entries[i].first.n_workers; k++)
            for (uint32_t t = 0; t < SIM_TICKS; t++)
                most = MAX(most, r->entries[i].first.workers[k].load[t]);
    return most;
}

/* White to blue to red, by the square root, so that small loads differ too. */
static void put_heat(struct buf *out, uint32_t load, uint32_t most)
{
    double share = des_sqrt((double)load / most);
    double low = share < 0.5 ? share * 2 : 1;
    double high = share < 0.5 ? 0 : share * 2 - 1;
    uint32_t red = (uint32_t)(255 - 220 * low + 185 * high);
    uint32_t green = (uint32_t)(255 - 150 * low - 65 * high);
    uint32_t blue = (uint32_t)(255 - 50 * low - 155 * high);

    buf_put_char(out, '#');
    buf_put_hex(out, red, 2);
    buf_put_hex(out, green, 2);
    buf_put_hex(out, blue, 2);
}

static void put_map(const struct sim_entry *e, uint32_t most, struct buf *out)
{
    const struct sim_result *run = &e->first;
    uint32_t height = run->n_workers * CELL + 22;
    double width = (double)(WIDTH + 160 - 90) / MAX(run->n_ticks, 1);

    buf_put_str(out, "<h3>");
    put_text(out, e->policy->name);
    buf_put_str(out, "</h3>\n");
    open_svg(out, WIDTH + 160, height, "requests at each worker over time");
    for (uint32_t k = 0; k < run->n_workers; k++) {
        buf_put_str(out, "<text x=\"0\"");
        attribute(out, "y", k * CELL + 11);
        buf_put_str(out, ">");
        put_text(out, slice_str(run->workers[k].id));
        buf_put_str(out, "</text>");
        for (uint32_t t = 0; t < run->n_ticks; t++) {
            uint32_t load = run->workers[k].load[t];
            if (load == 0)
                continue;
            buf_put_str(out, "<rect");
            attribute(out, "x", 90 + t * width);
            attribute(out, "y", k * CELL);
            attribute(out, "width", width + 0.1);
            attribute(out, "height", CELL - 1);
            buf_put_str(out, " fill=\"");
            put_heat(out, load, most);
            buf_put_str(out, "\"/>");
        }
        buf_put_char(out, '\n');
    }
    label(out, 90, height - 6, "start", 0, " s");
    label(out, WIDTH + 160, height - 6, "end", (double)run->n_ticks * (double)run->tick_ns / 1e9,
          " s");
    buf_put_str(out, "</svg>\n");
}

/* --- the table --- */

static void put_table(const struct sim_report *r, struct buf *out)
{
    buf_put_str(out, "<div class=\"scroll\"><table><thead><tr><th></th>");
    for (uint32_t i = 0; i < r->n; i++) {
        buf_put_str(out, "<th>");
        put_text(out, r->entries[i].policy->name);
        buf_put_str(out, "</th>");
    }
    buf_put_str(out, "</tr></thead><tbody>\n");
    for (unsigned m = 0; m < SIM_METRIC_COUNT; m++) {
        const struct sim_metric_word *w = &sim_metric_words[m];
        buf_put_str(out, "<tr><td title=\"");
        buf_put_str(out, w->words);
        buf_put_str(out, "\">");
        buf_put_str(out, w->name);
        buf_put_str(out, " <small>");
        buf_put_str(out, w->unit);
        buf_put_str(out, "</small></td>");
        for (uint32_t i = 0; i < r->n; i++) {
            struct sim_mean v =
                sim_metric_mean(r->entries[i].summaries, r->command->seeds, (enum sim_metric)m);
            buf_put_str(out, "<td>");
            buf_put_f64(out, v.mean, w->decimals);
            if (r->command->seeds > 1) {
                buf_put_str(out, " <small>&plusmn;");
                buf_put_f64(out, v.half, w->decimals);
                buf_put_str(out, "</small>");
            }
            buf_put_str(out, "</td>");
        }
        buf_put_str(out, "</tr>\n");
    }
    buf_put_str(out, "</tbody></table></div>\n");
}

static void put_inputs(const struct sim_report *r, struct buf *out)
{
    buf_put_str(out, "<h1>weir sim</h1>\n<p>");
    put_text(out, slice_str(r->command->trace));
    buf_put_str(out, ", ");
    buf_put_u64(out, r->trace->n);
    buf_put_str(out, " requests, on ");
    put_text(out, slice_str(r->command->fleet));
    buf_put_str(out, ", ");
    buf_put_u64(out, r->fleet->n_workers);
    buf_put_str(out, " workers; rate &times; ");
    buf_put_f64(out, r->command->run.rate_scale, 6);
    buf_put_str(out, "; ");
    buf_put_u64(out, r->command->seeds);
    buf_put_str(out, " seeds from ");
    buf_put_u64(out, r->command->run.seed);
    buf_put_str(out, "; targets: first token within ");
    buf_put_f64(out, (double)r->command->targets.ttft_ns / 1e9, 3);
    buf_put_str(out, " s, then ");
    buf_put_f64(out, (double)r->command->targets.tpot_ns / 1e6, 3);
    buf_put_str(out, " ms a token. Numbers are means over the seeds with 95 % intervals; plots are "
                     "of the first.</p>\n");
}

int sim_report_html(const struct sim_report *r, struct buf *out)
{
    buf_put_str(out, head);
    put_inputs(r, out);
    put_table(r, out);
    int rc = put_plot(r, PLOT_TTFT, "Time to first token", " s", out);
    if (rc == 0)
        rc = put_plot(r, PLOT_TPOT, "Time per output token", " ms", out);
    if (rc == 0)
        rc = put_plot(r, PLOT_E2E, "Arrival to end", " s", out);
    buf_put_str(out, "<h2>Requests at each worker</h2>\n<p>Darkest: ");
    uint32_t most = heaviest(r);
    buf_put_f64(out, (double)most / SIM_LOOKS, 1);
    buf_put_str(out, " requests.</p>\n");
    for (uint32_t i = 0; i < r->n; i++)
        put_map(&r->entries[i], most, out);
    buf_put_str(out, "</body></html>\n");
    return rc;
}
