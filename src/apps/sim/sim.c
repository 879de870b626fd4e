/* SPDX-License-Identifier: Apache-2.0 */
/* `weir sim`: files in, runs, report out. */
#include "apps/sim/sim.h"

#include <stdio.h>
#include <unistd.h>

#include "apps/sim/options.h"
#include "apps/sim/replay.h"
#include "apps/sim/report.h"
#include "apps/sim/saturation.h"
#include "apps/sim/workload.h"
#include "base/bug.h"
#include "base/num.h"
#include "confio/confio.h"
#include "confio/file.h"
#include "loop/alloc.h"
#include "loop/loop.h"
#include "sched/pick.h"

enum { REPORT_MAX = 256 << 20 };
#define TRACE_MAX ((size_t)2 << 30)

struct sim {
    struct sim_command command;
    bool drawn; /* the trace is a workload, drawn anew for each seed */
    struct sim_workload workload;
    struct sim_trace trace;
    struct sim_fleet fleet;
    struct policy policies[SIM_POLICIES_MAX];
    struct sim_entry entries[SIM_POLICIES_MAX];
    uint32_t n;
    uint32_t run;        /* of all, for the bar */
    struct conf *config; /* or NULL */
    struct conf_errors errors;
};

/* ------------------------------------------------------------------------------------------------ files */

static int say_errors(const struct conf_errors *e)
{
    for (uint32_t i = 0; i < e->n; i++)
        (void)fprintf(stderr, "weir sim: %s\n", e->list[i].text);
    return 2;
}

static int say(const char *what, int rc)
{
    (void)fprintf(stderr, "weir sim: %s: %s\n", what, err_text(rc));
    return 1;
}

static int read_text(struct sim *s, struct slice text)
{
    enum sim_format format;
    uint64_t line = 0;
    struct slice absent = {NULL, 0};
    uint64_t root = model_prefix_root(slice_str(s->fleet.model), absent, absent, absent);
    int rc = sim_format_of(text, &format);

    if (rc) {
        (void)fprintf(
            stderr,
            "weir sim: %s: neither Mooncake JSON lines, nor CSV of Azure or BurstGPT, nor "
            "a decision log\n",
            s->command.trace);
        return 2;
    }
    rc = sim_trace_read(&s->trace, format, root, text, &line);
    if (rc == WEIR_E_PROTO) {
        (void)fprintf(stderr, "weir sim: %s:%llu: not a line of this format\n", s->command.trace,
                      (unsigned long long)line);
        return 2;
    }
    return rc ? say(s->command.trace, rc) : -1;
}

static int read_file(struct sim *s)
{
    struct conf_place at = {.file = slice_str(s->command.trace)};
    struct buf text;

    buf_init(&text, loop_mem(), TRACE_MAX);
    int rc = confio_read_file(s->command.trace, &text, &at, &s->errors);
    if (rc == WEIR_E_IO)
        rc = say_errors(&s->errors);
    else
        rc = rc ? say(s->command.trace, rc) : read_text(s, buf_slice(&text));
    buf_fini(&text);
    return rc;
}

/* The part of the trace that is asked for; a workload is drawn with this seed. @return 0 or WEIR_E_*. */
static int cut_trace(struct sim *s, uint64_t seed)
{
    int rc = s->drawn ? sim_workload_draw(&s->workload, seed, &s->trace) : 0;

    if (rc)
        return rc;
    sim_trace_cut(&s->trace, s->command.from_ns, s->command.to_ns, s->command.limit);
    return sim_trace_repeat(&s->trace, s->command.repeat);
}

static int load_trace(struct sim *s)
{
    struct slice name = slice_str(s->command.trace);
    int rc = -1;

    sim_trace_init(&s->trace, loop_mem());
    s->drawn = slice_ends(name, SLICE(".yaml")) || slice_ends(name, SLICE(".yml"));
    if (s->drawn)
        rc = sim_workload_load(&s->workload, loop_mem(), s->command.trace, &s->errors);
    else
        rc = read_file(s);
    if (s->drawn && rc)
        return rc == WEIR_E_NOMEM ? say(s->command.trace, rc) : say_errors(&s->errors);
    if (rc >= 0 && !s->drawn)
        return rc;
    rc = cut_trace(s, s->command.run.seed);
    if (rc)
        return say(s->command.trace, rc);
    if (s->trace.n == 0) {
        (void)fprintf(stderr, "weir sim: %s: no request is left\n", s->command.trace);
        return 2;
    }
    return -1;
}

/* A built-in policy, or one of the configuration. */
static bool policy_named(const struct sim *s, struct slice name, struct policy *out)
{
    for (uint32_t i = 0; s->config && i < s->config->n_policies; i++)
        if (slice_eq(s->config->policies[i].name, name)) {
            *out = s->config->policies[i];
            return true;
        }
    return sched_policy_named(name, out) == 0;
}

static int read_config(struct sim *s)
{
    const struct confio_options o = {.mem = loop_mem()};

    if (!s->command.config)
        return -1;
    int rc = confio_load(&o, s->command.config, &s->config, &s->errors);
    if (rc == WEIR_E_NOMEM)
        return say(s->command.config, rc);
    return rc ? say_errors(&s->errors) : -1;
}

static int read_policies(struct sim *s)
{
    struct slice rest = slice_str(s->command.policies);
    struct slice name;
    const char *known[64];
    uint32_t n_known = 0;

    int rc = read_config(s);
    if (rc >= 0)
        return rc;
    while (n_known < ARRAY_LEN(known) && (known[n_known] = sched_policy_name(n_known)) != NULL)
        n_known++;
    while (slice_cut(&rest, ',', &name)) {
        if (s->n == SIM_POLICIES_MAX || !policy_named(s, slice_trim(name), &s->policies[s->n])) {
            struct slice near = conf_nearest(name, known, n_known);
            (void)fprintf(stderr, "weir sim: --policy: \"%.*s\" is no built-in policy%s",
                          SLICE_ARG(name), s->config ? ", and none of --config" : "");
            if (near.p)
                (void)fprintf(stderr, "; did you mean %.*s?", SLICE_ARG(near));
            (void)fprintf(stderr, "\n");
            return 2;
        }
        s->entries[s->n].policy = &s->policies[s->n];
        s->n++;
    }
    return -1;
}

/* ------------------------------------------------------------------------------------------------- runs */

static void draw_bar(void *ctx, uint32_t done, uint32_t total)
{
    static const char full[] = "########################################";
    const struct sim *s = ctx;
    uint32_t runs = s->n * s->command.seeds;
    double share = (s->run + (double)done / total) / runs;
    int n = (int)(share * 40);

    (void)fprintf(stderr, "\r[%-40.*s] %3d %%", n, full, (int)(share * 100));
}

static void clear_bar(void)
{
    (void)fprintf(stderr, "\r%50s\r", "");
}

static void say_timing(const struct policy *p, const struct sim_result *r, uint64_t took_ns)
{
    const uint32_t *d = r->decision_ns;
    double took = (double)took_ns / 1e9;

    (void)fprintf(stderr, "%.*s: %.3f s for %.1f virtual seconds, %.0f x real time, %llu events",
                  SLICE_ARG(p->name), took, (double)r->end_ns / 1e9,
                  (double)r->end_ns / (double)MAX(took_ns, 1), (unsigned long long)r->events);
    if (r->n_decisions)
        (void)fprintf(stderr, "; a decision p50 %.2f us, p99 %.2f us",
                      (double)d[r->n_decisions / 2] / 1e3,
                      (double)d[(uint64_t)r->n_decisions * 99 / 100] / 1e3);
    (void)fprintf(stderr, "\n");
}

/* One run. @param out its result, owned by the caller. */
static int simulate(
    struct sim *s, const struct policy *policy, uint64_t seed, double scale, struct sim_result *out)
{
    struct sim_options o = s->command.run;

    if (s->drawn) {
        int rc = cut_trace(s, seed);
        if (rc)
            return rc;
    }
    o.trace = &s->trace;
    o.fleet = &s->fleet;
    o.policy = policy;
    o.seed = seed;
    o.rate_scale = scale;
    if (s->command.timing)
        o.clock = loop_clock;
    if (isatty(STDERR_FILENO)) {
        o.progress = draw_bar;
        o.ctx = s;
    }
    uint64_t began = loop_clock();
    int rc = s->command.untimed ? sim_run_untimed(&o, out) : sim_run(&o, out);
    uint64_t took = loop_clock() - began;
    if (o.progress)
        clear_bar();
    if (rc == 0 && s->command.timing)
        say_timing(policy, out, took);
    return rc;
}

static int run_one(struct sim *s, struct sim_entry *e, uint32_t seed)
{
    struct sim_result r;
    int rc = simulate(s, e->policy, s->command.run.seed + seed, s->command.run.rate_scale, &r);

    if (rc)
        return rc;
    rc = sim_summarise(&r, &s->trace, &s->command.targets, &e->summaries[seed]);
    if (rc || seed > 0)
        sim_result_fini(&r);
    else
        e->first = r;
    s->run++;
    return rc;
}

static int run_all(struct sim *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        s->entries[i].summaries =
            mem_array(loop_mem(), s->command.seeds, sizeof(struct sim_summary));
        if (!s->entries[i].summaries)
            return WEIR_E_NOMEM;
        for (uint32_t seed = 0; seed < s->command.seeds; seed++) {
            int rc = run_one(s, &s->entries[i], seed);
            if (rc)
                return rc;
        }
    }
    /* What is listed and drawn is of the first seed. */
    return s->drawn ? cut_trace(s, s->command.run.seed) : 0;
}

/* Mean goodput over the seeds, for the search. */
static int goodput(void *ctx, uint32_t policy, double scale, double *out)
{
    struct sim *s = ctx;

    *out = 0;
    for (uint32_t seed = 0; seed < s->command.seeds; seed++) {
        struct sim_result r;
        struct sim_summary sum;
        int rc = simulate(s, &s->policies[policy], s->command.run.seed + seed, scale, &r);
        if (rc)
            return rc;
        rc = sim_summarise(&r, &s->trace, &s->command.targets, &sum);
        sim_result_fini(&r);
        if (rc)
            return rc;
        *out += sum.m[SIM_M_goodput] / s->command.seeds;
    }
    return 0;
}

static int saturate(struct sim *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        int rc = sim_saturation_find(goodput, s, i, s->command.run.rate_scale,
                                     &s->entries[i].saturation);
        if (rc)
            return rc;
    }
    return 0;
}

static int write_page(const struct sim_report *report, const char *path)
{
    struct buf out;

    buf_init(&out, loop_mem(), REPORT_MAX);
    int rc = sim_report_html(report, &out);
    if (rc == 0)
        rc = out.err;
    FILE *f = rc ? NULL : fopen(path, "we");
    if (rc == 0 && !f)
        rc = WEIR_E_IO;
    struct slice text = buf_slice(&out);
    if (f && fwrite(text.p, 1, text.n, f) != text.n)
        rc = WEIR_E_IO;
    if (f && fclose(f))
        rc = WEIR_E_IO;
    buf_fini(&out);
    return rc ? say(path, rc) : 0;
}

static int print(struct sim *s)
{
    const struct sim_report report = {.command = &s->command,
                                      .trace = &s->trace,
                                      .fleet = &s->fleet,
                                      .entries = s->entries,
                                      .n = s->n};
    struct buf out;
    int rc = 0;

    buf_init(&out, loop_mem(), REPORT_MAX);
    if (s->command.saturation)
        sim_report_saturation(&report, &out);
    else if (s->command.json)
        sim_report_json(&report, &out);
    else
        sim_report_table(&report, &out);
    struct slice text = buf_slice(&out);
    if (out.err)
        rc = say("report", out.err);
    else if (fwrite(text.p, 1, text.n, stdout) != text.n || fflush(stdout))
        rc = say("report", WEIR_E_IO);
    buf_fini(&out);
    if (rc == 0 && s->command.html && !s->command.saturation)
        rc = write_page(&report, s->command.html);
    return rc;
}

/* @return the exit status. */
static int run(struct sim *s)
{
    if (s->command.replay) {
        int bad = read_policies(s);
        return bad >= 0 ? bad : sim_replay(s->command.replay, s->policies, s->n, s->command.json);
    }
    int rc = sim_fleet_load(&s->fleet, loop_mem(), s->command.fleet, &s->errors);

    if (rc == WEIR_E_NOMEM)
        return say(s->command.fleet, rc);
    if (rc)
        return say_errors(&s->errors);
    rc = load_trace(s);
    if (rc < 0)
        rc = read_policies(s);
    if (rc >= 0)
        return rc;
    rc = s->command.saturation ? saturate(s) : run_all(s);
    return rc ? say("run", rc) : print(s);
}

int sim_main(int argc, char **argv)
{
    struct sim *s = mem_zalloc(loop_mem(), sizeof(*s));

    if (!s)
        return 1;
    int rc = sim_command_parse(argc, argv, &s->command);
    if (rc < 0)
        rc = run(s);
    for (uint32_t i = 0; i < s->n; i++) {
        mem_free(loop_mem(), s->entries[i].summaries);
        sim_result_fini(&s->entries[i].first);
    }
    sim_trace_fini(&s->trace);
    conf_free(s->config);
    mem_free(loop_mem(), s);
    return rc;
}
