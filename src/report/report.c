/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two exchanges at most are under way: `control` (register, renew, deregister) and `load`. A registration that is under
 * way when the end comes is waited for: cancelled half way it might reach the registry after the deregistration.
 */
#include "report/report.h"

#include <jansson.h>

#include "base/buf.h"
#include "base/bug.h"
#include "base/num.h"
#include "base/prng.h"
#include "loop/alloc.h"
#include "loop/log.h"
#include "report/report_codec.h"
#include "wire/url.h"

enum { BODY_MAX = 1 << 20, ANSWER_MAX = 1 << 16, URL_MAX = 4096 };

static const uint64_t exchange_timeout = 2 * NS_PER_S;
static const uint64_t backoff_first = 200 * NS_PER_MS;
static const uint64_t backoff_max = 5 * NS_PER_S;

enum { TO_ENDPOINT, TO_RENEW, TO_LOAD, N_URLS };

struct reporter {
    struct loop *loop;
    struct fetcher *fetcher;
    const struct instance *instance;
    uint64_t ttl_ns;
    uint64_t interval_ns;
    void (*fill)(void *ctx, struct sample *s);
    void (*on_registered)(void *ctx);
    void (*on_stopped)(void *ctx);
    void *ctx;

    char *urls[N_URLS]; /* owned */
    char *bearer;       /* owned */
    struct loop_timer
        control_timer; /* the next registration or renewal; the end, when nothing is to be undone */
    struct loop_timer load_timer;
    struct fetch *control;
    struct fetch *load;
    struct prng rnd;
    uint64_t epoch;
    uint64_t seq;
    uint32_t failures; /* of control, in a row */
    bool registering;  /* control is a registration */
    bool attempted;    /* the registry may know of us */
    bool registered;
    bool load_failing;
    bool stopping;
    struct report_stats stats;
};

static void start_register(struct reporter *r);
static void start_renew(struct reporter *r);
static void start_leave(struct reporter *r);

static bool ok(const struct fetch_result *f)
{
    return f->error == 0 && f->status >= 200 && f->status < 300;
}

/* Words for what went wrong: "HTTP 503" or the transport's. */
static void log_failure(const struct reporter *r,
                        const char *what,
                        const struct fetch_result *f,
                        const char *then)
{
    if (f->error)
        log_warn("report", "%s failed: %s url=%s%s", what, f->message, r->urls[TO_ENDPOINT], then);
    else
        log_warn("report", "%s failed: HTTP %u %.*s url=%s%s", what, f->status,
                 SLICE_ARG(slice_of(f->body.p, MIN(f->body.n, (size_t)200))), r->urls[TO_ENDPOINT],
                 then);
}

static uint64_t backoff(struct reporter *r)
{
    uint64_t wait = backoff_first << MIN(r->failures, 6U);

    wait = MIN(wait, backoff_max);
    return wait / 2 + prng_below(&r->rnd, wait / 2);
}

static void control_failed(struct reporter *r, const char *what, const struct fetch_result *f)
{
    uint64_t wait = backoff(r);

    r->stats.failures++;
    if (r->failures++ == 0)
        log_failure(r, what, f, "; trying again until it works");
    /* A renewal must have its chances while the lease still holds. */
    if (r->registered)
        wait = MIN(wait, r->ttl_ns / 3);
    loop_timer_set(r->loop, &r->control_timer, loop_now(r->loop) + wait);
}

static void control_worked(struct reporter *r)
{
    if (r->failures > 0)
        log_info("report", "registry answers again after %u failures url=%s", r->failures,
                 r->urls[TO_ENDPOINT]);
    r->failures = 0;
    loop_timer_set(r->loop, &r->control_timer, loop_now(r->loop) + r->ttl_ns / 3);
}

static int ask(struct reporter *r,
               const char *method,
               int url,
               struct slice body,
               fetch_done_fn done,
               struct fetch **handle)
{
    const struct fetch_options o = {
        .method = method,
        .url = r->urls[url],
        .body = body,
        .content_type = body.p ? "application/json" : NULL,
        .bearer = r->bearer,
        .timeout_ns = exchange_timeout,
        .body_max = ANSWER_MAX,
        .done = done,
        .ctx = r,
    };

    return fetch_start(r->fetcher, &o, handle);
}

static void could_not_ask(struct reporter *r, const char *what, int error)
{
    control_failed(r, what, &(struct fetch_result){.error = error, .message = err_text(error)});
}

static void on_register_done(void *ctx, const struct fetch_result *f)
{
    struct reporter *r = ctx;

    r->control = NULL;
    r->registering = false;
    if (r->stopping) {
        start_leave(r);
        return;
    }
    if (!ok(f)) {
        control_failed(r, "registration", f);
        return;
    }
    bool first = r->stats.registrations++ == 0;
    r->registered = true;
    control_worked(r);
    if (r->interval_ns)
        loop_timer_set(r->loop, &r->load_timer, loop_now(r->loop));
    if (first && r->on_registered)
        r->on_registered(r->ctx);
}

static void start_register(struct reporter *r)
{
    struct instance instance = *r->instance;
    struct buf body;

    instance.epoch = r->epoch;
    buf_init(&body, loop_mem(), BODY_MAX);
    int rc = report_write_instance(&body, &instance, r->ttl_ns / NS_PER_MS);
    if (rc == 0)
        rc = ask(r, "PUT", TO_ENDPOINT, buf_slice(&body), on_register_done, &r->control);
    buf_fini(&body);
    if (rc) {
        could_not_ask(r, "registration", rc);
        return;
    }
    r->registering = true;
    r->attempted = true;
}

/* The registry does not know us (any more). */
static void register_again(struct reporter *r)
{
    r->registered = false;
    loop_timer_cancel(&r->load_timer);
    if (!r->control)
        loop_timer_set(r->loop, &r->control_timer, loop_now(r->loop));
}

static void on_renew_done(void *ctx, const struct fetch_result *f)
{
    struct reporter *r = ctx;

    r->control = NULL;
    if (ok(f)) {
        r->stats.renewals++;
        control_worked(r);
    } else if (f->error == 0 && f->status == 404) {
        register_again(r);
    } else {
        control_failed(r, "renewal", f);
    }
}

static void start_renew(struct reporter *r)
{
    int rc = ask(r, "POST", TO_RENEW, SLICE("{}"), on_renew_done, &r->control);

    if (rc)
        could_not_ask(r, "renewal", rc);
}

static void on_control_timer(struct loop_timer *t)
{
    struct reporter *r = container_of(t, struct reporter, control_timer);

    if (r->stopping)
        r->on_stopped(r->ctx);
    else if (r->registered)
        start_renew(r);
    else
        start_register(r);
}

/*
 * {accepted: false, epoch, seq}: the registry has seen newer ones, say because the clock was set back between two runs.
 * Go on from there, or nothing of us would ever be heard again.
 */
static void read_load_answer(struct reporter *r, struct slice body)
{
    json_t *answer = json_loadb(body.p ? body.p : "", body.n, 0, NULL);
    json_t *accepted = json_object_get(answer, "accepted");

    if (json_is_false(accepted)) {
        json_int_t epoch = json_integer_value(json_object_get(answer, "epoch"));
        json_int_t seq = json_integer_value(json_object_get(answer, "seq"));
        if (epoch > 0 && (uint64_t)epoch > r->epoch) {
            r->epoch = (uint64_t)epoch + 1;
            register_again(r);
        } else if (seq > 0 && (uint64_t)epoch == r->epoch && (uint64_t)seq > r->seq) {
            r->seq = (uint64_t)seq;
        }
    }
    json_decref(answer);
}

static void on_load_done(void *ctx, const struct fetch_result *f)
{
    struct reporter *r = ctx;

    r->load = NULL;
    if (ok(f)) {
        r->stats.reports++;
        r->load_failing = false;
        read_load_answer(r, f->body);
    } else if (f->error == 0 && f->status == 404) {
        register_again(r);
    } else {
        r->stats.failures++;
        if (!r->load_failing)
            log_failure(r, "load report", f, "");
        r->load_failing = true;
    }
}

static void on_load_timer(struct loop_timer *t)
{
    struct reporter *r = container_of(t, struct reporter, load_timer);
    struct sample s = {0};
    struct buf body;

    loop_timer_set(r->loop, &r->load_timer, loop_now(r->loop) + r->interval_ns);
    if (r->load)
        return;
    r->fill(r->ctx, &s);
    s.epoch = r->epoch;
    s.seq = ++r->seq;
    buf_init(&body, loop_mem(), BODY_MAX);
    int rc = report_write_sample(&body, &s, r->interval_ns / NS_PER_MS);
    if (rc == 0)
        rc = ask(r, "POST", TO_LOAD, buf_slice(&body), on_load_done, &r->load);
    buf_fini(&body);
    if (rc)
        r->stats.failures++;
}

static void on_leave_done(void *ctx, const struct fetch_result *f)
{
    struct reporter *r = ctx;

    r->control = NULL;
    r->registered = false;
    if (!ok(f) && !(f->error == 0 && f->status == 404))
        log_failure(r, "deregistration", f, "");
    r->on_stopped(r->ctx);
}

static void start_leave(struct reporter *r)
{
    if (r->attempted &&
        ask(r, "DELETE", TO_ENDPOINT, (struct slice){NULL, 0}, on_leave_done, &r->control) == 0)
        return;
    loop_timer_set(r->loop, &r->control_timer, loop_now(r->loop));
}

void report_stop(struct reporter *r)
{
    if (r->stopping)
        return;
    r->stopping = true;
    loop_timer_cancel(&r->control_timer);
    loop_timer_cancel(&r->load_timer);
    if (r->load)
        fetch_cancel(r->load);
    r->load = NULL;
    if (r->registering)
        return; /* its end goes on with the deregistration */
    if (r->control)
        fetch_cancel(r->control);
    r->control = NULL;
    start_leave(r);
}

static int make_urls(struct reporter *r, const char *base)
{
    static const char *const suffixes[N_URLS] = {"", "/renew", "/load"};

    for (int i = 0; i < N_URLS; i++) {
        struct buf url;
        buf_init(&url, loop_mem(), URL_MAX);
        int rc = report_write_url(&url, slice_str(base), r->instance->id, suffixes[i]);
        if (rc == 0 && !(r->urls[i] = mem_strdup(loop_mem(), buf_slice(&url))))
            rc = WEIR_E_NOMEM;
        buf_fini(&url);
        if (rc)
            return rc == WEIR_E_FULL ? WEIR_E_INVALID : rc;
    }
    return 0;
}

int report_new(struct loop *loop,
               struct fetcher *fetcher,
               const struct report_options *o,
               struct reporter **out)
{
    struct url url;

    if (wire_url_parse(slice_str(o->registry_url), &url) != 0 || url.host.n == 0 || url.query.p ||
        o->ttl_ns < 3 * NS_PER_MS)
        return WEIR_E_INVALID;
    struct reporter *r = mem_zalloc(loop_mem(), sizeof(*r));
    if (!r)
        return WEIR_E_NOMEM;
    r->loop = loop;
    r->fetcher = fetcher;
    r->instance = o->instance;
    r->ttl_ns = o->ttl_ns;
    r->interval_ns = o->interval_ns;
    r->fill = o->fill;
    r->on_registered = o->on_registered;
    r->on_stopped = o->on_stopped;
    r->ctx = o->ctx;
    r->epoch = o->instance->epoch;
    r->rnd.state = o->seed;
    r->control_timer.on_timer = on_control_timer;
    r->load_timer.on_timer = on_load_timer;
    int rc = make_urls(r, o->registry_url);
    if (rc == 0 && o->bearer && !(r->bearer = mem_strdup(loop_mem(), slice_str(o->bearer))))
        rc = WEIR_E_NOMEM;
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
    for (int i = 0; i < N_URLS; i++)
        mem_free(loop_mem(), r->urls[i]);
    mem_free(loop_mem(), r->bearer);
    mem_free(loop_mem(), r);
}

void report_read_stats(const struct reporter *r, struct report_stats *out)
{
    *out = r->stats;
    out->registered = r->registered;
}
