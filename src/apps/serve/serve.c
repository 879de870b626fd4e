/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one place that knows everyone. Order of birth: configuration, loops, fleet, data plane, registry, admin, static
 * endpoints, then the threads. Order of death: the data plane drains while everything else still works, then the
 * threads end, then the rest goes in reverse order. A second signal ends the drain at once.
 */
#include "apps/serve/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "admin/admin.h"
#include "apps/serve/control.h"
#include "apps/serve/hooks.h"
#include "apps/serve/load.h"
#include "base/num.h"
#include "confio/confio.h"
#include "discovery/static.h"
#include "loop/alloc.h"
#include "loop/log.h"
#include "registry/registry.h"

enum { DESCRIPTORS_KEPT = 256, INSTANCES_MAX = 100000 };
#define DRAIN_NS (30 * NS_PER_S)

struct serve {
    struct conf *conf;
    struct routing routing; /* conf's, with the connection limit that the descriptors allow */
    struct loop *control_loop;
    struct loop *loops[PROXY_LOOPS_MAX];
    pthread_t threads[PROXY_LOOPS_MAX];
    unsigned n_loops, n_threads;
    struct fetcher *fetcher;
    struct control control;
    struct proxy *proxy;
    struct registry *registry;
    struct admin *admin;
    char *admin_token, *registry_token;
    int access_fd;
    bool draining;
};

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
    int saved = errno;

    log_error("serve", "cannot listen on %s for %s: %s; choose another address with %s",
              net_addr_text(addr, text), who,
              rc == WEIR_E_IO && saved ? strerror(saved) : err_text(rc), keys);
    return rc;
}

/* As many descriptors as we are allowed, and no more connections than they carry: two for each, one to the worker. */
static void fit_descriptors(struct serve *s)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) != 0)
        return;
    r.rlim_cur = r.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &r);
    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur == RLIM_INFINITY)
        return;
    uint64_t carried = r.rlim_cur > DESCRIPTORS_KEPT + 2 ? (r.rlim_cur - DESCRIPTORS_KEPT) / 2 : 1;
    if (s->routing.limits.connections <= carried)
        return;
    log_warn(
        "serve",
        "limits.connections is %u, but %llu file descriptors carry %llu: using that; raise the "
        "descriptor limit (ulimit -n, LimitNOFILE=) or lower limits.connections",
        s->routing.limits.connections, (unsigned long long)r.rlim_cur, (unsigned long long)carried);
    s->routing.limits.connections = (uint32_t)carried;
}

static unsigned cores(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return 1;
    return (unsigned)MAX(CPU_COUNT(&set), 1);
}

static int load_secret(const char *key, const struct conf_secret *secret, char **out)
{
    struct conf_errors *errors = mem_zalloc(loop_mem(), sizeof(*errors));
    int rc = errors ? confio_secret(loop_mem(), secret, out, errors) : WEIR_E_NOMEM;

    for (uint32_t i = 0; errors && i < errors->n; i++)
        fprintf(stderr, "weir: %s: %s\n", key, errors->list[i].text);
    mem_free(loop_mem(), errors);
    return rc;
}

static int address_of(const struct conf_address *a, struct net_addr *out)
{
    return net_addr_literal(a->host, a->port, out);
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

static void on_signal(void *ctx, int signal)
{
    struct serve *s = ctx;
    uint64_t now = loop_now(s->control_loop);

    if (s->draining) {
        log_warn("serve", "%s, the second signal: ending now", signal_name(signal));
        loop_stop(s->control_loop);
        return;
    }
    s->draining = true;
    log_info("serve", "%s: draining for at most %llu s; a second signal ends it at once",
             signal_name(signal), (unsigned long long)(DRAIN_NS / NS_PER_S));
    proxy_drain(s->proxy, now + DRAIN_NS, on_drained, s);
}

static void *run_loop(void *arg)
{
    loop_run(arg);
    return NULL;
}

static int start_loops(struct serve *s)
{
    static const int signals[] = {SIGINT, SIGTERM};
    int rc = loop_new(&s->control_loop);

    if (rc == 0)
        rc = loop_signals(s->control_loop, signals, ARRAY_LEN(signals), on_signal, s);
    s->n_loops = MIN(s->conf->threads ? s->conf->threads : cores(), (unsigned)PROXY_LOOPS_MAX);
    for (unsigned i = 0; i < s->n_loops && rc == 0; i++)
        rc = loop_new(&s->loops[i]);
    return rc ? complain("cannot make the event loops", rc) : 0;
}

static int start_proxy(struct serve *s, struct net_addr *bound)
{
    struct net_addr listen[PROXY_LISTENERS_MAX];
    uint64_t id;
    char hop[17];
    int rc = 0;

    if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id))
        return complain("cannot get random bytes", WEIR_E_IO);
    snprintf(hop, sizeof(hop), "%016llx", (unsigned long long)id);
    if (s->conf->n_listeners > PROXY_LISTENERS_MAX)
        return complain("too many listeners", WEIR_E_FULL);
    for (uint32_t i = 0; i < s->conf->n_listeners && rc == 0; i++)
        rc = address_of(&s->conf->listeners[i].address, &listen[i]);
    if (rc)
        return complain("listener address", rc);
    struct proxy_options o = {.control = s->control_loop,
                              .loops = s->loops,
                              .n_loops = s->n_loops,
                              .listen = listen,
                              .n_listen = s->conf->n_listeners,
                              .routing = &s->routing,
                              .hop_id = slice_str(hop),
                              .access_fd = s->access_fd,
                              .decisions_per_s = s->conf->decisions_per_s,
                              .admin_token = s->admin_token};
    rc = proxy_new(&o, &s->proxy);
    if (rc)
        return complain("cannot build the data plane", rc);
    s->control.proxy = s->proxy;
    rc = control_start(&s->control);
    if (rc)
        return complain("cannot start the control side", rc);
    rc = proxy_start(s->proxy, bound);
    return rc ? complain_listen("clients", &listen[0], "listeners.address or --host and --port", rc)
              : 0;
}

static int start_registry(struct serve *s, struct net_addr *bound)
{
    const struct conf_registry *c = &s->conf->registry;
    struct registry_options o = {.token = s->registry_token,
                                 .state_file = c->state_file.p,
                                 .sink = s->control.sink,
                                 .source = s->control.source_registry,
                                 .current_requests = control_current_requests,
                                 .ctx = &s->control,
                                 .instances_max = INSTANCES_MAX};

    if (c->address.off) {
        s->control.sink.synced(s->control.sink.ctx, s->control.source_registry);
        return 0;
    }
    int rc = address_of(&c->address, &o.addr);
    if (rc == 0)
        rc = registry_start(s->control_loop, &o, &s->registry, bound);
    return rc ? complain_listen("the registry", &o.addr, "registry.address or --registry-port", rc)
              : 0;
}

static int start_admin(struct serve *s, struct net_addr *bound)
{
    struct admin_options o = {.token = s->admin_token, .hooks = hooks_for(&s->control)};

    if (s->conf->admin.address.off)
        return 0;
    int rc = address_of(&s->conf->admin.address, &o.addr);
    if (rc == 0)
        rc = admin_start(s->control_loop, &o, &s->admin, bound);
    return rc ? complain_listen("the admin API", &o.addr, "admin.address or --admin-port", rc) : 0;
}

static int open_access_log(struct serve *s)
{
    s->access_fd = -1;
    if (!s->conf->logging.access.p)
        return 0;
    s->access_fd = open(s->conf->logging.access.p, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
    if (s->access_fd < 0) {
        log_error("serve", "cannot open the access log %s (logging.access): %s",
                  s->conf->logging.access.p, strerror(errno));
        return WEIR_E_IO;
    }
    return 0;
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
    for (uint32_t i = 0; i < s->conf->n_listeners; i++)
        printf(" data=%s", net_addr_text(&data[i], text));
    printf(" admin=%s", s->admin ? net_addr_text(admin, text) : "off");
    printf(" registry=%s\n", s->registry ? net_addr_text(registry, text) : "off");
    fflush(stdout);
}

static int start(struct serve *s)
{
    struct net_addr data[PROXY_LISTENERS_MAX], admin, registry;
    int rc;

    if ((rc = load_secret("admin.token", &s->conf->admin.token, &s->admin_token)) != 0 ||
        (rc = load_secret("registry.token", &s->conf->registry.token, &s->registry_token)) != 0 ||
        (rc = open_access_log(s)) != 0 || (rc = start_loops(s)) != 0)
        return rc;
    rc = fetcher_new(s->control_loop, &s->fetcher);
    if (rc == 0)
        rc = control_init(&s->control, s->control_loop, s->fetcher, s->conf);
    if (rc)
        return complain("cannot build the control side", rc);
    if ((rc = start_proxy(s, data)) != 0 || (rc = start_registry(s, &registry)) != 0 ||
        (rc = start_admin(s, &admin)) != 0)
        return rc;
    control_own(&s->control, data, s->conf->n_listeners);
    if (s->admin)
        control_own(&s->control, &admin, 1);
    if (s->registry)
        control_own(&s->control, &registry, 1);
    for (uint32_t i = 0; i < s->conf->n_sources; i++)
        discovery_static_start(&s->conf->sources[i], (uint16_t)i, &s->control.sink);
    control_publish(&s->control);
    if ((rc = start_threads(s)) != 0)
        return rc;
    print_ready(s, data, &admin, &registry);
    return 0;
}

static void stop(struct serve *s)
{
    for (unsigned i = 0; i < s->n_threads; i++)
        loop_stop(s->loops[i]);
    for (unsigned i = 0; i < s->n_threads; i++)
        pthread_join(s->threads[i], NULL);
    admin_stop(s->admin);
    if (s->registry)
        registry_stop(s->registry);
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
    confio_secret_free(loop_mem(), s->admin_token);
    confio_secret_free(loop_mem(), s->registry_token);
}

int serve_main(int argc, char **argv)
{
    struct serve *s = mem_zalloc(loop_mem(), sizeof(*s));
    int status;

    if (!s)
        return 1;
    s->access_fd = -1;
    if (!load_configuration(argc, argv, &s->conf, &status)) {
        mem_free(loop_mem(), s);
        return status;
    }
    log_set_level((enum log_level)s->conf->logging.level);
    s->routing = s->conf->routing;
    fit_descriptors(s);
    int rc = start(s);
    if (rc == 0)
        loop_run(s->control_loop);
    stop(s);
    conf_free(s->conf);
    mem_free(loop_mem(), s);
    return rc ? 1 : 0;
}
