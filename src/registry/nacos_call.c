/* SPDX-License-Identifier: Apache-2.0 */
/** @file What every Nacos call does: read its parameters, answer, refuse in the words of its version. */
#include "registry/nacos_call.h"

#include <stdarg.h>
#include <stdio.h>

#include "loop/alloc.h"

const char nacos_json_type[] = "application/json;charset=UTF-8";
const char nacos_text_type[] = "text/plain;charset=UTF-8";

/* --- answers --- */

void nacos_fail(struct nacos_call *n, unsigned status, unsigned code, const char *format, ...)
{
    char message[512];
    struct buf out;
    va_list args;

    va_start(args, format);
    (void)vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    call_out(n->c, &out);
    if (!n->wrapped) {
        buf_put_str(&out, "caused: ");
        buf_put_str(&out, message);
        buf_put_char(&out, ';');
        call_reply(n->c, status, nacos_text_type, &out);
        return;
    }
    buf_put_str(&out, "{\"code\":");
    buf_put_u64(&out, code);
    buf_put_str(&out, ",\"message\":");
    buf_put_json(&out, slice_str(message));
    buf_put_str(&out, ",\"data\":null}");
    call_reply(n->c, status, nacos_json_type, &out);
}

void nacos_ok(struct nacos_call *n)
{
    if (n->wrapped)
        http_reply(n->c->request, 200, nacos_json_type,
                   SLICE("{\"code\":0,\"message\":\"success\",\"data\":\"ok\"}"));
    else
        http_reply(n->c->request, 200, nacos_text_type, SLICE("ok"));
}

/** The store or the fleet refused. */
void nacos_refused(struct nacos_call *n, const struct nacos_write *w, int rc)
{
    if (rc == WEIR_E_UNSUPPORTED)
        nacos_fail(
            n, 400, V3_INVALID, "Current service %.*s is %s service, can't register %s instance.",
            SLICE_ARG(w->grouped), w->has_ephemeral && !w->ephemeral ? "ephemeral" : "persistent",
            w->has_ephemeral && !w->ephemeral ? "persistent" : "ephemeral");
    else if (rc == WEIR_E_RANGE)
        nacos_fail(
            n, 400, V3_INVALID,
            "Instance 'heart beat interval' must less than 'heart beat timeout' and 'ip delete "
            "timeout'.");
    else if (rc == WEIR_E_INVALID)
        nacos_fail(n, 400, V3_INVALID, "the fleet cannot take this instance: %s", err_text(rc));
    else if (rc == WEIR_E_FULL)
        nacos_fail(n, 400, V3_INVALID, "the limit of %u instances or %u metadata keys is reached",
                   n->c->registry->o.instances_max, ENDPOINT_KV_MAX);
    else if (rc == WEIR_E_DENIED)
        nacos_fail(n, 403, V3_DENIED, "this address may not be registered");
    else
        nacos_fail(n, 500, V3_SERVER, "%s", err_text(rc));
}

/* --- reading parameters --- */

struct slice nacos_text(const struct nacos_call *n, const char *name)
{
    return nacos_param(&n->params, name);
}

struct slice nacos_text_or(const struct nacos_call *n, const char *name, const char *other)
{
    struct slice v = nacos_text(n, name);

    return v.p ? v : nacos_text(n, other);
}

/** @return false when answered. */
bool nacos_need(struct nacos_call *n, const char *name, struct slice *out)
{
    *out = nacos_text(n, name);
    if (out->p)
        return true;
    nacos_fail(n, 400, V3_MISSING, "Param '%s' is required.", name);
    return false;
}

bool nacos_read_namespace(struct nacos_call *n, struct slice *out)
{
    *out = nacos_text(n, "namespaceId");
    if (!out->p)
        *out = SLICE(NACOS_PUBLIC);
    bool good = nacos_namespace_ok(*out);
    if (!good)
        nacos_fail(n, 400, V3_INVALID,
                   "Param 'namespaceId' is illegal: letters, digits, '_' and '-', at most %u",
                   NACOS_NAMESPACE_MAX);
    return good;
}

/** Namespace and grouped name, which nearly every call has. */
bool nacos_read_service(struct nacos_call *n, struct nacos_write *w)
{
    struct slice service;

    if (!nacos_read_namespace(n, &w->ns) || !nacos_need(n, "serviceName", &service))
        return false;
    int rc = nacos_grouped(&n->c->arena, service, nacos_text(n, "groupName"), &w->grouped);
    if (rc)
        nacos_fail(
            n, 400, V3_INVALID,
            "Param 'serviceName' is illegal: group and service must not be empty, at most %u and "
            "%u bytes",
            NACOS_GROUP_MAX, NACOS_SERVICE_MAX);
    return rc == 0;
}

bool nacos_read_address(struct nacos_call *n,
                        struct slice ip,
                        struct slice port,
                        struct nacos_write *w)
{
    if (!ip.p)
        nacos_fail(n, 400, V3_MISSING, "Param 'ip' is required.");
    else if (!port.p)
        nacos_fail(n, 400, V3_MISSING, "Param 'port' is required.");
    else if (nacos_host(ip, &w->host))
        nacos_fail(n, 400, V3_INVALID,
                   "Param 'ip' is illegal: an IP address or a host name is expected");
    else if (nacos_port(port, &w->port))
        nacos_fail(n, 400, V3_INVALID, "Param 'port' is illegal: 1 to 65535 is expected");
    else
        return true;
    return false;
}

bool nacos_read_cluster(struct nacos_call *n, struct nacos_write *w)
{
    w->cluster = nacos_text_or(n, "clusterName", "cluster");
    if (!w->cluster.p || nacos_cluster_ok(w->cluster))
        return true;
    nacos_fail(n, 400, V3_INVALID,
               "Param 'clusterName' is illegal: [0-9a-zA-Z-] and at most %u characters",
               NACOS_CLUSTER_MAX);
    return false;
}

bool nacos_read_metadata(struct nacos_call *n, struct slice text, struct nacos_write *w)
{
    struct nacos_map map;
    const char *error;
    int rc = text.p ? nacos_metadata(&n->c->arena, text, &map, &error) : 0;

    if (rc == WEIR_E_NOMEM)
        nacos_fail(n, 500, V3_SERVER, "%s", err_text(rc));
    else if (rc)
        nacos_fail(n, 400, V3_INVALID, "Param 'metadata' is illegal: %s",
                   error ? error : err_text(rc));
    if (rc)
        return false;
    if (text.p) {
        w->metadata = map.kv;
        w->n_metadata = map.n;
    }
    return true;
}

static bool read_flag(struct nacos_call *n, const char *name, const char *legacy, bool *out)
{
    struct slice v = legacy ? nacos_text_or(n, name, legacy) : nacos_text(n, name);

    if (v.p)
        *out = nacos_bool(v);
    return v.p != NULL;
}

/** Everything an instance call may carry. */
bool nacos_read_instance(struct nacos_call *n, struct nacos_write *w)
{
    *w = (struct nacos_write){0};
    if (!nacos_read_service(n, w) ||
        !nacos_read_address(n, nacos_text(n, "ip"), nacos_text(n, "port"), w) ||
        !nacos_read_cluster(n, w))
        return false;
    struct slice weight = nacos_text(n, "weight");
    w->has_weight = weight.p != NULL;
    if (weight.p && nacos_weight(weight, &w->weight)) {
        nacos_fail(n, 400, V3_WEIGHT, "Param 'weight' is illegal: 0 to 10000 is expected");
        return false;
    }
    w->has_enabled = read_flag(n, "enabled", "enable", &w->enabled);
    w->has_healthy = read_flag(n, "healthy", NULL, &w->healthy);
    w->has_ephemeral = read_flag(n, "ephemeral", NULL, &w->ephemeral);
    return nacos_read_metadata(n, nacos_text(n, "metadata"), w);
}

struct record *nacos_find(struct nacos_call *n, const struct nacos_write *w)
{
    struct buf address;

    buf_init(&address, loop_mem(), 512);
    store_address(&address, w->host, w->port);
    struct record *r =
        store_find_nacos(&n->c->registry->store, w->ns, w->grouped, buf_slice(&address));
    buf_fini(&address);
    return r;
}
