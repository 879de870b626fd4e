/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A description becomes the headers that say the same, so that both kinds of question take one way. An unknown key is
 * an error: whoever misspells one would otherwise get the explanation of another request.
 */
#include "apps/serve/explain.h"

#include <jansson.h>

#include "base/bug.h"
#include "loop/alloc.h"

enum { HEADERS_MAX = 96, NUMBERS_MAX = 8, NUMBER_TEXT = 32 };

/* A question while it is read. */
struct reading {
    struct proxy_question q;
    struct kv headers[HEADERS_MAX];
    char numbers[NUMBERS_MAX][NUMBER_TEXT]; /* numbers that became header values */
    unsigned n_numbers;
    char *dumped; /* a body that was given as an object */
    struct buf *out;
};

static int refuse(struct buf *out, const char *key, const char *message)
{
    if (key) {
        buf_put_str(out, key);
        buf_put_str(out, ": ");
    }
    buf_put_str(out, message);
    return WEIR_E_INVALID;
}

static struct slice text_of(const json_t *v)
{
    return slice_of(json_string_value(v), json_string_length(v));
}

static int add_header(struct reading *r, struct slice name, struct slice value)
{
    if (name.n == 0)
        return refuse(r->out, "headers", "a name is empty");
    if (r->q.n_headers == HEADERS_MAX)
        return refuse(r->out, "headers", "too many");
    r->headers[r->q.n_headers++] = (struct kv){name, value};
    return 0;
}

/* Strings as they are, numbers as they are written. */
static int add_value(struct reading *r, const char *key, struct slice name, const json_t *v)
{
    if (json_is_string(v))
        return add_header(r, name, text_of(v));
    if (!json_is_number(v) || json_number_value(v) < 0 || r->n_numbers == NUMBERS_MAX)
        return refuse(r->out, key, "a string or a number, not below 0");
    char *text = r->numbers[r->n_numbers++];
    struct buf b = {.p = text, .cap = NUMBER_TEXT, .max = NUMBER_TEXT};
    if (json_is_integer(v))
        buf_put_u64(&b, (uint64_t)json_integer_value(v));
    else
        buf_put_f64(&b, json_real_value(v), 9);
    if (b.err)
        return refuse(r->out, key, "too large a number");
    return add_header(r, name, buf_slice(&b));
}

static int add_headers(struct reading *r, json_t *v)
{
    const char *name;
    json_t *value;
    int rc = 0;

    if (!json_is_object(v))
        return refuse(r->out, "headers", "an object of strings");
    json_object_foreach(v, name, value)
    {
        if (!json_is_string(value))
            return refuse(r->out, "headers", "an object of strings");
        rc = add_header(r, slice_str(name), text_of(value));
        if (rc)
            return rc;
    }
    return rc;
}

static int read_tokens(struct reading *r, const char *key, const json_t *v, uint64_t *to)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return refuse(r->out, key, "a whole number, not below 0");
    *to = (uint64_t)json_integer_value(v);
    return 0;
}

static int read_text(struct reading *r, const char *key, const json_t *v, struct slice *to)
{
    if (!json_is_string(v) || json_string_length(v) == 0)
        return refuse(r->out, key, "a string");
    *to = text_of(v);
    return 0;
}

/* One key of a description. */
static int describe(struct reading *r, const char *key, json_t *v)
{
    static const struct {
        const char *key;
        struct slice header;
    } as_header[] = {
        {"model", {"X-Model-Id", 10}},
        {"version", {"X-Model-Version", 15}},
        {"required_memory", {"X-Required-Memory", 17}},
        {"session", {"X-Session-Id", 12}},
        {"priority", {"X-Priority", 10}},
        {"tenant", {"X-Tenant-Id", 11}},
        {"slo_ttft_ms", {"X-SLO-TTFT-Ms", 13}},
        {"slo_tpot_ms", {"X-SLO-TPOT-Ms", 13}},
    };

    for (size_t i = 0; i < ARRAY_LEN(as_header); i++)
        if (strcmp(key, as_header[i].key) == 0)
            return add_value(r, key, as_header[i].header, v);
    if (strcmp(key, "path") == 0)
        return read_text(r, key, v, &r->q.path);
    if (strcmp(key, "method") == 0)
        return read_text(r, key, v, &r->q.method);
    if (strcmp(key, "headers") == 0)
        return add_headers(r, v);
    if (strcmp(key, "prompt_tokens") == 0)
        return read_tokens(r, key, v, &r->q.prompt_tokens);
    if (strcmp(key, "max_tokens") == 0)
        return read_tokens(r, key, v, &r->q.output_tokens);
    return refuse(
        r->out, key,
        "unknown; known are model, version, path, method, headers, prompt_tokens, "
        "max_tokens, required_memory, session, priority, tenant, slo_ttft_ms, slo_tpot_ms, "
        "or request alone");
}

/* One key of a pasted request. */
static int paste(struct reading *r, const char *key, json_t *v)
{
    if (strcmp(key, "method") == 0)
        return read_text(r, key, v, &r->q.method);
    if (strcmp(key, "path") == 0)
        return read_text(r, key, v, &r->q.path);
    if (strcmp(key, "headers") == 0)
        return add_headers(r, v);
    if (strcmp(key, "body") != 0)
        return refuse(r->out, key, "unknown; a request has method, path, headers, body");
    if (json_is_string(v)) {
        r->q.body = text_of(v);
        return 0;
    }
    if (!json_is_object(v))
        return refuse(r->out, key, "a JSON object, or the text of one");
    size_t n = json_dumpb(v, NULL, 0, JSON_COMPACT);
    r->dumped = mem_alloc(loop_mem(), n);
    if (!r->dumped)
        return WEIR_E_NOMEM;
    r->q.body = slice_of(r->dumped, json_dumpb(v, r->dumped, n, JSON_COMPACT));
    return 0;
}

static int read_question(struct reading *r, json_t *root)
{
    json_t *pasted = json_object_get(root, "request");
    const char *key;
    json_t *value;
    int rc = 0;

    if (!json_is_object(root))
        return refuse(r->out, NULL,
                      "send one JSON object: {\"model\": \"...\"}, or {\"request\": {...}}");
    if (pasted && (json_object_size(root) != 1 || !json_is_object(pasted)))
        return refuse(r->out, "request", "an object, and nothing beside it");
    json_object_foreach(pasted ? pasted : root, key, value)
    {
        rc = pasted ? paste(r, key, value) : describe(r, key, value);
        if (rc)
            return rc;
    }
    return rc;
}

int explain_question(struct proxy *p, struct slice json, struct buf *out)
{
    struct reading *r = mem_zalloc(loop_mem(), sizeof(*r));
    json_error_t error;

    if (!r)
        return WEIR_E_NOMEM;
    json_t *root = json_loadb(json.p, json.n, JSON_REJECT_DUPLICATES, &error);
    int rc;
    r->out = out;
    r->q.headers = r->headers;
    if (root) {
        rc = read_question(r, root);
    } else {
        buf_put_str(out, "not JSON: ");
        buf_put_str(out, error.text);
        rc = WEIR_E_INVALID;
    }
    if (rc == 0)
        rc = proxy_explain(p, &r->q, out);
    mem_free(loop_mem(), r->dumped);
    json_decref(root);
    mem_free(loop_mem(), r);
    return rc;
}
