/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Configuration: flat nodes and overrides in, one immutable `struct conf` out, or a list of errors.
 * The table in conf/options.c is the only truth about keys, ranges, defaults and documentation.
 */
#ifndef WEIR_CONF_CONF_H
#define WEIR_CONF_CONF_H

#include "base/arena.h"
#include "base/buf.h"
#include "conf/error.h"
#include "conf/node.h"
#include "model/policy_t.h"
#include "model/route_t.h"
#include "model/update_t.h"

/**
 * Where to listen: a literal address or "localhost", and a port (0 = any free one); a Unix socket; or a descriptor that
 * whoever started us has opened.
 */
enum conf_address_kind { CONF_ADDRESS_TCP, CONF_ADDRESS_UNIX, CONF_ADDRESS_INHERITED };
struct conf_address {
    bool off; /**< "off": do not listen; host is absent then */
    enum conf_address_kind kind;
    struct slice
        host;      /**< IPv6 without brackets; the path; the name in LISTEN_FDNAMES. Terminated */
    uint16_t port; /**< 0 when not TCP */
};

/** Where a secret is, never the secret. Resolve it with confio_secret(). */
enum conf_secret_kind { CONF_SECRET_NONE, CONF_SECRET_FILE, CONF_SECRET_ENV };
struct conf_secret {
    enum conf_secret_kind kind;
    struct slice name; /**< path or variable, terminated */
};

/** PEM files, terminated. */
struct conf_tls_pair {
    struct slice cert, key;
};

/** TLS of a listener. */
enum conf_client_cert { CONF_CLIENT_CERT_REQUIRED, CONF_CLIENT_CERT_OPTIONAL };
struct conf_tls {
    const struct conf_tls_pair *pairs; /**< the first is the default one */
    uint32_t n_pairs;                  /**< 0 = plain */
    struct slice client_ca;            /**< terminated; absent: clients are not asked */
    enum conf_client_cert client_cert;
};

/** TLS towards endpoints. Paths and names are terminated, and absent when not given. */
struct conf_upstream_tls {
    struct slice ca, cert, key, server_name;
    bool insecure_skip_verify;
};

enum conf_listener_mode { CONF_LISTENER_HTTP };
struct conf_listener {
    struct slice name; /**< absent: not named */
    struct conf_address address;
    enum conf_listener_mode mode;
    uint32_t socket_mode;                   /**< of a Unix socket */
    struct slice socket_user, socket_group; /**< absent: as the process */
    struct conf_tls tls;
};

struct conf_admin {
    struct conf_address address;
    struct conf_tls tls;
    struct conf_secret token;
    bool insecure; /**< a non-loopback address without a token is meant */
};

struct conf_registry {
    struct conf_address address; /**< may be off */
    struct conf_tls tls;
    struct conf_secret token;
    struct slice state_file; /**< terminated; absent: state is not kept */
    bool insecure;
};

/** One endpoint of a static source, ready for update_sink.upsert. */
struct conf_endpoint {
    struct slice url;      /**< as written */
    struct slice gpu_type; /**< absent: unknown; instance.devices has it too */
    struct device device;
    struct slice *models;
    uint32_t n_models;
    struct instance instance;
};

enum conf_source_type {
    CONF_SOURCE_STATIC,
    CONF_SOURCE_FILE,
    CONF_SOURCE_DNS,
    CONF_SOURCE_NACOS,
    CONF_SOURCE_CONSUL,
    CONF_SOURCE_ETCD,
    CONF_SOURCE_KUBERNETES,
};
enum conf_nacos_protocol { CONF_NACOS_AUTO, CONF_NACOS_GRPC, CONF_NACOS_HTTP };

/** One source of endpoints. What each key means, and for which types, docs/config.md says; text is terminated or absent. */
struct conf_source {
    enum conf_source_type type;
    struct slice name; /**< never absent once compiled */
    struct conf_endpoint *endpoints;
    uint32_t n_endpoints;
    const struct slice *servers, *services, *clusters;
    uint32_t n_servers, n_services, n_clusters;
    struct slice path, ns, group, selector, port, kubeconfig, datacenter, tag, prefix;
    struct slice username, access_key;
    struct conf_secret password, secret_key, token;
    struct slice ca, cert, key; /**< paths */
    enum conf_nacos_protocol protocol;
    uint64_t interval_ns;
    uint64_t report_ns; /**< 0 = off */
    uint64_t grace_ns;  /**< 0 = off */
    uint32_t hold_percent;
    struct slice state_file;
};

struct conf_health {
    uint64_t interval_ns, timeout_ns;
    uint64_t scrape_ns;            /**< between two scrapes of one endpoint; 0 = none */
    struct slice path;             /**< absent: auto, by the engine kind */
    uint32_t down_after, up_after; /**< consecutive failures, successes */
    uint32_t panic_percent;        /**< as policy.panic_percent */
};

struct conf_gpu_exporters {
    const struct slice *urls; /**< {host} and {node} stand for the endpoint's */
    uint32_t n_urls;
    uint64_t interval_ns, timeout_ns;
};

/** In the order of loop/log.h. */
enum conf_log_level { CONF_LOG_DEBUG, CONF_LOG_INFO, CONF_LOG_WARN, CONF_LOG_ERROR };
struct conf_logging {
    enum conf_log_level level;
    struct slice access; /**< path, terminated; absent: no access log */
};

struct conf_raw; /* as written, in conf/raw.h */

/** One generation of the configuration. Immutable, owns all it points to; free with conf_free(). Any thread may read. */
struct conf {
    struct arena arena;
    const struct conf_listener *listeners; /**< at least one */
    uint32_t n_listeners;
    struct conf_admin admin;
    struct conf_registry registry;
    const struct conf_source *sources;
    uint32_t n_sources;
    const struct policy
        *policies; /**< those in `policies` and the built-in ones that routes name */
    uint32_t n_policies;
    struct routing routing; /**< routes (at least one), models, limits */
    struct conf_health health;
    struct conf_gpu_exporters gpu_exporters;
    uint32_t decisions_per_s; /**< logged at most; 0 = none */
    struct conf_logging logging;
    uint32_t threads; /**< 0 = one per core */
    struct conf_upstream_tls upstream_tls;
    struct slice user, group;   /**< to become after binding, terminated; absent: stay */
    const struct conf_raw *raw; /**< for printing and comparing */
};

/**
 * Check everything and build. Every error found is added, not only the first.
 * @param out owned by the caller; NULL on failure.
 * @return 0; WEIR_E_INVALID with at least one error; WEIR_E_NOMEM. Cost: linear in the nodes.
 */
int conf_build(const struct mem *mem,
               const struct conf_input *in,
               struct conf_errors *errors,
               struct conf **out) MUST_CHECK;
void conf_free(struct conf *c);

/** Every option with its value in use, as YAML that builds the same conf, or as one JSON object. References, no secrets. */
enum conf_style { CONF_YAML, CONF_JSON };
int conf_print(const struct conf *c, enum conf_style style, struct buf *out) MUST_CHECK;

/** docs/config.md: every option from the table. */
int conf_reference(struct buf *out) MUST_CHECK;

/** One part that differs. */
struct conf_change {
    const char *part; /**< top-level key; static */
    const char *key;  /**< the key in it, when the part is a plain section; else NULL; static */
    bool live;        /**< can be applied without a restart */
};
enum { CONF_CHANGES_MAX = 80 };

/** What changed from one to the other, in table order. @return number, at most CONF_CHANGES_MAX; or WEIR_E_NOMEM. */
int conf_diff(const struct conf *from,
              const struct conf *to,
              struct conf_change out[CONF_CHANGES_MAX]) MUST_CHECK;

/** Is the i-th source written alike in both? False when one has no such source, or without memory. */
bool conf_source_same(const struct conf *a, const struct conf *b, uint32_t i);

/** A literal loopback address, or "localhost". */
bool conf_address_loopback(const struct conf_address *a);

#endif /* WEIR_CONF_CONF_H */
