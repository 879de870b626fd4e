/* SPDX-License-Identifier: Apache-2.0 */
/** @file Reading JSON values strictly: each reader checks type, range and length, and says what is wrong and where. */
#include "registry/native_read.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/bug.h"
#include "registry/nacos_codec.h"

/* --- errors --- */

int read_fail(struct reader *r, const char *code, const char *field, const char *format, ...)
{
    va_list args;

    r->error->code = code;
    (void)snprintf(r->error->field, sizeof(r->error->field), "%s", field);
    va_start(args, format);
    (void)vsnprintf(r->error->message, sizeof(r->error->message), format, args);
    va_end(args);
    return WEIR_E_INVALID;
}

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
    return read_fail(r, "unknown_field", path, "unknown key '%.64s'; the nearest known one is '%s'",
                     path, best);
}

int read_object(
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

int read_text(struct reader *r, const char *field, const json_t *v, size_t max, struct slice *out)
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

int read_u64(
    struct reader *r, const char *field, const json_t *v, uint64_t min, uint64_t max, uint64_t *out)
{
    json_int_t i = json_integer_value(v);

    if (!json_is_integer(v) || i < 0 || (uint64_t)i < min || (uint64_t)i > max)
        return BAD(r, field, "%s must be a whole number from %llu to %llu", field,
                   (unsigned long long)min, (unsigned long long)max);
    *out = (uint64_t)i;
    return 0;
}

int read_u32(
    struct reader *r, const char *field, const json_t *v, uint64_t min, uint32_t max, uint32_t *out)
{
    uint64_t wide = 0;
    int rc = read_u64(r, field, v, min, max, &wide);

    if (!rc)
        *out = (uint32_t)wide;
    return rc;
}

/** A decimal 0..max, in 1/unit steps. */
int read_decimal(
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

int read_bool(struct reader *r, const char *field, const json_t *v, bool *out)
{
    if (!json_is_boolean(v))
        return BAD(r, field, "%s must be true or false", field);
    *out = json_is_true(v);
    return 0;
}

int read_word(
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

int read_array_size(struct reader *r, const char *field, const json_t *v, uint32_t max, uint32_t *n)
{
    if (!json_is_array(v))
        return BAD(r, field, "%s must be an array", field);
    if (json_array_size(v) > max)
        return BAD(r, field, "%s has %zu entries; at most %u are allowed", field,
                   json_array_size(v), max);
    *n = (uint32_t)json_array_size(v);
    return 0;
}

int read_kv(
    struct reader *r, const char *field, const json_t *v, const struct kv **out, uint32_t *n)
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
