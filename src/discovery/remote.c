/* SPDX-License-Identifier: Apache-2.0 */
#include "discovery/remote.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/random.h>

#include "base/num.h"
#include "confio/confio.h"
#include "loop/alloc.h"
#include "loop/log.h"

enum { URL_MAX = 8192, WORDS_MAX = 160 };

static const uint64_t CONNECT_NS = 3 * NS_PER_S;
static const uint64_t WAIT_FIRST_NS = 200 * NS_PER_MS;
static const uint64_t WAIT_MOST_NS = 5 * NS_PER_S;
static const size_t ANSWER_MAX = (size_t)64 << 20;

void remote_init(struct remote *r,
                 const struct discovery_env *env,
                 const struct conf_source *conf,
                 struct source *source)
{
    *r = (struct remote){.env = env, .conf = conf, .source = source};
    r->tls = (struct fetch_tls){.ca = conf->ca.p, .cert = conf->cert.p, .key = conf->key.p};
    r->rnd.state = loop_clock();
    if (getrandom(&r->seed, sizeof(r->seed), 0) != (ssize_t)sizeof(r->seed))
        r->seed = loop_clock();
}

int remote_secret(const struct remote *r, const struct conf_secret *s, char **out)
{
    struct conf_errors *errors = mem_zalloc(loop_mem(), sizeof(*errors));

    *out = NULL;
    if (!errors)
        return WEIR_E_NOMEM;
    int rc = confio_secret(loop_mem(), s, out, errors);
    if (rc)
        log_error("discovery", "source=%s: %s", r->source->o.name,
                  errors->n ? errors->list[0].text : err_text(rc));
    mem_free(loop_mem(), errors);
    return rc;
}

static void on_timer(struct loop_timer *t)
{
    struct remote_call *c = container_of(t, struct remote_call, timer);

    c->ask(c);
}

void remote_begin(struct remote_call *c)
{
    c->timer.on_timer = on_timer;
    remote_again(c, 0);
}

void remote_end(struct remote_call *c)
{
    loop_timer_cancel(&c->timer);
    if (c->fetch)
        fetch_cancel(c->fetch);
    c->fetch = NULL;
}

static void on_done(void *ctx, const struct fetch_result *result)
{
    struct remote_call *c = ctx;

    c->fetch = NULL;
    c->answered(c, result);
}

void remote_ask(struct remote_call *c, const struct remote_request *q)
{
    struct remote *r = c->remote;
    struct slice server = r->conf->servers[r->server];
    struct buf url;

    c->server = r->server;
    if (slice_ends(server, SLICE("/")))
        server.n--;
    buf_init(&url, loop_mem(), URL_MAX);
    buf_put_slice(&url, server);
    buf_put_str(&url, q->path);
    buf_put_char(&url, '\0');
    const struct fetch_options o = {
        .method = q->method,
        .url = buf_slice(&url).p,
        .tls = &r->tls,
        .body = q->body,
        .content_type = q->body.p ? "application/json" : NULL,
        .accept = q->accept,
        .bearer = q->bearer,
        .authorization = q->authorization,
        .connect_ns = CONNECT_NS,
        .timeout_ns = q->timeout_ns,
        .body_max = ANSWER_MAX,
        .on_data = q->streams ? c->on_data : NULL,
        .done = on_done,
        .ctx = c,
    };
    int rc = url.err ? url.err : fetch_start(r->env->fetcher, &o, &c->fetch);
    buf_fini(&url);
    if (rc)
        remote_failed(c, "cannot ask: %s", err_text(rc));
}

void remote_again(struct remote_call *c, uint64_t wait_ns)
{
    struct loop *loop = c->remote->env->loop;

    loop_timer_set(loop, &c->timer, loop_now(loop) + wait_ns);
}

void remote_worked(struct remote_call *c, uint64_t wait_ns)
{
    c->failures = 0;
    remote_again(c, wait_ns);
}

void remote_failed(struct remote_call *c, const char *format, ...)
{
    struct remote *r = c->remote;
    char why[SOURCE_WHY_MAX];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(why, sizeof(why), format, args);
    va_end(args);
    source_failed(r->source, "%.*s: %s", SLICE_ARG(r->conf->servers[c->server]), why);
    /* Another call may have moved on already. */
    if (c->server == r->server)
        r->server = (r->server + 1) % r->conf->n_servers;
    /* The others are tried first, one after the other. */
    uint32_t rounds = c->failures++ / r->conf->n_servers;
    uint64_t wait = MIN(WAIT_FIRST_NS << MIN(rounds, 5U), WAIT_MOST_NS);
    remote_again(c, c->failures % r->conf->n_servers ? WAIT_FIRST_NS / 2
                                                     : wait / 2 + prng_below(&r->rnd, wait / 2));
}

void remote_refused(struct remote_call *c, const char *what, const struct fetch_result *r)
{
    if (r->error)
        remote_failed(c, "%s: %s", what, r->message);
    else
        remote_failed(c, "%s: HTTP %u %.*s", what, r->status,
                      SLICE_ARG(slice_of(r->body.p, MIN(r->body.n, (size_t)WORDS_MAX))));
}
