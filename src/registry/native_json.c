/* SPDX-License-Identifier: Apache-2.0 */
/** @file Reading: one table per object, so a field is a row and unknown keys are found by the same table. */
#include "registry/native_json.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/bug.h"
#include "base/num.h"
#include "registry/nacos_codec.h"
#include "registry/native_words.h"
#include "wire/url.h"

/** One document being read. */
struct reader {
    struct arena *a;
    struct native_error *error;
    struct native_doc *doc;
    struct sample *load;
    struct slice host;
    bool has_url, has_host, has_port, has_epoch, has_seq;
    uint64_t interval_ms;
};

typedef int (*read_fn)(struct reader *r, const char *field, const json_t *v);

struct field {
    const char *name;
    read_fn read; /**< NULL: the field is only shown, never taken */
};

/* --- errors --- */

static int fail(struct reader *r, const char *code, const char *field, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static int fail(struct reader *r, const char *code, const char *field, const char *format, ...)
{
    va_list args;

    r->error->code = code;
    (void)snprintf(r->error->field, sizeof(r->error->field), "%s", field);
    va_start(args, format);
    (void)vsnprintf(r->error->message, sizeof(r->error->message), format, args);
    va_end(args);
    return WEIR_E_INVALID;
}

#define BAD(r, field, ...) fail(r, "invalid_field", field, __VA_ARGS__)

json_t *native_load_json(struct slice text, struct native_error *error)
{
    json_error_t e;
    json_t *doc = json_loadb(text.p ? text.p : "", text.n, JSON_REJECT_DUPLICATES, &e);

    if (!doc) {
        error->code = "invalid_json";
        error->field[0] = '\0';
        (void)snprintf(error->message, sizeof(error->message), "not JSON: line %d column %d: %s",
                       e.line, e.column, e.text);
    }
    return doc;
}

/* --- the nearest known key --- */

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
    unsigned m = MIN(a, b);

    return MIN(m, c);
}

/** Edit distance; what is longer than 32 bytes is far from everything. */
static unsigned distance(const char *a, const char *b)
{
    enum { LONGEST = 32 };
    size_t na = strlen(a);
    size_t nb = strlen(b);
    unsigned row[LONGEST + 1];

    if (na > LONGEST || nb > LONGEST)
        return UINT32_MAX;
    for (unsigned j = 0; j <= nb; j++)
        row[j] = j;
    for (unsigned i = 1; i <= na; i++) {
        unsigned diagonal = row[0];
        row[0] = i;
        for (unsigned j = 1; j <= nb; j++) {
            unsigned above = row[j];
            row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[nb];
}

static int
unknown(struct reader *r, const char *path, const char *key, const struct field *fields, size_t n)
{
    const char *best = fields[0].name;
    unsigned least = UINT32_MAX;

    for (size_t i = 0; i < n; i++) {
        unsigned d = fields[i].read ? distance(key, fields[i].name) : UINT32_MAX;
        if (d < least) {
            least = d;
            best = fields[i].name;
        }
    }
    return fail(r, "unknown_field", path, "unknown key '%.64s'; the nearest known one is '%s'",
                path, best);
}

static int read_object(
    struct reader *r, const char *prefix, const json_t *v, const struct field *fields, size_t n)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)v, key, value)
    {
        char path[128];
        size_t i = 0;
        (void)snprintf(path, sizeof(path), "%s%s%.64s", prefix, *prefix ? "." : "", key);
        while (i < n && strcmp(fields[i].name, key) != 0)
            i++;
        if (i == n)
            return unknown(r, path, key, fields, n);
        if (!fields[i].read)
            return BAD(r, path, "'%s' is only shown, it cannot be set here", path);
        if (json_is_null(value))
            continue; /* null: not given */
        int rc = fields[i].read(r, path, value);
        if (rc)
            return rc;
    }
    return 0;
}

/* --- scalars --- */

static int
read_text(struct reader *r, const char *field, const json_t *v, size_t max, struct slice *out)
{
    if (!json_is_string(v))
        return BAD(r, field, "%s must be a string", field);
    struct slice s = slice_of(json_string_value(v), json_string_length(v));
    if (s.n == 0)
        return BAD(r, field, "%s must not be empty", field);
    if (s.n > max)
        return BAD(r, field, "%s is longer than %zu bytes", field, max);
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] < 0x20 || s.p[i] == 0x7f)
            return BAD(r, field, "%s holds a control character at byte %zu", field, i);
    return arena_slice(r->a, s, out);
}

static int read_u64(
    struct reader *r, const char *field, const json_t *v, uint64_t min, uint64_t max, uint64_t *out)
{
    json_int_t i = json_integer_value(v);

    if (!json_is_integer(v) || i < 0 || (uint64_t)i < min || (uint64_t)i > max)
        return BAD(r, field, "%s must be a whole number from %llu to %llu", field,
                   (unsigned long long)min, (unsigned long long)max);
    *out = (uint64_t)i;
    return 0;
}

static int read_u32(
    struct reader *r, const char *field, const json_t *v, uint64_t min, uint32_t max, uint32_t *out)
{
    uint64_t wide = 0;
    int rc = read_u64(r, field, v, min, max, &wide);

    if (!rc)
        *out = (uint32_t)wide;
    return rc;
}

/** A decimal 0..max, in 1/unit steps. */
static int read_decimal(
    struct reader *r, const char *field, const json_t *v, double max, double unit, uint32_t *out)
{
    double d = json_number_value(v);

    if (!json_is_number(v) || !(d >= 0 && d <= max))
        return BAD(r, field, "%s must be a number from 0 to %.0f", field, max);
    *out = (uint32_t)(d * unit + 0.5);
    if (*out == 0 && d > 0)
        *out = 1;
    return 0;
}

static int read_bool(struct reader *r, const char *field, const json_t *v, bool *out)
{
    if (!json_is_boolean(v))
        return BAD(r, field, "%s must be true or false", field);
    *out = json_is_true(v);
    return 0;
}

static int read_word(
    struct reader *r, const char *field, const json_t *v, const struct native_word *words, int *out)
{
    char known[192];
    size_t n = 0;

    for (const struct native_word *w = words; w->name; w++) {
        if (json_is_string(v) && strcmp(json_string_value(v), w->name) == 0) {
            *out = w->value;
            return 0;
        }
        if (n < sizeof(known))
            n += (size_t)snprintf(known + n, sizeof(known) - n, "%s%s", n ? ", " : "", w->name);
    }
    return BAD(r, field, "%s must be one of: %s", field, known);
}

/* --- arrays and maps --- */

static int
array_size(struct reader *r, const char *field, const json_t *v, uint32_t max, uint32_t *n)
{
    if (!json_is_array(v))
        return BAD(r, field, "%s must be an array", field);
    if (json_array_size(v) > max)
        return BAD(r, field, "%s has %zu entries; at most %u are allowed", field,
                   json_array_size(v), max);
    *n = (uint32_t)json_array_size(v);
    return 0;
}

static int
read_kv(struct reader *r, const char *field, const json_t *v, const struct kv **out, uint32_t *n)
{
    const char *key;
    json_t *value;
    size_t total = 0;

    if (!json_is_object(v))
        return BAD(r, field, "%s must be an object of strings", field);
    if (json_object_size(v) > ENDPOINT_KV_MAX)
        return BAD(r, field, "%s has %zu keys; at most %u are allowed", field, json_object_size(v),
                   ENDPOINT_KV_MAX);
    struct kv *kv = arena_array(r->a, json_object_size(v), sizeof(*kv));
    if (!kv)
        return WEIR_E_NOMEM;
    *n = 0;
    json_object_foreach((json_t *)(uintptr_t)v, key, value)
    {
        char path[128];
        (void)snprintf(path, sizeof(path), "%s.%.64s", field, key);
        if (!*key || strlen(key) > META_KEY_MAX)
            return BAD(r, path, "a key in %s must have 1 to %u bytes", field, META_KEY_MAX);
        if (!json_is_string(value))
            return BAD(r, path, "%s must be a string", path);
        struct slice text = slice_of(json_string_value(value), json_string_length(value));
        if (text.n > META_VALUE_MAX)
            return BAD(r, path, "%s is longer than %u bytes", path, META_VALUE_MAX);
        total += strlen(key) + text.n;
        if (total > META_TOTAL_MAX)
            return BAD(r, field, "%s holds more than %u bytes", field, META_TOTAL_MAX);
        if (arena_slice(r->a, slice_str(key), &kv[*n].key) ||
            arena_slice(r->a, text, &kv[*n].value))
            return WEIR_E_NOMEM;
        ++*n;
    }
    *out = kv;
    return 0;
}

int native_read_map(struct arena *a,
                    const json_t *doc,
                    const char *field,
                    const struct kv **kv,
                    uint32_t *n,
                    struct native_error *error)
{
    struct reader r = {.a = a, .error = error};

    return read_kv(&r, field, doc, kv, n);
}

/* --- endpoint --- */

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
    int rc = array_size(r, field, v, ENDPOINT_SERVICES_MAX, &n);

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
    int rc = array_size(r, field, v, ENDPOINT_MODELS_MAX, &n);

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
            rc = fail(r, "missing_field", path, "%s is missing", path);
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
    int rc = array_size(r, field, v, 16, &n);

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
    int rc = array_size(r, field, v, ENDPOINT_DEVICES_MAX, &n);

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
        return fail(r, "missing_field", "url", "url (or host and port) is missing");
    if (!r->has_port)
        return fail(r, "missing_field", "port", "port is missing");
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
        return fail(&r, "invalid_json", "", "the body must be a JSON object");
    int rc = read_object(&r, "", doc, endpoint_fields, ARRAY_LEN(endpoint_fields));
    return rc ? rc : check_address(&r);
}

/* --- load --- */

static int read_load_epoch(struct reader *r, const char *field, const json_t *v)
{
    r->has_epoch = true;
    return read_u64(r, field, v, 0, INT64_MAX, &r->load->epoch);
}
static int read_load_seq(struct reader *r, const char *field, const json_t *v)
{
    r->has_seq = true;
    return read_u64(r, field, v, 0, INT64_MAX, &r->load->seq);
}
static int read_interval(struct reader *r, const char *field, const json_t *v)
{
    return read_u64(r, field, v, 10, 3600000, &r->interval_ms);
}

static int read_percent(
    struct reader *r, const char *field, const json_t *v, enum sample_field bit, uint32_t *out)
{
    r->load->known |= 1u << bit;
    return read_decimal(r, field, v, 100, 100, out);
}
static int read_count(
    struct reader *r, const char *field, const json_t *v, enum sample_field bit, uint32_t *out)
{
    r->load->known |= 1u << bit;
    return read_u32(r, field, v, 0, UINT32_MAX, out);
}
static int
read_big(struct reader *r, const char *field, const json_t *v, enum sample_field bit, uint64_t *out)
{
    r->load->known |= 1u << bit;
    return read_u64(r, field, v, 0, INT64_MAX, out);
}

static int read_gpu_util(struct reader *r, const char *field, const json_t *v)
{
    return read_percent(r, field, v, SAMPLE_GPU_UTIL, &r->load->gpu_util_bp);
}
static int read_membw(struct reader *r, const char *field, const json_t *v)
{
    return read_percent(r, field, v, SAMPLE_MEMBW_UTIL, &r->load->membw_util_bp);
}
static int read_sm(struct reader *r, const char *field, const json_t *v)
{
    return read_percent(r, field, v, SAMPLE_SM_ACTIVE, &r->load->sm_active_bp);
}
static int read_free(struct reader *r, const char *field, const json_t *v)
{
    return read_big(r, field, v, SAMPLE_MEMORY_FREE, &r->load->memory_free_bytes);
}
static int read_total(struct reader *r, const char *field, const json_t *v)
{
    return read_big(r, field, v, SAMPLE_MEMORY_TOTAL, &r->load->memory_total_bytes);
}
static int read_kv_capacity(struct reader *r, const char *field, const json_t *v)
{
    return read_big(r, field, v, SAMPLE_KV_CAPACITY, &r->load->kv_capacity_tokens);
}
static int read_kv_used(struct reader *r, const char *field, const json_t *v)
{
    return read_big(r, field, v, SAMPLE_KV_USED, &r->load->kv_used_tokens);
}
static int read_running(struct reader *r, const char *field, const json_t *v)
{
    return read_count(r, field, v, SAMPLE_RUNNING, &r->load->running);
}
static int read_waiting(struct reader *r, const char *field, const json_t *v)
{
    return read_count(r, field, v, SAMPLE_WAITING, &r->load->waiting);
}
static int read_batch(struct reader *r, const char *field, const json_t *v)
{
    return read_count(r, field, v, SAMPLE_BATCH, &r->load->batch);
}
static int read_rate(struct reader *r, const char *field, const json_t *v)
{
    r->load->known |= 1u << SAMPLE_TOKENS_PER_S;
    return read_decimal(r, field, v, 4e9, 1, &r->load->tokens_per_s);
}

static int read_state(struct reader *r, const char *field, const json_t *v)
{
    int state = 0;
    int rc = read_word(r, field, v, native_states, &state);

    r->load->known |= 1u << SAMPLE_STATE;
    r->load->state = (enum reported_state)state;
    return rc;
}

static const struct field load_fields[] = {
    {"epoch", read_load_epoch},
    {"seq", read_load_seq},
    {"interval_ms", read_interval},
    {"gpu_util_percent", read_gpu_util},
    {"membw_util_percent", read_membw},
    {"sm_active_percent", read_sm},
    {"memory_free_bytes", read_free},
    {"memory_total_bytes", read_total},
    {"kv_capacity_tokens", read_kv_capacity},
    {"kv_used_tokens", read_kv_used},
    {"running", read_running},
    {"waiting", read_waiting},
    {"batch", read_batch},
    {"tokens_per_s", read_rate},
    {"state", read_state},
};

int native_read_load(const json_t *doc, struct sample *out, struct native_error *error)
{
    struct reader r = {.error = error, .load = out, .interval_ms = 500};

    *out = (struct sample){0};
    if (!json_is_object(doc))
        return fail(&r, "invalid_json", "", "the body must be a JSON object");
    int rc = read_object(&r, "", doc, load_fields, ARRAY_LEN(load_fields));
    if (rc)
        return rc;
    if (!r.has_epoch || !r.has_seq) {
        const char *missing = r.has_epoch ? "seq" : "epoch";
        return fail(&r, "missing_field", missing, "%s is missing: it orders the reports", missing);
    }
    if (sample_has(out, SAMPLE_MEMORY_FREE) && sample_has(out, SAMPLE_MEMORY_TOTAL) &&
        out->memory_free_bytes > out->memory_total_bytes)
        return BAD(&r, "memory_free_bytes", "memory_free_bytes is above memory_total_bytes");
    out->fresh_for_ns = 3 * r.interval_ms * NS_PER_MS;
    return 0;
}
