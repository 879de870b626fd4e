/* SPDX-License-Identifier: Apache-2.0 */
/* `weir worker`: wires the server, and the reporter when there is a registry, to one loop; sees both off at the end. */
#include "apps/worker/worker.h"

#include <stdio.h>

#include "apps/worker/options.h"
#include "apps/worker/server.h"
#include "base/bug.h"
#include "base/hash.h"
#include "base/num.h"
#include "loop/alloc.h"
#include "loop/log.h"
#include "net/fetch.h"
#include "report/report.h"
#include "wire/url.h"

struct worker {
    struct worker_options o;
    struct loop *loop;
    struct worker_server *server;
    struct fetcher *fetcher;
    struct reporter *reporter;
    struct loop_timer drain_timer;
    bool ending;
    bool served;   /* no request is left */
    bool reported; /* deregistered, or there is no registry */

    char bound[NET_ADDR_TEXT];
    struct slice advertise;
    struct slice name;
    char uuid[48];
    struct slice service;
    struct model_ref models[WORKER_MODELS_MAX];
    struct device device;
    struct instance instance;
};

/* "GPU-xxxxxxxx-xxxx-...", the same for the same name. */
static void make_uuid(struct worker *w)
{
    uint64_t a = hash_slice(w->name, 1);
    uint64_t b = hash_slice(w->name, 2);

    snprintf(w->uuid, sizeof(w->uuid), "GPU-%08x-%04x-%04x-%04x-%012llx", (unsigned)(a >> 32),
             (unsigned)(a >> 16 & 0xffff), (unsigned)(a & 0xffff), (unsigned)(b >> 48),
             (unsigned long long)(b & 0xffffffffffff));
}

static int describe(struct worker *w)
{
    uint16_t port = 0;

    if (wire_authority_parse(w->advertise, &w->instance.host, &port) != 0 || port == 0) {
        fprintf(stderr, "weir worker: --advertise: \"%.*s\" is not HOST:PORT\n",
                SLICE_ARG(w->advertise));
        return 2;
    }
    make_uuid(w);
    w->service = slice_str(w->o.service);
    for (uint32_t i = 0; i < w->o.n_models; i++)
        w->models[i] = (struct model_ref){.id = w->o.models[i],
                                          .version = w->o.model_version,
                                          .max_model_len = worker_server_max_model_len(w->server)};
    w->device = (struct device){.uuid = slice_str(w->uuid),
                                .type = slice_str(w->o.gpu->gpu_type),
                                .memory_total_bytes = w->o.gpu->memory_total_bytes};
    w->instance.id = w->name;
    w->instance.services = &w->service;
    w->instance.n_services = 1;
    w->instance.port = port;
    w->instance.models = w->models;
    w->instance.n_models = w->o.n_models;
    w->instance.tasks = TASK_CHAT | TASK_COMPLETION | TASK_EMBEDDING;
    w->instance.devices = &w->device;
    w->instance.n_devices = 1;
    w->instance.weight = w->o.weight;
    w->instance.engine = ENGINE_WEIR_WORKER;
    w->instance.max_concurrency = w->o.max_num_seqs;
    w->instance.metadata = w->o.metadata;
    w->instance.n_metadata = w->o.n_metadata;
    w->instance.epoch = loop_wall_clock();
    return -1;
}

static void fill_sample(void *ctx, struct sample *s)
{
    struct worker *w = ctx;

    worker_server_sample(w->server, s);
}

static void on_registered(void *ctx)
{
    struct worker *w = ctx;

    log_info("worker", "registered id=%.*s registry=%s", SLICE_ARG(w->name), w->o.registry);
}

static void end_when_done(struct worker *w)
{
    if (w->served && w->reported)
        loop_stop(w->loop);
}

static void on_served(void *ctx)
{
    struct worker *w = ctx;

    w->served = true;
    end_when_done(w);
}

static void on_reported(void *ctx)
{
    struct worker *w = ctx;

    w->reported = true;
    end_when_done(w);
}

static void on_drain_timer(struct loop_timer *t)
{
    struct worker *w = container_of(t, struct worker, drain_timer);

    log_warn("worker", "requests are dropped: the drain time is over");
    loop_stop(w->loop);
}

/* The first signal drains, the second ends at once. */
static void on_signal(void *ctx, int signal)
{
    struct worker *w = ctx;

    (void)signal;
    if (w->ending) {
        loop_stop(w->loop);
        return;
    }
    w->ending = true;
    w->reported = w->reporter == NULL;
    if (w->reporter)
        report_stop(w->reporter);
    worker_server_drain(w->server, on_served, w);
    loop_timer_set(w->loop, &w->drain_timer, loop_now(w->loop) + w->o.drain_ns);
}

static int start_report(struct worker *w)
{
    const struct report_options report = {
        .registry_url = w->o.registry,
        .bearer = w->o.token[0] ? w->o.token : NULL,
        .instance = &w->instance,
        .ttl_ns = w->o.ttl_ns,
        .interval_ns = w->o.report_ns,
        .timeout_ns = w->o.timeout_ns,
        .seed = hash_slice(w->name, w->o.seed),
        .fill = fill_sample,
        .on_registered = on_registered,
        .on_stopped = on_reported,
        .ctx = w,
    };
    int rc = fetcher_new(w->loop, &w->fetcher);

    if (rc == 0)
        rc = report_new(w->loop, w->fetcher, &report, &w->reporter);
    if (rc == 0)
        return -1;
    fprintf(stderr, "weir worker: --registry: \"%s\": %s\n", w->o.registry, err_text(rc));
    return 2;
}

/* @return -1 when all runs, else the exit status. */
static int start(struct worker *w)
{
    static const int signals[] = {SIGINT, SIGTERM};
    struct net_addr bound;
    int rc = loop_new(&w->loop);

    if (rc == 0)
        rc = loop_signals(w->loop, signals, ARRAY_LEN(signals), on_signal, w);
    if (rc) {
        fprintf(stderr, "weir worker: event loop: %s\n", err_text(rc));
        return 1;
    }
    rc = worker_server_start(w->loop, &w->o, &w->server, &bound);
    if (rc) {
        fprintf(stderr, "weir worker: cannot listen on --host %s --port %u: %s\n", w->o.host,
                w->o.port, err_text(rc));
        return rc == WEIR_E_INVALID ? 2 : 1;
    }
    net_addr_text(&bound, w->bound);
    w->advertise = w->o.advertise.p ? w->o.advertise : slice_str(w->bound);
    w->name = w->o.name.p ? w->o.name : w->advertise;
    worker_server_name(w->server, w->name);
    if (!w->o.registry)
        return -1;
    if (!w->o.advertise.p && (slice_starts(w->advertise, SLICE("0.0.0.0:")) ||
                              slice_starts(w->advertise, SLICE("[::]:")))) {
        fprintf(stderr,
                "weir worker: --host %s is no address others can reach: --advertise HOST:PORT is "
                "needed\n",
                w->o.host);
        return 2;
    }
    rc = describe(w);
    return rc >= 0 ? rc : start_report(w);
}

static void finish(struct worker *w)
{
    if (w->loop)
        loop_timer_cancel(&w->drain_timer);
    report_free(w->reporter);
    if (w->fetcher)
        fetcher_free(w->fetcher);
    worker_server_stop(w->server);
    if (w->loop)
        loop_free(w->loop);
    mem_free(loop_mem(), w);
}

int worker_main(int argc, char **argv)
{
    struct worker *w = mem_zalloc(loop_mem(), sizeof(*w));

    if (!w)
        return 1;
    int rc = worker_options_parse(argc, argv, &w->o);
    if (rc < 0) {
        w->drain_timer.on_timer = on_drain_timer;
        rc = start(w);
    }
    if (rc < 0) {
        printf("ready worker=http://%s name=%.*s gpu=%s model=%.*s\n", w->bound, SLICE_ARG(w->name),
               w->o.gpu->name, SLICE_ARG(w->o.models[0]));
        (void)fflush(stdout);
        loop_run(w->loop);
        rc = 0;
    }
    finish(w);
    return rc;
}
