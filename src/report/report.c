/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state machine, the same for every kind of registry; how a step looks on the wire is the target's.
 * Two exchanges at most are under way: `control` (log in, claim, register, renew, deregister) and `load`. What is under
 * way when the end comes is waited for: cancelled half way it might reach the registry after the deregistration, and a
 * registration would then stay behind.
 */
#include "report/report.h"

#include "base/bug.h"
#include "base/num.h"
#include "loop/alloc.h"
#include "loop/log.h"
#include "report/report_codec.h"
#include "report/report_priv.h"
#include "wire/url.h"

enum { BODY_MAX = 1 << 20, ANSWER_MAX = 1 << 22, URL_MAX = 8192 };

static const uint64_t backoff_first = 200 * NS_PER_MS;
static const uint64_t backoff_max = 5 * NS_PER_S;

static const char *const step_names[] = {
    [STEP_LOGIN] = "login",           [STEP_CLAIM] = "look at the registry",
    [STEP_REGISTER] = "registration", [STEP_RENEW] = "renewal",
    [STEP_LOAD] = "load report",      [STEP_LEAVE] = "deregistration",
};

static void leave_when_quiet(struct reporter *r);
static int begin(struct reporter *r, enum report_step step);

/* Words for what went wrong: "HTTP 503" or the transport's. */
static void log_failure(const struct reporter *r,
                        enum report_step step,
                        enum report_verdict v,
                        const struct fetch_result *f,
                        const char *then)
{
    if (v == VERDICT_TAKEN)
        log_error("report", "%.*s:%u is registered by someone else there, and not touched url=%s%s",
                  SLICE_ARG(r->instance->host), r->instance->port, r->where, then);
    else if (f->error)
        log_warn("report", "%s failed: %s url=%s%s", step_names[step], f->message, r->where, then);
    else
        log_warn(
            "report", "%s failed: HTTP %u %.*s url=%s%s", step_names[step], f->status,
            SLICE_ARG(slice_of(f->body.p, step == STEP_LOGIN ? 0 : MIN(f->body.n, (size_t)200))),
            r->where, then);
}

static uint64_t backoff(struct reporter *r)
{
    uint64_t wait = backoff_first << MIN(r->failures, 6U);

    wait = MIN(wait, backoff_max);
    return wait / 2 + prng_below(&r->rnd, wait / 2);
}

static void control_failed(struct reporter *r, enum report_verdict v, const struct fetch_result *f)
{
    uint64_t wait = backoff(r);
    unsigned what = (unsigned)v << 16 | (f->error ? (unsigned)-f->error : f->status);

    r->stats.failures++;
    if (r->failures++ == 0 || what != r->logged)
        log_failure(r, r->step, v, f, "; trying again until it works");
    r->logged = what;
    /* A renewal must have its chances while the lease still holds. */
    if (r->registered)
        wait = MIN(wait, r->ttl_ns / 3);
    loop_timer_set(r->loop, &r->control_timer, loop_now(r->loop) + wait);
}

static void control_worked(struct reporter *r)
{
    if (r->failures > 0)
        log_info("report", "registry answers again after %u failures url=%s", r->failures,
                 r->where);
    r->failures = 0;
    loop_timer_set(r->loop, &r->control_timer,
                   loop_now(r->loop) + (r->changed || !r->registered ? 0 : r->ttl_ns / 3));
}

/* The registry does not know us (any more). */
static void register_again(struct reporter *r)
{
    r->registered = false;
    r->claimed = false;
    loop_timer_cancel(&r->load_timer);
    if (!r->control)
        loop_timer_set(r->loop, &r->control_timer, loop_now(r->loop));
}

void report_catch_up(struct reporter *r, uint64_t epoch, uint64_t seq)
{
    /* Go on from there, or nothing of us would ever be heard again. */
    if (epoch > r->epoch) {
        r->epoch = epoch + 1;
        register_again(r);
    } else if (epoch == r->epoch && seq > r->seq) {
        r->seq = seq;
    }
}

void report_fill(struct reporter *r, struct sample *s)
{
    if (r->fill)
        r->fill(r->ctx, s);
}

static void step_worked(struct reporter *r, enum report_step step)
{
    switch (step) {
    case STEP_LOGIN:
        loop_timer_set(r->loop, &r->control_timer, loop_now(r->loop));
        return;
    case STEP_CLAIM:
        r->claimed = true;
        loop_timer_set(r->loop, &r->control_timer, loop_now(r->loop));
        return;
    case STEP_RENEW:
        r->stats.renewals++;
        control_worked(r);
        return;
    case STEP_REGISTER: {
        bool first = r->stats.registrations++ == 0;
        r->registered = true;
        control_worked(r);
        if (r->interval_ns && !loop_timer_active(&r->load_timer))
            loop_timer_set(r->loop, &r->load_timer, loop_now(r->loop));
        if (first && r->on_registered)
            r->on_registered(r->ctx);
        return;
    }
    case STEP_LOAD:
    case STEP_LEAVE:
        break;
    }
    BUG_ON(1);
}

static void leave_done(struct reporter *r, enum report_verdict v, const struct fetch_result *f)
{
    r->registered = false;
    if (v != VERDICT_OK && v != VERDICT_UNKNOWN)
        log_failure(r, STEP_LEAVE, v, f, "");
    r->on_stopped(r->ctx);
}

static void on_control_done(void *ctx, const struct fetch_result *f)
{
    struct reporter *r = ctx;

    r->control = NULL;
    enum report_verdict v = r->target->judge(r, r->step, f);
    if (r->step == STEP_LEAVE) {
        leave_done(r, v, f);
    } else if (r->stopping) {
        leave_when_quiet(r);
    } else if (v == VERDICT_OK) {
        step_worked(r, r->step);
    } else if (v == VERDICT_UNKNOWN) {
        register_again(r);
    } else {
        /* A registration that was not made again is still to be made. */
        r->changed |= r->step == STEP_REGISTER && r->registered;
        control_failed(r, v, f);
    }
}

static void on_load_done(void *ctx, const struct fetch_result *f)
{
    struct reporter *r = ctx;

    r->load = NULL;
    if (r->stopping) {
        leave_when_quiet(r);
        return;
    }
    switch (r->target->judge(r, STEP_LOAD, f)) {
    case VERDICT_OK:
        r->stats.reports++;
        r->load_failing = false;
        return;
    case VERDICT_UNKNOWN:
        register_again(r);
        return;
    case VERDICT_DENIED:
        /* A new token, now. */
        if (!r->control)
            loop_timer_set(r->loop, &r->control_timer, loop_now(r->loop));
        break;
    case VERDICT_FAILED:
    case VERDICT_TAKEN:
        break;
    }
    r->stats.failures++;
    if (!r->load_failing)
        log_failure(r, STEP_LOAD, VERDICT_FAILED, f, "");
    r->load_failing = true;
}

/* Write the step's request and send it. */
static int begin(struct reporter *r, enum report_step step)
{
    struct report_request q = {0};

    buf_init(&q.url, loop_mem(), URL_MAX);
    buf_init(&q.body, loop_mem(), BODY_MAX);
    int rc = r->target->write(r, step, &q);
    buf_put_char(&q.url, '\0');
    if (rc == 0)
        rc = q.url.err;
    if (rc == 0) {
        const struct fetch_options o = {
            .method = q.method,
            .url = buf_slice(&q.url).p,
            .tls = r->tls,
            .body = q.type ? buf_slice(&q.body) : (struct slice){NULL, 0},
            .content_type = q.type,
            .bearer = step == STEP_LOGIN || r->target->plain_token ? NULL : r->bearer,
            .authorization = step == STEP_LOGIN || !r->target->plain_token ? NULL : r->bearer,
            .timeout_ns = r->timeout_ns,
            .body_max = ANSWER_MAX,
            .done = step == STEP_LOAD ? on_load_done : on_control_done,
            .ctx = r,
        };
        if (step != STEP_LOAD)
            r->step = step;
        rc = fetch_start(r->fetcher, &o, step == STEP_LOAD ? &r->load : &r->control);
    }
    buf_fini(&q.url);
    buf_fini(&q.body);
    return rc;
}

static enum report_step next_step(const struct reporter *r)
{
    if (r->target->wants_login && r->target->wants_login(r))
        return STEP_LOGIN;
    if (!r->registered)
        return r->target->claims && !r->claimed ? STEP_CLAIM : STEP_REGISTER;
    return r->changed ? STEP_REGISTER : STEP_RENEW;
}

static void on_control_timer(struct loop_timer *t)
{
    struct reporter *r = container_of(t, struct reporter, control_timer);

    if (r->stopping) {
        r->on_stopped(r->ctx);
        return;
    }
    r->step = next_step(r);
    if (r->step == STEP_REGISTER) {
        r->attempted = true;
        r->changed = false;
    }
    int rc = begin(r, r->step);
    if (rc) {
        r->changed |= r->step == STEP_REGISTER;
        control_failed(r, VERDICT_FAILED,
                       &(struct fetch_result){.error = rc, .message = err_text(rc)});
    }
}

static void on_load_timer(struct loop_timer *t)
{
    struct reporter *r = container_of(t, struct reporter, load_timer);

    loop_timer_set(r->loop, &r->load_timer, loop_now(r->loop) + r->interval_ns);
    /* Not beside a registration either: it says the same, and the two could overtake each other. */
    if (r->load || (r->control && r->step == STEP_REGISTER))
        return;
    int rc = begin(r, STEP_LOAD);
    if (rc && rc != WEIR_E_AGAIN)
        r->stats.failures++;
}

/* What is under way has to be through first. */
static void leave_when_quiet(struct reporter *r)
{
    if (r->control || r->load)
        return;
    if (r->attempted && begin(r, STEP_LEAVE) == 0)
        return;
    loop_timer_set(r->loop, &r->control_timer, loop_now(r->loop));
}

void report_changed(struct reporter *r)
{
    if (r->stopping)
        return;
    r->changed = true;
    if (r->registered && !r->control && r->failures == 0)
        loop_timer_set(r->loop, &r->control_timer, loop_now(r->loop));
}

void report_new_epoch(struct reporter *r, uint64_t epoch)
{
    r->epoch = MAX(epoch, r->epoch + 1);
    r->seq = 0;
    report_changed(r);
}

void report_stop(struct reporter *r)
{
    if (r->stopping)
        return;
    r->stopping = true;
    loop_timer_cancel(&r->control_timer);
    loop_timer_cancel(&r->load_timer);
    if (r->control && (r->step == STEP_LOGIN || r->step == STEP_CLAIM)) {
        fetch_cancel(r->control);
        r->control = NULL;
    }
    leave_when_quiet(r);
}

int report_take_url(struct reporter *r, const char *scheme)
{
    struct slice authority;
    struct slice host;
    struct buf url;
    uint16_t port;
    bool tls;

    if (report_split_url(slice_str(r->base), scheme, &tls, &authority, &r->rest) ||
        wire_authority_parse(authority, &host, &port) || host.n == 0 || port == 0 ||
        slice_find(r->rest, '?') < r->rest.n)
        return WEIR_E_INVALID;
    buf_init(&url, loop_mem(), URL_MAX);
    buf_put_str(&url, tls ? "https://" : "http://");
    buf_put_slice(&url, authority);
    r->url = url.err ? NULL : mem_strdup(loop_mem(), buf_slice(&url));
    r->where = mem_strdup(loop_mem(), slice_str(r->base));
    int rc = url.err == WEIR_E_FULL ? WEIR_E_INVALID : r->url && r->where ? 0 : WEIR_E_NOMEM;
    buf_fini(&url);
    return rc;
}

int report_sending(struct reporter *r, const struct buf *body)
{
    buf_clear(&r->sending);
    return body->err ? body->err : buf_put_slice(&r->sending, buf_slice(body));
}

bool report_same(const struct reporter *r)
{
    return slice_eq(buf_slice(&r->sent), buf_slice(&r->sending));
}

enum report_verdict report_sent(struct reporter *r)
{
    buf_clear(&r->sent);
    return buf_put_slice(&r->sent, buf_slice(&r->sending)) == 0 ? VERDICT_OK : VERDICT_FAILED;
}

static const struct report_target *target_of(struct slice url)
{
    static const struct {
        const char *scheme;
        const struct report_target *target;
    } targets[] = {{"nacos", &report_nacos}, {"consul", &report_consul}, {"etcd", &report_etcd}};

    for (size_t i = 0; i < ARRAY_LEN(targets); i++)
        if (slice_starts(url, slice_str(targets[i].scheme)))
            return targets[i].target;
    return &report_native;
}

int report_new(struct loop *loop,
               struct fetcher *fetcher,
               const struct report_options *o,
               struct reporter **out)
{
    struct reporter *r = mem_zalloc(loop_mem(), sizeof(*r));

    if (!r)
        return WEIR_E_NOMEM;
    r->target = target_of(slice_str(o->registry_url));
    r->loop = loop;
    r->fetcher = fetcher;
    r->tls = o->tls;
    r->instance = o->instance;
    r->ttl_ns = r->asked_ttl_ns = o->ttl_ns;
    buf_init(&r->sent, loop_mem(), BODY_MAX);
    buf_init(&r->sending, loop_mem(), BODY_MAX);
    r->interval_ns = o->interval_ns;
    r->timeout_ns = o->timeout_ns;
    r->fill = o->fill;
    r->on_registered = o->on_registered;
    r->on_stopped = o->on_stopped;
    r->ctx = o->ctx;
    r->epoch = o->instance->epoch;
    r->rnd.state = o->seed;
    r->control_timer.on_timer = on_control_timer;
    r->load_timer.on_timer = on_load_timer;
    int rc = 0;
    if (!(r->base = mem_strdup(loop_mem(), slice_str(o->registry_url))))
        rc = WEIR_E_NOMEM;
    if (rc == 0)
        rc = r->target->init(r, o);
    if (rc) {
        report_free(r);
        return rc;
    }
    loop_timer_set(loop, &r->control_timer, loop_now(loop));
    *out = r;
    return 0;
}

void report_free(struct reporter *r)
{
    if (!r)
        return;
    loop_timer_cancel(&r->control_timer);
    loop_timer_cancel(&r->load_timer);
    if (r->control)
        fetch_cancel(r->control);
    if (r->load)
        fetch_cancel(r->load);
    r->target->fini(r);
    mem_free(loop_mem(), r->base);
    mem_free(loop_mem(), r->where);
    mem_free(loop_mem(), r->url);
    buf_fini(&r->sent);
    buf_fini(&r->sending);
    mem_free(loop_mem(), r->bearer);
    mem_free(loop_mem(), r);
}

void report_read_stats(const struct reporter *r, struct report_stats *out)
{
    *out = r->stats;
    out->registered = r->registered;
}
