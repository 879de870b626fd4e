/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Reads one inference server: is it ready, what does it serve, how busy is it. One reader for every kind of
 * engine: what differs between them stands in src/probe/adapters_codec.h. Used by the gateway's checks and by the agent.
 * One loop, one thread.
 */
#ifndef WEIR_PROBE_ENGINE_H
#define WEIR_PROBE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "loop/loop.h"
#include "model/endpoint_t.h"
#include "model/sample_t.h"
#include "net/fetch.h"

enum engine_state {
    ENGINE_STATE_UNKNOWN = 0, /**< not asked yet, or no answer that tells */
    ENGINE_STATE_LOADING,     /**< it answers that it is not ready yet */
    ENGINE_STATE_READY,
    ENGINE_STATE_DEAD, /**< refused, timed out, or an answer that says it is broken */
};

/** What is new in a reading; a bit set. */
enum engine_news {
    ENGINE_NEWS_HEALTH = 1, /**< a health check ended: state, reachable, why */
    ENGINE_NEWS_MODELS =
        2, /**< the model list was asked for: models, n_models (0 = it gave none) */
    ENGINE_NEWS_SAMPLE = 4, /**< numbers were read; a scrape that failed gives sample.known == 0 */
    ENGINE_NEWS_RESTART =
        8, /**< its process start time (process_start_time_seconds) rose: another process */
};

/** All of it borrowed for the length of the callback. What is not new repeats what was read last. */
struct engine_reading {
    uint32_t news;     /**< enum engine_news */
    bool reachable;    /**< it answered the last health check, whatever it said */
    bool detected;     /**< kind is sure: given, or found out by probing */
    bool models_known; /**< a model list was read since it last became reachable */
    enum engine_state state;
    enum engine_kind kind;
    const struct model_ref *models;
    uint32_t n_models;
    /** Known bits for running, waiting, KV capacity and use, tokens/s, state. Epoch, seq, received_ns, fresh_for_ns are
     * the caller's to set. The last one that was read; known == 0 once the engine stops telling. */
    struct sample sample;
    double prefix_hit_ratio; /**< since the reading before, 0..1; < 0 = unknown */
    const char *why;         /**< words for a log line about the state, never NULL */
};

struct engine_options {
    struct loop *loop;
    struct fetcher *fetcher;
    const char *base_url;  /**< "http://host:port" or https, no slash at the end; copied */
    const char *unix_path; /**< connect this socket, whatever base_url says; NULL = none; copied */
    const struct fetch_tls *tls; /**< borrowed for the reader's life; NULL = as fetch_options */
    enum engine_kind kind;       /**< ENGINE_UNKNOWN: auto, find out by probing */
    uint64_t interval_ns;        /**< between two scrapes; 0 = no numbers are read */
    uint64_t timeout_ns;         /**< of one request */
    /** Between two health checks; 0 = interval_ns. An engine that works for each check (SGLang) is asked no more often
     * than every 5 s. */
    uint64_t health_ns;
    uint64_t shift_ns; /**< the second health check comes so much earlier: spreads many readers */
    const char *health_path; /**< NULL: the engine's own; copied */
    const char *metrics_url; /**< NULL: base_url + the engine's own path; copied */
    bool no_models;          /**< do not ask for the model list */
    struct slice
        model; /**< one it is known to serve, for engines that are asked for it by name; copied; absent: none */
    /** NULL: scrape always. Else asked before each scrape: false skips it. */
    bool (*wants_sample)(void *ctx);
    void *ctx;
    /** May call engine_reader_free(). */
    void (*on_reading)(void *ctx, const struct engine_reading *reading);
};

struct engine_reader;

/** Starts at once: the first requests leave when the loop turns. */
int engine_reader_new(const struct engine_options *o, struct engine_reader **out) MUST_CHECK;
/** Cancels what is under way. NULL is fine. */
void engine_reader_free(struct engine_reader *r);
/** Start or stop asking for the model list. */
void engine_reader_want_models(struct engine_reader *r, bool want);

/** "vllm", "sglang", "tgi", ... as in configuration and metadata; "auto" for ENGINE_UNKNOWN. Static text. */
const char *engine_kind_name(enum engine_kind kind);
/** The kind of that name, case ignored. WEIR_E_NOTFOUND. */
int engine_kind_named(struct slice name, enum engine_kind *out) MUST_CHECK;

#endif /* WEIR_PROBE_ENGINE_H */
