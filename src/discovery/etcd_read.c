/* SPDX-License-Identifier: Apache-2.0 */
#include "discovery/etcd_read.h"

#include <jansson.h>
#include <stdio.h>

#include "base/base64.h"
#include "base/num.h"
#include "registry/native_json.h"

enum { PREFIX_MAX = 2048 };

static struct slice text_of(const json_t *object, const char *name)
{
    const json_t *v = json_object_get(object, name);

    return json_is_string(v) ? slice_of(json_string_value(v), json_string_length(v))
                             : (struct slice){NULL, 0};
}

/* 64-bit numbers come as text; some gateways write small ones as numbers. Zero is left out. */
static uint64_t number_of(const json_t *object, const char *name)
{
    const json_t *v = json_object_get(object, name);
    uint64_t n = 0;

    if (json_is_integer(v))
        return json_integer_value(v) < 0 ? 0 : (uint64_t)json_integer_value(v);
    return num_u64(text_of(object, name), &n) ? 0 : n;
}

static int bytes_of(struct arena *a, const json_t *object, const char *name, struct slice *out)
{
    struct slice text = text_of(object, name);
    struct buf bytes;

    buf_init(&bytes, a->mem, text.n + 1);
    int rc = base64_read(text, &bytes);
    if (!rc)
        rc = arena_slice(a, buf_slice(&bytes), out);
    buf_fini(&bytes);
    return rc;
}

static int read_kv(struct arena *a, const json_t *kv, bool deleted, struct etcd_kv *out)
{
    *out = (struct etcd_kv){.deleted = deleted,
                            .leased = number_of(kv, "lease") != 0,
                            .created = number_of(kv, "create_revision")};
    int rc = json_is_object(kv) ? bytes_of(a, kv, "key", &out->key) : WEIR_E_INVALID;
    if (!rc && !deleted)
        rc = bytes_of(a, kv, "value", &out->value);
    return rc;
}

static int read_error(struct arena *a, const json_t *top, struct etcd_answer *out)
{
    const json_t *error = json_object_get(top, "error");
    struct slice why = text_of(top, "message");

    if (json_is_object(error))
        why = text_of(error, "message");
    else if (!why.n)
        why = text_of(top, "error");
    out->canceled = true;
    return arena_slice(a, why, &out->why);
}

static int read_list(struct arena *a, const json_t *list, bool events, struct etcd_answer *out)
{
    size_t i;
    json_t *one;

    if (list && !json_is_array(list))
        return WEIR_E_INVALID;
    out->kvs = arena_array(a, json_array_size(list) + 1, sizeof(*out->kvs));
    if (!out->kvs)
        return WEIR_E_NOMEM;
    json_array_foreach(list, i, one)
    {
        bool deleted = events && slice_eq(text_of(one, "type"), SLICE("DELETE"));
        int rc = read_kv(a, events ? json_object_get(one, "kv") : one, deleted, &out->kvs[out->n]);
        if (rc)
            return rc;
        out->n++;
    }
    return 0;
}

static int read_range(struct arena *a, const json_t *top, struct etcd_answer *out)
{
    const json_t *header = json_object_get(top, "header");

    out->revision = number_of(header, "revision");
    if (!json_is_object(header) || out->revision == 0)
        return WEIR_E_INVALID;
    return read_list(a, json_object_get(top, "kvs"), false, out);
}

static int read_watch(struct arena *a, const json_t *top, struct etcd_answer *out)
{
    const json_t *result = json_object_get(top, "result");

    if (json_object_get(top, "error"))
        return read_error(a, top, out);
    if (!json_is_object(result))
        return WEIR_E_INVALID;
    out->revision = number_of(json_object_get(result, "header"), "revision");
    out->compacted = number_of(result, "compact_revision") != 0;
    out->canceled = json_is_true(json_object_get(result, "canceled")) || out->compacted;
    int rc = arena_slice(a, text_of(result, "cancel_reason"), &out->why);
    return rc ? rc : read_list(a, json_object_get(result, "events"), true, out);
}

static int with_json(struct arena *a,
                     struct slice text,
                     int (*read)(struct arena *a, const json_t *top, struct etcd_answer *out),
                     struct etcd_answer *out)
{
    struct native_error error;
    json_t *top = native_load_json(text, &error);

    *out = (struct etcd_answer){0};
    int rc = json_is_object(top) ? read(a, top, out) : WEIR_E_INVALID;
    json_decref(top);
    return rc;
}

int etcd_read_range(struct arena *a, struct slice body, struct etcd_answer *out)
{
    return with_json(a, body, read_range, out);
}

int etcd_read_watch(struct arena *a, struct slice line, struct etcd_answer *out)
{
    return with_json(a, line, read_watch, out);
}

int etcd_read_token(struct arena *a, struct slice body, struct slice *out)
{
    struct native_error error;
    json_t *top = native_load_json(body, &error);
    struct slice token = text_of(top, "token");
    int rc = token.n ? arena_slice(a, token, out) : WEIR_E_INVALID;

    json_decref(top);
    return rc;
}

int etcd_read_endpoint(struct arena *a,
                       const struct etcd_kv *kv,
                       struct slice prefix,
                       struct instance *out,
                       char why[640])
{
    struct native_error error = {0};
    struct native_doc doc;
    json_t *json = NULL;
    int rc = WEIR_E_INVALID;

    if (slice_starts(kv->key, prefix) && kv->key.n > prefix.n &&
        kv->key.n - prefix.n <= ENDPOINT_TEXT_MAX)
        json = native_load_json(kv->value, &error);
    else
        (void)snprintf(error.message, sizeof(error.message), "the key is no name below the prefix");
    if (json)
        rc = native_read_endpoint(a, json, &doc, &error);
    json_decref(json);
    if (rc) {
        (void)snprintf(why, 640, "%s%s%s", error.field, error.field[0] ? ": " : "", error.message);
        return rc;
    }
    *out = doc.instance;
    out->key = slice_from(kv->key, prefix.n);
    out->healthy = true;
    out->vouched = kv->leased;
    if (!doc.has_epoch)
        out->epoch = kv->created;
    return 0;
}

int etcd_write_keys(struct buf *out, struct slice prefix)
{
    char end[PREFIX_MAX];
    size_t n = prefix.n;

    if (n == 0 || n > sizeof(end))
        return WEIR_E_INVALID;
    memcpy(end, prefix.p, n);
    /* The first key behind them all: the last byte plus one, carried over 0xff. */
    while (n > 0 && (unsigned char)end[n - 1] == 0xff)
        n--;
    if (n > 0)
        end[n - 1] = (char)((unsigned char)end[n - 1] + 1);
    else
        end[n++] = '\0';
    buf_put_str(out, "\"key\":\"");
    base64_put(out, prefix);
    buf_put_str(out, "\",\"range_end\":\"");
    base64_put(out, slice_of(end, n));
    return buf_put_char(out, '"');
}

int etcd_write_login(struct buf *out, struct slice name, struct slice password)
{
    buf_put_str(out, "{\"name\":");
    buf_put_json(out, name);
    buf_put_str(out, ",\"password\":");
    buf_put_json(out, password);
    return buf_put_char(out, '}');
}
