/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGHUP and POST /api/v1/config/apply. All that can fail comes first: text, files it refers to, sockets, memory. The
 * data plane is the last of these, and its swap is the moment of truth; what follows cannot fail. Endpoints that join
 * are told before it, so that a new route finds them, and those that leave after it.
 */
#include <errno.h>
#include <string.h>

#include "apps/serve/listen.h"
#include "apps/serve/state.h"
#include "base/num.h"
#include "confio/confio.h"
#include "loop/alloc.h"
#include "loop/log.h"

#define RECLAIM_NS (500 * NS_PER_MS)

/* A configuration on its way in. */
struct attempt {
    struct conf *conf;
    struct referred referred;
    struct edition *edition;
    struct conf_errors *errors;
    struct conf_change changes[CONF_CHANGES_MAX];
    int n_changes;
};

int serve_proxy_options(struct serve *s,
                        const struct conf *conf,
                        const struct referred *r,
                        struct net_listen_at *listen,
                        struct proxy_options *o,
                        struct buf *out)
{
    int rc = 0;

    if (conf->n_listeners > PROXY_LISTENERS_MAX)
        return WEIR_E_FULL;
    for (uint32_t i = 0; i < conf->n_listeners && rc == 0; i++) {
        rc = listen_at(&conf->listeners[i], &listen[i], out);
        listen[i].tls = r->tls.listeners[i];
    }
    *o = (struct proxy_options){.control = s->control_loop,
                                .loops = (struct loop **)(uintptr_t)s->loops,
                                .n_loops = s->n_loops,
                                .listen = listen,
                                .n_listen = conf->n_listeners,
                                .upstream_tls = &s->upstream_tls,
                                .fetcher = s->fetcher,
                                .fetch_tls = &s->fetch_tls,
                                .routing = &conf->routing,
                                .access_fd = conf->logging.access.p ? s->access_fd : -1,
                                .admin_token = r->admin_token,
                                .decisions_per_s = conf->decisions_per_s};
    return rc;
}

static void put_errors(const struct conf_errors *errors, struct buf *out)
{
    for (uint32_t i = 0; i < errors->n; i++) {
        buf_put_str(out, errors->list[i].text);
        buf_put_char(out, '\n');
    }
    if (errors->total > errors->n) {
        buf_put_str(out, "and ");
        buf_put_u64(out, errors->total - errors->n);
        buf_put_str(out, " more\n");
    }
}

static void put_name(const struct conf_change *c, struct buf *out)
{
    buf_put_str(out, c->part);
    if (c->key) {
        buf_put_char(out, '.');
        buf_put_str(out, c->key);
    }
}

/* @param live which ones. */
static void put_changes(const struct attempt *a, bool live, const char *between, struct buf *out)
{
    bool any = false;

    for (int i = 0; i < a->n_changes; i++) {
        if (a->changes[i].live != live)
            continue;
        if (any)
            buf_put_str(out, between);
        put_name(&a->changes[i], out);
        any = true;
    }
}

static void put_json_changes(const struct attempt *a, bool live, struct buf *out)
{
    uint32_t n = 0;

    buf_put_char(out, '[');
    for (int i = 0; i < a->n_changes; i++)
        n += a->changes[i].live == live;
    if (n) {
        buf_put_char(out, '"');
        put_changes(a, live, "\",\"", out);
        buf_put_char(out, '"');
    }
    buf_put_char(out, ']');
}

/* Text to a configuration, with what it changes. */
static int load(struct serve *s, struct slice text, struct attempt *a, struct buf *out)
{
    const struct conf *now = s->edition->conf;
    struct confio_options o = {.mem = loop_mem(),
                               .overrides = s->flags.overrides,
                               .n_overrides = s->flags.n_overrides,
                               .generation = now->routing.generation + 1};

    *a = (struct attempt){.referred = {.access_fd = -1}};
    a->errors = mem_zalloc(loop_mem(), sizeof(*a->errors));
    a->edition = mem_zalloc(loop_mem(), sizeof(*a->edition));
    if (!a->errors || !a->edition)
        return WEIR_E_NOMEM;
    int rc = text.p ? confio_load_text(&o, SLICE("body"), text, &a->conf, a->errors)
                    : confio_load(&o, s->flags.config, &a->conf, a->errors);
    if (rc == 0) {
        a->n_changes = conf_diff(now, a->conf, a->changes);
        rc = a->n_changes < 0 ? WEIR_E_NOMEM : 0;
    }
    put_errors(a->errors, out);
    return rc;
}

static void attempt_fini(struct attempt *a)
{
    referred_fini(&a->referred);
    conf_free(a->conf);
    mem_free(loop_mem(), a->edition);
    mem_free(loop_mem(), a->errors);
}

static bool changes_part(const struct attempt *a, const char *part)
{
    for (int i = 0; i < a->n_changes; i++)
        if (strcmp(a->changes[i].part, part) == 0)
            return true;
    return false;
}

static bool needs_restart(const struct attempt *a)
{
    for (int i = 0; i < a->n_changes; i++)
        if (!a->changes[i].live)
            return true;
    return false;
}

/* ---- editions ---- */

static void on_unused(void *ctx, const struct routing *r)
{
    struct serve *s = ctx;

    for (struct edition **at = &s->edition->older; *at; at = &(*at)->older) {
        struct edition *e = *at;
        if (&e->conf->routing != r)
            continue;
        *at = e->older;
        conf_free(e->conf);
        mem_free(loop_mem(), e);
        return;
    }
}

static void on_reclaim(struct loop_timer *t)
{
    struct serve *s = container_of(t, struct serve, reclaim);

    proxy_reclaim(s->proxy, on_unused, s);
    if (s->edition->older)
        loop_timer_set(s->control_loop, t, loop_now(s->control_loop) + RECLAIM_NS);
}

void serve_reclaim_init(struct serve *s)
{
    s->reclaim.on_timer = on_reclaim;
}

/* ---- taking over ---- */

static void note_own(struct serve *s, const struct net_addr *bound, uint32_t n)
{
    s->control.n_own = 0;
    control_own(&s->control, bound, n);
    if (s->admin_addr.len)
        control_own(&s->control, &s->admin_addr, 1);
    if (s->registry_addr.len)
        control_own(&s->control, &s->registry_addr, 1);
    if (s->registry && registry_grpc_addr(s->registry))
        control_own(&s->control, registry_grpc_addr(s->registry), 1);
}

static int take_tokens(struct serve *s, const struct referred *r)
{
    int rc = s->admin ? admin_set_token(s->admin, r->admin_token) : 0;

    if (rc == 0 && s->registry)
        rc = registry_set_token(s->registry, r->registry_token);
    return rc;
}

void serve_use_tls(struct serve *s, const struct conf *conf, const struct serve_tls *t)
{
    net_tls_slot_set(&s->admin_tls, net_tls_get(t->admin));
    net_tls_slot_set(&s->registry_tls, net_tls_get(t->registry));
    net_tls_slot_set(&s->upstream_tls, net_tls_get(t->upstream));
    s->fetch_tls = serve_tls_fetch(conf);
}

/* From here on it is in force. */
static void take_over(struct serve *s, struct attempt *a, const struct net_addr *bound)
{
    struct conf *before = s->edition->conf;
    char text[NET_ADDR_TEXT];

    a->edition->conf = a->conf;
    a->edition->older = s->edition;
    s->edition = a->edition;
    log_set_level((enum log_level)a->conf->logging.level);
    if (take_tokens(s, &a->referred) != 0)
        log_error("serve", "out of memory: a token stays as it was");
    serve_use_tls(s, a->conf, &a->referred.tls);
    note_own(s, bound, a->conf->n_listeners);
    if (changes_part(a, "discovery"))
        control_drop_sources(&s->control, before, a->conf);
    control_reload(&s->control, a->conf);
    for (uint32_t i = 0; changes_part(a, "listeners") && i < a->conf->n_listeners; i++)
        log_info("serve", "listening on %s for clients", net_addr_text(&bound[i], text));
    referred_fini(&s->referred);
    s->referred = a->referred;
    a->referred = (struct referred){.access_fd = -1};
    a->conf = NULL;
    a->edition = NULL;
    if (!loop_timer_active(&s->reclaim))
        loop_timer_set(s->control_loop, &s->reclaim, loop_now(s->control_loop));
}

static int
complain_listen(const struct proxy_options *o, const struct net_addr *bound, struct buf *out)
{
    char text[NET_ADDR_TEXT];
    char words[128];
    int error = errno;
    unsigned failed = 0;

    while (failed + 1 < o->n_listen && bound[failed].len)
        failed++;
    buf_put_str(out, "listeners: cannot listen on ");
    buf_put_str(out, net_addr_text(&o->listen[failed].addr, text));
    buf_put_str(out, ": ");
    buf_put_str(out, listen_reason(&o->listen[failed].addr, error, words, sizeof(words)));
    buf_put_char(out, '\n');
    return WEIR_E_IO;
}

static int try_it(struct serve *s, struct attempt *a, struct buf *out)
{
    struct net_listen_at listen[PROXY_LISTENERS_MAX];
    struct net_addr bound[PROXY_LISTENERS_MAX];
    struct proxy_options o;

    if (needs_restart(a)) {
        put_changes(a, false, ", ", out);
        buf_put_str(out, ": cannot change without a restart; nothing was applied\n");
        return WEIR_E_UNSUPPORTED;
    }
    int rc = referred_read(a->conf, &a->referred, a->errors);
    put_errors(a->errors, out);
    if (rc == 0)
        rc = serve_proxy_options(s, a->conf, &a->referred, listen, &o, out);
    if (rc)
        return rc;
    /* The log that was opened is put in place when nothing can fail any more; its number is known before. */
    if (o.access_fd < 0)
        o.access_fd = a->referred.access_fd;
    bool endpoints = changes_part(a, "discovery");
    if (endpoints) {
        control_tell_sources(&s->control, a->conf);
        control_publish(&s->control);
    }
    rc = proxy_reload(s->proxy, &o, bound);
    if (rc) {
        int saved = errno;
        if (endpoints) {
            control_tell_sources(&s->control, s->edition->conf);
            control_drop_sources(&s->control, a->conf, s->edition->conf);
            control_publish(&s->control);
        }
        errno = saved;
        if (rc == WEIR_E_IO)
            return complain_listen(&o, bound, out);
        if (rc == WEIR_E_FULL)
            buf_put_str(out,
                        "too many: routes that this process has seen, or tenants or listeners of "
                        "the last reloads that are still in use; try again, or restart\n");
        return rc;
    }
    referred_use_access(s, &a->referred);
    take_over(s, a, bound);
    return 0;
}

static void tell(struct serve *s, struct slice text, int rc, const struct buf *out)
{
    struct slice what = text.p ? SLICE("the admin API") : SLICE("SIGHUP");
    struct slice rest = buf_slice(out);
    struct slice line;
    struct buf event;

    buf_init(&event, loop_mem(), 8192);
    if (rc == 0) {
        s->control.reloads_ok++;
        log_info("serve", "configuration taken over from %.*s: %.*s", SLICE_ARG(what),
                 SLICE_ARG(rest));
        admin_event(s->admin, "config_reloaded", rest);
    } else {
        s->control.reloads_failed++;
        buf_put_str(&event, "{\"error\":");
        buf_put_json(&event, slice_of(rest.p, MIN(rest.n, (size_t)4096)));
        buf_put_char(&event, '}');
        while (slice_cut(&rest, '\n', &line))
            if (line.n)
                log_error("serve", "configuration from %.*s refused, the old one stays: %.*s",
                          SLICE_ARG(what), SLICE_ARG(line));
        if (!event.err)
            admin_event(s->admin, "config_refused", buf_slice(&event));
    }
    buf_fini(&event);
}

int serve_reload(struct serve *s, struct slice text, struct buf *out)
{
    struct attempt a;
    int rc;

    if (s->draining) {
        buf_put_str(out, "this Weir is draining: nothing was applied\n");
        tell(s, text, WEIR_E_FULL, out);
        return WEIR_E_FULL;
    }
    /* Reloads in quick succession: what the last one left is not kept until the timer looks. */
    proxy_reclaim(s->proxy, on_unused, s);
    rc = load(s, text, &a, out);
    if (rc == 0)
        rc = try_it(s, &a, out);
    if (rc == 0) {
        buf_put_str(out, "{\"applied\":true,\"generation\":");
        buf_put_u64(out, s->edition->conf->routing.generation);
        buf_put_str(out, ",\"changes\":");
        put_json_changes(&a, true, out);
        buf_put_char(out, '}');
    } else if (buf_len(out) == 0) {
        buf_put_str(out, err_text(rc));
        buf_put_char(out, '\n');
    }
    tell(s, text, rc, out);
    attempt_fini(&a);
    return rc == WEIR_E_IO ? WEIR_E_INVALID : rc;
}

int serve_validate(struct serve *s, struct slice text, struct buf *out)
{
    struct attempt a;
    int rc = load(s, text, &a, out);

    if (rc == 0) {
        buf_put_str(out, "{\"valid\":true,\"changes\":");
        put_json_changes(&a, true, out);
        buf_put_str(out, ",\"needs_restart\":");
        put_json_changes(&a, false, out);
        buf_put_char(out, '}');
    }
    attempt_fini(&a);
    return rc == WEIR_E_IO ? WEIR_E_INVALID : rc;
}
