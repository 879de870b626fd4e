/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `weir agent`: wires the engine's reader, the devices' thread, the reporter and, with a command, the child to one loop.
 *
 * The end, with a command: deregister, wait until the engine has no request left (or --drain), pass the signal on, and
 * kill what is still there after --kill-after. The second signal of that kind skips the waiting.
 */
#include "apps/agent/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "apps/agent/child.h"
#include "apps/agent/describe.h"
#include "apps/agent/devices.h"
#include "apps/agent/options.h"
#include "base/bug.h"
#include "base/hash.h"
#include "base/num.h"
#include "gpu/sample_codec.h"
#include "loop/alloc.h"
#include "loop/log.h"
#include "net/fetch.h"
#include "probe/engine.h"
#include "report/report.h"

enum phase {
    PHASE_RUNNING,
    PHASE_LEAVING,  /* the deregistration is under way */
    PHASE_DRAINING, /* the engine's requests are waited for */
    PHASE_ENDING,   /* the command has its signal */
};

enum {
    DEAD_CHECKS =
        3, /* failed health checks in a row before we report it: one may be a slow answer of a busy engine */
    READY_CHECKS =
        5, /* passed ones after which neither kind nor models nor devices are waited for any more */
};

struct agent {
    struct agent_options o;
    struct loop *loop;
    struct fetcher *fetcher;
    struct engine_reader *engine;
    struct agent_devices devices;
    struct reporter *reporter;
    struct child child;
    sigset_t mask; /* before ours */
    int first_fd;  /* the first descriptor that is ours and not given to us */
    enum phase phase;
    int end_signal;
    uint64_t idle_since_ns; /* while draining; 0 = requests are running, or nothing is known */
    struct loop_timer bound_timer; /* the end of the drain; then of the command's patience */
    uint64_t epoch;
    int status;

    enum engine_state state;
    enum engine_kind kind;
    uint32_t in_state;    /* health checks in a row that said state */
    struct sample sample; /* the engine's last */
    uint64_t sample_ns;   /* when it came */
    bool models_told;
    bool detected; /* kind is sure */
    struct arena models_arena;
    struct model_ref *models;
    uint32_t n_models;
    struct gpu_reading readings[GPU_DEVICES_MAX];
    struct description description;
};

/* ---------------------------------------------------------------------------------------------- what we know */

/* Were they looked at? A driver or an exporter may take its time for that, or hang. */
static bool gpus_seen(struct agent *a)
{
    bool fresh;

    (void)devices_read(&a->devices, a->readings, &fresh);
    return fresh || !devices_any(&a->devices);
}

static struct description_source source_of(struct agent *a, enum membw_basis basis, unsigned n_gpus)
{
    return (struct description_source){
        .options = &a->o,
        .kind = a->kind,
        .models = a->models,
        .n_models = a->n_models,
        .gpus = a->readings,
        .n_gpus = n_gpus,
        .basis = basis,
        .epoch = a->epoch,
    };
}

static void set_state(struct sample *s, enum reported_state state)
{
    s->state = state;
    s->known |= UINT32_C(1) << SAMPLE_STATE;
}

static void fill_state(const struct agent *a, struct sample *s, bool lost)
{
    if (lost || (a->state == ENGINE_STATE_DEAD && a->in_state >= DEAD_CHECKS) ||
        (a->o.command && a->child.pid == 0))
        set_state(s, REPORTED_UNHEALTHY);
    else if (a->phase != PHASE_RUNNING)
        set_state(s, REPORTED_DRAINING);
    else if (a->state == ENGINE_STATE_LOADING)
        set_state(s, REPORTED_LOADING);
    else if (!sample_has(s, SAMPLE_STATE))
        set_state(s, REPORTED_HEALTHY); /* or it was, until a check or two failed */
}

static void fill_sample(void *ctx, struct sample *s)
{
    struct agent *a = ctx;
    enum membw_basis basis = MEMBW_UNKNOWN;
    bool fresh;
    bool lost = false;
    unsigned n = devices_read(&a->devices, a->readings, &fresh);

    if (a->sample_ns != 0 && loop_now(a->loop) - a->sample_ns < 3 * a->o.interval_ns + NS_PER_S)
        *s = a->sample;
    if (fresh)
        basis = gpu_sample(s, a->readings, n);
    for (unsigned i = 0; fresh && i < n; i++)
        lost |= a->readings[i].lost;
    fill_state(a, s, lost);
    const struct description_source source = source_of(a, basis, n);
    if (fresh && a->reporter && !description_holds(&a->description, &source) &&
        description_make(&a->description, &source) == 0)
        report_changed(a->reporter);
}

/* ------------------------------------------------------------------------------------------------ the end */

static void end_when_done(struct agent *a)
{
    if (a->child.pid == 0)
        loop_stop(a->loop);
}

/* The command gets its signal, and later, if need be, the one it cannot ignore. */
static void end_child(struct agent *a)
{
    if (a->phase == PHASE_ENDING)
        return;
    a->phase = PHASE_ENDING;
    child_signal(&a->child, a->end_signal);
    loop_timer_set(a->loop, &a->bound_timer, loop_now(a->loop) + a->o.kill_ns);
    end_when_done(a);
}

static void on_bound_timer(struct loop_timer *t)
{
    struct agent *a = container_of(t, struct agent, bound_timer);

    if (a->phase == PHASE_ENDING) {
        log_warn("agent", "the command does not end: killed");
        child_kill(&a->child);
        return;
    }
    log_warn("agent", "the drain time is over; requests may be cut off");
    end_child(a);
}

/* Idle means for a second on end: who has not heard of the deregistration yet still sends. */
static void look_whether_drained(struct agent *a)
{
    const struct sample *s = &a->sample;
    bool idle = sample_has(s, SAMPLE_RUNNING) && s->running == 0 &&
                (!sample_has(s, SAMPLE_WAITING) || s->waiting == 0);

    if (!idle)
        a->idle_since_ns = 0;
    else if (a->idle_since_ns == 0)
        a->idle_since_ns = loop_now(a->loop);
    else if (loop_now(a->loop) - a->idle_since_ns >= NS_PER_S)
        end_child(a);
}

static void on_left(void *ctx)
{
    struct agent *a = ctx;

    report_free(a->reporter);
    a->reporter = NULL;
    log_info("agent", "deregistered id=%.*s", SLICE_ARG(a->o.id));
    if (a->child.pid == 0) {
        loop_stop(a->loop);
        return;
    }
    if (a->phase != PHASE_LEAVING)
        return;
    a->phase = PHASE_DRAINING;
    if (a->state == ENGINE_STATE_DEAD)
        end_child(a);
}

static void leave(struct agent *a)
{
    if (a->reporter)
        report_stop(a->reporter);
    else
        end_child(a); /* never registered: nobody was sent there */
}

static void on_end_signal(struct agent *a, int signal)
{
    if (a->phase == PHASE_RUNNING) {
        a->phase = PHASE_LEAVING;
        a->end_signal = signal;
        if (a->child.pid)
            loop_timer_set(a->loop, &a->bound_timer, loop_now(a->loop) + a->o.drain_ns);
        leave(a);
    } else if (a->child.pid == 0) {
        loop_stop(a->loop);
    } else if (a->phase == PHASE_ENDING) {
        child_signal(&a->child, signal);
    } else {
        a->end_signal = signal;
        end_child(a);
    }
}

static void on_child_signal(struct agent *a)
{
    if (!child_ended(&a->child))
        return;
    loop_timer_cancel(&a->bound_timer);
    a->status = a->child.status;
    if (a->phase == PHASE_RUNNING)
        log_error("agent", "the command has ended by itself status=%d", a->status);
    else
        log_info("agent", "the command has ended status=%d", a->status);
    if (!a->reporter) {
        loop_stop(a->loop);
        return;
    }
    a->phase = PHASE_ENDING;
    report_stop(a->reporter);
}

static void on_signal(void *ctx, int signal)
{
    struct agent *a = ctx;

    if (signal == SIGCHLD)
        on_child_signal(a);
    else if (signal == SIGTERM || signal == SIGINT)
        on_end_signal(a, signal);
    else if (a->child.pid)
        child_signal(&a->child, signal);
    else if (signal == SIGHUP)
        log_info("agent", "SIGHUP: there is no configuration file to read again");
}

/* --------------------------------------------------------------------------------------------- the engine */

static void on_registered(void *ctx)
{
    struct agent *a = ctx;

    log_info("agent", "registered id=%.*s service=%.*s models=%u devices=%u registry=%s",
             SLICE_ARG(a->o.id), SLICE_ARG(a->o.service), a->description.instance.n_models,
             a->description.instance.n_devices, a->o.registry);
}

static void start_report(struct agent *a)
{
    struct sample scratch = {0};
    bool fresh;
    unsigned n = devices_read(&a->devices, a->readings, &fresh);
    const struct description_source source = source_of(a, gpu_sample(&scratch, a->readings, n), n);
    const struct report_options o = {
        .registry_url = a->o.registry,
        .bearer = a->o.token[0] ? a->o.token : NULL,
        .username = a->o.username,
        .password = a->o.password,
        .tls = &a->o.tls,
        .instance = &a->description.instance,
        .ttl_ns = a->o.ttl_ns,
        .interval_ns = a->o.interval_ns,
        .timeout_ns = a->o.timeout_ns,
        .seed = hash_slice(a->o.id, a->epoch),
        .fill = fill_sample,
        .on_registered = on_registered,
        .on_stopped = on_left,
        .ctx = a,
    };
    int rc = description_make(&a->description, &source);

    if (rc == 0)
        rc = report_new(a->loop, a->fetcher, &o, &a->reporter);
    if (rc)
        log_error("agent", "cannot report: %s", err_text(rc));
}

static bool same_models(const struct agent *a, const struct engine_reading *r)
{
    if (a->n_models != r->n_models)
        return false;
    for (uint32_t i = 0; i < r->n_models; i++) {
        const struct model_ref *x = &a->models[i];
        const struct model_ref *y = &r->models[i];
        if (!slice_eq(x->id, y->id) || !slice_eq(x->version, y->version) ||
            !slice_eq(x->lora_base, y->lora_base) || x->max_model_len != y->max_model_len)
            return false;
    }
    return true;
}

static int keep_models(struct agent *a, const struct engine_reading *r)
{
    struct arena next;
    arena_init(&next, loop_mem(), 1 << 20);
    struct model_ref *models = arena_array(&next, r->n_models, sizeof(*models));

    for (uint32_t i = 0; models && i < r->n_models; i++) {
        models[i] = r->models[i];
        if (arena_slice(&next, r->models[i].id, &models[i].id) ||
            arena_slice(&next, r->models[i].version, &models[i].version) ||
            arena_slice(&next, r->models[i].lora_base, &models[i].lora_base))
            models = NULL;
    }
    if (!models) {
        arena_fini(&next);
        return WEIR_E_NOMEM;
    }
    arena_fini(&a->models_arena);
    a->models_arena = next;
    a->models = models;
    a->n_models = r->n_models;
    return 0;
}

/* What was registered differs from what is known now. */
static void describe_again(struct agent *a)
{
    bool fresh;

    if (!a->reporter)
        return;
    const struct description_source source =
        source_of(a, a->description.basis, devices_read(&a->devices, a->readings, &fresh));
    if (description_make(&a->description, &source) == 0)
        report_changed(a->reporter);
}

/* A LoRA that was loaded or unloaded, another model. An empty list takes nothing back. */
static void take_models(struct agent *a, const struct engine_reading *r)
{
    /* What an engine lists before it is ready is not all it has. */
    a->models_told = a->state == ENGINE_STATE_READY;
    if (r->n_models == 0 || same_models(a, r) || keep_models(a, r) != 0 || !a->reporter)
        return;
    log_info("agent", "the engine's models have changed: %u now", a->n_models);
    describe_again(a);
}

static void take_health(struct agent *a, const struct engine_reading *r)
{
    static const char *const words[] = {
        [ENGINE_STATE_UNKNOWN] = "unknown",
        [ENGINE_STATE_LOADING] = "loading",
        [ENGINE_STATE_READY] = "ready",
        [ENGINE_STATE_DEAD] = "not answering",
    };

    if (a->in_state != 0 && r->state == a->state) {
        a->in_state++;
    } else {
        log_info("agent", "engine %s: %s url=%s", words[r->state], r->why, a->o.engine_url);
        a->state = r->state;
        a->in_state = 1;
    }
}

static void on_reading(void *ctx, const struct engine_reading *r)
{
    struct agent *a = ctx;

    if (r->detected && (r->kind != a->kind || !a->detected)) {
        a->detected = true;
        a->kind = r->kind;
        log_info("agent", "the engine is %s", engine_kind_name(a->kind));
        describe_again(a);
    }
    if (r->news & ENGINE_NEWS_HEALTH)
        take_health(a, r);
    if ((r->news & ENGINE_NEWS_RESTART) && a->reporter) {
        log_info("agent", "the engine's process has a later start time: a new epoch");
        report_new_epoch(a->reporter, loop_wall_clock());
    }
    if (r->news & ENGINE_NEWS_MODELS)
        take_models(a, r);
    if (r->news & ENGINE_NEWS_SAMPLE) {
        a->sample = r->sample;
        a->sample_ns = loop_now(a->loop);
        if (a->phase == PHASE_DRAINING)
            look_whether_drained(a);
    }
    if (a->phase == PHASE_DRAINING && a->state == ENGINE_STATE_DEAD && a->in_state >= DEAD_CHECKS)
        end_child(a);
    if (!a->reporter && a->phase == PHASE_RUNNING && a->state == ENGINE_STATE_READY &&
        ((a->models_told && r->detected && gpus_seen(a)) || a->in_state >= READY_CHECKS))
        start_report(a);
}

/* ---------------------------------------------------------------------------------------------- the start */

static int start_child(struct agent *a)
{
    int rc = child_start(&a->child, a->o.command, &a->mask, a->first_fd);

    if (rc == 0)
        return -1;
    fprintf(stderr, "weir agent: cannot start %s: %s\n", a->o.command[0],
            strerror(rc)); /* NOLINT(concurrency-mt-unsafe): no thread yet */
    return rc == ENOENT ? 127 : 126;
}

/* Is the URL one that report_new() will take? It is asked for only once the engine is healthy: too late to complain. */
static int check_registry(struct agent *a)
{
    const struct report_options o = {
        .registry_url = a->o.registry, .instance = &a->description.instance, .ttl_ns = a->o.ttl_ns};
    struct reporter *r;
    const struct description_source source = {.options = &a->o};
    int rc = description_make(&a->description, &source);

    if (rc == 0)
        rc = report_new(a->loop, a->fetcher, &o, &r);
    if (rc == 0) {
        report_free(r);
        return -1;
    }
    fprintf(stderr,
            "weir agent: --registry: \"%s\" is no URL like http://HOST:PORT, nacos://HOST:8848, "
            "consul://HOST:8500 or etcd://HOST:2379: %s\n",
            a->o.registry, err_text(rc));
    return 2;
}

/* @return -1 when all runs, else the exit status. */
static int start(struct agent *a)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD};
    struct gpus *gpus = NULL;
    int rc = loop_new(&a->loop);

    if (rc == 0)
        rc = loop_signals(a->loop, signals, ARRAY_LEN(signals), on_signal, a);
    if (rc == 0)
        rc = fetcher_new(a->loop, &a->fetcher);
    if (rc) {
        fprintf(stderr, "weir agent: event loop: %s\n", err_text(rc));
        return 1;
    }
    if ((rc = check_registry(a)) >= 0 || (rc = devices_open(&a->o, &gpus)) >= 0)
        return rc;
    if (a->o.command && (rc = start_child(a)) >= 0) {
        gpus_close(gpus);
        return rc;
    }
    if (devices_start(&a->devices, &a->o, a->loop, a->fetcher, gpus) != 0) {
        fprintf(stderr, "weir agent: the devices cannot be followed\n");
        return 1;
    }
    const struct engine_options engine = {
        .loop = a->loop,
        .fetcher = a->fetcher,
        .base_url = a->o.engine_url,
        .tls = &a->o.tls,
        .kind = a->o.engine,
        .interval_ns = a->o.interval_ns,
        .timeout_ns = a->o.timeout_ns,
        .on_reading = on_reading,
        .ctx = a,
    };
    rc = engine_reader_new(&engine, &a->engine);
    if (rc == 0)
        return -1;
    fprintf(stderr, "weir agent: --engine-url: \"%s\": %s\n", a->o.engine_url, err_text(rc));
    return 2;
}

static void finish(struct agent *a)
{
    /* Only when the start failed, or a second signal ended us, is it still there. */
    child_kill(&a->child);
    if (a->loop)
        loop_timer_cancel(&a->bound_timer);
    engine_reader_free(a->engine);
    report_free(a->reporter);
    devices_stop(&a->devices);
    fetcher_free(a->fetcher);
    description_fini(&a->description);
    arena_fini(&a->models_arena);
    loop_free(a->loop);
    mem_free(loop_mem(), a);
}

int agent_main(int argc, char **argv)
{
    struct agent *a = mem_zalloc(loop_mem(), sizeof(*a));

    if (!a)
        return 1;
    /* The lowest descriptor that nobody gave us. */
    a->first_fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    if (a->first_fd >= 0)
        close(a->first_fd);
    else
        a->first_fd = 3;
    sigprocmask(SIG_SETMASK, NULL, &a->mask); /* NOLINT(concurrency-mt-unsafe): one thread here */
    description_init(&a->description);
    arena_init(&a->models_arena, loop_mem(), 1 << 20);
    a->bound_timer.on_timer = on_bound_timer;
    a->epoch = loop_wall_clock();
    int rc = agent_options_parse(argc, argv, &a->o);
    a->kind = a->o.engine;
    if (rc < 0 && a->o.devices)
        rc = devices_print(&a->o);
    if (rc < 0)
        rc = start(a);
    if (rc < 0) {
        printf("ready agent=%.*s engine=%s registry=%s\n", SLICE_ARG(a->o.id), a->o.engine_url,
               a->o.registry);
        (void)fflush(stdout);
        loop_run(a->loop);
        rc = a->status;
    }
    finish(a);
    return rc;
}
