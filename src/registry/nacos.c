/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The Nacos-compatible HTTP API: v1 for HTTP-era SDKs, v2 about instances, and the client part of v3. What is exact and what differs
 * from the reference server is written down in docs/registry.md. Here: services, operator, login, and who answers what.
 */
#include <stdio.h>

#include "base/bug.h"
#include "base/num.h"
#include "registry/nacos_call.h"
#include "registry/nacos_view.h"

enum { TOKEN_TTL_S = 18000 };

/* --- services --- */

static void put_service(struct nacos_call *n)
{
    struct nacos_write w = {0};
    struct service *service;
    struct slice text = nacos_text(n, "protectThreshold");
    double threshold = -1;

    if (!nacos_read_service(n, &w))
        return;
    if (text.p && (num_f64(text, &threshold) || threshold < 0 || threshold > 1)) {
        nacos_fail(n, 400, V3_INVALID, "Param 'protectThreshold' is illegal: 0 to 1 is expected");
        return;
    }
    bool create = slice_eq(n->c->request->method, SLICE("POST"));
    service = store_service(&n->c->registry->store, w.ns, w.grouped);
    if (create ? service && service->kept : !service) {
        nacos_fail(n, 400, V3_INVALID,
                   create ? "specified service %.*s already exists!" : "service %.*s not found!",
                   SLICE_ARG(w.grouped));
        return;
    }
    int rc = store_service_put(&n->c->registry->store, w.ns, w.grouped, threshold, &service);
    if (rc)
        nacos_refused(n, &w, rc);
    else
        nacos_ok(n);
}

static void delete_service(struct nacos_call *n)
{
    struct nacos_write w = {0};

    if (!nacos_read_service(n, &w))
        return;
    int rc = store_service_delete(&n->c->registry->store, w.ns, w.grouped);
    if (rc == WEIR_E_EXISTS)
        nacos_fail(n, 400, V3_INVALID,
                   "Service %.*s is not empty, can't be delete. Please unregister instance first",
                   SLICE_ARG(w.grouped));
    else if (rc)
        nacos_fail(n, 400, V3_INVALID, "service %.*s not found!", SLICE_ARG(w.grouped));
    else
        nacos_ok(n);
}

static void get_service(struct nacos_call *n)
{
    struct nacos_write w = {0};
    struct buf out;

    if (!nacos_read_service(n, &w))
        return;
    const struct service *service = store_service(&n->c->registry->store, w.ns, w.grouped);
    if (!service) {
        nacos_fail(n, 404, V3_NOT_FOUND, "service %.*s not found!", SLICE_ARG(w.grouped));
        return;
    }
    call_out(n->c, &out);
    nacos_write_service_info(&out, service);
    call_reply(n->c, 200, nacos_json_type, &out);
}

static bool read_page(struct nacos_call *n, const char *name, uint64_t *out)
{
    struct slice text;

    if (!nacos_need(n, name, &text))
        return false;
    if (num_u64(text, out) == 0 && *out >= 1 && *out <= 1000000)
        return true;
    nacos_fail(n, 400, V3_INVALID, "Param '%s' is illegal: a number from 1 is expected", name);
    return false;
}

static void get_services(struct nacos_call *n)
{
    uint64_t page;
    uint64_t size;
    struct slice ns;
    struct buf out;
    struct slice group = nacos_text(n, "groupName");

    if (!read_page(n, "pageNo", &page) || !read_page(n, "pageSize", &size) ||
        !nacos_read_namespace(n, &ns))
        return;
    if (!group.p)
        group = SLICE(NACOS_GROUP);
    struct nacos_names names;
    int rc =
        nacos_find_services(&n->c->registry->store, &n->c->arena, ns, group, page, size, &names);
    if (rc) {
        nacos_fail(n, 500, V3_SERVER, "%s", err_text(rc));
        return;
    }
    call_out(n->c, &out);
    nacos_write_services(&names, &out);
    call_reply(n->c, 200, nacos_json_type, &out);
}

/* --- operator, login --- */

static void get_metrics(struct nacos_call *n)
{
    http_reply(n->c->request, 200, nacos_json_type, SLICE("{\"status\":\"UP\"}"));
}

static void get_switches(struct nacos_call *n)
{
    http_reply(n->c->request, 200, nacos_json_type,
               SLICE("{\"clientBeatInterval\":5000,\"defaultCacheMillis\":3000,"
                     "\"defaultPushCacheMillis\":10000,"
                     "\"distroEnabled\":false,\"healthCheckEnabled\":true,\"pushEnabled\":false,"
                     "\"lightBeatEnabled\":true,\"defaultInstanceEphemeral\":true}"));
}

static void post_login(struct nacos_call *n)
{
    struct slice username = nacos_text(n, "username");
    struct slice password = nacos_text(n, "password");
    const struct registry *r = n->c->registry;
    char header[128];
    struct buf out;

    if (!registry_token_ok(r, password)) {
        nacos_fail(n, 403, V3_DENIED, "unknown user!");
        return;
    }
    call_out(n->c, &out);
    buf_put_str(&out, "{\"accessToken\":\"");
    buf_put_str(&out, r->access_token);
    buf_put_str(&out, "\",\"tokenTtl\":");
    buf_put_u64(&out, TOKEN_TTL_S);
    buf_put_str(&out, ",\"globalAdmin\":true,\"username\":");
    buf_put_json(&out, username.p ? username : SLICE("nacos"));
    buf_put_char(&out, '}');
    (void)snprintf(header, sizeof(header), "Authorization: Bearer %s\r\n", r->access_token);
    if (out.err)
        http_reply(n->c->request, 500, nacos_text_type, SLICE(""));
    else
        http_reply_with(n->c->request, 200, nacos_json_type, slice_str(header), buf_slice(&out));
    buf_fini(&out);
}

static bool access_ok(const struct registry *r, struct slice given)
{
    unsigned differ = given.n != REGISTRY_ACCESS_TOKEN;

    for (size_t i = 0; i < given.n; i++)
        differ |=
            (unsigned char)given.p[i] ^ (unsigned char)r->access_token[i % REGISTRY_ACCESS_TOKEN];
    return differ == 0;
}

bool nacos_token_ok(const struct registry *r, struct slice given)
{
    return !r->token || access_ok(r, given) || registry_token_ok(r, given);
}

/** accessToken= (from a login, or the token itself), Authorization: Bearer, or username and password on each call. */
static bool authorized(const struct nacos_call *n)
{
    const struct registry *r = n->c->registry;
    struct slice given = nacos_text(n, "accessToken");

    if (!r->token)
        return true;
    if (!given.p)
        given = call_bearer(n->c);
    if (given.p)
        return nacos_token_ok(r, given);
    return registry_token_ok(r, nacos_text(n, "password"));
}

/* --- dispatch --- */

struct route {
    const char *method; /**< NULL: any */
    const char *path;   /**< after /nacos */
    void (*handle)(struct nacos_call *n);
    bool open; /**< needs no authorization */
};

static const struct route routes[] = {
    {"POST", "/v1/ns/instance", nacos_post_instance, false},
    {"DELETE", "/v1/ns/instance", nacos_delete_instance, false},
    {"PUT", "/v1/ns/instance", nacos_edit_instance, false},
    {"PATCH", "/v1/ns/instance", nacos_edit_instance, false},
    {"GET", "/v1/ns/instance", nacos_get_instance, false},
    {"GET", "/v1/ns/instance/list", nacos_get_list, false},
    {"PUT", "/v1/ns/instance/beat", nacos_put_beat, false},
    {"PUT", "/v1/ns/instance/metadata/batch", nacos_put_batch, false},
    {"DELETE", "/v1/ns/instance/metadata/batch", nacos_delete_batch, false},
    {NULL, "/v1/ns/instance/statuses", nacos_any_statuses, false},
    {"POST", "/v1/ns/service", put_service, false},
    {"PUT", "/v1/ns/service", put_service, false},
    {"DELETE", "/v1/ns/service", delete_service, false},
    {"GET", "/v1/ns/service", get_service, false},
    {"GET", "/v1/ns/service/list", get_services, false},
    {"GET", "/v1/ns/operator/metrics", get_metrics, true},
    {"GET", "/v1/ns/operator/switches", get_switches, false},
    {"POST", "/v1/auth/login", post_login, true},
    {"POST", "/v1/auth/users/login", post_login, true},
    {"POST", "/v2/ns/instance", nacos_post_instance, false},
    {"DELETE", "/v2/ns/instance", nacos_delete_instance, false},
    {"PUT", "/v2/ns/instance", nacos_edit_instance, false},
    {"PATCH", "/v2/ns/instance", nacos_edit_instance, false},
    {"GET", "/v2/ns/instance", nacos_get_instance, false},
    {"GET", "/v2/ns/instance/list", nacos_get_list, false},
    {"POST", "/v3/auth/user/login", post_login, true},
    {"POST", "/v3/client/ns/instance", nacos_post_instance, false},
    {"DELETE", "/v3/client/ns/instance", nacos_delete_instance, false},
    {"GET", "/v3/client/ns/instance/list", nacos_get_list, false},
};

static const struct route *route_of(struct slice method, struct slice path, bool *known)
{
    *known = false;
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        if (!slice_eq(path, slice_str(routes[i].path)))
            continue;
        *known = true;
        if (!routes[i].method || slice_eq(method, slice_str(routes[i].method)))
            return &routes[i];
    }
    return NULL;
}

void nacos_handle(struct call *c)
{
    struct slice path = slice_from(c->request->path, sizeof("/nacos") - 1);
    bool v3 = slice_starts(path, SLICE("/v3/"));
    struct nacos_call n = {.c = c, .wrapped = v3 || slice_starts(path, SLICE("/v2/")), .v3 = v3};
    struct slice type = wire_http1_value(c->request->head, SLICE("Content-Type"));
    bool form = !type.p || slice_eq_nocase(slice_of(type.p, MIN(type.n, 33)),
                                           SLICE("application/x-www-form-urlencoded"));
    bool known;
    const struct route *route = route_of(c->request->method, path, &known);

    if (!route) {
        nacos_fail(&n, known ? 501 : 404, V3_SERVER,
                   known ? "no such method on %.*s" : "no such api: %.*s", (int)MIN(path.n, 200),
                   path.p);
        return;
    }
    int rc = nacos_params_parse(&n.params, &c->arena, c->request->query,
                                form ? c->request->body : (struct slice){NULL, 0});
    if (rc == WEIR_E_FULL)
        nacos_fail(&n, 400, V3_INVALID, "more than %u parameters", NACOS_PARAMS_MAX);
    else if (rc)
        nacos_fail(&n, 400, V3_INVALID,
                   "parameters cannot be decoded: a broken %%-escape, or not UTF-8");
    else if (!route->open && !authorized(&n))
        nacos_fail(&n, 403, V3_DENIED, "unknown user!");
    else
        route->handle(&n);
}
