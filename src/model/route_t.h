/* SPDX-License-Identifier: Apache-2.0 */
/** @file How requests of one kind are treated: match, policy, timeouts, retry, queue. Built by conf, read by proxy. */
#ifndef WEIR_MODEL_ROUTE_T_H
#define WEIR_MODEL_ROUTE_T_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"
#include "model/breaker_t.h"
#include "model/endpoint_t.h"
#include "model/policy_t.h"

enum half_close { HALF_CLOSE_GONE, HALF_CLOSE_KEEP };
enum forwarded { FORWARDED_APPEND, FORWARDED_REPLACE, FORWARDED_OFF };

/** All in nanoseconds; 0 = none. */
struct route_timeouts {
    uint64_t connect_ns;
    uint64_t first_byte_ns;    /**< request sent to first response byte */
    uint64_t between_bytes_ns; /**< silence inside a response */
    uint64_t total_ns;         /**< arrival to last byte */
};

struct route_retry {
    uint32_t connect_attempts; /**< other endpoints tried after a connect failure; default 3 */
    uint32_t budget_percent;   /**< of requests in the last 10 s; default 20 */
    uint32_t budget_min_per_s; /**< default 3 */
    bool retry_unsafe;         /**< also a POST that a worker may have started */
};

struct route_queue {
    uint32_t size;       /**< waiters per pool; default 1024 */
    uint64_t timeout_ns; /**< default 60 s */
    uint64_t age_ns;     /**< a waiter rises one class per this; default 10 s */
    bool by_tenant;      /**< requests of a class are served by their tenants' token counters */
};

/** Targets of requests that name none, in nanoseconds; 0 = none. */
struct route_slo {
    uint64_t ttft_ns; /**< arrival to first byte */
    uint64_t tpot_ns; /**< for each token after the first */
};

/** What a request must have besides its path; empty lists ask for nothing. */
struct route_match {
    const struct slice *methods; /**< one of them, exactly */
    uint32_t n_methods;
    const struct slice
        *hosts; /**< one of them, without case and port; "*.x" is any name that ends in ".x" */
    uint32_t n_hosts;
    const struct kv *headers; /**< all of them, one field with that value; "*" is any value */
    uint32_t n_headers;
    const struct kv *query; /**< all of them, decoded; "*" is any value */
    uint32_t n_query;
    const struct slice
        *content_types; /**< one of them, without case and parameters; a star for any subtype */
    uint32_t n_content_types;
};

struct route {
    struct slice
        match; /**< all it is known by (name, match, labels), as text: tells routes apart when the config changes; absent: path */
    struct slice name; /**< for metrics and logs: see route_name(); absent: not given */
    struct slice path; /**< exact, or a prefix when it ends in "**" */
    const struct route_match *more; /**< what else; NULL: the path alone decides */
    const struct kv *labels;        /**< endpoints must have all of them */
    uint32_t n_labels;
    const struct policy *policy;
    struct slice default_model; /**< absent: none */
    struct hash_on hash_on[POLICY_HASH_ON_MAX];
    uint32_t n_hash_on;
    enum half_close half_close;
    enum forwarded forwarded; /**< what becomes of X-Forwarded-For, -Proto and -Host */
    struct route_timeouts timeouts;
    struct route_retry retry;
    struct route_queue queue;
    struct route_slo slo;
    bool trust_priority; /**< X-Priority counts */
    bool trust_tenant;   /**< X-Tenant-Id counts */
};

/** Unique among the routes. */
static inline struct slice route_name(const struct route *r)
{
    return r->name.p ? r->name : r->path;
}

/** One model as the config knows it. */
struct model_config {
    struct slice id;
    const struct slice *aliases;
    uint32_t n_aliases;
    uint64_t kv_bytes_per_token; /**< 0 = unknown */
};

/** What a tenant may use in a minute, in the process; 0 = any. */
struct tenant_limits {
    uint32_t requests, tokens;
};

/** One tenant as the config knows it. */
struct tenant_config {
    struct slice name;      /**< X-Tenant-Id */
    uint32_t weight;        /**< share against others, thousandths */
    uint32_t max_in_flight; /**< requests waiting or served, in the process; 0 = any */
    struct tenant_limits limits;
};

struct limits {
    uint64_t body_bytes;
    uint64_t peek_bytes;
    uint64_t header_bytes;
    uint32_t headers; /**< fields in one head */
    uint32_t connections;
    uint64_t buffer_bytes;       /**< process-wide */
    uint64_t prefix_index_bytes; /**< which endpoint holds which prefix, process-wide; 0 = off */
    uint64_t idle_ns;            /**< keep-alive client connection without a request */
    uint64_t header_read_ns;     /**< first byte of a head to its end */
    uint64_t tls_handshake_ns;   /**< of a client */
    uint32_t tls_handshakes;     /**< of clients, at one time, per listener */
    uint64_t body_read_ns;       /**< silence inside a request body */
    uint64_t body_rate;    /**< bytes/s that a request body brings in each body_read; 0 = any */
    uint64_t stream_ns;    /**< first to last byte of a response; 0 = any */
    uint64_t stream_bytes; /**< of one response body; 0 = any */
    uint64_t drain_ns;     /**< from a signal to the end of what is under way */
};

/** Everything the data plane needs of one config generation. Immutable while in use. */
struct routing {
    const struct route *routes; /**< first match counts */
    uint32_t n_routes;
    const struct model_config *models;
    uint32_t n_models;
    const struct tenant_config *tenants;
    uint32_t n_tenants;
    struct limits limits;
    struct breaker_rules breaker;
    uint64_t generation; /**< of the config */
};

#endif /* WEIR_MODEL_ROUTE_T_H */
