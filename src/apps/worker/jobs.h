/* SPDX-License-Identifier: Apache-2.0 */
/** @file The emulated worker's jobs: inference requests from arrival to the end of their answer. Inside apps/worker only. */
#ifndef WEIR_APPS_WORKER_JOBS_H
#define WEIR_APPS_WORKER_JOBS_H

#include "apps/worker/ask.h"
#include "apps/worker/metrics.h"
#include "apps/worker/options.h"
#include "base/buf.h"
#include "base/num.h"
#include "base/prng.h"
#include "loop/loop.h"
#include "net/http_server.h"

/** Engine time at the start: 0 means "not yet" in its requests. */
#define JOBS_ENGINE_EPOCH NS_PER_S

/** Everything of one worker; server.c starts and ends it, jobs.c lives in it. */
struct worker_server {
    struct loop *loop;
    const struct worker_options *o;
    struct engine *engine;
    struct http_server *http;
    struct loop_watch timer; /* timerfd */
    uint64_t armed_ns;       /* when it goes off; 0 = not set */
    uint64_t start_ns;       /* clock at engine_epoch */
    struct list jobs;        /* all */
    uint32_t n_parked;
    uint64_t n_asked;
    uint32_t n_answered; /* since the fault was set */
    struct fault fault;
    struct buf fault_text;
    struct buf event; /* the event being sent; kept for the next */
    struct prng rnd;
    struct metrics metrics;
    struct slice name;
    bool draining;
    void (*on_idle)(void *ctx);
    void *on_idle_ctx;
    struct loop_timer idle_timer;
};

/** Engine time of this moment. */
uint64_t jobs_engine_now(const struct worker_server *w);

/** Live up to now, send what came of it, and wake up for what comes next. */
void jobs_advance(struct worker_server *w);

/** Handle an inference request: answered now or later. */
void jobs_infer(struct worker_server *w, struct http_request *r, enum ask_kind kind);

/** When draining and nothing is left in the engine: have on_idle called. */
void jobs_look_whether_idle(struct worker_server *w);

/** Callbacks of the timers in struct worker_server. */
void jobs_on_timerfd(struct loop_watch *watch, uint32_t events);
void jobs_on_idle_timer(struct loop_timer *t);

/** Answers that carry X-Weir-Worker and X-Request-Id. @param more_headers lines ending in CRLF, or "". */
void jobs_reply(struct worker_server *w,
                struct http_request *r,
                unsigned status,
                const char *type,
                struct slice body,
                const char *more_headers);
void jobs_reply_json(struct worker_server *w, struct http_request *r, const struct buf *body);
void jobs_reply_error(struct worker_server *w,
                      struct http_request *r,
                      unsigned status,
                      const char *param,
                      struct slice message);

#endif /* WEIR_APPS_WORKER_JOBS_H */
