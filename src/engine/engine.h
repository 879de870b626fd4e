/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The model of an inference server: continuous batching, KV memory, prefix cache, step times. Pure and
 * deterministic: time comes in as nanoseconds of any clock that starts anywhere, and nothing is drawn at random.
 *
 * One step computes one new token of every decoding request and chunks of prompts, at most max_batched_tokens T:
 *     step_ms = floor + b * max(0, T - 128) + k * C / 1000 + c * B + extra
 * with C context tokens of the decoding requests, B requests in the step and the extra work of those it admits. The requests of a step are fixed when it
 * begins; its tokens appear when it ends. Scheduling is that of vLLM V1: running requests first, then the waiting ones
 * in order of arrival while sequences, tokens and KV memory allow; KV for the whole prompt is taken at admission, one
 * token more per decode; when memory runs out the newest running request is thrown back to the head of the queue and
 * computed again. Only prompt blocks are cached, not generated text.
 *
 * Driving it: engine_submit() and engine_cancel() at any time; sleep until engine_next_event(); engine_advance().
 */
#ifndef WEIR_ENGINE_ENGINE_H
#define WEIR_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"
#include "base/mem.h"
#include "engine/profile.h"

struct engine;

#define ENGINE_NEVER UINT64_MAX

/** Tokens of one prefix cache block: 2,048 bytes of canonical prompt at 4 bytes a token (model/prefix.h). */
enum { ENGINE_BLOCK_TOKENS = 512 };

struct engine_config {
    struct engine_profile profile; /**< copied */
    uint64_t kv_tokens;            /**< 0 = the profile's */
    uint32_t max_num_seqs;         /**< 0 = 256 */
    uint32_t max_batched_tokens;   /**< 0 = 8192 */
    uint32_t
        max_model_len;  /**< prompt and output; 0 = the profile's; never above the KV capacity */
    uint64_t start_ns;  /**< when it was started */
    uint64_t load_ns;   /**< requests wait for this long after the start */
    uint64_t window_ns; /**< over which utilization and rate are averaged; 0 = 1 s */
    /** Progress is told of first tokens and ends only, and steps without news between are run through at once: a
     * simulator's need. Times and statistics are the same to the nanosecond. */
    bool quiet;
};

enum engine_place {
    ENGINE_OUT = 0, /**< not in the engine: new, finished or cancelled */
    ENGINE_WAITING,
    ENGINE_RUNNING,
};

/** One request; embed it, zeroed. It must not move or go while it is in the engine. */
struct engine_request {
    /* Set by the caller before engine_submit(). */
    uint32_t prompt_tokens; /**< at least 1 */
    uint32_t output_tokens; /**< exactly so many are generated; 0 = prompt only (embeddings) */
    uint32_t n_blocks;
    uint64_t
        extra_ns; /**< fixed work in the step that admits it, at full speed: an image's encoder, or all the work of
                            a server of fixed costs (a profile with a floor and nothing else) */
    const uint64_t
        *blocks; /**< prefix chain hashes of its whole blocks; borrowed while in the engine */
    void *user;

    /* Told by the engine. */
    enum engine_place place;
    uint32_t generated;
    uint32_t cached_tokens; /**< prompt tokens found in the prefix cache at the first admission */
    uint32_t preemptions;
    uint64_t submitted_ns;
    uint64_t admitted_ns;    /**< first admission; 0 before */
    uint64_t first_token_ns; /**< 0 before */

    /* The engine's own. */
    struct list node;
    uint32_t computed;    /**< tokens whose KV is there */
    uint32_t held;        /**< KV tokens held outside the prefix cache */
    uint32_t shared;      /**< leading blocks held in the prefix cache */
    uint32_t step_tokens; /**< its part of the step under way */
};

/** Totals count from the start; nothing here ever goes down except the gauges. */
struct engine_stats {
    uint32_t running;
    uint32_t waiting;
    uint32_t batch;       /**< requests in the step under way, 0 when idle */
    uint64_t kv_capacity; /**< tokens */
    uint64_t
        kv_used; /**< tokens held by running requests; cached but unused blocks count as free */
    uint64_t kv_cached;      /**< tokens of cached blocks that nobody uses */
    uint64_t prefix_queries; /**< prompt tokens looked up */
    uint64_t prefix_hits;    /**< of those, tokens found */
    uint64_t preemptions;
    uint64_t prompt_tokens; /**< of requests whose prompt was computed */
    uint64_t generation_tokens;
    uint64_t steps;
    uint64_t busy_ns;    /**< time inside steps, the one under way up to now */
    double utilization;  /**< 0..1: share of the last window inside steps */
    double tokens_per_s; /**< generated, over the last window */
    bool loading;
};

/**
 * A token was generated (r->generated counts it), or a request without output has its prompt computed.
 * @param finished this was the last; r is out of the engine and may be freed or submitted anew.
 * @param at_ns end of the step.
 * May call engine_submit() and engine_cancel() on any request, r too.
 */
typedef void (*engine_progress_fn)(void *ctx,
                                   struct engine_request *r,
                                   uint64_t at_ns,
                                   bool finished);

/** @return 0, WEIR_E_NOMEM, WEIR_E_INVALID (a profile without KV room or time). Freed by engine_free(). */
int engine_new(const struct mem *mem,
               const struct engine_config *config,
               struct engine **out) MUST_CHECK;
/** Requests still inside are forgotten; they are the caller's. */
void engine_free(struct engine *e);

/** Longest prompt plus output in tokens. */
uint32_t engine_max_model_len(const struct engine *e);

/**
 * Hand in a request. Call engine_advance(now) first.
 * @return 0, WEIR_E_INVALID (no prompt token), WEIR_E_RANGE (longer than engine_max_model_len(); nothing changed).
 * Cost: constant.
 */
int engine_submit(struct engine *e, uint64_t now_ns, struct engine_request *r) MUST_CHECK;

/** Take a request out, wherever it is; its KV is free at once, its computed prompt blocks stay cached. Harmless when out. */
void engine_cancel(struct engine *e, struct engine_request *r);

/** When engine_advance() has something to do next, or in quiet mode a time not after that; ENGINE_NEVER when idle. */
uint64_t engine_next_event(const struct engine *e);

/** Live through everything up to now_ns. Must not be called from a progress callback. */
void engine_advance(struct engine *e, uint64_t now_ns, engine_progress_fn progress, void *ctx);

/** Steps that begin from now on take `factor` (> 0) times as long; 1 is normal. */
void engine_set_slowdown(struct engine *e, double factor);

void engine_read_stats(const struct engine *e, uint64_t now_ns, struct engine_stats *out);

/** The step-time form, for those who only predict: nanoseconds for T new tokens, C context tokens, B requests. */
uint64_t engine_step_ns(const struct engine_profile *p,
                        uint64_t new_tokens,
                        uint64_t context_tokens,
                        uint64_t batch);

#endif /* WEIR_ENGINE_ENGINE_H */
