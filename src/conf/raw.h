/* SPDX-License-Identifier: Apache-2.0 */
/** @file The configuration as it was written, defaults filled in: where the option table's offsets lead. Internal to conf. */
#ifndef WEIR_CONF_RAW_H
#define WEIR_CONF_RAW_H

#include "conf/conf.h"

/** First member of every item of a raw_list. */
struct raw_item {
    struct slice name; /**< its key when it stands in a map */
    uint32_t node;     /**< of the item; 0 = it stands in no file */
};

struct raw_list {
    void *items; /**< of the size that the section says */
    uint32_t n;
};

struct raw_texts {
    struct slice *items;
    uint32_t n;
};

struct raw_hash_on {
    struct hash_on items[POLICY_HASH_ON_MAX];
    uint32_t n;
};

struct raw_labels {
    struct kv *items;
    uint32_t n;
};

struct raw_gpu_weights {
    struct gpu_weight items[POLICY_GPU_WEIGHTS_MAX];
    uint32_t n;
};

struct raw_curve {
    struct curve_point items[POLICY_CURVE_MAX];
    uint32_t n;
};

struct raw_tls_pair {
    struct raw_item item;
    struct conf_tls_pair pair;
};

struct raw_tls {
    struct conf_tls_pair pair;
    struct raw_list more;
    struct slice client_ca;
    enum conf_client_cert client_cert;
};

struct raw_listener {
    struct raw_item item;
    struct conf_listener listener;
    struct slice socket_mode, socket_user, socket_group;
    struct raw_tls tls;
};

struct raw_admin {
    struct conf_admin admin;
    struct raw_tls tls;
};

struct raw_registry {
    struct conf_registry registry;
    struct raw_tls tls;
};

struct raw_endpoint {
    struct raw_item item;
    const char *origin; /**< the flag it comes from, or NULL */
    struct slice url;
    uint32_t weight;
    struct raw_labels labels;
    struct raw_texts models;
    struct slice gpu_type;
    uint32_t max_concurrency, max_model_len;
    enum engine_kind engine;
    struct slice region, zone, cluster;
};

struct raw_source {
    struct raw_item item;
    struct conf_source source; /**< as compiled, but for its lists */
    struct raw_list endpoints;
    struct raw_texts servers, services, clusters;
};

struct raw_model {
    struct raw_item item;
    struct raw_texts aliases;
    uint64_t kv_bytes_per_token;
};

struct raw_tenant {
    struct raw_item item;
    uint32_t weight, max_in_flight;
    struct tenant_limits limits;
};

struct raw_score {
    struct raw_item item;
    struct slice plugin;
    uint32_t weight;
};

struct raw_policy {
    struct raw_item item;
    struct slice use;
    struct raw_texts filters;
    struct raw_list scores;
    struct slice pick;
    struct raw_curve curve;
    uint32_t bound; /**< 0 = as the built-in policy has it, or the default */
};

/** Positions of the words of `trust`. */
enum { TRUST_PRIORITY, TRUST_TENANT };

struct raw_route {
    struct raw_item item;
    struct slice name;
    struct slice path;
    struct raw_texts methods, hosts, content_types;
    struct raw_labels headers, query;
    struct raw_labels labels;
    struct slice policy;
    struct slice default_model;
    struct raw_hash_on hash_on;
    enum half_close half_close;
    enum forwarded forwarded;
    struct route_timeouts timeouts;
    struct route_retry retry;
    struct route_queue queue;
    struct route_slo slo;
    uint32_t trust;
};

struct raw_gpu_exporters {
    struct conf_gpu_exporters exporters; /**< as compiled, but for its list */
    struct raw_texts urls;
};

struct conf_raw {
    struct raw_list listeners;
    struct raw_admin admin;
    struct raw_registry registry;
    struct conf_upstream_tls upstream_tls;
    struct slice user, group;
    struct raw_list discovery;
    struct raw_list tenants;
    struct raw_list models;
    struct raw_gpu_weights gpu_weights;
    struct place locality;
    struct raw_list policies;
    struct raw_list routes;
    struct conf_health health;
    struct raw_gpu_exporters gpu_exporters;
    struct breaker_rules breaker;
    uint64_t slow_start_ns;
    struct limits limits;
    uint32_t decisions_per_s;
    struct conf_logging logging;
    uint32_t threads;
};

#endif /* WEIR_CONF_RAW_H */
