/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The serving half of the emulated worker: HTTP requests in, the engine driven by a timer, answers out.
 * Engine time runs time_scale times as fast as the clock; a timerfd wakes the loop at the end of each step, because the
 * loop's own timers are too coarse for steps of 200 us.
 */
#ifndef WEIR_APPS_WORKER_SERVER_H
#define WEIR_APPS_WORKER_SERVER_H

#include "apps/worker/metrics.h"
#include "apps/worker/options.h"
#include "loop/loop.h"
#include "model/sample_t.h"
#include "net/addr.h"

struct worker_server;

/** @param o borrowed until stop. @param bound out: address with its port. */
int worker_server_start(struct loop *loop,
                        const struct worker_options *o,
                        struct worker_server **out,
                        struct net_addr *bound) MUST_CHECK;
/** Ends all; requests in work are dropped. */
void worker_server_stop(struct worker_server *w);

/** What X-Weir-Worker says; borrowed until stop. */
void worker_server_name(struct worker_server *w, struct slice name);

/** Refuse new inference requests with 503; on_idle is called, not inside this call, when none is left in the engine. */
void worker_server_drain(struct worker_server *w, void (*on_idle)(void *ctx), void *ctx);

/**
 * How it is now, for a load report. memory_free_bytes means "bytes a request could still get": the tenth of the device
 * that a preallocating server leaves alone, plus the free part of its KV cache. What the model does not know is left out.
 */
void worker_server_sample(struct worker_server *w, struct sample *s);

/** Longest prompt and output in tokens, as the engine has it. */
uint32_t worker_server_max_model_len(const struct worker_server *w);

#endif /* WEIR_APPS_WORKER_SERVER_H */
