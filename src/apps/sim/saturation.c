/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/sim/report.h"
#include "base/bug.h"
#include "des/draw.h"

#define ENOUGH    0.9
#define PRECISION 1.01
enum { DOUBLINGS_MAX = 10 };

int sim_saturation_find(
    sim_goodput_fn goodput, void *ctx, uint32_t policy, double start, struct sim_saturation *out)
{
    double scale = start;
    double g;

    *out = (struct sim_saturation){.good_scale = 0};
    for (int i = 0; i < DOUBLINGS_MAX; i++) {
        int rc = goodput(ctx, policy, scale, &g);
        if (rc)
            return rc;
        if (g >= ENOUGH) {
            out->good_scale = scale;
            out->good = g;
            scale *= 2;
        } else {
            out->bad_scale = scale;
            out->bad = g;
            scale /= 2;
        }
        if (out->good_scale > 0 && out->bad_scale > 0)
            break;
    }
    while (out->good_scale > 0 && out->bad_scale > out->good_scale * PRECISION) {
        scale = des_sqrt(out->good_scale * out->bad_scale);
        int rc = goodput(ctx, policy, scale, &g);
        if (rc)
            return rc;
        *(g >= ENOUGH ? &out->good_scale : &out->bad_scale) = scale;
        *(g >= ENOUGH ? &out->good : &out->bad) = g;
    }
    return 0;
}

/* Requests a second that the trace offers at this scale. */
static double rate(const struct sim_report *r, double scale)
{
    uint64_t span = r->trace->n > 1 ? r->trace->requests[r->trace->n - 1].at_ns : 0;

    return span ? r->trace->n * scale * 1e9 / (double)span : 0;
}

static void put_column(struct buf *out, double v, unsigned decimals)
{
    struct buf cell;

    buf_init(&cell, out->mem, 64);
    buf_put_f64(&cell, v, decimals);
    for (size_t n = buf_len(&cell); n < 14; n++)
        buf_put_char(out, ' ');
    buf_put_slice(out, buf_slice(&cell));
    buf_fini(&cell);
}

static void put_table(const struct sim_report *r, struct buf *out)
{
    static const char *const heads[] = {"good at x", "requests/s", "goodput",
                                        "bad at x",  "requests/s", "goodput"};

    buf_put_str(out, "policy                  ");
    for (size_t i = 0; i < ARRAY_LEN(heads); i++) {
        for (size_t n = strlen(heads[i]); n < 14; n++)
            buf_put_char(out, ' ');
        buf_put_str(out, heads[i]);
    }
    buf_put_char(out, '\n');
    for (uint32_t i = 0; i < r->n; i++) {
        const struct sim_saturation *s = &r->entries[i].saturation;
        struct slice name = r->entries[i].policy->name;
        buf_put_slice(out, name);
        for (size_t n = name.n; n < 24; n++)
            buf_put_char(out, ' ');
        put_column(out, s->good_scale, 4);
        put_column(out, rate(r, s->good_scale), 3);
        put_column(out, s->good, 4);
        put_column(out, s->bad_scale, 4);
        put_column(out, rate(r, s->bad_scale), 3);
        put_column(out, s->bad, 4);
        buf_put_char(out, '\n');
    }
}

static void put_number(struct buf *out, const char *name, double v)
{
    buf_put_str(out, ", \"");
    buf_put_str(out, name);
    buf_put_str(out, "\": ");
    buf_put_f64(out, v, 6);
}

void sim_report_saturation(const struct sim_report *r, struct buf *out)
{
    if (!r->command->json) {
        put_table(r, out);
        return;
    }
    buf_put_str(out, "{\"saturation\": [");
    for (uint32_t i = 0; i < r->n; i++) {
        const struct sim_saturation *s = &r->entries[i].saturation;
        buf_put_str(out, i ? ",\n {\"policy\": " : "\n {\"policy\": ");
        buf_put_json(out, r->entries[i].policy->name);
        put_number(out, "good_scale", s->good_scale);
        put_number(out, "good_requests_per_s", rate(r, s->good_scale));
        put_number(out, "good_goodput", s->good);
        put_number(out, "bad_scale", s->bad_scale);
        put_number(out, "bad_requests_per_s", rate(r, s->bad_scale));
        put_number(out, "bad_goodput", s->bad);
        buf_put_char(out, '}');
    }
    buf_put_str(out, "]}\n");
}
