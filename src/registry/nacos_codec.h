/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The words of the Nacos HTTP API: parameters, names, values, beats in; ServiceInfo, detail, beat replies out.
 * Pure: memory comes from an arena of the caller; nothing is kept.
 */
#ifndef WEIR_REGISTRY_NACOS_CODEC_H
#define WEIR_REGISTRY_NACOS_CODEC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "model/endpoint_t.h"

enum {
    NACOS_PARAMS_MAX = 64,
    NACOS_TARGETS_MAX = 1024, /**< instances of one metadata batch */
    NACOS_NAMESPACE_MAX = 128,
    NACOS_SERVICE_MAX = 512, /**< bytes of the grouped name */
    NACOS_GROUP_MAX = 128,
    NACOS_CLUSTER_MAX = 64,
    NACOS_HOST_MAX = 255,
    META_KEY_MAX = ENDPOINT_TEXT_MAX,
    META_VALUE_MAX = 4096,
    META_TOTAL_MAX = 65536, /**< keys and values of one call together */
};

/** A decoded parameter, trimmed. */
struct nacos_param {
    struct slice name;
    struct slice value;
};

struct nacos_params {
    struct nacos_param list[NACOS_PARAMS_MAX];
    uint32_t n;
};

/**
 * Decode query and form body; the first of several with one name counts, the query comes first.
 * @return 0, WEIR_E_INVALID (broken escape), WEIR_E_FULL (too many, or longer than the arena), WEIR_E_NOMEM.
 */
int nacos_params_parse(struct nacos_params *p,
                       struct arena *a,
                       struct slice query,
                       struct slice form) MUST_CHECK;

/** Value of a parameter; absent when missing or empty (as the reference server sees it). */
struct slice nacos_param(const struct nacos_params *p, const char *name);

/** y, yes, on, true, t in any case. */
bool nacos_bool(struct slice s);

/** 0 .. 10000 with decimals, to thousandths; what is above 0 stays above 0. */
int nacos_weight(struct slice s, uint32_t *out) MUST_CHECK;

/** 1 .. 65535. */
int nacos_port(struct slice s, uint16_t *out) MUST_CHECK;

/** A literal address or name that can stand in a URL; brackets around IPv6 are taken off. */
int nacos_host(struct slice s, struct slice *out) MUST_CHECK;

/** Letters, digits, '_' and '-', at most NACOS_NAMESPACE_MAX. */
bool nacos_namespace_ok(struct slice s);

/** [0-9a-zA-Z-]{1,64}, as the reference server. */
bool nacos_cluster_ok(struct slice s);

/**
 * "GROUP@@name": service as it is when it holds "@@", else with group (absent: DEFAULT_GROUP) in front.
 * @return 0, WEIR_E_INVALID (a half is empty, or a control character), WEIR_E_RANGE (too long), WEIR_E_NOMEM.
 */
int nacos_grouped(struct arena *a, struct slice service, struct slice group, struct slice *out)
    MUST_CHECK;

/** The halves of a grouped name. */
struct slice nacos_group_of(struct slice grouped);
struct slice nacos_name_of(struct slice grouped);

/** Map of strings, gathered from JSON or k=v,k2=v2. */
struct nacos_map {
    const struct kv *kv;
    uint32_t n;
};

/**
 * Metadata of a call: a JSON object of strings (numbers and booleans as their text, null as empty), or k=v,k2=v2.
 * @param error static words when the result is WEIR_E_INVALID or WEIR_E_FULL.
 */
int nacos_metadata(struct arena *a, struct slice text, struct nacos_map *out, const char **error)
    MUST_CHECK;

/** The `beat` parameter. */
struct nacos_beat {
    struct slice service; /**< absent: not told */
    struct slice ip;
    struct slice cluster;
    struct slice port; /**< as written */
    struct slice weight;
    bool has_metadata;
    struct nacos_map metadata;
};
int nacos_beat_parse(struct arena *a, struct slice json, struct nacos_beat *out, const char **error)
    MUST_CHECK;

/** One entry of `instances` in a metadata batch. */
struct nacos_target {
    struct slice ip;
    struct slice port;
    struct slice cluster;
};
/** JSON array of objects. An unparsable one gives n = 0, which means all, as the reference server. */
int nacos_targets(struct arena *a, struct slice json, const struct nacos_target **out, uint32_t *n)
    MUST_CHECK;

/** One instance as the API shows it. */
struct nacos_host_view {
    struct slice grouped, host, cluster;
    uint16_t port;
    uint32_t weight; /**< thousandths */
    bool healthy, enabled, ephemeral;
    const struct kv *metadata;
    uint32_t n_metadata;
    uint32_t interval_ms, timeout_ms, delete_ms;
};

struct nacos_list_view {
    struct slice grouped;
    struct slice clusters; /**< echoed as it came */
    uint64_t now_ms;       /**< wall clock */
    uint32_t cache_ms;
    bool protected_; /**< the protection threshold was reached */
    bool plain;      /**< the name stands without its group */
};

void nacos_write_list_begin(struct buf *out, const struct nacos_list_view *v);
/** @param first no comma before it. */
void nacos_write_host(struct buf *out, const struct nacos_host_view *v, bool first);
void nacos_write_list_end(struct buf *out, const struct nacos_list_view *v);
/** @param v2 under the name that v2 has for the service. */
void nacos_write_detail(struct buf *out, const struct nacos_host_view *v, bool v2);
void nacos_write_beat(struct buf *out, uint32_t interval_ms, unsigned code);
/** A double as Java writes it: 1.0, 0.5. */
void nacos_write_weight(struct buf *out, uint32_t thousandths);

#endif /* WEIR_REGISTRY_NACOS_CODEC_H */
