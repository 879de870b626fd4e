/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/sim/options.h"

#include <stdio.h>

#include "base/bug.h"
#include "base/num.h"
#include "conf/error.h"
#include "loop/alloc.h"

static const char help[] =
    "usage: weir sim --trace FILE --fleet FILE [option ...]\n"
    "       weir sim --replay-decisions FILE [--policy A,B,...] [--config FILE] [--json]\n"
    "Replays a trace through Weir's scheduler onto emulated GPU servers, on a virtual clock; or "
    "decides again\n"
    "what a log of decisions holds.\n"
    "  --trace FILE         Mooncake JSONL, Azure or BurstGPT CSV, Weir's decision log as JSON "
    "lines,\n"
    "                       or a drawn workload (.yaml)\n"
    "  --fleet FILE         the servers, YAML; see examples/fleets\n"
    "  --policy A,B,...     compared one after the other (chain)\n"
    "  --config FILE        a gateway's configuration, whose policies may be named too\n"
    "  --replay-decisions FILE\n"
    "                       a decision log as JSON lines: how each policy would have decided, and "
    "what it\n"
    "                       would have cost\n"
    "  --rate-scale X       requests come X times as fast (1)\n"
    "  --jitter             spread them within the trace's time slots (Mooncake's are 3 s)\n"
    "  --closed N           N clients, each with one request at a time, instead of the trace's "
    "times\n"
    "  --open               by the trace's times (this is the default)\n"
    "  --from D --to D      only what comes in this part of the trace\n"
    "  --limit N            at most so many requests\n"
    "  --repeat N           the trace N times in a row (1)\n"
    "  --seed S             of the first run (1)\n"
    "  --seeds N            runs, each with another seed; means with 95 % intervals (1)\n"
    "  --slo-ttft D         target for the first token (5s); 0 = none\n"
    "  --slo-tpot D         target per token after the first (100ms); 0 = none\n"
    "  --slo                requests carry these targets: SLO mode\n"
    "  --report D           between two load reports of a server (500ms)\n"
    "  --stale D            how old a report is when it arrives (0)\n"
    "  --loss P             share of reports that are lost (0)\n"
    "  --noise P            standard deviation of reported numbers, of their value (0)\n"
    "  --queue N            places in Weir's queue (1024)\n"
    "  --queue-timeout D    longest wait there (60s)\n"
    "  --one-tenant         the queue does not tell tenants apart\n"
    "  --oracle             the scheduler is told the length of every answer: a bound, not a "
    "policy\n"
    "  --saturation         find the lowest rate at which less than 90 % of the requests meet the "
    "targets\n"
    "  --untimed            requests take no time; only what prefix caches would hold is counted\n"
    "  --json               the report as JSON\n"
    "  --html FILE          and as one page with plots\n"
    "  --timing             how long decisions and the run took, on standard error\n"
    "Same arguments and files, same report, to the byte.\n";

enum kind { FLAG, TEXT, COUNT, SEED, REAL, SHARE, DURATION };

struct option {
    const char *name;
    enum kind kind;
    size_t offset;
};

#define COMMAND(field) offsetof(struct sim_command, field)
#define RUN(field)     (offsetof(struct sim_command, run) + offsetof(struct sim_options, field))

static const struct option options[] = {
    {"--trace", TEXT, COMMAND(trace)},
    {"--fleet", TEXT, COMMAND(fleet)},
    {"--policy", TEXT, COMMAND(policies)},
    {"--html", TEXT, COMMAND(html)},
    {"--replay-decisions", TEXT, COMMAND(replay)},
    {"--config", TEXT, COMMAND(config)},
    {"--rate-scale", REAL, RUN(rate_scale)},
    {"--jitter", FLAG, RUN(jitter)},
    {"--closed", COUNT, RUN(closed)},
    {"--from", DURATION, COMMAND(from_ns)},
    {"--to", DURATION, COMMAND(to_ns)},
    {"--limit", COUNT, COMMAND(limit)},
    {"--repeat", COUNT, COMMAND(repeat)},
    {"--seed", SEED, RUN(seed)},
    {"--seeds", COUNT, COMMAND(seeds)},
    {"--slo-ttft", DURATION, COMMAND(targets) + offsetof(struct sim_targets, ttft_ns)},
    {"--slo-tpot", DURATION, COMMAND(targets) + offsetof(struct sim_targets, tpot_ns)},
    {"--slo", FLAG, COMMAND(slo)},
    {"--report", DURATION, RUN(report_ns)},
    {"--stale", DURATION, RUN(stale_ns)},
    {"--loss", SHARE, RUN(loss)},
    {"--noise", SHARE, RUN(noise)},
    {"--queue", COUNT, RUN(queue_size)},
    {"--queue-timeout", DURATION, RUN(queue_timeout_ns)},
    {"--one-tenant", FLAG, RUN(one_tenant)},
    {"--oracle", FLAG, RUN(oracle)},
    {"--saturation", FLAG, COMMAND(saturation)},
    {"--untimed", FLAG, COMMAND(untimed)},
    {"--json", FLAG, COMMAND(json)},
    {"--timing", FLAG, COMMAND(timing)},
};

static int bad(const char *name, const char *value, const char *wanted)
{
    (void)fprintf(stderr, "weir sim: %s: \"%s\" is not %s\n", name, value, wanted);
    return 2;
}

static int read_value(const struct option *o, const char *text, char *to)
{
    struct slice s = slice_str(text);
    uint64_t u;
    double d;

    switch (o->kind) {
    case FLAG:
        break;
    case TEXT:
        *(const char **)(void *)to = text;
        break;
    case COUNT:
        if (num_u64(s, &u) != 0 || u == 0 || u > 1000000000)
            return bad(o->name, text, "a whole number from 1 to 1000000000");
        *(uint32_t *)(void *)to = (uint32_t)u;
        break;
    case SEED:
        if (num_u64(s, (uint64_t *)(void *)to) != 0)
            return bad(o->name, text, "a whole number");
        break;
    case REAL:
        if (num_f64(s, &d) != 0 || !(d >= 1e-6) || d > 1e6)
            return bad(o->name, text, "a number from 0.000001 to 1000000");
        *(double *)(void *)to = d;
        break;
    case SHARE:
        if (num_f64(s, &d) != 0 || !(d >= 0) || d > 1)
            return bad(o->name, text, "a number from 0 to 1");
        *(double *)(void *)to = d;
        break;
    case DURATION:
        if (num_duration(s, (uint64_t *)(void *)to) != 0)
            return bad(o->name, text, "a duration such as 10ms or 5s");
        break;
    }
    return -1;
}

static int unknown(const char *flag)
{
    const char *known[ARRAY_LEN(options)];

    for (size_t i = 0; i < ARRAY_LEN(options); i++)
        known[i] = options[i].name;
    struct slice near = conf_nearest(slice_str(flag), known, ARRAY_LEN(options));
    (void)fprintf(stderr, "weir sim: unknown option \"%s\"", flag);
    if (near.p)
        (void)fprintf(stderr, "; did you mean %.*s?", SLICE_ARG(near));
    (void)fprintf(stderr, "\n");
    return 2;
}

/* "--name=value" too. @return the length of the name when `arg` is this option. */
static size_t is(const struct option *o, const char *arg)
{
    size_t n = strlen(o->name);

    return strncmp(arg, o->name, n) == 0 && (arg[n] == 0 || (arg[n] == '=' && o->kind != FLAG)) ? n
                                                                                                : 0;
}

static int read_options(int argc, char **argv, struct sim_command *c)
{
    for (int i = 1; i < argc; i++) {
        const struct option *o = options;
        size_t n = 0;
        if (strcmp(argv[i], "--help") == 0) {
            (void)fputs(help, stdout);
            return 0;
        }
        if (strcmp(argv[i], "--open") == 0) {
            c->run.closed = 0;
            continue;
        }
        while (o < options + ARRAY_LEN(options) && (n = is(o, argv[i])) == 0)
            o++;
        if (n == 0)
            return unknown(argv[i]);
        if (o->kind == FLAG) {
            *(bool *)((char *)c + o->offset) = true;
            continue;
        }
        const char *value = argv[i][n] == '=' ? argv[i] + n + 1 : NULL;
        if (!value && ++i == argc) {
            (void)fprintf(stderr, "weir sim: %s needs a value\n", o->name);
            return 2;
        }
        int rc = read_value(o, value ? value : argv[i], (char *)c + o->offset);
        if (rc >= 0)
            return rc;
    }
    return -1;
}

int sim_command_parse(int argc, char **argv, struct sim_command *c)
{
    *c = (struct sim_command){
        .policies = "chain",
        .to_ns = UINT64_MAX,
        .repeat = 1,
        .seeds = 1,
        .targets = {.ttft_ns = 5 * NS_PER_S, .tpot_ns = 100 * NS_PER_MS},
        .run = {.mem = loop_mem(),
                .seed = 1,
                .rate_scale = 1,
                .report_ns = 500 * NS_PER_MS,
                .queue_size = 1024,
                .queue_timeout_ns = 60 * NS_PER_S},
    };
    int rc = read_options(argc, argv, c);
    if (rc >= 0)
        return rc;
    if (c->replay && c->trace) {
        (void)fprintf(stderr,
                      "weir sim: --replay-decisions needs no --trace; to simulate what a log "
                      "holds, say --trace LOG\n");
        return 2;
    }
    if (!c->replay && (!c->trace || !c->fleet)) {
        (void)fprintf(stderr,
                      "weir sim: --trace and --fleet are needed, or --replay-decisions; see "
                      "weir sim --help\n");
        return 2;
    }
    if (c->slo) {
        c->run.slo_ttft_ns = c->targets.ttft_ns;
        c->run.slo_tpot_ns = c->targets.tpot_ns;
    }
    if (c->run.report_ns < NS_PER_MS)
        return bad("--report", "less", "1ms or more");
    if (c->run.stale_ns > 600 * NS_PER_S)
        return bad("--stale", "more", "10m or less");
    if (c->run.queue_timeout_ns == 0)
        return bad("--queue-timeout", "0", "above 0");
    if (c->seeds > SIM_SEEDS_MAX)
        return bad("--seeds", "more", "100 or less");
    return -1;
}
