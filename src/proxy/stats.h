/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Counters of the data plane, merged on demand. Each loop writes its own (relaxed atomics, one writer), so the
 * hot path shares no line. Names that clients invent never create series: models are those that have a pool.
 */
#ifndef WEIR_PROXY_STATS_H
#define WEIR_PROXY_STATS_H

#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/slice.h"
#include "model/error_t.h"

struct proxy;

#define PROXY_OUTCOMES(X)                                                                          \
    X(OK, "ok")                                                                                    \
    X(CLIENT_ERROR, "client_error")                                                                \
    X(UPSTREAM_ERROR, "upstream_error")                                                            \
    X(UPSTREAM_ABORTED, "upstream_aborted")                                                        \
    X(CLIENT_GONE, "client_gone")                                                                  \
    X(TIMEOUT, "timeout")                                                                          \
    X(REJECTED, "rejected")

enum proxy_outcome {
#define PROXY_OUTCOME_ENUM(name, text) OUTCOME_##name,
    PROXY_OUTCOMES(PROXY_OUTCOME_ENUM)
#undef PROXY_OUTCOME_ENUM
        OUTCOME_COUNT
};
extern const char *const proxy_outcome_names[OUTCOME_COUNT];

#define PROXY_RETRIES(X)                                                                           \
    X(CONNECT, "connect")                                                                          \
    X(REUSED, "reused_connection")                                                                 \
    X(BUSY, "busy")                                                                                \
    X(FAILED, "failed")

enum proxy_retry {
#define PROXY_RETRY_ENUM(name, text) RETRY_##name,
    PROXY_RETRIES(PROXY_RETRY_ENUM)
#undef PROXY_RETRY_ENUM
        RETRY_COUNT
};
extern const char *const proxy_retry_names[RETRY_COUNT];

/** What an answer's tokens are counted under: OpenTelemetry's gen_ai.operation.name. */
#define PROXY_OPERATIONS(X)                                                                        \
    X(CHAT, "chat")                                                                                \
    X(COMPLETION, "text_completion")                                                               \
    X(EMBEDDING, "embeddings")                                                                     \
    X(OTHER, "other")

enum proxy_operation {
#define PROXY_OPERATION_ENUM(name, text) OPERATION_##name,
    PROXY_OPERATIONS(PROXY_OPERATION_ENUM)
#undef PROXY_OPERATION_ENUM
        OPERATION_COUNT
};
extern const char *const proxy_operation_names[OPERATION_COUNT];

enum { PROXY_BOUNDS = 20 };
/** Upper bounds in seconds of the duration histograms, and of the decision histogram. */
extern const double proxy_bounds[PROXY_BOUNDS];
extern const double proxy_decision_bounds[PROXY_BOUNDS];

/** Counts per bucket, not cumulative; the last is +Inf. */
struct proxy_hist {
    uint64_t counts[PROXY_BOUNDS + 1];
    uint64_t sum_ns;
};

enum { PROXY_TOKEN_BOUNDS = 14, TOKENS_INPUT = 0, TOKENS_OUTPUT, TOKENS_KINDS };
/** Upper bounds of the token histograms, as OpenTelemetry asks: 1, 4, 16, ... 67108864. */
extern const double proxy_token_bounds[PROXY_TOKEN_BOUNDS];

/** Requests by how many tokens they used; counts per bucket, not cumulative, the last is +Inf. */
struct proxy_token_hist {
    uint64_t counts[PROXY_TOKEN_BOUNDS + 1];
    uint64_t sum;
};

/** One (model, route). Slices live as long as the proxy. */
struct proxy_series {
    struct slice model; /**< "other" for all that has no pool */
    struct slice route; /**< its name or path as configured; "none" when no route matched */
    uint64_t requests[OUTCOME_COUNT];
    struct proxy_hist
        compute;      /**< arrival to last byte without the queue, answers of workers only */
    uint32_t waiting; /**< in the queue now */
    uint32_t members;
    uint64_t picks;       /**< decisions */
    uint64_t fit_sum;     /**< candidates that fit, summed over picks */
    uint64_t offered_sum; /**< candidates looked at, summed over picks */
    struct proxy_token_hist tokens[OPERATION_COUNT][TOKENS_KINDS]; /**< as the answers say */
    uint64_t cached_tokens; /**< of the input, found in an engine's prefix cache */
    uint64_t cached_of;     /**< input tokens of the answers that told that */
    uint64_t usage_unknown; /**< good answers of a known operation that do not say what they used */
};

/** One tenant that some configuration named; the first is of all others. */
struct proxy_tenant {
    struct slice name;
    uint64_t inflight, requests, refused, input_tokens, output_tokens, queued_ns;
};

struct proxy_stats {
    uint64_t rejections[REJECT_COUNT];
    uint64_t retries[RETRY_COUNT];
    uint64_t spilled; /**< requests sent out of the policy's place */
    struct proxy_hist duration, first_byte, queue, decision;
    uint64_t connections;          /**< client connections open now */
    uint64_t access_log_lost;      /**< lines that could not be written */
    uint64_t connections_refused;  /**< above the limit */
    uint64_t active;               /**< exchanges under way */
    uint64_t sockets;              /**< of them, switched to another protocol */
    uint64_t buffered_bytes;       /**< request bodies and unsent answers held */
    uint64_t upstream_connections; /**< made, ever */
    struct proxy_series *series;   /**< owned; those with a pool or a count */
    uint32_t n_series;
    struct proxy_tenant *tenants; /**< owned */
    uint32_t n_tenants;
};

/** Merge all loops. Free with proxy_stats_fini(). Thread: any. */
int proxy_stats_read(struct proxy *p, const struct mem *mem, struct proxy_stats *out) MUST_CHECK;
void proxy_stats_fini(struct proxy_stats *s, const struct mem *mem);

#endif /* WEIR_PROXY_STATS_H */
