/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data plane alone, for black-box tests of it: a fleet from the command line, data loops in threads, a control
 * loop that also reads commands from stdin. Prints "ready data=HOST:PORT" and one line of JSON per "stats".
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/num.h"
#include "fleet/cell.h"
#include "fleet/fleet.h"
#include "loop/alloc.h"
#include "loop/log.h"
#include "proxy/proxy.h"
#include "proxy/stats.h"
#include "sched/pick.h"

enum { LOOPS_MAX = 8, ALIASES_MAX = 8 };
/* The limit of what a test does not set: it is not about it, and no machine is too slow for it. */
#define PATIENCE (600 * NS_PER_S)

struct app {
    struct loop *control;
    struct loop *loops[LOOPS_MAX];
    unsigned n_loops;
    pthread_t threads[LOOPS_MAX];
    struct fleet *fleet;
    struct proxy *proxy;
    struct route route;
    struct policy policy;
    struct routing routing;
    struct model_config models[ALIASES_MAX];
    struct slice aliases[ALIASES_MAX];
    struct loop_watch input;
    char line[4096];
    size_t line_n;
    bool draining;
};

static struct app app;

static void die(const char *what)
{
    fprintf(stderr, "proxy_only: %s\n", what);
    exit(2);
}

static uint64_t number(const char *text)
{
    uint64_t v;

    if (num_u64(slice_str(text), &v) != 0)
        die(text);
    return v;
}

static void publish(void)
{
    const struct snapshot *s;

    if (fleet_build(app.fleet, loop_clock(), &s) != 0)
        die("fleet_build");
    proxy_publish(app.proxy, s);
    fleet_reclaim(app.fleet, proxy_snapshot_in_use, app.proxy);
}

/* host:port,model=m,limit=n,memory=GB,free=GB */
static void add(char *spec)
{
    struct slice rest = slice_str(spec);
    struct slice piece;
    struct slice free_gb = {NULL, 0};
    struct model_ref models[8];
    struct kv metadata[1];
    struct device device = {0};
    struct instance i = {
        .weight = WEIGHT_ONE, .enabled = true, .healthy = true, .vouched = true, .models = models};

    if (!slice_cut(&rest, ',', &piece))
        die("empty upstream");
    size_t colon = slice_find(piece, ':');
    uint64_t port = 0;
    i.key = piece;
    i.host = slice_of(piece.p, colon);
    if (num_u64(slice_from(piece, colon + 1), &port) != 0)
        die("bad port");
    i.port = (uint16_t)port;
    while (slice_cut(&rest, ',', &piece)) {
        size_t at = slice_find(piece, '=');
        struct slice key = slice_of(piece.p, at);
        struct slice value = slice_from(piece, at + 1);
        uint64_t n = 0;
        if (slice_eq(key, SLICE("model")) && i.n_models < 8) {
            models[i.n_models++] = (struct model_ref){.id = value};
        } else if (slice_eq(key, SLICE("limit")) && num_u64(value, &n) == 0) {
            i.max_concurrency = (uint32_t)n;
        } else if (slice_eq(key, SLICE("memory")) && num_u64(value, &n) == 0) {
            device.memory_total_bytes = n * GIB;
            i.devices = &device;
            i.n_devices = 1;
        } else if (slice_eq(key, SLICE("free"))) {
            free_gb = value;
        } else {
            die("bad upstream");
        }
    }
    if (free_gb.p) {
        metadata[0] = (struct kv){SLICE("remaining_memory"), free_gb};
        i.metadata = metadata;
        i.n_metadata = 1;
    }
    if (fleet_upsert(app.fleet, 0, &i, loop_clock()) != 0)
        die("fleet_upsert");
}

static void print_stats(void)
{
    struct proxy_stats s;
    const struct snapshot *snap;
    uint64_t inflight = 0;

    if (proxy_stats_read(app.proxy, loop_mem(), &s) != 0 ||
        fleet_build(app.fleet, loop_clock(), &snap) != 0)
        die("stats");
    printf("{\"outcomes\":{");
    for (unsigned o = 0; o < OUTCOME_COUNT; o++) {
        uint64_t n = 0;
        for (uint32_t i = 0; i < s.n_series; i++)
            n += s.series[i].requests[o];
        printf("%s\"%s\":%llu", o ? "," : "", proxy_outcome_names[o], (unsigned long long)n);
    }
    printf("},\"retries\":{");
    for (unsigned o = 0; o < RETRY_COUNT; o++)
        printf("%s\"%s\":%llu", o ? "," : "", proxy_retry_names[o],
               (unsigned long long)s.retries[o]);
    uint64_t waiting = 0;
    for (uint32_t i = 0; i < s.n_series; i++)
        waiting += s.series[i].waiting;
    printf("},\"inflight\":{");
    for (uint32_t i = 0; i < snap->n_members; i++) {
        unsigned n = atomic_load(&snap->members[i].cell->inflight);
        printf("%s\"%.*s\":%u", i ? "," : "", SLICE_ARG(snap->members[i].endpoint->id), n);
        inflight += n;
    }
    printf("},\"total_inflight\":%llu,\"waiting\":%llu,\"active\":%llu,\"connections\":%llu,"
           "\"series\":%u,"
           "\"buffered\":%llu,\"upstream_connections\":%llu}\n",
           (unsigned long long)inflight, (unsigned long long)waiting, (unsigned long long)s.active,
           (unsigned long long)s.connections, s.n_series, (unsigned long long)s.buffered_bytes,
           (unsigned long long)s.upstream_connections);
    fflush(stdout);
    proxy_stats_fini(&s, loop_mem());
}

static void finish(void *ctx)
{
    (void)ctx;
    loop_stop(app.control);
}

static void drain(uint64_t after_ms)
{
    if (app.draining)
        return;
    app.draining = true;
    proxy_drain(app.proxy, loop_clock() + after_ms * NS_PER_MS, finish, NULL);
}

static void command(char *line)
{
    if (strcmp(line, "stats") == 0) {
        print_stats();
    } else if (strncmp(line, "drain ", 6) == 0) {
        drain(number(line + 6));
        printf("draining\n");
        fflush(stdout);
    } else if (strncmp(line, "add ", 4) == 0) {
        add(line + 4);
        publish();
        printf("added\n");
        fflush(stdout);
    } else if (strncmp(line, "remove ", 7) == 0) {
        fleet_remove(app.fleet, 0, slice_str(line + 7), loop_clock());
        publish();
        printf("removed\n");
        fflush(stdout);
    } else {
        die(line);
    }
}

static void on_input(struct loop_watch *w, uint32_t events)
{
    ssize_t n = read(w->fd, app.line + app.line_n, sizeof(app.line) - app.line_n - 1);

    (void)events;
    if (n <= 0) {
        loop_unwatch(w);
        drain(0);
        return;
    }
    app.line_n += (size_t)n;
    for (char *end; (end = memchr(app.line, '\n', app.line_n)) != NULL;) {
        *end++ = '\0';
        command(app.line);
        app.line_n -= (size_t)(end - app.line);
        memmove(app.line, end, app.line_n);
    }
}

static void *run(void *loop)
{
    loop_run(loop);
    return NULL;
}

static void defaults(void)
{
    app.n_loops = 2;
    app.route = (struct route){
        .path = SLICE("/v1/**"),
        .policy = &app.policy,
        .timeouts = {.connect_ns = PATIENCE,
                     .first_byte_ns = PATIENCE,
                     .between_bytes_ns = PATIENCE},
        .retry = {.connect_attempts = 3, .budget_percent = 20, .budget_min_per_s = 3},
        .queue = {.size = 1024, .timeout_ns = PATIENCE, .age_ns = 10 * NS_PER_S},
    };
    app.routing = (struct routing){
        .routes = &app.route,
        .n_routes = 1,
        .models = app.models,
        .limits = {.body_bytes = 512 << 20,
                   .peek_bytes = 16 << 20,
                   .header_bytes = 65536,
                   .headers = 100,
                   .connections = 8192,
                   .buffer_bytes = GIB,
                   .idle_ns = PATIENCE,
                   .header_read_ns = PATIENCE,
                   .body_read_ns = PATIENCE},
    };
}

static int access_fd = -1;

/* A policy that needs nothing of the body but the model. */
static void blind(void)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < app.policy.n_filters; i++)
        if (!sched_filters[app.policy.filters[i]].reads_body)
            app.policy.filters[n++] = app.policy.filters[i];
    app.policy.n_filters = n;
}

static void option(const char *name, char *value)
{
    struct limits *l = &app.routing.limits;

    if (strcmp(name, "--policy") == 0) {
        if (sched_policy_named(slice_str(value), &app.policy) != 0)
            die("unknown policy");
    } else if (strcmp(name, "--loops") == 0) {
        app.n_loops = (unsigned)number(value);
        if (app.n_loops < 1 || app.n_loops > LOOPS_MAX)
            die("loops");
    } else if (strcmp(name, "--blind") == 0) {
        blind();
    } else if (strcmp(name, "--queue") == 0) {
        app.route.queue.size = (uint32_t)number(value);
    } else if (strcmp(name, "--queue-ms") == 0) {
        app.route.queue.timeout_ns = number(value) * NS_PER_MS;
    } else if (strcmp(name, "--first-byte-ms") == 0) {
        app.route.timeouts.first_byte_ns = number(value) * NS_PER_MS;
    } else if (strcmp(name, "--connect-ms") == 0) {
        app.route.timeouts.connect_ns = number(value) * NS_PER_MS;
    } else if (strcmp(name, "--header-ms") == 0) {
        l->header_read_ns = number(value) * NS_PER_MS;
    } else if (strcmp(name, "--body-ms") == 0) {
        l->body_read_ns = number(value) * NS_PER_MS;
    } else if (strcmp(name, "--body-rate") == 0) {
        l->body_rate = number(value);
    } else if (strcmp(name, "--stream-ms") == 0) {
        l->stream_ns = number(value) * NS_PER_MS;
    } else if (strcmp(name, "--stream-size") == 0) {
        l->stream_bytes = number(value);
    } else if (strcmp(name, "--connections") == 0) {
        l->connections = (uint32_t)number(value);
    } else if (strcmp(name, "--trust") == 0) {
        app.route.trust_priority = strcmp(value, "priority") == 0;
    } else if (strcmp(name, "--idle-ms") == 0) {
        l->idle_ns = number(value) * NS_PER_MS;
    } else if (strcmp(name, "--body") == 0) {
        l->body_bytes = number(value);
    } else if (strcmp(name, "--peek") == 0) {
        l->peek_bytes = number(value);
    } else if (strcmp(name, "--buffers") == 0) {
        l->buffer_bytes = number(value);
    } else if (strcmp(name, "--half-close") == 0) {
        app.route.half_close = strcmp(value, "keep") == 0 ? HALF_CLOSE_KEEP : HALF_CLOSE_GONE;
    } else if (strcmp(name, "--access") == 0) {
        access_fd = open(value, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    } else if (strcmp(name, "--alias") == 0 && app.routing.n_models < ALIASES_MAX) {
        struct slice rest = slice_str(value);
        uint32_t n = app.routing.n_models++;
        if (!slice_cut(&rest, '=', &app.aliases[n]))
            die("bad alias");
        app.models[n] =
            (struct model_config){.id = rest, .aliases = &app.aliases[n], .n_aliases = 1};
    } else {
        die(name);
    }
}

int main(int argc, char **argv)
{
    struct fleet_options fo = {.mem = loop_mem(), .n_sources = 1};
    struct net_listen_at listen = {.inherited = -1};
    struct net_addr bound;
    char text[NET_ADDR_TEXT];

    signal(SIGPIPE, SIG_IGN);
    if (sched_policy_named(SLICE("least_request"), &app.policy) != 0 ||
        loop_new(&app.control) != 0 || fleet_new(&fo, &app.fleet) != 0 ||
        net_addr_literal(SLICE("127.0.0.1"), 0, &listen.addr) != 0)
        die("start");
    defaults();
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], "--upstream") == 0)
            add(argv[i + 1]);
        else
            option(argv[i], argv[i + 1]);
    fleet_synced(app.fleet, 0);
    for (unsigned i = 0; i < app.n_loops; i++)
        if (loop_new(&app.loops[i]) != 0)
            die("loop");
    struct proxy_options o = {.control = app.control,
                              .loops = app.loops,
                              .n_loops = app.n_loops,
                              .listen = &listen,
                              .n_listen = 1,
                              .routing = &app.routing,
                              .hop_id = SLICE("proxy-only"),
                              .access_fd = access_fd};
    if (proxy_new(&o, &app.proxy) != 0)
        die("proxy_new");
    publish();
    if (proxy_start(app.proxy, &o, &bound) != 0)
        die("proxy_start");
    app.input.fd = 0;
    app.input.on_event = on_input;
    if (loop_watch(app.control, &app.input, EPOLLIN) != 0)
        die("stdin");
    for (unsigned i = 0; i < app.n_loops; i++)
        if (pthread_create(&app.threads[i], NULL, run, app.loops[i]) != 0)
            die("thread");
    printf("ready data=%s\n", net_addr_text(&bound, text));
    fflush(stdout);
    loop_run(app.control);
    for (unsigned i = 0; i < app.n_loops; i++)
        loop_stop(app.loops[i]);
    for (unsigned i = 0; i < app.n_loops; i++)
        pthread_join(app.threads[i], NULL);
    loop_unwatch(&app.input);
    proxy_free(app.proxy);
    fleet_free(app.fleet);
    for (unsigned i = 0; i < app.n_loops; i++)
        loop_free(app.loops[i]);
    loop_free(app.control);
    if (access_fd >= 0)
        close(access_fd);
    return 0;
}
