/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one place that knows everyone. Order of birth: configuration, loops, fleet, data plane, registry, admin, static
 * endpoints, then the threads. Order of death: the data plane drains while everything else still works, then the
 * threads end, then the rest goes in reverse order. A second signal ends the drain at once.
 */
#include "apps/serve/serve.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "apps/serve/hooks.h"
#include "apps/serve/listen.h"
#include "apps/serve/load.h"
#include "apps/serve/privileges.h"
#include "apps/serve/state.h"
#include "base/num.h"
#include "loop/alloc.h"
#include "loop/log.h"

enum { INSTANCES_MAX = 100000, ANSWER_MAX = 1 << 20 };

static int complain(const char *what, int rc)
{
    int saved = errno;

    log_error("serve", "%s: %s", what, rc == WEIR_E_IO && saved ? strerror(saved) : err_text(rc));
    return rc;
}

/* `keys` names the configuration key and the flag that change the address. */
static int complain_listen(const char *who, const struct net_addr *addr, const char *keys, int rc)
{
    char text[NET_ADDR_TEXT];
    char words[128];
    int saved = errno;

    log_error("serve", "cannot listen on %s for %s: %s; choose another address with %s",
              net_addr_text(addr, text), who,
              rc == WEIR_E_IO && saved ? listen_reason(addr, saved, words, sizeof(words))
                                       : err_text(rc),
              keys);
    return rc;
}

/*
 * A core would hold tokens and prompts. Only the soft limit: `prlimit --core=unlimited --pid` asks for one all the same.
 */
static void no_core(void)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_CORE, &r) != 0)
        return;
    r.rlim_cur = 0;
    (void)setrlimit(RLIMIT_CORE, &r);
}

/* As many descriptors as we are allowed; proxy/plan.c says how many connections they carry. */
static void raise_descriptors(void)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) != 0)
        return;
    r.rlim_cur = r.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &r);
}

static unsigned cores(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return 1;
    return (unsigned)MAX(CPU_COUNT(&set), 1);
}

static void on_drained(void *ctx)
{
    struct serve *s = ctx;

    loop_stop(s->control_loop);
}

static const char *signal_name(int signal)
{
    return signal == SIGINT ? "SIGINT" : "SIGTERM";
}

static void on_end_signal(struct serve *s, int signal)
{
    uint64_t now = loop_now(s->control_loop);
    uint64_t longest = s->edition->conf->routing.limits.drain_ns;

    systemd_notify("STOPPING=1");
    if (s->draining) {
        log_warn("serve", "%s, the second signal: ending now", signal_name(signal));
        loop_stop(s->control_loop);
        return;
    }
    s->draining = true;
    log_info("serve", "%s: draining for at most %g s; a second signal ends it at once",
             signal_name(signal), (double)longest / (double)NS_PER_S);
    admin_event(s->admin, "draining", SLICE("{}"));
    proxy_drain(s->proxy, now + longest, on_drained, s);
}

static void on_signal(void *ctx, int signal)
{
    struct serve *s = ctx;
    struct buf out;

    if (signal == SIGHUP) {
        buf_init(&out, loop_mem(), ANSWER_MAX);
        systemd_notify_reloading();
        /* What was done or is wrong is in the log, in the metrics and among the events. */
        int rc = serve_reload(s, (struct slice){NULL, 0}, &out);
        (void)rc;
        systemd_notify(s->draining ? "STOPPING=1" : "READY=1");
        buf_fini(&out);
    } else if (signal == SIGUSR1) {
        serve_reopen_logs(s);
    } else {
        on_end_signal(s, signal);
    }
}

static void *run_loop(void *arg)
{
    loop_run(arg);
    return NULL;
}

static int start_loops(struct serve *s)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
    int rc = loop_new(&s->control_loop);

    if (rc == 0)
        rc = loop_signals(s->control_loop, signals, ARRAY_LEN(signals), on_signal, s);
    s->n_loops = MIN(s->edition->conf->threads ? s->edition->conf->threads : cores(),
                     (unsigned)PROXY_LOOPS_MAX);
    for (unsigned i = 0; i < s->n_loops && rc == 0; i++)
        rc = loop_new(&s->loops[i]);
    return rc ? complain("cannot make the event loops", rc) : 0;
}

static int start_proxy(struct serve *s, struct net_addr *bound)
{
    struct net_listen_at listen[PROXY_LISTENERS_MAX];
    struct proxy_options o;
    struct buf why;
    uint64_t id;
    char hop[17];

    if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id))
        return complain("cannot get random bytes", WEIR_E_IO);
    snprintf(hop, sizeof(hop), "%016llx", (unsigned long long)id);
    buf_init(&why, loop_mem(), ANSWER_MAX);
    int rc = serve_proxy_options(s, s->edition->conf, &s->referred, listen, &o, &why);
    size_t said = buf_slice(&why).n;
    if (said) /* one line, that ends as lines do */
        log_error("serve", "%.*s", (int)said - 1, buf_slice(&why).p);
    buf_fini(&why);
    if (rc)
        return said ? rc : complain("cannot listen for clients", rc);
    o.hop_id = slice_str(hop);
    rc = proxy_new(&o, &s->proxy);
    if (rc)
        return complain("cannot build the data plane", rc);
    s->control.proxy = s->proxy;
    rc = control_start(&s->control);
    if (rc)
        return complain("cannot start the control side", rc);
    rc = proxy_start(s->proxy, &o, bound);
    uint32_t failed = 0;
    while (failed + 1 < o.n_listen && bound[failed].len)
        failed++; /* the first that is not bound */
    return rc ? complain_listen("clients", &listen[failed].addr,
                                "listeners.address or --host and --port", rc)
              : 0;
}

static int start_registry(struct serve *s, struct net_addr *bound)
{
    const struct conf_registry *c = &s->edition->conf->registry;
    struct registry_options o = {.token = s->referred.registry_token,
                                 .tls = &s->registry_tls,
                                 .state_file = c->state_file.p,
                                 .sink = s->control.sink,
                                 .source = s->control.source_registry,
                                 .current_requests = control_current_requests,
                                 .endpoints = control_endpoints,
                                 .data_address = control_data_address,
                                 .ctx = &s->control,
                                 .instances_max = INSTANCES_MAX};

    if (c->address.off) {
        s->control.sink.synced(s->control.sink.ctx, s->control.source_registry);
        return 0;
    }
    int rc = listen_address(&c->address, &o.addr);
    if (rc == 0)
        rc = registry_start(s->control_loop, &o, &s->registry, bound);
    return rc ? complain_listen("the registry", &o.addr, "registry.address or --registry-port", rc)
              : 0;
}

static int start_admin(struct serve *s, struct net_addr *bound)
{
    struct admin_options o = {
        .token = s->referred.admin_token, .tls = &s->admin_tls, .hooks = hooks_for(s)};

    if (s->edition->conf->admin.address.off)
        return 0;
    int rc = listen_address(&s->edition->conf->admin.address, &o.addr);
    if (rc == 0)
        rc = admin_start(s->control_loop, &o, &s->admin, bound);
    return rc ? complain_listen("the admin API", &o.addr, "admin.address or --admin-port", rc) : 0;
}

static int read_referred(struct serve *s)
{
    struct conf_errors *errors = mem_zalloc(loop_mem(), sizeof(*errors));
    int rc = errors ? referred_read(s->edition->conf, &s->referred, errors) : WEIR_E_NOMEM;

    for (uint32_t i = 0; errors && i < errors->n; i++)
        fprintf(stderr, "weir: %s\n", errors->list[i].text);
    mem_free(loop_mem(), errors);
    if (rc == 0)
        referred_use_access(s, &s->referred);
    return rc;
}

static int start_threads(struct serve *s)
{
    for (; s->n_threads < s->n_loops; s->n_threads++)
        if (pthread_create(&s->threads[s->n_threads], NULL, run_loop, s->loops[s->n_threads]) != 0)
            return complain("cannot start a thread", WEIR_E_NOMEM);
    return 0;
}

static void print_ready(const struct serve *s,
                        const struct net_addr *data,
                        const struct net_addr *admin,
                        const struct net_addr *registry)
{
    char text[NET_ADDR_TEXT];

    printf("ready");
    for (uint32_t i = 0; i < s->edition->conf->n_listeners; i++)
        printf(" data=%s", net_addr_text(&data[i], text));
    printf(" admin=%s", s->admin ? net_addr_text(admin, text) : "off");
    printf(" registry=%s", s->registry ? net_addr_text(registry, text) : "off");
    const struct net_addr *grpc = s->registry ? registry_grpc_addr(s->registry) : NULL;
    printf(" nacos_grpc=%s\n", grpc ? net_addr_text(grpc, text) : "off");
    fflush(stdout);
}

static int start(struct serve *s)
{
    struct net_addr data[PROXY_LISTENERS_MAX];
    int rc;

    if ((rc = read_referred(s)) != 0 || (rc = start_loops(s)) != 0)
        return rc;
    serve_use_tls(s, s->edition->conf, &s->referred.tls);
    s->control.tls = &s->fetch_tls;
    rc = fetcher_new(s->control_loop, &s->fetcher);
    if (rc == 0)
        rc = control_init(&s->control, s->control_loop, s->fetcher, s->edition->conf);
    if (rc)
        return complain("cannot build the control side", rc);
    serve_reclaim_init(s);
    if ((rc = start_proxy(s, data)) != 0 || (rc = start_registry(s, &s->registry_addr)) != 0 ||
        (rc = start_admin(s, &s->admin_addr)) != 0)
        return rc;
    s->control.admin = s->admin;
    control_own(&s->control, data, s->edition->conf->n_listeners);
    if (s->admin)
        control_own(&s->control, &s->admin_addr, 1);
    if (s->registry)
        control_own(&s->control, &s->registry_addr, 1);
    if (s->registry && registry_grpc_addr(s->registry))
        control_own(&s->control, registry_grpc_addr(s->registry), 1);
    control_tell_sources(&s->control, s->edition->conf);
    control_publish(&s->control);
    systemd_close_unused();
    const struct conf *conf = s->edition->conf;
    privileges_give(s->access_fd, conf->user.p);
    if ((rc = privileges_drop(conf->user.p, conf->group.p)) != 0 || (rc = start_threads(s)) != 0)
        return rc;
    systemd_watchdog_start(&s->watchdog, s->control_loop, s->loops, s->n_loops);
    print_ready(s, data, &s->admin_addr, &s->registry_addr);
    systemd_notify("READY=1");
    return 0;
}

static void stop(struct serve *s)
{
    for (unsigned i = 0; i < s->n_threads; i++)
        loop_stop(s->loops[i]);
    for (unsigned i = 0; i < s->n_threads; i++)
        pthread_join(s->threads[i], NULL);
    systemd_watchdog_stop(&s->watchdog);
    s->control.admin = NULL;
    admin_stop(s->admin);
    if (s->registry)
        registry_stop(s->registry);
    loop_timer_cancel(&s->reclaim);
    if (s->proxy)
        proxy_free(s->proxy);
    s->control.proxy = NULL;
    control_fini(&s->control);
    fetcher_free(s->fetcher);
    for (unsigned i = 0; i < s->n_loops; i++)
        loop_free(s->loops[i]);
    loop_free(s->control_loop);
    if (s->access_fd >= 0)
        close(s->access_fd);
    referred_fini(&s->referred);
    net_tls_slot_fini(&s->admin_tls);
    net_tls_slot_fini(&s->registry_tls);
    net_tls_slot_fini(&s->upstream_tls);
}

int serve_main(int argc, char **argv)
{
    struct serve *s = mem_zalloc(loop_mem(), sizeof(*s));
    int status = 1;
    int rc = WEIR_E_NOMEM;

    if (!s)
        return 1;
    privileges_hide_memory();
    systemd_init();
    net_tls_slot_init(&s->admin_tls);
    net_tls_slot_init(&s->registry_tls);
    net_tls_slot_init(&s->upstream_tls);
    s->access_fd = s->referred.access_fd = -1;
    s->edition = mem_zalloc(loop_mem(), sizeof(*s->edition));
    if (s->edition && load_configuration(argc, argv, &s->flags, &s->edition->conf, &status)) {
        log_set_level((enum log_level)s->edition->conf->logging.level);
        no_core();
        raise_descriptors();
        rc = start(s);
        if (rc == 0)
            loop_run(s->control_loop);
        stop(s);
        status = rc ? 1 : 0;
    }
    while (s->edition) {
        struct edition *e = s->edition;
        s->edition = e->older;
        conf_free(e->conf);
        mem_free(loop_mem(), e);
    }
    serve_flags_fini(&s->flags);
    mem_free(loop_mem(), s);
    return status;
}
