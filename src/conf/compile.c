/* SPDX-License-Identifier: Apache-2.0 */
/* What spans several keys is checked here, and names become pointers and plugin numbers. */
#include "base/bug.h"
#include "conf/address.h"
#include "conf/parse.h"
#include "sched/pick.h"

static struct conf_path under(const struct conf_path *up, const char *key)
{
    return (struct conf_path){.up = up, .key = slice_str(key)};
}

static struct conf_path at_index(const struct conf_path *up, uint32_t index)
{
    return (struct conf_path){.up = up, .index = index};
}

static struct conf_path at_name(const struct conf_path *up, struct slice name)
{
    return (struct conf_path){.up = up, .key = name};
}

static void *room(struct build *b, size_t n, size_t size)
{
    void *p = arena_array(b->arena, n, size);

    if (!p)
        b->nomem = true;
    return p;
}

/* --- our own addresses --- */

/* One address that Weir listens on, for comparing. */
struct own {
    struct conf_host host;
    uint16_t port; /* 0: chosen by the kernel, meets nobody */
    const char *what;
};

enum { OWN_MAX = 18 };

static void add_own(struct own *list, uint32_t *n, const struct conf_address *a, const char *what)
{
    if (*n == OWN_MAX || a->off || a->port == 0 || conf_host_parse(a->host, &list[*n].host))
        return;
    list[*n].port = a->port;
    list[*n].what = what;
    (*n)++;
}

static const struct own *find_own(const struct own *list, uint32_t n, const struct conf_address *a)
{
    struct conf_host host;

    if (a->off || conf_host_parse(a->host, &host))
        return NULL;
    for (uint32_t i = 0; i < n; i++)
        if (list[i].port == a->port && conf_host_overlap(&host, &list[i].host))
            return &list[i];
    return NULL;
}

/* Whoever registers receives prompts, and whoever administers can register: so no open door by accident. */
static void check_door(struct build *b,
                       const char *section,
                       const char *override,
                       const struct conf_address *a,
                       const struct conf_secret *token,
                       bool insecure)
{
    if (a->off || a->kind != CONF_ADDRESS_TCP || conf_address_loopback(a) ||
        token->kind != CONF_SECRET_NONE || insecure)
        return;
    struct conf_path top = {.key = slice_str(section)};
    struct conf_path path = under(&top, "address");
    struct conf_place at = conf_place_option(b, conf_child(b, 0, section), "address", override);
    CONF_FAIL(b, &at, &path, SLICE("an address that is not loopback needs "), slice_str(section),
              SLICE(".token, or "), slice_str(section), SLICE(".insecure: true"));
}

static void compile_addresses(struct build *b, struct conf *c, struct own *own, uint32_t *n_own)
{
    const struct raw_listener *raw = b->raw->listeners.items;
    uint32_t n = b->raw->listeners.n;
    struct conf_path top = {.key = SLICE("listeners")};
    struct conf_listener *listeners = room(b, n, sizeof(*listeners));

    if (!listeners)
        return;
    for (uint32_t i = 0; i < n && !b->nomem; i++) {
        struct conf_path here = at_index(&top, i);
        struct conf_path path = under(&here, "address");
        const struct own *other = find_own(own, *n_own, &raw[i].listener.address);
        if (other) {
            struct conf_place at = conf_place_option(b, raw[i].item.node, "address",
                                                     i == 0 ? "listeners.address" : NULL);
            CONF_FAIL(b, &at, &path, SLICE("is taken already by "), slice_str(other->what));
        }
        listeners[i] = raw[i].listener;
        conf_listener_compile(b, raw, i, &here, &listeners[i]);
        add_own(own, n_own, &raw[i].listener.address, "a listener");
    }
    c->listeners = listeners;
    c->n_listeners = n;
    c->admin = b->raw->admin.admin;
    c->registry = b->raw->registry.registry;
    struct conf_path admin = {.key = SLICE("admin")}, registry = {.key = SLICE("registry")};
    conf_tls_compile(b, &b->raw->admin.tls, conf_child(b, 0, "admin"), &admin, &c->admin.tls);
    conf_tls_compile(b, &b->raw->registry.tls, conf_child(b, 0, "registry"), &registry,
                     &c->registry.tls);

    const struct {
        const char *section, *override, *what;
        const struct conf_address *address;
    } doors[] = {{"admin", "admin.address", "admin.address", &c->admin.address},
                 {"registry", "registry.address", "registry.address", &c->registry.address}};
    for (size_t i = 0; i < ARRAY_LEN(doors); i++) {
        const struct own *other = find_own(own, *n_own, doors[i].address);
        if (other) {
            struct conf_path section = {.key = slice_str(doors[i].section)};
            struct conf_path path = under(&section, "address");
            struct conf_place at = conf_place_option(b, conf_child(b, 0, doors[i].section),
                                                     "address", doors[i].override);
            CONF_FAIL(b, &at, &path, SLICE("is taken already by "), slice_str(other->what));
        }
        if (!doors[i].address->off && doors[i].address->kind != CONF_ADDRESS_TCP) {
            struct conf_path section = {.key = slice_str(doors[i].section)};
            struct conf_path path = under(&section, "address");
            struct conf_place at = conf_place_option(b, conf_child(b, 0, doors[i].section),
                                                     "address", doors[i].override);
            CONF_FAIL(b, &at, &path, SLICE("must be host:port; other sockets are for listeners"));
            continue;
        }
        add_own(own, n_own, doors[i].address, doors[i].what);
    }
    check_door(b, "admin", "admin.address", &c->admin.address, &c->admin.token, c->admin.insecure);
    check_door(b, "registry", "registry.address", &c->registry.address, &c->registry.token,
               c->registry.insecure);
}

/* --- static endpoints --- */

/* "host:port" in lower case, the name that the fleet merges by. */
static struct slice authority_of(struct build *b, struct slice host, uint16_t port)
{
    char number[CONF_NUMBER_TEXT];
    struct slice digits = conf_number_text(CONF_T_COUNT, port, number);
    bool v6 = slice_find(host, ':') < host.n;
    size_t n = 0;

    if (host.p[0] == '/')
        return host;
    char *p = room(b, host.n + digits.n + 4, 1);
    if (!p)
        return (struct slice){NULL, 0};
    if (v6)
        p[n++] = '[';
    for (size_t i = 0; i < host.n; i++)
        p[n++] = ascii_lower(host.p[i]);
    if (v6)
        p[n++] = ']';
    p[n++] = ':';
    memcpy(p + n, digits.p, digits.n);
    return slice_of(p, n + digits.n);
}

static void fill_instance(struct build *b, const struct raw_endpoint *raw, struct conf_endpoint *e)
{
    struct instance *i = &e->instance;
    struct model_ref *models = room(b, raw->models.n, sizeof(*models));

    if (!models)
        return;
    for (uint32_t m = 0; m < raw->models.n; m++)
        models[m] =
            (struct model_ref){.id = raw->models.items[m], .max_model_len = raw->max_model_len};
    e->device.type = raw->gpu_type;
    i->models = models;
    i->n_models = raw->models.n;
    i->devices = &e->device;
    i->n_devices = raw->gpu_type.p ? 1 : 0;
    i->weight = raw->weight;
    i->enabled = true;
    i->healthy = true;
    i->engine = raw->engine;
    i->max_concurrency = raw->max_concurrency;
    i->max_model_len = raw->max_model_len;
    i->region = raw->region;
    i->zone = raw->zone;
    i->cluster = raw->cluster;
    i->labels = raw->labels.items;
    i->n_labels = raw->labels.n;
}

static void compile_endpoint(struct build *b,
                             const struct raw_endpoint *raw,
                             const struct conf_path *path,
                             const struct own *own,
                             uint32_t n_own,
                             struct map *seen,
                             struct conf_endpoint *e)
{
    struct conf_place at = raw->origin
                               ? (struct conf_place){.file = slice_str(raw->origin), .flag = true}
                               : conf_place_option(b, raw->item.node, "url", NULL);
    struct conf_path url = under(path, "url");
    struct conf_host literal;
    struct slice host;
    uint16_t port;
    bool tls;
    const char *why = "";

    if (!raw->url.p)
        return; /* told already */
    if (conf_url_split(raw->url, &tls, &host, &port, &why)) {
        CONF_FAIL(b, &at, &url, SLICE("\""), raw->url, SLICE("\" "), slice_str(why));
        return;
    }
    if (conf_host_parse(host, &literal) == 0)
        for (uint32_t i = 0; i < n_own; i++)
            if (own[i].port == port && conf_host_reaches(&literal, &own[i].host)) {
                CONF_FAIL(b, &at, &url, SLICE("\""), raw->url, SLICE("\" is Weir itself ("),
                          slice_str(own[i].what), SLICE(")"));
                return;
            }
    e->url = raw->url;
    e->gpu_type = raw->gpu_type;
    e->instance.tls = tls;
    e->instance.host = host;
    e->instance.port = port;
    e->instance.key = authority_of(b, host, port);
    if (!e->instance.key.p)
        return;
    if (map_get(seen, e->instance.key)) {
        CONF_FAIL(b, &at, &url, SLICE("\""), raw->url,
                  SLICE("\" is the address of an earlier endpoint of this source"));
        return;
    }
    if (map_put(seen, e->instance.key, e))
        b->nomem = true;
    fill_instance(b, raw, e);
}

/* A base URL; of the DNS an address. */
static int check_server(enum conf_source_type type, struct slice text, const char **why)
{
    struct conf_host literal;
    struct slice host;
    uint16_t port = 0;
    bool tls;

    if (type == CONF_SOURCE_DNS) {
        *why = "is not the address of a name server; write it as 10.0.0.2:53 or [fd00::2]:53";
        return conf_host_port_split(text, &host, &port) || port == 0 ||
                       conf_host_parse(host, &literal)
                   ? WEIR_E_INVALID
                   : 0;
    }
    int rc = conf_url_split(text, &tls, &host, &port, why);
    if (rc == 0 && host.p[0] == '/') {
        *why = "is a socket; write http://host:port or https://host:port";
        return WEIR_E_INVALID;
    }
    return rc;
}

static void
check_servers(struct build *b, const struct raw_source *raw, const struct conf_path *path)
{
    struct conf_path list = under(path, "servers");
    uint32_t node = conf_child(b, raw->item.node, "servers");
    const char *why = "";

    for (uint32_t i = 0; i < raw->servers.n; i++)
        if (check_server(raw->source.type, raw->servers.items[i], &why)) {
            struct conf_path here = at_index(&list, i);
            struct conf_place at = conf_place_value(b, conf_nth(b, node, i));
            CONF_FAIL(b, &at, &here, SLICE("\""), raw->servers.items[i], SLICE("\" "),
                      slice_str(why));
        }
}

/* host:port, or a name with SRV records. */
static void check_names(struct build *b, const struct raw_source *raw, const struct conf_path *path)
{
    struct conf_path list = under(path, "services");
    uint32_t node = conf_child(b, raw->item.node, "services");
    struct slice host;
    uint16_t port;

    for (uint32_t i = 0; i < raw->services.n; i++) {
        struct slice name = raw->services.items[i];
        if (slice_find(name, ':') == name.n ||
            (conf_host_port_split(name, &host, &port) == 0 && port != 0))
            continue;
        struct conf_path here = at_index(&list, i);
        struct conf_place at = conf_place_value(b, conf_nth(b, node, i));
        CONF_FAIL(b, &at, &here, SLICE("\""), name,
                  SLICE("\" is neither host:port nor the name of SRV records"));
    }
}

static void compile_source(struct build *b,
                           const struct raw_source *raw,
                           const struct conf_path *path,
                           const struct conf_source *first,
                           struct conf_source *out)
{
    static const char *const names[] = {"static", "file", "dns",       "nacos",
                                        "consul", "etcd", "kubernetes"};
    bool asks_servers = raw->source.type == CONF_SOURCE_NACOS ||
                        raw->source.type == CONF_SOURCE_CONSUL ||
                        raw->source.type == CONF_SOURCE_ETCD;
    bool asks_services = raw->source.type == CONF_SOURCE_NACOS ||
                         raw->source.type == CONF_SOURCE_CONSUL ||
                         raw->source.type == CONF_SOURCE_DNS;

    *out = raw->source;
    if (!out->name.p)
        out->name = slice_str(names[out->type]);
    out->servers = raw->servers.items;
    out->n_servers = raw->servers.n;
    out->services = raw->services.items;
    out->n_services = raw->services.n;
    out->clusters = raw->clusters.items;
    out->n_clusters = raw->clusters.n;
    if (!raw->item.node)
        return; /* from flags: a static one */
    struct conf_place at = conf_place_value(b, raw->item.node);
    check_servers(b, raw, path);
    if (out->type == CONF_SOURCE_DNS)
        check_names(b, raw, path);
    if (out->type != CONF_SOURCE_STATIC) {
        struct conf_path here = under(path, "name");
        for (const struct conf_source *other = first; other < out; other++)
            if (slice_eq(other->name, out->name))
                CONF_FAIL(b, &at, &here, SLICE("another source is called \""), out->name,
                          SLICE("\" too; give this one a name of its own"));
    }
    if (asks_servers && !raw->servers.n) {
        struct conf_path here = under(path, "servers");
        CONF_FAIL(b, &at, &here, SLICE("is missing"));
    }
    if (asks_services && !raw->services.n) {
        struct conf_path here = under(path, "services");
        CONF_FAIL(b, &at, &here, SLICE("is missing"));
    }
    if (out->type == CONF_SOURCE_KUBERNETES && !raw->services.n == !out->selector.p) {
        struct conf_path here = under(path, "services");
        CONF_FAIL(b, &at, &here, SLICE("give either services or a selector"));
    }
    if (!out->cert.p != !out->key.p) {
        struct conf_path here = under(path, out->cert.p ? "key" : "cert");
        CONF_FAIL(b, &at, &here, SLICE("is missing: cert and key go together"));
    }
}

static void compile_sources(struct build *b, struct conf *c, const struct own *own, uint32_t n_own)
{
    const struct raw_source *raw = b->raw->discovery.items;
    uint32_t n = b->raw->discovery.n;
    struct conf_path top = {.key = SLICE("discovery")};
    struct conf_source *sources = room(b, n, sizeof(*sources));

    for (uint32_t i = 0; i < n && !b->nomem; i++) {
        struct conf_path here = at_index(&top, i);
        struct conf_path list = under(b->in->endpoints_only ? NULL : &here, "endpoints");
        const struct raw_endpoint *endpoints = raw[i].endpoints.items;
        struct map seen;

        compile_source(b, &raw[i], &here, sources, &sources[i]);
        sources[i].n_endpoints = raw[i].endpoints.n;
        sources[i].endpoints = room(b, raw[i].endpoints.n, sizeof(struct conf_endpoint));
        map_init(&seen, b->mem);
        for (uint32_t j = 0; j < raw[i].endpoints.n && !b->nomem; j++) {
            struct conf_path one = at_index(&list, j);
            compile_endpoint(b, &endpoints[j], &one, own, n_own, &seen, &sources[i].endpoints[j]);
        }
        map_fini(&seen);
    }
    c->sources = sources;
    c->n_sources = n;
}

/* --- models --- */

static void compile_aliases(struct build *b,
                            struct raw_model *m,
                            const struct conf_path *path,
                            struct map *names)
{
    struct conf_path list = under(path, "aliases");
    uint32_t node = conf_child(b, m->item.node, "aliases");

    for (uint32_t i = 0; i < m->aliases.n && !b->nomem; i++) {
        const struct raw_model *other = map_get(names, m->aliases.items[i]);
        if (!other) {
            if (map_put(names, m->aliases.items[i], m))
                b->nomem = true;
            continue;
        }
        struct conf_path here = at_index(&list, i);
        uint32_t place = conf_nth(b, node, i);
        struct conf_place at = conf_place_value(b, place ? place : node);
        if (slice_eq(other->item.name, m->aliases.items[i]))
            CONF_FAIL(b, &at, &here, SLICE("\""), m->aliases.items[i],
                      SLICE("\" is the id of a model"));
        else
            CONF_FAIL(b, &at, &here, SLICE("\""), m->aliases.items[i],
                      SLICE("\" is already an alias of \""), other->item.name, SLICE("\""));
    }
}

/* @param names out: ids and aliases to their raw_model. */
static void compile_models(struct build *b, struct conf *c, struct map *names)
{
    struct raw_model *raw = b->raw->models.items;
    uint32_t n = b->raw->models.n;
    struct conf_path top = {.key = SLICE("models")};
    struct model_config *models = room(b, n, sizeof(*models));

    for (uint32_t i = 0; i < n && !b->nomem; i++) {
        models[i] = (struct model_config){.id = raw[i].item.name,
                                          .aliases = raw[i].aliases.items,
                                          .n_aliases = raw[i].aliases.n,
                                          .kv_bytes_per_token = raw[i].kv_bytes_per_token};
        if (raw[i].item.name.p && map_put(names, raw[i].item.name, &raw[i]))
            b->nomem = true;
    }
    for (uint32_t i = 0; i < n && !b->nomem; i++) {
        struct conf_path here = at_name(&top, raw[i].item.name);
        compile_aliases(b, &raw[i], &here, names);
    }
    c->routing.models = models;
    c->routing.n_models = n;
}

/* --- GPU exporters --- */

/* http://HOST[:PORT]/PATH. The placeholders are no letters of a host, so what stands around them is looked at. */
static bool exporter_url_ok(struct slice text)
{
    struct slice rest = text;

    if (slice_starts(rest, SLICE("http://")))
        rest = slice_from(rest, SLICE("http://").n);
    else if (slice_starts(rest, SLICE("https://")))
        rest = slice_from(rest, SLICE("https://").n);
    else
        return false;
    for (size_t i = 0; i < rest.n; i++)
        if (rest.p[i] <= ' ' || rest.p[i] == 127 || rest.p[i] == '@')
            return false;
    struct slice host = slice_of(rest.p, slice_find(rest, '/'));
    size_t brace = slice_find(rest, '{');
    if (brace < rest.n) {
        struct slice at = slice_from(rest, brace);
        size_t n = slice_find(at, '}') + 1;
        bool known = slice_starts(at, SLICE("{host}")) || slice_starts(at, SLICE("{node}"));
        if (!known || brace >= host.n || slice_find(slice_from(at, n), '{') < at.n - n)
            return false;
    }
    return host.n > 0;
}

static void compile_gpu_exporters(struct build *b, struct conf *c)
{
    const struct raw_gpu_exporters *raw = &b->raw->gpu_exporters;
    struct conf_path top = {.key = SLICE("gpu_exporters")};
    struct conf_path list = under(&top, "urls");
    uint32_t node = conf_child(b, conf_child(b, 0, "gpu_exporters"), "urls");

    c->gpu_exporters = raw->exporters;
    c->gpu_exporters.urls = raw->urls.items;
    c->gpu_exporters.n_urls = raw->urls.n;
    for (uint32_t i = 0; i < raw->urls.n; i++) {
        if (exporter_url_ok(raw->urls.items[i]))
            continue;
        struct conf_path here = at_index(&list, i);
        struct conf_place at = conf_place_value(b, conf_nth(b, node, i));
        CONF_FAIL(
            b, &at, &here, SLICE("\""), raw->urls.items[i],
            SLICE("\" is no URL like http://{host}:9400/metrics or http://10.0.0.5:9400/metrics"));
    }
}

static void compile_tenants(struct build *b, struct conf *c)
{
    const struct raw_tenant *raw = b->raw->tenants.items;
    uint32_t n = b->raw->tenants.n;
    struct conf_path top = {.key = SLICE("tenants")};
    struct tenant_config *tenants = room(b, n, sizeof(*tenants));

    for (uint32_t i = 0; i < n && !b->nomem; i++) {
        tenants[i] = (struct tenant_config){.name = raw[i].item.name,
                                            .weight = raw[i].weight,
                                            .max_in_flight = raw[i].max_in_flight,
                                            .limits = raw[i].limits};
        struct conf_path here = at_name(&top, raw[i].item.name);
        struct conf_place at = conf_place_key(b, raw[i].item.node);
        if (raw[i].item.name.n > TENANT_NAME_MAX)
            CONF_FAIL(b, &at, &here,
                      SLICE("is longer than the 64 bytes that X-Tenant-Id may have"));
        /* Two series of one name would be no metrics at all to some readers. */
        if (slice_eq(raw[i].item.name, SLICE("other")))
            CONF_FAIL(b, &at, &here,
                      SLICE("is what metrics call all tenants that are not listed; give it another "
                            "name"));
    }
    c->routing.tenants = tenants;
    c->routing.n_tenants = n;
}

void conf_compile(struct build *b, struct conf *c)
{
    struct own own[OWN_MAX];
    uint32_t n_own = 0;
    struct map names;

    map_init(&names, b->mem);
    compile_addresses(b, c, own, &n_own);
    if (b->in->endpoints_only)
        n_own = 0; /* those are the defaults, not where Weir listens */
    if (!b->nomem)
        compile_sources(b, c, own, n_own);
    if (!b->nomem)
        compile_models(b, c, &names);
    if (!b->nomem)
        compile_tenants(b, c);
    if (!b->nomem)
        conf_policies_compile(b, c);
    if (!b->nomem)
        conf_routes_compile(b, c, &names);
    map_fini(&names);

    if (b->raw->health.path.p && b->raw->health.path.p[0] != '/') {
        struct conf_path top = {.key = SLICE("health")};
        struct conf_path here = under(&top, "path");
        struct conf_place at =
            conf_place_option(b, conf_child(b, 0, "health"), "path", "health.path");
        CONF_FAIL(b, &at, &here, SLICE("\""), b->raw->health.path,
                  SLICE("\" must start with /, or be auto"));
    }
    c->routing.limits = b->raw->limits;
    c->routing.breaker = b->raw->breaker;
    c->routing.generation = b->in->generation;
    c->health = b->raw->health;
    compile_gpu_exporters(b, c);
    c->decisions_per_s = b->raw->decisions_per_s;
    c->logging = b->raw->logging;
    c->threads = b->raw->threads;
    c->user = b->raw->user;
    c->group = b->raw->group;
    conf_upstream_tls_compile(b, c);
    c->raw = b->raw;
}
