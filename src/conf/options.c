/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every key of the configuration, once. Parsing, range checks, defaults, error texts, --print-effective and
 * docs/config.md all follow from these rows. Keep the order of a section as a reader wants to meet it.
 */
#include "base/bug.h"
#include "base/num.h"
#include "conf/option.h"
#include "conf/raw.h"
#include "conf/scalar.h"
#include "sched/pick.h"

/* clang-format off */

#define AT(type_, member) .offset = (uint32_t)offsetof(struct type_, member)
#define SECTION(name_, struct_, options_)                                                          \
    static const struct conf_section struct_##_section = {                                         \
        .name = (name_), .size = (uint32_t)sizeof(struct struct_),                                 \
        .options = (options_), .n_options = ARRAY_LEN(options_)}

enum { TEXT_MAX = ENDPOINT_TEXT_MAX, PATH_MAX_BYTES = 4096, BILLION = 1000000000 };
#define DAY (UINT64_C(24) * 3600 * NS_PER_S)
#define HOUR (3600 * NS_PER_S)
#define MINUTE (60 * NS_PER_S)
#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)

static const char *const mode_words[] = {"http", NULL};
/* In the order of enum conf_source_type. */
static const char *const source_words[] = {"static", "file", "dns", "nacos", "consul", "etcd", "kubernetes", NULL};
static const char *const source_later[] = {"eureka", NULL};
#define FROM(type_) (UINT32_C(1) << CONF_SOURCE_##type_)
#define REMOTE (FROM(NACOS) | FROM(CONSUL) | FROM(ETCD) | FROM(KUBERNETES))
static const char *const protocol_words[] = {"auto", "grpc", "http", NULL};
static const char *const engine_words[] = {"unknown", "vllm", "sglang", "tgi", "tei", "llamacpp", "triton", "ollama",
                                           "weir", "trtllm", "fastchat", "tfserving", "sdwebui", "oip", "generic", NULL};
static const char *const half_close_words[] = {"gone", "keep", NULL};
static const char *const forwarded_words[] = {"append", "replace", "off", NULL};
static const char *const trust_words[] = {"priority", "tenant", NULL};
static const char *const level_words[] = {"debug", "info", "warn", "error", NULL};

static const char *const client_cert_words[] = {"required", "optional", NULL};

static const struct conf_option tls_pair_options[] = {
    {.key = "cert", .type = CONF_T_FILE, .flags = CONF_REQUIRED | CONF_LIVE, AT(raw_tls_pair, pair.cert),
     .doc = "Certificate in PEM, its chain behind it."},
    {.key = "key", .type = CONF_T_FILE, .flags = CONF_REQUIRED | CONF_LIVE, AT(raw_tls_pair, pair.key),
     .doc = "Its key in PEM, without a passphrase."},
};
SECTION("tls.more[]", raw_tls_pair, tls_pair_options);

/* The same for every place that listens. */
static const struct conf_option tls_options[] = {
    {.key = "cert", .type = CONF_T_FILE, .flags = CONF_REQUIRED | CONF_LIVE, AT(raw_tls, pair.cert),
     .doc = "Certificate in PEM, its chain behind it; for clients that name no host, or one that no other certificate has. Files are read at the start and at SIGHUP; open connections keep what they have."},
    {.key = "key", .type = CONF_T_FILE, .flags = CONF_REQUIRED | CONF_LIVE, AT(raw_tls, pair.key),
     .doc = "Its key in PEM, without a passphrase."},
    {.key = "more", .type = CONF_T_LIST, .flags = CONF_LIVE, AT(raw_tls, more), .max = 63, .child = &raw_tls_pair_section,
     .doc = "Certificates for other hosts, chosen by the name that the client asks for (SNI)."},
    {.key = "client_ca", .type = CONF_T_FILE, .flags = CONF_LIVE, AT(raw_tls, client_ca),
     .doc = "Certificates in PEM that client certificates have to be signed by; when absent, clients are not asked for one."},
    {.key = "client_cert", .type = CONF_T_WORD, .flags = CONF_LIVE, AT(raw_tls, client_cert), .words = client_cert_words, .fallback = "required", .with = "client_ca",
     .doc = "With client_ca: whether a client may come without a certificate."},
};
SECTION("tls", raw_tls, tls_options);

static const struct conf_option upstream_tls_options[] = {
    {.key = "ca", .type = CONF_T_FILE, .flags = CONF_LIVE, AT(conf_upstream_tls, ca),
     .doc = "Certificates in PEM that those of endpoints have to be signed by; when absent, those that the system trusts."},
    {.key = "cert", .type = CONF_T_FILE, .flags = CONF_LIVE, AT(conf_upstream_tls, cert), .doc = "Certificate that is shown to endpoints that ask for one."},
    {.key = "key", .type = CONF_T_FILE, .flags = CONF_LIVE, AT(conf_upstream_tls, key), .doc = "Its key in PEM, without a passphrase."},
    {.key = "server_name", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(conf_upstream_tls, server_name), .max = 255,
     .doc = "Name that is asked for (SNI) and that certificates must have; when absent, the host of each endpoint."},
    {.key = "insecure_skip_verify", .type = CONF_T_BOOL, .flags = CONF_LIVE, AT(conf_upstream_tls, insecure_skip_verify), .fallback = "false",
     .doc = "Take any certificate: who is in between then reads every prompt."},
};
SECTION("upstream_tls", conf_upstream_tls, upstream_tls_options);

static const struct conf_option listener_options[] = {
    {.key = "name", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(raw_listener, listener.name), .max = TEXT_MAX,
     .doc = "What logs call it."},
    {.key = "address", .type = CONF_T_ADDRESS, .flags = CONF_LIVE, AT(raw_listener, listener.address), .fallback = "0.0.0.0:30000",
     .doc = "Where clients connect: a literal address or localhost, and a port; port 0 takes any free one. [::] is IPv6 alone: for both, list 0.0.0.0 too. Or unix:PATH, or systemd:NAME for a socket of systemd's (FileDescriptorName=)."},
    {.key = "mode", .type = CONF_T_WORD, .flags = CONF_LIVE, AT(raw_listener, listener.mode), .words = mode_words, .fallback = "http",
     .doc = "What is spoken there."},
    {.key = "socket_mode", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(raw_listener, socket_mode), .max = 4, .fallback = "0660",
     .doc = "Rights of a Unix socket, in octal; who may write may connect."},
    {.key = "socket_user", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(raw_listener, socket_user), .max = 64,
     .doc = "Owner of a Unix socket; when absent, who starts Weir."},
    {.key = "socket_group", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(raw_listener, socket_group), .max = 64,
     .doc = "Group of a Unix socket."},
    {.key = "tls", .type = CONF_T_SECTION, AT(raw_listener, tls), .child = &raw_tls_section, .doc = "Serve TLS 1.2 and 1.3; plain when absent."},
};
SECTION("listeners[]", raw_listener, listener_options);

static const struct conf_option admin_options[] = {
    {.key = "address", .type = CONF_T_ADDRESS, AT(raw_admin, admin.address), .fallback = "127.0.0.1:29000",
     .doc = "Where the admin API and the metrics are served."},
    {.key = "token", .type = CONF_T_SECRET, .flags = CONF_LIVE, AT(raw_admin, admin.token),
     .doc = "Bearer token that the admin API asks for; required when the address is not loopback."},
    {.key = "insecure", .type = CONF_T_BOOL, .flags = CONF_LIVE, AT(raw_admin, admin.insecure), .fallback = "false",
     .doc = "Serve a non-loopback address without a token all the same."},
    {.key = "tls", .type = CONF_T_SECTION, .flags = CONF_LIVE, AT(raw_admin, tls), .child = &raw_tls_section, .doc = "Serve TLS, as listeners[].tls; plain when absent."},
};
SECTION("admin", raw_admin, admin_options);

static const struct conf_option registry_options[] = {
    {.key = "address", .type = CONF_T_ADDRESS, AT(raw_registry, registry.address), .fallback = "127.0.0.1:8848", .zero = "off",
     .doc = "Where the embedded registry (native and Nacos-compatible HTTP) is served."},
    {.key = "token", .type = CONF_T_SECRET, .flags = CONF_LIVE, AT(raw_registry, registry.token),
     .doc = "Token that registering asks for; required when the address is not loopback, because whoever registers receives prompts."},
    {.key = "state_file", .type = CONF_T_TEXT, AT(raw_registry, registry.state_file), .max = PATH_MAX_BYTES,
     .doc = "File that keeps the registered endpoints over a restart; not kept when absent."},
    {.key = "insecure", .type = CONF_T_BOOL, .flags = CONF_LIVE, AT(raw_registry, registry.insecure), .fallback = "false",
     .doc = "Serve a non-loopback address without a token all the same."},
    {.key = "tls", .type = CONF_T_SECTION, .flags = CONF_LIVE, AT(raw_registry, tls), .child = &raw_tls_section, .doc = "Serve TLS, as listeners[].tls; plain when absent."},
};
SECTION("registry", raw_registry, registry_options);

static const struct conf_option endpoint_options[] = {
    {.key = "url", .type = CONF_T_TEXT, .flags = CONF_REQUIRED | CONF_LIVE, AT(raw_endpoint, url), .max = TEXT_MAX,
     .doc = "http://host:port or https://host:port of the inference server, without a path, or http+unix:///path/of/socket."},
    {.key = "weight", .type = CONF_T_WEIGHT, .flags = CONF_LIVE, AT(raw_endpoint, weight), .max = WEIGHT_MAX, .fallback = "1",
     .doc = "Share of the traffic against other endpoints; 0 takes it out."},
    {.key = "labels", .type = CONF_T_LABELS, .flags = CONF_LIVE, AT(raw_endpoint, labels), .max = ENDPOINT_KV_MAX,
     .doc = "Names and texts of your own."},
    {.key = "models", .type = CONF_T_TEXTS, .flags = CONF_LIVE, AT(raw_endpoint, models), .max = ENDPOINT_MODELS_MAX,
     .doc = "Model ids it serves; when absent, what its /v1/models says."},
    {.key = "gpu_type", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(raw_endpoint, gpu_type), .max = TEXT_MAX,
     .doc = "Device type, matched with gpu_weights without case."},
    {.key = "max_concurrency", .type = CONF_T_COUNT, .flags = CONF_LIVE, AT(raw_endpoint, max_concurrency), .min = 1,
     .max = 1000000, .zero = "unlimited", .fallback = "unlimited",
     .doc = "Most requests at one time; further ones wait in the queue."},
    {.key = "max_model_len", .type = CONF_T_COUNT, .flags = CONF_LIVE, AT(raw_endpoint, max_model_len), .min = 1,
     .max = BILLION, .zero = "unknown", .fallback = "unknown",
     .doc = "Longest prompt and answer together, in tokens."},
    {.key = "engine", .type = CONF_T_WORD, .flags = CONF_LIVE, AT(raw_endpoint, engine), .words = engine_words,
     .fallback = "unknown", .doc = "Kind of inference server; says whether KV tokens or device memory decide what fits."},
    {.key = "region", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(raw_endpoint, region), .max = TEXT_MAX,
     .doc = "Where it is: the widest part."},
    {.key = "zone", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(raw_endpoint, zone), .max = TEXT_MAX,
     .doc = "Where it is: the part that fails together."},
    {.key = "cluster", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(raw_endpoint, cluster), .max = TEXT_MAX,
     .doc = "Where it is: the cluster."},
};
SECTION("discovery[].endpoints[]", raw_endpoint, endpoint_options);

static const struct conf_option source_options[] = {
    {.key = "type", .type = CONF_T_WORD, .flags = CONF_REQUIRED | CONF_LIVE, AT(raw_source, source.type), .words = source_words,
     .later = source_later, .doc = "Where endpoints come from."},
    {.key = "name", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(raw_source, source.name), .max = 64,
     .doc = "What logs and metrics call it; the type when absent."},
    {.key = "endpoints", .type = CONF_T_LIST, .flags = CONF_REQUIRED | CONF_LIVE, AT(raw_source, endpoints), .max = SCHED_ROWS_MAX,
     .child = &raw_endpoint_section, .only = FROM(STATIC), .doc = "The endpoints of a static source."},
    {.key = "path", .type = CONF_T_TEXT, .flags = CONF_REQUIRED | CONF_LIVE, AT(raw_source, source.path), .max = PATH_MAX_BYTES,
     .only = FROM(FILE), .doc = "File with endpoints: and a list as in a static source, YAML or JSON; read again when it changes."},
    {.key = "servers", .type = CONF_T_TEXTS, .flags = CONF_LIVE, AT(raw_source, servers), .max = 16, .only = REMOTE | FROM(DNS),
     .doc = "Base URLs of the registry's servers (http://host:port, https://host:port); the next one is asked when one fails. Required but for kubernetes, where the pod's own or the kubeconfig's counts, and for dns: there they are addresses of name servers (10.0.0.2:53), those of the system when absent."},
    {.key = "services", .type = CONF_T_TEXTS, .flags = CONF_LIVE, AT(raw_source, services), .max = 256,
     .only = FROM(DNS) | FROM(NACOS) | FROM(CONSUL) | FROM(KUBERNETES),
     .doc = "Services to look up. dns: host:port, or a name like _http._tcp.llm.example for SRV records; nacos: names, or GROUP@@name; kubernetes: names of Services."},
    {.key = "namespace", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(raw_source, source.ns), .max = TEXT_MAX,
     .only = FROM(NACOS) | FROM(KUBERNETES), .doc = "Namespace of the services: nacos public when absent; kubernetes the pod's own."},
    {.key = "group", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(raw_source, source.group), .max = TEXT_MAX, .fallback = "DEFAULT_GROUP",
     .only = FROM(NACOS), .doc = "Group of services that are written without one."},
    {.key = "clusters", .type = CONF_T_TEXTS, .flags = CONF_LIVE, AT(raw_source, clusters), .max = 64, .only = FROM(NACOS),
     .doc = "Only instances of these clusters; all when empty."},
    {.key = "protocol", .type = CONF_T_WORD, .flags = CONF_LIVE, AT(raw_source, source.protocol), .words = protocol_words, .fallback = "auto",
     .only = FROM(NACOS), .doc = "grpc: pushed changes (server 2.0 and later, port + 1000); http: polled lists; auto: grpc where it answers."},
    {.key = "selector", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(raw_source, source.selector), .max = 1024, .only = FROM(KUBERNETES),
     .doc = "Label selector of EndpointSlices, instead of services."},
    {.key = "port", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(raw_source, source.port), .max = 64, .only = FROM(KUBERNETES),
     .doc = "Name or number of the port that is served; the first one when absent."},
    {.key = "kubeconfig", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(raw_source, source.kubeconfig), .max = PATH_MAX_BYTES,
     .only = FROM(KUBERNETES), .doc = "File that says how to reach the API server from outside of a cluster."},
    {.key = "datacenter", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(raw_source, source.datacenter), .max = TEXT_MAX, .only = FROM(CONSUL),
     .doc = "Datacenter to ask for; that of the agent when absent."},
    {.key = "tag", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(raw_source, source.tag), .max = TEXT_MAX, .only = FROM(CONSUL),
     .doc = "Only instances with this tag."},
    {.key = "prefix", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(raw_source, source.prefix), .max = 1024, .fallback = "/weir/endpoints/",
     .only = FROM(ETCD), .doc = "Keys below it are endpoints: JSON documents of the native API."},
    {.key = "username", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(raw_source, source.username), .max = TEXT_MAX,
     .only = FROM(NACOS) | FROM(ETCD), .doc = "Who logs in."},
    {.key = "password", .type = CONF_T_SECRET, .flags = CONF_LIVE, AT(raw_source, source.password), .only = FROM(NACOS) | FROM(ETCD),
     .doc = "Its password."},
    {.key = "access_key", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(raw_source, source.access_key), .max = TEXT_MAX, .only = FROM(NACOS),
     .doc = "Access key that requests are signed with, where a server asks for that."},
    {.key = "secret_key", .type = CONF_T_SECRET, .flags = CONF_LIVE, AT(raw_source, source.secret_key), .only = FROM(NACOS),
     .doc = "Its secret."},
    {.key = "token", .type = CONF_T_SECRET, .flags = CONF_LIVE, AT(raw_source, source.token), .only = FROM(CONSUL) | FROM(KUBERNETES),
     .doc = "Consul's ACL token, or a bearer token for the API server (a pod's own is read anew as it is rotated)."},
    {.key = "ca", .type = CONF_T_FILE, .flags = CONF_LIVE, AT(raw_source, source.ca), .only = REMOTE,
     .doc = "Certificates in PEM that the servers' have to be signed by; when absent, those that the system trusts."},
    {.key = "cert", .type = CONF_T_FILE, .flags = CONF_LIVE, AT(raw_source, source.cert), .only = REMOTE,
     .doc = "Certificate in PEM that is shown to the servers."},
    {.key = "key", .type = CONF_T_FILE, .flags = CONF_LIVE, AT(raw_source, source.key), .only = REMOTE, .doc = "Its key in PEM."},
    {.key = "interval", .type = CONF_T_DURATION, .flags = CONF_LIVE, AT(raw_source, source.interval_ns), .min = 10 * NS_PER_MS, .max = HOUR,
     .fallback = "500ms", .only = FROM(NACOS) | FROM(DNS) | FROM(FILE),
     .doc = "nacos over HTTP: between two lists; dns: least time between two look-ups, whatever the TTL; file: between two looks at it where changes are not told."},
    {.key = "report_requests", .type = CONF_T_DURATION, .flags = CONF_LIVE, AT(raw_source, source.report_ns), .min = NS_PER_S, .max = HOUR,
     .zero = "off", .fallback = "off", .only = FROM(NACOS),
     .doc = "Write current_requests back to the server, each instance at most once in this time."},
    {.key = "empty_grace", .type = CONF_T_DURATION, .flags = CONF_LIVE, AT(raw_source, source.grace_ns), .max = DAY, .zero = "off", .fallback = "60s",
     .only = ~FROM(STATIC),
     .doc = "When a list is suddenly empty: how long endpoints stay that still pass our checks; those that fail go at once."},
    {.key = "hold_percent", .type = CONF_T_COUNT, .flags = CONF_LIVE, AT(raw_source, source.hold_percent), .min = 1, .max = 100, .fallback = "100",
     .only = ~FROM(STATIC), .doc = "The same for a list from which this share or more is missing at once; 100: only an empty one."},
    {.key = "state_file", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(raw_source, source.state_file), .max = PATH_MAX_BYTES, .only = ~FROM(STATIC),
     .doc = "File that keeps what the source last said, for a start while it is down."},
};
SECTION("discovery[]", raw_source, source_options);

static const struct conf_option endpoints_root_options[] = {
    {.key = "endpoints", .type = CONF_T_LIST, .flags = CONF_REQUIRED, AT(raw_source, endpoints), .max = SCHED_ROWS_MAX,
     .child = &raw_endpoint_section, .doc = "The endpoints."},
};
const struct conf_section conf_endpoints_root = {.name = "", .size = (uint32_t)sizeof(struct raw_source),
                                                 .options = endpoints_root_options,
                                                 .n_options = ARRAY_LEN(endpoints_root_options)};

static const struct conf_option model_options[] = {
    {.key = "aliases", .type = CONF_T_TEXTS, .flags = CONF_LIVE, AT(raw_model, aliases), .max = 256,
     .doc = "Other names that clients may use for it."},
    {.key = "kv_bytes_per_token", .type = CONF_T_SIZE, .flags = CONF_LIVE, AT(raw_model, kv_bytes_per_token), .min = 1,
     .max = GIB, .zero = "unknown", .fallback = "unknown",
     .doc = "KV cache one token takes, which turns tokens into memory."},
    {.key = "versions", .type = CONF_T_LATER, .doc = "Versions of the model."},
};
SECTION("models.<id>", raw_model, model_options);

static const struct conf_option tenant_limits_options[] = {
    {.key = "requests_per_minute", .type = CONF_T_COUNT, .flags = CONF_LIVE, AT(tenant_limits, requests), .min = 1, .max = 1000000,
     .zero = "unlimited", .fallback = "unlimited", .doc = "Requests let in, whatever becomes of them."},
    {.key = "tokens_per_minute", .type = CONF_T_COUNT, .flags = CONF_LIVE, AT(tenant_limits, tokens), .min = 1, .max = BILLION,
     .zero = "unlimited", .fallback = "unlimited",
     .doc = "Tokens of prompts and answers: as expected when a request is sent, set right by the usage that its answer tells."},
};
SECTION("tenants.<name>.limits", tenant_limits, tenant_limits_options);

static const struct conf_option tenant_options[] = {
    {.key = "weight", .type = CONF_T_WEIGHT, .flags = CONF_LIVE, AT(raw_tenant, weight), .min = 10, .max = WEIGHT_MAX, .fallback = "1",
     .doc = "Its share of the tokens against that of others, where requests have to wait; those that are not listed have 1."},
    {.key = "max_in_flight", .type = CONF_T_COUNT, .flags = CONF_LIVE, AT(raw_tenant, max_in_flight), .min = 1, .max = 1000000,
     .zero = "unlimited", .fallback = "unlimited",
     .doc = "Most requests of its own that wait or are answered at one time, on all routes; further ones get 429 rate_limited."},
    {.key = "keys", .type = CONF_T_LATER, .doc = "API keys that are its own."},
    {.key = "limits", .type = CONF_T_SECTION, AT(raw_tenant, limits), .child = &tenant_limits_section,
     .doc = "What it may use in a minute, on all routes; beyond that 429 rate_limited until some of it has come back."},
    {.key = "budgets", .type = CONF_T_LATER, .doc = "Tokens a day or a month."},
};
SECTION("tenants.<name>", raw_tenant, tenant_options);

static const struct conf_option locality_options[] = {
    {.key = "region", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(place, region), .max = TEXT_MAX,
     .doc = "Only endpoints of this region are near."},
    {.key = "zone", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(place, zone), .max = TEXT_MAX,
     .doc = "Only endpoints of this zone are near: what Kubernetes and Consul tell, or metadata."},
    {.key = "cluster", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(place, cluster), .max = TEXT_MAX,
     .doc = "Only endpoints of this cluster are near: Nacos' clusterName, Consul's datacenter, or metadata. DEFAULT: those that nobody tells one of, as in Nacos."},
};
SECTION("locality", place, locality_options);

static const struct conf_option score_options[] = {
    {.key = "name", .type = CONF_T_TEXT, .flags = CONF_REQUIRED | CONF_LIVE, AT(raw_score, plugin), .max = TEXT_MAX,
     .doc = "The score."},
    {.key = "weight", .type = CONF_T_FACTOR, .flags = CONF_LIVE, AT(raw_score, weight), .max = 1000 * (uint64_t)Q16_ONE,
     .fallback = "1", .doc = "Its weight in the sum."},
};
SECTION("policies.<name>.scores[]", raw_score, score_options);

static const struct conf_option policy_options[] = {
    {.key = "use", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(raw_policy, use), .max = TEXT_MAX,
     .doc = "A built-in policy; instead of filters, scores and pick."},
    {.key = "filters", .type = CONF_T_TEXTS, .flags = CONF_LIVE, AT(raw_policy, filters), .max = POLICY_STEPS_MAX,
     .doc = "Filters in order: an endpoint has to pass all of them."},
    {.key = "scores", .type = CONF_T_LIST, .flags = CONF_LIVE, AT(raw_policy, scores), .max = POLICY_STEPS_MAX,
     .child = &raw_score_section, .doc = "Costs that are added up."},
    {.key = "pick", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(raw_policy, pick), .max = TEXT_MAX,
     .doc = "How one of the remaining is chosen."},
    {.key = "curve", .type = CONF_T_CURVE, .flags = CONF_LIVE, AT(raw_policy, curve), .max = POLICY_CURVE_MAX,
     .doc = "Weight factor by GPU utilization: a map of percent to factor, rising, linear between the points, as {30: 2, 40: 1, 70: 1, 80: 0.5}; when absent, that of the built-in policy, or this one."},
    {.key = "bound", .type = CONF_T_FACTOR, .flags = CONF_LIVE, AT(raw_policy, bound), .min = Q16_ONE,
     .max = 16 * (uint64_t)Q16_ONE, .zero = "default", .fallback = "default",
     .doc = "Consistent hashing: no endpoint above this multiple of the mean load; the default is 1.25."},
};
SECTION("policies.<name>", raw_policy, policy_options);

static const struct conf_option match_options[] = {
    {.key = "path", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(raw_route, path), .max = TEXT_MAX, .fallback = "/v1/**",
     .doc = "An exact path, or a prefix that ends in **. What no route takes is 404: a worker's own /metrics or control paths are not offered to clients unless a route says so."},
    {.key = "methods", .type = CONF_T_TEXTS, .flags = CONF_LIVE, AT(raw_route, methods), .max = 16,
     .doc = "One of these methods, as [POST]; any when absent."},
    {.key = "hosts", .type = CONF_T_TEXTS, .flags = CONF_LIVE, AT(raw_route, hosts), .max = 64,
     .doc = "One of these hosts, without port; *.example.com is any name that ends in .example.com."},
    {.key = "headers", .type = CONF_T_LABELS, .flags = CONF_LIVE, AT(raw_route, headers), .max = 16,
     .doc = "All of these header fields, with exactly these values; \"*\" is any value."},
    {.key = "query", .type = CONF_T_LABELS, .flags = CONF_LIVE, AT(raw_route, query), .max = 16,
     .doc = "All of these parameters of the query, with exactly these values once decoded; \"*\" is any value."},
    {.key = "content_types", .type = CONF_T_TEXTS, .flags = CONF_LIVE, AT(raw_route, content_types), .max = 16,
     .doc = "One of these media types, without parameters, as [application/json, multipart/form-data]; audio/* is any audio."},
};
SECTION("routes[].match", raw_route, match_options);

static const struct conf_option timeouts_options[] = {
    {.key = "connect", .type = CONF_T_DURATION, .flags = CONF_LIVE, AT(route_timeouts, connect_ns), .min = NS_PER_MS,
     .max = 5 * MINUTE, .fallback = "2s", .doc = "To connect to an endpoint, its name's look-up included."},
    {.key = "first_byte", .type = CONF_T_DURATION, .flags = CONF_LIVE, AT(route_timeouts, first_byte_ns), .min = NS_PER_MS,
     .max = DAY, .zero = "none", .fallback = "10m", .doc = "From the request sent to the first byte of the response; also the longest time in which the endpoint takes nothing of a request."},
    {.key = "between_bytes", .type = CONF_T_DURATION, .flags = CONF_LIVE, AT(route_timeouts, between_bytes_ns),
     .min = NS_PER_MS, .max = DAY, .zero = "none", .fallback = "10m", .doc = "Longest silence inside a response."},
    {.key = "total", .type = CONF_T_DURATION, .flags = CONF_LIVE, AT(route_timeouts, total_ns), .min = NS_PER_MS,
     .max = DAY, .zero = "none", .fallback = "none", .doc = "From the arrival of the request to the last byte of the response."},
};
SECTION("routes[].timeouts", route_timeouts, timeouts_options);

static const struct conf_option retry_options[] = {
    {.key = "connect_attempts", .type = CONF_T_COUNT, .flags = CONF_LIVE, AT(route_retry, connect_attempts),
     .max = SCHED_EXCLUDE_MAX - 1, .fallback = "3", .doc = "Other endpoints tried after one could not be connected."},
    {.key = "budget_percent", .type = CONF_T_COUNT, .flags = CONF_LIVE, AT(route_retry, budget_percent), .max = 100,
     .fallback = "20", .doc = "All other retries, as a share of the requests of the last 10 s."},
    {.key = "budget_min_per_s", .type = CONF_T_COUNT, .flags = CONF_LIVE, AT(route_retry, budget_min_per_s), .max = 100000,
     .fallback = "3", .doc = "That many per second are allowed in any case."},
    {.key = "retry_unsafe", .type = CONF_T_BOOL, .flags = CONF_LIVE, AT(route_retry, retry_unsafe), .fallback = "false",
     .doc = "Retry also a POST that an endpoint may have started."},
};
SECTION("routes[].retry", route_retry, retry_options);

static const struct conf_option queue_options[] = {
    {.key = "size", .type = CONF_T_COUNT, .flags = CONF_LIVE, AT(route_queue, size), .max = 1000000, .fallback = "1024",
     .doc = "Most requests that wait for one model; 0 refuses at once when all endpoints are full."},
    {.key = "timeout", .type = CONF_T_DURATION, .flags = CONF_LIVE, AT(route_queue, timeout_ns), .min = NS_PER_MS, .max = DAY,
     .fallback = "60s", .doc = "Longest wait; then the answer is 504 queue_timeout."},
    {.key = "age", .type = CONF_T_DURATION, .flags = CONF_LIVE, AT(route_queue, age_ns), .min = NS_PER_MS, .max = DAY,
     .fallback = "10s", .doc = "A waiting request rises one priority class in this time."},
};
SECTION("routes[].queue", route_queue, queue_options);

static const struct conf_option slo_options[] = {
    {.key = "ttft", .type = CONF_T_DURATION, .flags = CONF_LIVE, AT(route_slo, ttft_ns), .min = NS_PER_MS, .max = DAY,
     .zero = "none", .fallback = "none", .doc = "From the arrival of the request to the first byte of the response; X-SLO-TTFT-Ms beats it."},
    {.key = "tpot", .type = CONF_T_DURATION, .flags = CONF_LIVE, AT(route_slo, tpot_ns), .min = NS_PER_MS, .max = DAY,
     .zero = "none", .fallback = "none", .doc = "For each token after the first; X-SLO-TPOT-Ms beats it."},
};
SECTION("routes[].slo", route_slo, slo_options);

static const struct conf_option route_options[] = {
    {.key = "name", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(raw_route, name), .max = TEXT_MAX,
     .doc = "What metrics and logs call it; its path when absent. Unique."},
    {.key = "match", .type = CONF_T_SECTION, .offset = 0, .child = &raw_route_section,
     .doc = "Which requests: all that is given must fit."},
    {.key = "labels", .type = CONF_T_LABELS, .flags = CONF_LIVE, AT(raw_route, labels), .max = 16,
     .doc = "Only endpoints that have all of these labels serve it, as {pool: audio}."},
    {.key = "policy", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(raw_route, policy), .max = TEXT_MAX, .fallback = "queued_work",
     .doc = "A name from policies, or a built-in policy."},
    {.key = "default_model", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(raw_route, default_model), .max = TEXT_MAX,
     .doc = "Model of a request that names none."},
    {.key = "hash_on", .type = CONF_T_HASH_ON, .flags = CONF_LIVE, AT(raw_route, hash_on), .max = POLICY_HASH_ON_MAX,
     .fallback = "header:X-Session-Id",
     .doc = "Where the session key comes from, the first that is present: header:NAME, cookie:NAME, user, prompt_cache_key, previous_response_id, client_ip."},
    {.key = "half_close", .type = CONF_T_WORD, .flags = CONF_LIVE, AT(raw_route, half_close), .words = half_close_words,
     .fallback = "gone", .doc = "What it means when a client closes its sending side after a complete request: it is gone, or it keeps listening."},
    {.key = "forwarded", .type = CONF_T_WORD, .flags = CONF_LIVE, AT(raw_route, forwarded), .words = forwarded_words,
     .fallback = "append", .doc = "X-Forwarded-For, -Proto, -Host: add the client's address to what came and fill in the rest, or replace what came (for a route that clients reach directly), or touch nothing."},
    {.key = "timeouts", .type = CONF_T_SECTION, AT(raw_route, timeouts), .child = &route_timeouts_section, .doc = "How long things may take."},
    {.key = "retry", .type = CONF_T_SECTION, AT(raw_route, retry), .child = &route_retry_section, .doc = "Second attempts."},
    {.key = "queue", .type = CONF_T_SECTION, AT(raw_route, queue), .child = &route_queue_section, .doc = "Waiting when all endpoints are full."},
    {.key = "slo", .type = CONF_T_SECTION, AT(raw_route, slo), .child = &route_slo_section, .doc = "Targets of requests that name none. A request that no endpoint is predicted to serve within its targets is refused at once with 429 slo_unreachable."},
    {.key = "trust", .type = CONF_T_WORDS, .flags = CONF_LIVE, AT(raw_route, trust), .words = trust_words, .max = 2,
     .doc = "Which headers of the client count: X-Priority, X-Tenant-Id."},
    {.key = "batch", .type = CONF_T_LATER, .doc = "Batching."},
    {.key = "canary", .type = CONF_T_LATER, .doc = "Canary releases."},
};
/* The section of `match` above is the same struct with other options. */
static const struct conf_section route_section = {.name = "routes[]", .size = (uint32_t)sizeof(struct raw_route),
                                                  .options = route_options, .n_options = ARRAY_LEN(route_options)};

static const struct conf_option health_options[] = {
    {.key = "interval", .type = CONF_T_DURATION, .flags = CONF_LIVE, AT(conf_health, interval_ns), .min = 10 * NS_PER_MS,
     .max = HOUR, .fallback = "5s", .doc = "Between two checks of one endpoint."},
    {.key = "timeout", .type = CONF_T_DURATION, .flags = CONF_LIVE, AT(conf_health, timeout_ns), .min = NS_PER_MS,
     .max = 5 * MINUTE, .fallback = "2s", .doc = "For one check."},
    {.key = "scrape_interval", .type = CONF_T_DURATION, .flags = CONF_LIVE, AT(conf_health, scrape_ns), .min = 10 * NS_PER_MS,
     .max = HOUR, .zero = "off", .fallback = "1s", .doc = "Between two looks at the numbers (running, waiting, KV cache) of an endpoint that nobody reports for."},
    {.key = "path", .type = CONF_T_TEXT, .flags = CONF_LIVE, AT(conf_health, path), .max = TEXT_MAX, .zero = "auto",
     .fallback = "auto", .doc = "What is asked for; auto goes by the kind of engine."},
    {.key = "down_after", .type = CONF_T_COUNT, .flags = CONF_LIVE, AT(conf_health, down_after), .min = 1, .max = 100,
     .fallback = "3", .doc = "Failed checks in a row that take an endpoint out."},
    {.key = "up_after", .type = CONF_T_COUNT, .flags = CONF_LIVE, AT(conf_health, up_after), .min = 1, .max = 100,
     .fallback = "2", .doc = "Passed checks in a row that bring it back."},
    {.key = "panic_percent", .type = CONF_T_COUNT, .flags = CONF_LIVE, AT(conf_health, panic_percent), .min = 1, .max = 100,
     .fallback = "50", .doc = "When more than this share of a model's endpoints is red (down, or breaker open), all of them are used; 100: only when all are red."},
};
SECTION("health", conf_health, health_options);

static const struct conf_option gpu_exporter_options[] = {
    {.key = "urls", .type = CONF_T_TEXTS, .flags = CONF_LIVE, AT(raw_gpu_exporters, urls), .max = 16,
     .doc = "Pages of dcgm-exporter, like http://{host}:9400/metrics: {host} stands for the host of each endpoint, {node} for its metadata key node. They tell of GPUs what nobody reports (see health.md)."},
    {.key = "interval", .type = CONF_T_DURATION, .flags = CONF_LIVE, AT(raw_gpu_exporters, exporters.interval_ns), .min = 10 * NS_PER_MS,
     .max = HOUR, .fallback = "5s", .doc = "Between two looks at one of them."},
    {.key = "timeout", .type = CONF_T_DURATION, .flags = CONF_LIVE, AT(raw_gpu_exporters, exporters.timeout_ns), .min = NS_PER_MS,
     .max = 5 * MINUTE, .fallback = "2s", .doc = "For one look."},
};
SECTION("gpu_exporters", raw_gpu_exporters, gpu_exporter_options);

static const struct conf_option breaker_options[] = {
    {.key = "enabled", .type = CONF_T_BOOL, .flags = CONF_LIVE, AT(breaker_rules, enabled), .fallback = "true",
     .doc = "Keep traffic from endpoints that fail it."},
    {.key = "consecutive", .type = CONF_T_COUNT, .flags = CONF_LIVE, AT(breaker_rules, consecutive), .min = 1, .max = 100000,
     .zero = "off", .fallback = "5",
     .doc = "Failures (5xx but 503, broken answers, failed connects) without a good answer between them that open it."},
    {.key = "first_byte_timeouts", .type = CONF_T_COUNT, .flags = CONF_LIVE, AT(breaker_rules, first_byte_timeouts), .min = 1,
     .max = 100000, .zero = "off", .fallback = "3",
     .doc = "Requests in a row that waited for timeouts.first_byte in vain, while nobody else got a byte either, that open it."},
    {.key = "error_percent", .type = CONF_T_COUNT, .flags = CONF_LIVE, AT(breaker_rules, error_percent), .min = 1, .max = 100,
     .zero = "off", .fallback = "50", .doc = "Share of failures among the requests of a window that opens it."},
    {.key = "min_requests", .type = CONF_T_COUNT, .flags = CONF_LIVE, AT(breaker_rules, min_requests), .min = 1, .max = 1000000,
     .fallback = "20", .doc = "Requests that a window must have before its share of failures counts."},
    {.key = "window", .type = CONF_T_DURATION, .flags = CONF_LIVE, AT(breaker_rules, window_ns), .min = NS_PER_MS, .max = HOUR,
     .fallback = "10s", .doc = "Length of a window; it begins with a failure."},
    {.key = "cooldown", .type = CONF_T_DURATION, .flags = CONF_LIVE, AT(breaker_rules, cooldown_ns), .min = NS_PER_MS, .max = HOUR,
     .fallback = "5s", .doc = "Time without traffic after it opened; then one request at a time may try. Doubled each time that fails."},
    {.key = "cooldown_max", .type = CONF_T_DURATION, .flags = CONF_LIVE, AT(breaker_rules, cooldown_max_ns), .min = NS_PER_MS,
     .max = DAY, .fallback = "60s", .doc = "It is not doubled beyond this."},
    {.key = "successes", .type = CONF_T_COUNT, .flags = CONF_LIVE, AT(breaker_rules, successes), .min = 1, .max = 60,
     .fallback = "1", .doc = "Good answers after the cooldown that close it."},
    {.key = "stall", .type = CONF_T_DURATION, .flags = CONF_LIVE, AT(breaker_rules, stall_ns), .min = NS_PER_MS, .max = DAY,
     .zero = "off", .fallback = "30s",
     .doc = "An endpoint with requests waiting for their first byte that sends nobody anything for this long, and for twice the longest wait that ended well lately, gets nothing new until it does."},
};
SECTION("breaker", breaker_rules, breaker_options);

static const struct conf_option limits_options[] = {
    {.key = "body", .type = CONF_T_SIZE, .flags = CONF_LIVE, AT(limits, body_bytes), .min = KIB, .max = 64 * GIB,
     .fallback = "512MiB", .doc = "Largest request body; above it the answer is 413."},
    {.key = "peek_max", .type = CONF_T_SIZE, .flags = CONF_LIVE, AT(limits, peek_bytes), .min = KIB, .max = GIB,
     .fallback = "16MiB", .doc = "Most of a body that is read before an endpoint is chosen."},
    {.key = "headers", .type = CONF_T_SIZE, .flags = CONF_LIVE, AT(limits, header_bytes), .min = KIB, .max = MIB,
     .fallback = "64KiB", .doc = "Largest head of a request; above it the answer is 431."},
    {.key = "header_count", .type = CONF_T_COUNT, .flags = CONF_LIVE, AT(limits, headers), .min = 8, .max = 128,
     .fallback = "128", .doc = "Most header fields of a request; above it the answer is 431."},
    {.key = "connections", .type = CONF_T_COUNT, .flags = CONF_LIVE, AT(limits, connections), .min = 1, .max = 10000000,
     .fallback = "65536", .doc = "Most client connections."},
    {.key = "buffers", .type = CONF_T_SIZE, .flags = CONF_LIVE, AT(limits, buffer_bytes), .min = MIB, .max = 1024 * GIB,
     .fallback = "1GiB", .doc = "Memory for all buffers together; beyond it the answer is 503 overloaded."},
    {.key = "prefix_index", .type = CONF_T_SIZE, AT(limits, prefix_index_bytes), .min = MIB, .max = 64 * GIB, .zero = "off",
     .fallback = "64MiB", .doc = "Memory for which endpoint holds which prefix and which session, all threads and models together; used as it is needed."},
    {.key = "idle", .type = CONF_T_DURATION, .flags = CONF_LIVE, AT(limits, idle_ns), .min = NS_PER_MS, .max = DAY,
     .fallback = "75s", .doc = "A client connection without a request is closed after this."},
    {.key = "tls_handshake", .type = CONF_T_DURATION, .flags = CONF_LIVE, AT(limits, tls_handshake_ns), .min = NS_PER_MS,
     .max = HOUR, .fallback = "10s", .doc = "From the connection to the end of its TLS handshake."},
    {.key = "tls_handshakes", .type = CONF_T_COUNT, .flags = CONF_LIVE, AT(limits, tls_handshakes), .min = 1, .max = 1000000,
     .fallback = "1024", .doc = "Most TLS handshakes of clients at one time, for each listener; further connections are closed."},
    {.key = "header_read", .type = CONF_T_DURATION, .flags = CONF_LIVE, AT(limits, header_read_ns), .min = NS_PER_MS,
     .max = HOUR, .fallback = "10s", .doc = "From the first byte of a head to its end."},
    {.key = "body_read", .type = CONF_T_DURATION, .flags = CONF_LIVE, AT(limits, body_read_ns), .min = NS_PER_MS,
     .max = DAY, .fallback = "60s", .doc = "Longest silence inside a request body."},
    {.key = "body_rate", .type = CONF_T_SIZE, .flags = CONF_LIVE, AT(limits, body_rate), .min = 1, .max = MIB,
     .zero = "off", .fallback = "512", .doc = "Bytes a second that a request body has to bring, on average over each body_read in which it is not held back for a worker; a slower one is 408."},
    {.key = "stream_time", .type = CONF_T_DURATION, .flags = CONF_LIVE, AT(limits, stream_ns), .min = NS_PER_MS,
     .max = 30 * DAY, .zero = "off", .fallback = "off", .doc = "Longest time from the first to the last byte of a response; then it is cut."},
    {.key = "stream_size", .type = CONF_T_SIZE, .flags = CONF_LIVE, AT(limits, stream_bytes), .min = 1, .max = 1024 * GIB,
     .zero = "off", .fallback = "off", .doc = "Longest body of a response; a longer one is cut within 64 KiB beyond it."},
    {.key = "drain", .type = CONF_T_DURATION, .flags = CONF_LIVE, AT(limits, drain_ns), .min = NS_PER_MS, .max = DAY,
     .fallback = "30s", .doc = "Longest time that requests under way may take to end after SIGTERM or SIGINT; then they are cut."},
};
SECTION("limits", limits, limits_options);

static const struct conf_option decisions_options[] = {
    {.key = "sample", .type = CONF_T_RATE, .flags = CONF_LIVE, AT(conf_raw, decisions_per_s), .max = 1000000,
     .fallback = "100/s", .doc = "Most decisions that are logged; 0/s logs none."},
};
static const struct conf_section decisions_section = {.name = "decisions", .size = (uint32_t)sizeof(struct conf_raw),
                                                      .options = decisions_options, .n_options = 1};

static const struct conf_option logging_options[] = {
    {.key = "level", .type = CONF_T_WORD, .flags = CONF_LIVE, AT(conf_logging, level), .words = level_words,
     .fallback = "info", .doc = "Lines below this level are dropped."},
    {.key = "access", .type = CONF_T_FILE, .flags = CONF_LIVE, AT(conf_logging, access), .zero = "off", .fallback = "off",
     .doc = "One JSON line for each request goes there: file:PATH."},
};
SECTION("logging", conf_logging, logging_options);

static const struct conf_option root_options[] = {
    {.key = "listeners", .type = CONF_T_LIST, .flags = CONF_LIVE, AT(conf_raw, listeners), .max = 16, .child = &raw_listener_section,
     .doc = "Where clients connect; one on 0.0.0.0:30000 when absent."},
    {.key = "admin", .type = CONF_T_SECTION, AT(conf_raw, admin), .child = &raw_admin_section, .doc = "The admin API."},
    {.key = "registry", .type = CONF_T_SECTION, AT(conf_raw, registry), .child = &raw_registry_section, .doc = "The embedded registry."},
    {.key = "upstream_tls", .type = CONF_T_SECTION, AT(conf_raw, upstream_tls), .child = &conf_upstream_tls_section,
     .doc = "TLS towards https endpoints. Files are read again at SIGHUP."},
    {.key = "user", .type = CONF_T_TEXT, AT(conf_raw, user), .max = 64,
     .doc = "Who to become once all sockets are open: a name or a number. Needs root; secrets, certificates and logs must be readable for it."},
    {.key = "group", .type = CONF_T_TEXT, AT(conf_raw, group), .max = 64, .doc = "The group, when it is not the user's own."},
    {.key = "discovery", .type = CONF_T_LIST, .flags = CONF_LIVE, AT(conf_raw, discovery), .max = 16, .child = &raw_source_section,
     .doc = "Other sources of endpoints. When several describe one endpoint, the first wins, field by field."},
    {.key = "models", .type = CONF_T_MAP, .flags = CONF_LIVE, AT(conf_raw, models), .max = 10000, .child = &raw_model_section,
     .doc = "What is known of models, by id."},
    {.key = "gpu_weights", .type = CONF_T_GPU_WEIGHTS, .flags = CONF_LIVE, AT(conf_raw, gpu_weights), .max = POLICY_GPU_WEIGHTS_MAX,
     .doc = "Weight by device type, as {A100: 3, T4: 1}; multiplies the weight of an endpoint; others have 1."},
    {.key = "locality", .type = CONF_T_SECTION, .flags = CONF_LIVE, AT(conf_raw, locality), .child = &place_section,
     .doc = "Where this Weir is. Requests stay with endpoints there while one of them fits, is usable and has room; else all are used. Off when absent."},
    {.key = "policies", .type = CONF_T_MAP, .flags = CONF_LIVE, AT(conf_raw, policies), .max = 256, .child = &raw_policy_section,
     .doc = "Policies of your own, by name."},
    {.key = "routes", .type = CONF_T_LIST, .flags = CONF_LIVE, AT(conf_raw, routes), .max = 256, .child = &route_section,
     .doc = "How requests are treated; the first that matches counts. When absent, those for requests to models: /v1/**, and the paths of other engines (see engines.md)."},
    {.key = "health", .type = CONF_T_SECTION, AT(conf_raw, health), .child = &conf_health_section, .doc = "Active health checks."},
    {.key = "gpu_exporters", .type = CONF_T_SECTION, AT(conf_raw, gpu_exporters), .child = &raw_gpu_exporters_section,
     .doc = "Who knows the GPUs of hosts without an agent."},
    {.key = "breaker", .type = CONF_T_SECTION, AT(conf_raw, breaker), .child = &breaker_rules_section,
     .doc = "Circuit breakers, one for each endpoint: what real traffic says. 4xx, 429 and 503 never count."},
    {.key = "slow_start", .type = CONF_T_DURATION, .flags = CONF_LIVE, AT(conf_raw, slow_start_ns), .min = NS_PER_MS, .max = HOUR,
     .zero = "off", .fallback = "30s", .doc = "The share of an endpoint that joins others rises from a tenth to all of it in this time."},
    {.key = "limits", .type = CONF_T_SECTION, AT(conf_raw, limits), .child = &limits_section, .doc = "What is too much."},
    {.key = "decisions", .type = CONF_T_SECTION, .offset = 0, .child = &decisions_section, .doc = "The log of decisions."},
    {.key = "logging", .type = CONF_T_SECTION, AT(conf_raw, logging), .child = &conf_logging_section, .doc = "Log lines."},
    {.key = "threads", .type = CONF_T_COUNT, AT(conf_raw, threads), .min = 1, .max = 256, .zero = "auto", .fallback = "auto",
     .doc = "Event loops that serve clients; auto takes one for each core."},
    {.key = "tenants", .type = CONF_T_MAP, .flags = CONF_LIVE, AT(conf_raw, tenants), .max = 1000, .child = &raw_tenant_section,
     .doc = "Who shares the endpoints, by X-Tenant-Id as it counts on routes that trust it (see scheduling.md); others need not be listed."},
    {.key = "autoscale", .type = CONF_T_LATER, .doc = "Autoscaling."},
    {.key = "clusters", .type = CONF_T_LATER, .doc = "Several clusters."},
};
const struct conf_section conf_root = {.name = "", .size = (uint32_t)sizeof(struct conf_raw),
                                       .options = root_options, .n_options = ARRAY_LEN(root_options)};

/* clang-format on */

bool conf_option_counts(const struct conf_section *s, const struct conf_option *o, const void *base)
{
    if (o->with) {
        const struct conf_option *beside = conf_option_find(s, slice_str(o->with));
        BUG_ON(!beside);
        if (conf_scalar_absent(beside, (const char *)base + beside->offset))
            return false;
    }
    if (!o->only)
        return true;
    const struct conf_option *type = conf_option_find(s, SLICE("type"));
    BUG_ON(!type || type->type != CONF_T_WORD);
    return o->only & (UINT32_C(1) << *(const uint32_t *)((const char *)base + type->offset));
}

const struct conf_option *conf_option_find(const struct conf_section *s, struct slice key)
{
    for (uint32_t i = 0; i < s->n_options; i++)
        if (slice_eq(key, slice_str(s->options[i].key)))
            return &s->options[i];
    return NULL;
}
