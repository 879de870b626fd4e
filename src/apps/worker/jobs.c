/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job is in the engine, or parked (a hang fault: taken and never answered). It goes when it is answered, reset, or its
 * client is gone; whoever ends it frees it.
 */
#include "apps/worker/jobs.h"

#include <stdio.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "apps/worker/answer.h"
#include "base/bug.h"
#include "base/hash.h"
#include "loop/alloc.h"
#include "loop/log.h"

enum {
    ANSWER_MAX = 64 << 20,
    UNSENT_MAX = 16 << 20, /* a reader that lags behind so far is dropped */
    REQUEST_ID_MAX = 256,
    MEAN_OUTPUT = 200,
};

struct job {
    struct engine_request request;
    struct list node;
    struct worker_server *server;
    struct http_request *http;
    struct ask ask;
    struct answer answer;
    uint32_t events; /* sent */
    uint64_t last_token_ns;
    bool begun;   /* the stream's head is out */
    bool parked;  /* never answered */
    bool natural; /* ends by itself, not by max_tokens */
};

/* --------------------------------------------------------------------------------------------------- time */

uint64_t jobs_engine_now(const struct worker_server *w)
{
    return JOBS_ENGINE_EPOCH + (uint64_t)((double)(loop_clock() - w->start_ns) * w->o->time_scale);
}

static uint64_t clock_of(const struct worker_server *w, uint64_t engine_ns)
{
    return w->start_ns + (uint64_t)((double)(engine_ns - JOBS_ENGINE_EPOCH) / w->o->time_scale) + 1;
}

static double seconds_of(const struct worker_server *w, uint64_t engine_ns)
{
    return (double)engine_ns / w->o->time_scale / 1e9;
}

static void set_timer(struct worker_server *w)
{
    uint64_t next = engine_next_event(w->engine);
    uint64_t at = next == ENGINE_NEVER ? 0 : clock_of(w, next);
    struct itimerspec spec = {
        .it_value = {.tv_sec = (time_t)(at / NS_PER_S), .tv_nsec = (long)(at % NS_PER_S)}};

    if (at == w->armed_ns)
        return;
    BUG_ON(timerfd_settime(w->timer.fd, TFD_TIMER_ABSTIME, &spec, NULL) != 0);
    w->armed_ns = at;
}

/* ---------------------------------------------------------------------------------------------- answering */

/* X-Weir-Worker on every answer, X-Request-Id when the request had one. */
static void put_headers(struct worker_server *w, const struct http_request *r, struct buf *out)
{
    struct slice id = wire_http1_value(r->head, SLICE("X-Request-Id"));

    buf_put_str(out, "X-Weir-Worker: ");
    buf_put_slice(out, w->name);
    buf_put_str(out, "\r\n");
    if (id.n == 0 || id.n > REQUEST_ID_MAX)
        return;
    buf_put_str(out, "X-Request-Id: ");
    buf_put_slice(out, id);
    buf_put_str(out, "\r\n");
}

void jobs_reply(struct worker_server *w,
                struct http_request *r,
                unsigned status,
                const char *type,
                struct slice body,
                const char *more_headers)
{
    struct buf headers;

    buf_init(&headers, loop_mem(), 4096);
    put_headers(w, r, &headers);
    buf_put_str(&headers, more_headers);
    http_reply_with(r, status, type, buf_slice(&headers), body);
    buf_fini(&headers);
}

void jobs_reply_json(struct worker_server *w, struct http_request *r, const struct buf *body)
{
    if (body->err)
        jobs_reply(w, r, 500, "text/plain", SLICE("out of memory\n"), "");
    else
        jobs_reply(w, r, 200, "application/json", buf_slice(body), "");
}

static const char *error_type(unsigned status)
{
    if (status == 404)
        return "NotFoundError";
    if (status == 429)
        return "RateLimitError";
    if (status == 503)
        return "ServiceUnavailableError";
    return status < 500 ? "BadRequestError" : "InternalServerError";
}

void jobs_reply_error(struct worker_server *w,
                      struct http_request *r,
                      unsigned status,
                      const char *param,
                      struct slice message)
{
    struct buf body;

    buf_init(&body, loop_mem(), 65536);
    answer_error(&body, status, error_type(status), param, message);
    jobs_reply(w, r, status, "application/json", buf_slice(&body),
               status == 503 || status == 429 ? "Retry-After: 1\r\n" : "");
    buf_fini(&body);
}

/* --------------------------------------------------------------------------------------------------- jobs */

static bool in_engine(const struct worker_server *w)
{
    struct engine_stats s;

    engine_read_stats(w->engine, jobs_engine_now(w), &s);
    return s.running + s.waiting > 0;
}

void jobs_look_whether_idle(struct worker_server *w)
{
    if (w->draining && !in_engine(w) && !loop_timer_active(&w->idle_timer))
        loop_timer_set(w->loop, &w->idle_timer, 0);
}

static void job_free(struct job *j)
{
    struct worker_server *w = j->server;

    engine_cancel(w->engine, &j->request);
    list_del(&j->node);
    w->n_parked -= j->parked;
    ask_fini(&j->ask);
    mem_free(loop_mem(), j);
    jobs_look_whether_idle(w);
}

static void on_gone(struct http_request *r)
{
    struct job *j = r->user;

    if (j->request.place != ENGINE_OUT)
        j->server->metrics.finished[FINISH_ABORT]++;
    job_free(j);
}

/* Taken and never answered; the client decides how long. */
static void park(struct job *j)
{
    engine_cancel(j->server->engine, &j->request);
    j->parked = true;
    j->server->n_parked++;
}

static void break_off(struct job *j)
{
    http_abort(j->http);
    if (j->request.place != ENGINE_OUT)
        j->server->metrics.finished[FINISH_ABORT]++;
    job_free(j);
}

/* An answer is complete. A scripted death comes here: at once and without a farewell, as a crash does. */
static void answered(struct worker_server *w)
{
    w->n_answered++;
    if (w->n_answered >= w->fault.die_after) {
        log_warn("worker", "die_after=%u: exiting", w->fault.die_after);
        _exit(1);
    }
}

static const char *finish_word(const struct job *j)
{
    return j->natural ? "stop" : "length";
}

static void begin_stream(struct job *j)
{
    struct buf headers;

    buf_init(&headers, loop_mem(), 4096);
    put_headers(j->server, j->http, &headers);
    http_stream_begin(j->http, 200, "text/event-stream; charset=utf-8", buf_slice(&headers));
    buf_fini(&headers);
    j->begun = true;
}

/* Send what is in `event` as the next event. @return false: a fault or a full queue ended the stream, j may be gone. */
static bool send_event(struct job *j, struct buf *event)
{
    struct fault *f = &j->server->fault;

    if (j->events >= f->reset_after || event->err) {
        break_off(j);
        return false;
    }
    if (j->events >= f->hang_after) {
        park(j);
        return false;
    }
    j->events++;
    if (http_stream_write(j->http, buf_slice(event)) > UNSENT_MAX) {
        break_off(j);
        return false;
    }
    buf_clear(event);
    return true;
}

static void stream_progress(struct job *j, bool finished)
{
    struct worker_server *w = j->server;
    struct buf *event = &w->event;
    bool alive = true;

    buf_clear(event);
    if (!j->begun)
        begin_stream(j);
    if (j->events == 0 && j->ask.kind == ASK_CHAT) {
        answer_event_role(event, &j->answer);
        alive = send_event(j, event);
    }
    if (alive) {
        answer_event_token(event, &j->answer, j->request.generated - 1,
                           finished ? finish_word(j) : NULL);
        alive = send_event(j, event);
    }
    if (alive && finished && j->ask.include_usage) {
        answer_event_usage(event, &j->answer, j->request.generated);
        alive = send_event(j, event);
    }
    if (alive && finished) {
        answer_event_done(event);
        alive = send_event(j, event);
    }
    if (alive && finished) {
        http_stream_end(j->http);
        job_free(j);
        answered(w);
    }
}

static void reply_whole(struct job *j)
{
    struct worker_server *w = j->server;
    struct buf body;

    buf_init(&body, loop_mem(), ANSWER_MAX);
    if (j->ask.kind == ASK_EMBEDDING)
        answer_embeddings(&body, &j->ask);
    else
        answer_whole(&body, &j->answer, j->request.generated, finish_word(j));
    jobs_reply_json(w, j->http, &body);
    buf_fini(&body);
    job_free(j);
    answered(w);
}

static void count_progress(struct job *j, uint64_t at_ns, bool finished)
{
    struct worker_server *w = j->server;
    const struct engine_request *r = &j->request;

    if (j->last_token_ns == 0) {
        metrics_queue(&w->metrics, seconds_of(w, r->admitted_ns - r->submitted_ns));
        metrics_first_token(&w->metrics, seconds_of(w, at_ns - r->submitted_ns));
    } else {
        metrics_between_tokens(&w->metrics, seconds_of(w, at_ns - j->last_token_ns));
    }
    j->last_token_ns = at_ns;
    if (!finished)
        return;
    metrics_whole(&w->metrics, seconds_of(w, at_ns - r->submitted_ns));
    w->metrics.finished[j->natural ? FINISH_STOP : FINISH_LENGTH]++;
}

static void on_progress(void *ctx, struct engine_request *r, uint64_t at_ns, bool finished)
{
    struct job *j = container_of(r, struct job, request);

    (void)ctx;
    count_progress(j, at_ns, finished);
    j->answer.cached_tokens = r->cached_tokens;
    if (j->ask.stream)
        stream_progress(j, finished);
    else if (finished)
        reply_whole(j);
}

/* Live up to now and wake up for what comes next. */
void jobs_advance(struct worker_server *w)
{
    engine_advance(w->engine, jobs_engine_now(w), on_progress, NULL);
    set_timer(w);
    jobs_look_whether_idle(w);
}

void jobs_on_timerfd(struct loop_watch *watch, uint32_t events)
{
    struct worker_server *w = container_of(watch, struct worker_server, timer);
    uint64_t expirations;

    (void)events;
    if (read(watch->fd, &expirations, sizeof(expirations)) > 0)
        w->armed_ns = 0;
    jobs_advance(w);
}

void jobs_on_idle_timer(struct loop_timer *t)
{
    struct worker_server *w = container_of(t, struct worker_server, idle_timer);

    if (w->on_idle && !in_engine(w))
        w->on_idle(w->on_idle_ctx);
}

/* ----------------------------------------------------------------------------------------------- requests */

/* How many tokens it will get: as many as it asked for, else a draw around the mean. */
static uint32_t output_length(struct job *j)
{
    uint32_t room = engine_max_model_len(j->server->engine);
    struct prng rnd = {j->answer.seed};
    uint32_t drawn = 1 + (uint32_t)prng_below(&rnd, 2 * MEAN_OUTPUT - 1);

    if (j->ask.kind == ASK_EMBEDDING)
        return 0;
    if (j->ask.has_max_tokens)
        return j->ask.max_tokens;
    room = room > j->ask.prompt_tokens ? room - j->ask.prompt_tokens : 1;
    j->natural = drawn <= room;
    return MIN(drawn, room);
}

static void reply_too_long(struct job *j)
{
    char text[256];
    int n = snprintf(
        text, sizeof(text),
        "This model's maximum context length is %u tokens. However, you requested %llu tokens (%u "
        "in the "
        "prompt, %u in the completion). Please reduce the length of the prompt or completion.",
        engine_max_model_len(j->server->engine),
        (unsigned long long)j->request.prompt_tokens + j->request.output_tokens,
        j->request.prompt_tokens, j->request.output_tokens);

    jobs_reply_error(j->server, j->http, 400, NULL, slice_of(text, (size_t)n));
}

static void submit(struct job *j)
{
    struct worker_server *w = j->server;

    j->answer = (struct answer){
        .kind = j->ask.kind,
        .id = hash_pair(hash_slice(w->name, w->o->seed), w->n_asked),
        .created_s = loop_wall_clock() / NS_PER_S,
        .model = j->ask.model,
        .seed = hash_pair(w->o->seed, j->ask.prompt_hash),
        .prompt_tokens = j->ask.prompt_tokens,
    };
    j->request = (struct engine_request){
        .prompt_tokens = j->ask.prompt_tokens,
        .output_tokens = output_length(j),
        .blocks = j->ask.blocks,
        .n_blocks = j->ask.n_blocks,
    };
    engine_advance(w->engine, jobs_engine_now(w), on_progress, NULL);
    if (engine_submit(w->engine, jobs_engine_now(w), &j->request) != 0) {
        reply_too_long(j);
        job_free(j);
    } else if (j->ask.stream && w->o->early_headers) {
        begin_stream(j);
    }
    jobs_advance(w);
}

/* Faults that decide before the request is read. @return true: it was dealt with. */
static bool fault_answers(struct worker_server *w, struct http_request *r)
{
    const struct fault *f = &w->fault;

    if (w->n_answered >= f->die_after)
        _exit(1);
    if (f->reset) {
        http_abort(r);
        return true;
    }
    if (f->status && prng_unit(&w->rnd) < f->status_share) {
        jobs_reply_error(w, r, f->status, NULL, SLICE("scripted fault"));
        return true;
    }
    return false;
}

void jobs_infer(struct worker_server *w, struct http_request *r, enum ask_kind kind)
{
    struct engine_stats s;
    struct ask_error error;

    w->n_asked++;
    if (fault_answers(w, r))
        return;
    engine_read_stats(w->engine, jobs_engine_now(w), &s);
    if (w->draining || s.loading) {
        jobs_reply_error(w, r, 503, NULL,
                         w->draining ? SLICE("The server is draining.")
                                     : SLICE("The model is loading."));
        return;
    }
    struct job *j = mem_zalloc(loop_mem(), sizeof(*j));
    if (!j) {
        jobs_reply_error(w, r, 503, NULL, SLICE("out of memory"));
        return;
    }
    int rc = ask_parse(kind, r->body, w->o->models, w->o->n_models, &j->ask, &error);
    if (rc) {
        mem_free(loop_mem(), j);
        if (rc == WEIR_E_NOMEM)
            jobs_reply_error(w, r, 503, NULL, SLICE("out of memory"));
        else
            jobs_reply_error(w, r, error.status, error.param, slice_str(error.message));
        return;
    }
    if (kind == ASK_EMBEDDING)
        j->ask.stream = false;
    j->server = w;
    j->http = r;
    list_init(&j->node);
    list_add(&w->jobs, &j->node);
    r->user = j;
    r->on_gone = on_gone;
    if (w->fault.hang)
        park(j);
    else
        submit(j);
}
