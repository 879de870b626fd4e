/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/serve/flags.h"

#include "base/bug.h"
#include "base/num.h"

enum kind {
    FLAG_CONFIG,     /* the file */
    FLAG_HELP,       /* stop and explain */
    FLAG_REFERENCE,  /* the same, as a page */
    FLAG_VALUE,      /* text for the option */
    FLAG_SECONDS,    /* whole seconds for a duration */
    FLAG_URLS,       /* one value or more, each an endpoint */
    FLAG_NO_RETRIES, /* no value */
    FLAG_NO_BREAKER, /* no value */
};

struct flag {
    const char *name;
    const char *value; /* what help calls it; NULL: takes none */
    enum kind kind;
    const char *path; /* as struct conf_override */
    enum conf_part part;
    const char *doc;
};

static const struct flag flags[] = {
    {"--config", "FILE", FLAG_CONFIG, NULL, CONF_PART_WHOLE,
     "Read this configuration file; flags beat it."},
    {"--host", "ADDRESS", FLAG_VALUE, "listeners.address", CONF_PART_HOST,
     "Address that clients connect to (default 0.0.0.0)."},
    {"--port", "PORT", FLAG_VALUE, "listeners.address", CONF_PART_PORT,
     "Port that clients connect to; 0 takes any free one (default 30000)."},
    {"--admin-port", "PORT", FLAG_VALUE, "admin.address", CONF_PART_PORT,
     "Port of the admin API and the metrics (default 29000)."},
    {"--prometheus-port", "PORT", FLAG_VALUE, "admin.address", CONF_PART_PORT,
     "The same as --admin-port."},
    {"--registry-port", "PORT|off", FLAG_VALUE, "registry.address", CONF_PART_PORT,
     "Port of the embedded registry (default 8848)."},
    {"--threads", "N|auto", FLAG_VALUE, "threads", CONF_PART_WHOLE,
     "Event loops that serve clients (default one for each core)."},
    {"--worker-urls", "URL...", FLAG_URLS, "+discovery", CONF_PART_WHOLE,
     "Inference servers, as http://host:port."},
    {"--policy", "NAME", FLAG_VALUE, "routes.policy", CONF_PART_WHOLE,
     "Policy of every route (default queued_work); also least_load, consistent_hashing."},
    {"--zone", "ZONE", FLAG_VALUE, "locality.zone", CONF_PART_WHOLE,
     "Zone that this Weir is in: requests stay there while somebody fits and has room."},
    {"--cluster", "CLUSTER", FLAG_VALUE, "locality.cluster", CONF_PART_WHOLE,
     "The same for the cluster (Nacos), or Consul's datacenter."},
    {"--log-level", "LEVEL", FLAG_VALUE, "logging.level", CONF_PART_WHOLE,
     "debug, info, warn or error (default info)."},
    {"--health-check-interval-secs", "N", FLAG_SECONDS, "health.interval", CONF_PART_WHOLE,
     "Between two checks of one endpoint (default 5)."},
    {"--health-check-timeout-secs", "N", FLAG_SECONDS, "health.timeout", CONF_PART_WHOLE,
     "For one check (default 2)."},
    {"--health-failure-threshold", "N", FLAG_VALUE, "health.down_after", CONF_PART_WHOLE,
     "Failed checks in a row that take an endpoint out (default 3)."},
    {"--health-success-threshold", "N", FLAG_VALUE, "health.up_after", CONF_PART_WHOLE,
     "Passed checks in a row that bring it back (default 2)."},
    {"--health-check-endpoint", "PATH", FLAG_VALUE, "health.path", CONF_PART_WHOLE,
     "What a check asks for (default by the kind of engine)."},
    {"--queue-size", "N", FLAG_VALUE, "routes.queue.size", CONF_PART_WHOLE,
     "Most requests that wait for one model (default 1024)."},
    {"--queue-timeout-secs", "N", FLAG_SECONDS, "routes.queue.timeout", CONF_PART_WHOLE,
     "Longest wait in the queue (default 60)."},
    {"--retry-max-retries", "N", FLAG_VALUE, "routes.retry.connect_attempts", CONF_PART_WHOLE,
     "Other endpoints tried after one could not be connected (default 3)."},
    {"--cb-failure-threshold", "N", FLAG_VALUE, "breaker.consecutive", CONF_PART_WHOLE,
     "Failures in a row that open the breaker of an endpoint (default 5)."},
    {"--cb-success-threshold", "N", FLAG_VALUE, "breaker.successes", CONF_PART_WHOLE,
     "Good answers after the cooldown that close it (default 1)."},
    {"--cb-timeout-duration-secs", "N", FLAG_SECONDS, "breaker.cooldown", CONF_PART_WHOLE,
     "Time without traffic after it opened, the first time (default 5)."},
    {"--cb-window-duration-secs", "N", FLAG_SECONDS, "breaker.window", CONF_PART_WHOLE,
     "Length of the window in which the share of failures counts (default 10)."},
    {"--disable-circuit-breaker", NULL, FLAG_NO_BREAKER, "breaker.enabled", CONF_PART_WHOLE,
     "Keep no traffic from endpoints that fail it."},
    {"--disable-retries", NULL, FLAG_NO_RETRIES, NULL, CONF_PART_WHOLE, "Try nothing twice."},
    {"--help", NULL, FLAG_HELP, NULL, CONF_PART_WHOLE, "Print this."},
    {"--reference", NULL, FLAG_REFERENCE, NULL, CONF_PART_WHOLE, "Print docs/cli.md."},
};

/* Flags of the family that would not do here what they do there: better refused by name than taken and ignored. */
static const struct {
    const char *name, *why;
} refused[] = {
    {"--max-concurrent-requests",
     "limits are set for each endpoint: max_concurrency in the configuration"},
    {"--cache-threshold", "cache_aware has the published thresholds, which cannot be changed yet"},
    {"--balance-abs-threshold",
     "cache_aware has the published thresholds, which cannot be changed yet"},
    {"--balance-rel-threshold",
     "cache_aware has the published thresholds, which cannot be changed yet"},
    {"--eviction-interval",
     "cache_aware has the published thresholds, which cannot be changed yet"},
    {"--max-tree-size", "cache_aware has the published thresholds, which cannot be changed yet"},
    {"--block-size", "cache_aware has the published thresholds, which cannot be changed yet"},
    {"--retry-initial-backoff-ms", "a retry goes to another endpoint at once, without backoff"},
    {"--retry-max-backoff-ms", "a retry goes to another endpoint at once, without backoff"},
    {"--retry-backoff-multiplier", "a retry goes to another endpoint at once, without backoff"},
    {"--retry-jitter-factor", "a retry goes to another endpoint at once, without backoff"},
    {"--prefill", "separate prefill and decode come in a later version"},
    {"--decode", "separate prefill and decode come in a later version"},
    {"--pd-disaggregation", "separate prefill and decode come in a later version"},
    {"--service-discovery",
     "write discovery: [{type: kubernetes, services: [NAME]}] in the configuration"},
    {"--selector", "write discovery: [{type: kubernetes, selector: LABELS}] in the configuration"},
    {"--api-key", "keys of clients come in a later version; a worker's key passes through"},
};

struct parser {
    struct serve_flags *out;
    struct conf_errors *errors;
    char **argv;
    int argc;
    int at; /* next argument */
    uint32_t cap;
};

static void fail(struct parser *p, const char *flag, struct slice a, struct slice b, struct slice c)
{
    struct conf_place at = {.file = slice_str(flag)};
    struct slice parts[] = {a, b, c};

    conf_error_add(p->errors, &at, parts, ARRAY_LEN(parts));
}

static const struct slice nothing = {"", 0};

static void fail_unknown(struct parser *p, struct slice name)
{
    const char *known[ARRAY_LEN(flags)];

    for (size_t i = 0; i < ARRAY_LEN(refused); i++)
        if (slice_eq(name, slice_str(refused[i].name))) {
            fail(p, refused[i].name, SLICE("not supported: "), slice_str(refused[i].why), nothing);
            return;
        }
    for (size_t i = 0; i < ARRAY_LEN(flags); i++)
        known[i] = flags[i].name;
    struct conf_place at = {.file = {NULL, 0}};
    struct slice near = conf_nearest(name, known, ARRAY_LEN(known));
    struct slice parts[] = {SLICE("unknown flag "), name,
                            near.p ? SLICE("; did you mean ") : SLICE("; see weir serve --help"),
                            near, near.p ? SLICE("?") : nothing};
    conf_error_add(p->errors, &at, parts, ARRAY_LEN(parts));
}

static void
put(struct parser *p, const char *origin, const char *path, enum conf_part part, struct slice text)
{
    BUG_ON(p->out->n_overrides ==
           p->cap); /* an argument makes at most three, see serve_flags_parse() */
    p->out->overrides[p->out->n_overrides++] =
        (struct conf_override){.origin = origin, .path = path, .part = part, .text = text};
}

static bool is_flag(const char *s)
{
    return s[0] == '-' && s[1] == '-';
}

static int put_seconds(struct parser *p, const struct flag *f, struct slice value)
{
    uint64_t seconds;
    char *text;

    if (num_u64(value, &seconds)) {
        fail(p, f->name, SLICE("\""), value, SLICE("\" is not a whole number of seconds"));
        return 0;
    }
    text = arena_alloc(&p->out->arena, value.n + 1);
    if (!text)
        return WEIR_E_NOMEM;
    memcpy(text, value.p, value.n);
    text[value.n] = 's';
    put(p, f->name, f->path, f->part, slice_of(text, value.n + 1));
    return 0;
}

/* @param value what stood behind "=", absent when nothing did. */
static void put_urls(struct parser *p, const struct flag *f, struct slice value)
{
    if (value.p) {
        put(p, f->name, f->path, f->part, value);
        return;
    }
    if (p->at == p->argc || is_flag(p->argv[p->at]))
        fail(p, f->name, SLICE("needs at least one URL"), nothing, nothing);
    while (p->at < p->argc && !is_flag(p->argv[p->at]))
        put(p, f->name, f->path, f->part, slice_str(p->argv[p->at++]));
}

static int take(struct parser *p, const struct flag *f, struct slice value)
{
    if (f->value && f->kind != FLAG_URLS && !value.p) {
        if (p->at == p->argc || is_flag(p->argv[p->at])) {
            fail(p, f->name, SLICE("needs a value: "), slice_str(f->value), nothing);
            return 0;
        }
        value = slice_str(p->argv[p->at++]);
    }
    if (f->value && value.p && value.n == 0) {
        fail(p, f->name, SLICE("the value is empty; give "), slice_str(f->value), nothing);
        return 0;
    }
    if (!f->value && value.p) {
        fail(p, f->name, SLICE("takes no value"), nothing, nothing);
        return 0;
    }
    switch (f->kind) {
    case FLAG_CONFIG:
        p->out->config = value.p; /* the end of an argument, so terminated */
        return 0;
    case FLAG_HELP:
        p->out->help = true;
        return 0;
    case FLAG_REFERENCE:
        p->out->reference = true;
        return 0;
    case FLAG_VALUE:
        put(p, f->name, f->path, f->part, value);
        return 0;
    case FLAG_SECONDS:
        return put_seconds(p, f, value);
    case FLAG_URLS:
        put_urls(p, f, value);
        return 0;
    case FLAG_NO_RETRIES:
        put(p, f->name, "routes.retry.connect_attempts", CONF_PART_WHOLE, SLICE("0"));
        put(p, f->name, "routes.retry.budget_percent", CONF_PART_WHOLE, SLICE("0"));
        put(p, f->name, "routes.retry.budget_min_per_s", CONF_PART_WHOLE, SLICE("0"));
        return 0;
    case FLAG_NO_BREAKER:
        put(p, f->name, f->path, f->part, SLICE("false"));
        return 0;
    }
    return 0;
}

static int one_argument(struct parser *p)
{
    struct slice argument = slice_str(p->argv[p->at++]);

    if (slice_eq(argument, SLICE("-h")))
        argument = SLICE("--help");
    if (argument.n < 2 || !is_flag(argument.p)) {
        struct conf_place at = {.file = {NULL, 0}};
        struct slice parts[] = {SLICE("unexpected argument \""), argument,
                                SLICE("\"; see weir serve --help")};
        conf_error_add(p->errors, &at, parts, ARRAY_LEN(parts));
        return 0;
    }
    size_t equals = slice_find(argument, '=');
    struct slice name = slice_of(argument.p, equals);
    struct slice value =
        equals < argument.n ? slice_from(argument, equals + 1) : (struct slice){NULL, 0};
    for (size_t i = 0; i < ARRAY_LEN(flags); i++)
        if (slice_eq(name, slice_str(flags[i].name)))
            return take(p, &flags[i], value);
    fail_unknown(p, name);
    /* Its value, if it has one, is not one more mistake. */
    if (!value.p)
        while (p->at < p->argc && !is_flag(p->argv[p->at]))
            p->at++;
    return 0;
}

int serve_flags_parse(const struct mem *mem,
                      int argc,
                      char **argv,
                      struct serve_flags *out,
                      struct conf_errors *errors)
{
    enum { FLAGS_MEMORY_MAX = 16 << 20 };
    struct parser p = {.out = out, .errors = errors, .argv = argv, .argc = argc, .at = 1};
    uint32_t before = errors->total;
    int rc = 0;

    *out = (struct serve_flags){.config = NULL};
    arena_init(&out->arena, mem, FLAGS_MEMORY_MAX);
    /* --disable-retries makes three of one argument. */
    p.cap = argc > 1 ? (uint32_t)(argc - 1) * 3 : 0;
    out->overrides = arena_array(&out->arena, p.cap, sizeof(*out->overrides));
    if (!out->overrides)
        return WEIR_E_NOMEM;
    while (rc == 0 && p.at < argc)
        rc = one_argument(&p);
    if (rc == 0 && errors->total > before)
        rc = WEIR_E_INVALID;
    return rc;
}

void serve_flags_fini(struct serve_flags *f)
{
    if (f->arena.mem)
        arena_fini(&f->arena);
    *f = (struct serve_flags){.config = NULL};
}

int serve_flags_help(struct buf *out)
{
    enum { COLUMN = 36 };

    buf_put_str(out, "usage: weir serve [--config FILE] [flags]\n"
                     "\n"
                     "Starts the gateway with its embedded registry and admin API. --flag VALUE "
                     "and --flag=VALUE are the same.\n"
                     "\n");
    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        const struct flag *f = &flags[i];
        size_t n = strlen(f->name) + 2 + (f->value ? strlen(f->value) + 1 : 0);
        buf_put_str(out, "  ");
        buf_put_str(out, f->name);
        if (f->value) {
            buf_put_char(out, ' ');
            buf_put_str(out, f->value);
        }
        for (; n < COLUMN; n++)
            buf_put_char(out, ' ');
        buf_put_char(out, ' ');
        buf_put_str(out, f->doc);
        buf_put_char(out, '\n');
    }
    return out->err;
}

int serve_flags_reference(struct buf *out)
{
    buf_put_str(out, "# Command line of `weir serve`\n"
                     "\n"
                     "<!-- Written by `weir serve --reference` from the table in "
                     "src/apps/serve/flags.c; do not edit. -->\n"
                     "\n"
                     "`--flag VALUE` and `--flag=VALUE` are the same; of a flag given twice the "
                     "last one counts. Flags beat the\n"
                     "configuration file ([config.md](config.md)) and have the same ranges. An "
                     "unknown flag is an error.\n"
                     "\n"
                     "| flag | sets | meaning |\n"
                     "|---|---|---|\n");
    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        const struct flag *f = &flags[i];
        buf_put_str(out, "| `");
        buf_put_str(out, f->name);
        if (f->value) {
            buf_put_char(out, ' ');
            for (const char *c = f->value; *c; c++)
                buf_put_str(out, *c == '|' ? "\\|" : (const char[]){*c, '\0'});
        }
        buf_put_str(out, "` | ");
        if (f->kind == FLAG_URLS) {
            buf_put_str(out, "one more static source in `discovery`");
        } else if (f->path) {
            buf_put_char(out, '`');
            buf_put_str(out, f->path);
            buf_put_char(out, '`');
        } else if (f->kind == FLAG_NO_RETRIES) {
            buf_put_str(out, "`routes.retry`");
        }
        buf_put_str(out, " | ");
        buf_put_str(out, f->doc);
        buf_put_str(out, " |\n");
    }
    buf_put_str(out, "\n"
                     "Flags of the SGLang and vLLM routers that are refused, because here they "
                     "would not do what they do there:\n"
                     "\n"
                     "| flag | why |\n"
                     "|---|---|\n");
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        buf_put_str(out, "| `");
        buf_put_str(out, refused[i].name);
        buf_put_str(out, "` | ");
        buf_put_str(out, refused[i].why);
        buf_put_str(out, " |\n");
    }
    return out->err;
}
