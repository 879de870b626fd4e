/* SPDX-License-Identifier: Apache-2.0 */
/** @file Reading endpoint documents. */
#include <stdio.h>

#include "base/bug.h"
#include "base/num.h"
#include "registry/nacos_codec.h"
#include "registry/native_read.h"
#include "registry/native_words.h"
#include "wire/url.h"

static int read_id(struct reader *r, const char *field, const json_t *v)
{
    return read_text(r, field, v, ENDPOINT_TEXT_MAX, &r->doc->instance.id);
}

static int read_service(struct reader *r, const char *field, const json_t *v)
{
    struct slice *one = arena_array(r->a, 1, sizeof(*one));

    if (!one)
        return WEIR_E_NOMEM;
    if (r->doc->instance.n_services)
        return BAD(r, field, "give service or services, not both");
    r->doc->instance.services = one;
    r->doc->instance.n_services = 1;
    return read_text(r, field, v, ENDPOINT_TEXT_MAX, one);
}

static int read_services(struct reader *r, const char *field, const json_t *v)
{
    uint32_t n;
    int rc = read_array_size(r, field, v, ENDPOINT_SERVICES_MAX, &n);

    if (rc)
        return rc;
    if (r->doc->instance.n_services)
        return BAD(r, field, "give service or services, not both");
    struct slice *list = arena_array(r->a, n, sizeof(*list));
    if (!list)
        return WEIR_E_NOMEM;
    for (uint32_t i = 0; i < n && !rc; i++) {
        char path[128];
        (void)snprintf(path, sizeof(path), "%s[%u]", field, i);
        rc = read_text(r, path, json_array_get(v, i), ENDPOINT_TEXT_MAX, &list[i]);
    }
    r->doc->instance.services = list;
    r->doc->instance.n_services = n;
    return rc;
}

static int read_url(struct reader *r, const char *field, const json_t *v)
{
    struct slice text;
    struct url url;
    int rc = read_text(r, field, v, ENDPOINT_TEXT_MAX, &text);

    if (rc)
        return rc;
    if (wire_url_parse(text, &url) || nacos_host(url.host, &r->doc->instance.host) || url.port == 0)
        return BAD(r, field, "%s must be http://host:port or https://host:port", field);
    if (!slice_eq(url.path, SLICE("/")) || url.query.p)
        return BAD(r, field, "%s must end after the port: paths come from the requests", field);
    r->has_url = true;
    r->doc->instance.tls = url.tls;
    r->doc->instance.port = url.port;
    return 0;
}

static int read_host(struct reader *r, const char *field, const json_t *v)
{
    struct slice text;
    int rc = read_text(r, field, v, NACOS_HOST_MAX, &text);

    if (!rc && nacos_host(text, &r->host))
        rc = BAD(r, field, "%s must be a host name or a literal address", field);
    r->has_host = true;
    return rc;
}

static int read_port(struct reader *r, const char *field, const json_t *v)
{
    uint32_t port = 0;
    int rc = read_u32(r, field, v, 1, UINT16_MAX, &port);

    r->has_port = true;
    if (!rc && !r->has_url)
        r->doc->instance.port = (uint16_t)port;
    return rc;
}

/** The model under way, while its object is read. */
static struct model_ref *model_of(struct reader *r)
{
    return (struct model_ref *)(uintptr_t)&r->doc->instance.models[r->doc->instance.n_models];
}

static int read_model_id(struct reader *r, const char *field, const json_t *v)
{
    return read_text(r, field, v, ENDPOINT_TEXT_MAX, &model_of(r)->id);
}
static int read_model_version(struct reader *r, const char *field, const json_t *v)
{
    return read_text(r, field, v, ENDPOINT_TEXT_MAX, &model_of(r)->version);
}
static int read_model_lora(struct reader *r, const char *field, const json_t *v)
{
    return read_text(r, field, v, ENDPOINT_TEXT_MAX, &model_of(r)->lora_base);
}
static int read_model_len(struct reader *r, const char *field, const json_t *v)
{
    return read_u32(r, field, v, 1, UINT32_MAX, &model_of(r)->max_model_len);
}

static const struct field model_fields[] = {
    {"id", read_model_id},
    {"version", read_model_version},
    {"lora_base", read_model_lora},
    {"max_model_len", read_model_len},
};

static int read_models(struct reader *r, const char *field, const json_t *v)
{
    uint32_t n;
    int rc = read_array_size(r, field, v, ENDPOINT_MODELS_MAX, &n);

    if (rc)
        return rc;
    r->doc->instance.models = arena_array(r->a, n, sizeof(struct model_ref));
    if (!r->doc->instance.models)
        return WEIR_E_NOMEM;
    for (uint32_t i = 0; i < n; i++) {
        const json_t *m = json_array_get(v, i);
        char path[128];
        (void)snprintf(path, sizeof(path), "%s[%u]", field, i);
        if (json_is_object(m))
            rc = read_object(r, path, m, model_fields, ARRAY_LEN(model_fields));
        else if (json_is_string(m))
            rc = read_text(r, path, m, ENDPOINT_TEXT_MAX, &model_of(r)->id);
        else
            rc = BAD(r, path, "%s must be a model id or an object with an id", path);
        if (!rc && !model_of(r)->id.p) {
            (void)snprintf(path, sizeof(path), "%s[%u].id", field, i);
            rc = read_fail(r, "missing_field", path, "%s is missing", path);
        }
        if (rc)
            return rc;
        r->doc->instance.n_models++;
    }
    return 0;
}

static int read_tasks(struct reader *r, const char *field, const json_t *v)
{
    uint32_t n;
    int rc = read_array_size(r, field, v, 16, &n);

    for (uint32_t i = 0; i < n && !rc; i++) {
        char path[128];
        int bit = 0;
        (void)snprintf(path, sizeof(path), "%s[%u]", field, i);
        rc = read_word(r, path, json_array_get(v, i), native_tasks, &bit);
        r->doc->instance.tasks |= (uint32_t)bit;
    }
    return rc;
}

static struct device *device_of(struct reader *r)
{
    return (struct device *)(uintptr_t)&r->doc->instance.devices[r->doc->instance.n_devices];
}

static int read_device_uuid(struct reader *r, const char *field, const json_t *v)
{
    return read_text(r, field, v, ENDPOINT_TEXT_MAX, &device_of(r)->uuid);
}
static int read_device_type(struct reader *r, const char *field, const json_t *v)
{
    return read_text(r, field, v, ENDPOINT_TEXT_MAX, &device_of(r)->type);
}
static int read_device_memory(struct reader *r, const char *field, const json_t *v)
{
    return read_u64(r, field, v, 1, INT64_MAX, &device_of(r)->memory_total_bytes);
}

static const struct field device_fields[] = {
    {"uuid", read_device_uuid},
    {"type", read_device_type},
    {"memory_total_bytes", read_device_memory},
};

static int read_devices(struct reader *r, const char *field, const json_t *v)
{
    uint32_t n;
    int rc = read_array_size(r, field, v, ENDPOINT_DEVICES_MAX, &n);

    if (rc)
        return rc;
    r->doc->instance.devices = arena_array(r->a, n, sizeof(struct device));
    if (!r->doc->instance.devices)
        return WEIR_E_NOMEM;
    for (uint32_t i = 0; i < n && !rc; i++) {
        const json_t *d = json_array_get(v, i);
        char path[128];
        (void)snprintf(path, sizeof(path), "%s[%u]", field, i);
        rc = json_is_object(d) ? read_object(r, path, d, device_fields, ARRAY_LEN(device_fields))
                               : BAD(r, path, "%s must be an object", path);
        r->doc->instance.n_devices++;
    }
    return rc;
}

static int read_weight(struct reader *r, const char *field, const json_t *v)
{
    return read_decimal(r, field, v, WEIGHT_MAX / WEIGHT_ONE, WEIGHT_ONE, &r->doc->instance.weight);
}
static int read_enabled(struct reader *r, const char *field, const json_t *v)
{
    return read_bool(r, field, v, &r->doc->instance.enabled);
}
static int read_draining(struct reader *r, const char *field, const json_t *v)
{
    return read_bool(r, field, v, &r->doc->instance.draining);
}

static int read_engine(struct reader *r, const char *field, const json_t *v)
{
    int kind = 0;
    int rc = read_word(r, field, v, native_engines, &kind);

    r->doc->instance.engine = (enum engine_kind)kind;
    return rc;
}

static int read_role(struct reader *r, const char *field, const json_t *v)
{
    int role = 0;
    int rc = read_word(r, field, v, native_roles, &role);

    r->doc->instance.role = (enum endpoint_role)role;
    return rc;
}

static int read_region(struct reader *r, const char *field, const json_t *v)
{
    return read_text(r, field, v, ENDPOINT_TEXT_MAX, &r->doc->instance.region);
}
static int read_zone(struct reader *r, const char *field, const json_t *v)
{
    return read_text(r, field, v, ENDPOINT_TEXT_MAX, &r->doc->instance.zone);
}
static int read_cluster(struct reader *r, const char *field, const json_t *v)
{
    return read_text(r, field, v, ENDPOINT_TEXT_MAX, &r->doc->instance.cluster);
}
static int read_labels(struct reader *r, const char *field, const json_t *v)
{
    return read_kv(r, field, v, &r->doc->instance.labels, &r->doc->instance.n_labels);
}
static int read_metadata(struct reader *r, const char *field, const json_t *v)
{
    return read_kv(r, field, v, &r->doc->instance.metadata, &r->doc->instance.n_metadata);
}
static int read_max_concurrency(struct reader *r, const char *field, const json_t *v)
{
    return read_u32(r, field, v, 0, UINT32_MAX, &r->doc->instance.max_concurrency);
}
static int read_max_model_len(struct reader *r, const char *field, const json_t *v)
{
    return read_u32(r, field, v, 1, UINT32_MAX, &r->doc->instance.max_model_len);
}

static int read_ttl(struct reader *r, const char *field, const json_t *v)
{
    uint64_t ms = 0;
    int rc = read_u64(r, field, v, STORE_TTL_MIN_NS / NS_PER_MS, STORE_TTL_MAX_NS / NS_PER_MS, &ms);

    r->doc->ttl_ns = ms * NS_PER_MS;
    return rc;
}

static int read_epoch(struct reader *r, const char *field, const json_t *v)
{
    r->doc->has_epoch = true;
    return read_u64(r, field, v, 0, INT64_MAX, &r->doc->instance.epoch);
}

static const struct field endpoint_fields[] = {
    {"id", read_id},
    {"service", read_service},
    {"services", read_services},
    {"url", read_url},
    {"host", read_host},
    {"port", read_port},
    {"models", read_models},
    {"tasks", read_tasks},
    {"devices", read_devices},
    {"weight", read_weight},
    {"enabled", read_enabled},
    {"draining", read_draining},
    {"engine", read_engine},
    {"role", read_role},
    {"region", read_region},
    {"zone", read_zone},
    {"cluster", read_cluster},
    {"labels", read_labels},
    {"metadata", read_metadata},
    {"max_concurrency", read_max_concurrency},
    {"max_model_len", read_max_model_len},
    {"ttl_ms", read_ttl},
    {"epoch", read_epoch},
    {"kind", NULL},
    {"healthy", NULL},
    {"probation", NULL},
    {"expires_in_ms", NULL},
    {"current_requests", NULL},
    {"load", NULL},
    {"nacos", NULL},
};

static int check_address(struct reader *r)
{
    if (r->has_url) {
        if (r->has_host || r->has_port)
            return BAD(r, r->has_host ? "host" : "port", "give url, or host and port, not both");
        return 0;
    }
    if (!r->has_host)
        return read_fail(r, "missing_field", "url", "url (or host and port) is missing");
    if (!r->has_port)
        return read_fail(r, "missing_field", "port", "port is missing");
    r->doc->instance.host = r->host;
    return 0;
}

int native_read_endpoint(struct arena *a,
                         const json_t *doc,
                         struct native_doc *out,
                         struct native_error *error)
{
    struct reader r = {.a = a, .error = error, .doc = out};

    *out = (struct native_doc){.ttl_ns = STORE_TTL_DEFAULT_NS};
    out->instance.weight = WEIGHT_ONE;
    out->instance.enabled = true;
    out->instance.healthy = true;
    if (!json_is_object(doc))
        return read_fail(&r, "invalid_json", "", "the body must be a JSON object");
    int rc = read_object(&r, "", doc, endpoint_fields, ARRAY_LEN(endpoint_fields));
    return rc ? rc : check_address(&r);
}
