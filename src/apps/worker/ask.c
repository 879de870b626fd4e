/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/worker/ask.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/bug.h"
#include "base/hash.h"
#include "loop/alloc.h"
#include "model/prefix.h"

/* A request while it is read. */
struct reader {
    struct ask *ask;
    struct ask_error *error;
    struct prefix_chain chain;
};

__attribute__((format(printf, 3, 4))) static int
refuse(struct reader *r, const char *param, const char *format, ...)
{
    va_list args;

    r->error->status = 400;
    r->error->type = "BadRequestError";
    r->error->param = param;
    va_start(args, format);
    (void)vsnprintf(r->error->message, sizeof(r->error->message), format, args);
    va_end(args);
    return WEIR_E_INVALID;
}

static struct slice text_of(const json_t *string)
{
    return slice_of(json_string_value(string), json_string_length(string));
}

static void feed(struct reader *r, struct slice text)
{
    model_prefix_feed(&r->chain, text);
    r->ask->prompt_hash = hash_pair(r->ask->prompt_hash, hash_slice(text, 0));
}

/* Images and audio stand as their hash. */
static void feed_media(struct reader *r, json_t *part)
{
    static const char digits[] = "0123456789abcdef";
    json_t *url = json_object_get(json_object_get(part, "image_url"), "url");
    json_t *data = json_object_get(json_object_get(part, "input_audio"), "data");
    json_t *media = url ? url : data;
    char hex[16];

    if (!json_is_string(media))
        return;
    uint64_t hash = hash_slice(text_of(media), 0);
    for (int i = 15; i >= 0; i--, hash >>= 4)
        hex[i] = digits[hash & 15];
    feed(r, slice_of(hex, sizeof(hex)));
}

static int read_content(struct reader *r, json_t *content, size_t index)
{
    size_t i;
    json_t *part;

    if (json_is_string(content)) {
        feed(r, text_of(content));
        return 0;
    }
    if (!content || json_is_null(content))
        return 0; /* an assistant's tool call */
    if (!json_is_array(content))
        return refuse(r, "messages",
                      "messages[%zu].content: expected a string or an array of parts", index);
    json_array_foreach(content, i, part)
    {
        json_t *text = json_object_get(part, "text");
        if (!json_is_object(part))
            return refuse(r, "messages", "messages[%zu].content[%zu]: expected an object", index,
                          i);
        if (json_is_string(text))
            feed(r, text_of(text));
        else
            feed_media(r, part);
    }
    return 0;
}

/* Keys and strings in document order; the depth is bounded by the JSON parser. */
static void read_tools(struct reader *r, json_t *value)
{
    const char *key;
    size_t i;
    json_t *item;

    if (json_is_string(value)) {
        feed(r, text_of(value));
        model_prefix_separate(&r->chain);
    } else if (json_is_array(value)) {
        json_array_foreach(value, i, item) read_tools(r, item);
    } else if (json_is_object(value)) {
        json_object_foreach(value, key, item)
        {
            feed(r, slice_str(key));
            model_prefix_separate(&r->chain);
            read_tools(r, item);
        }
    }
}

static int read_messages(struct reader *r, json_t *body)
{
    json_t *messages = json_object_get(body, "messages");
    size_t i;
    json_t *message;

    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return refuse(r, "messages", "messages: expected a non-empty array");
    read_tools(r, json_object_get(body, "tools"));
    json_array_foreach(messages, i, message)
    {
        json_t *role = json_object_get(message, "role");
        if (!json_is_string(role))
            return refuse(r, "messages", "messages[%zu].role: expected a string", i);
        feed(r, text_of(role));
        model_prefix_separate(&r->chain);
        int rc = read_content(r, json_object_get(message, "content"), i);
        if (rc)
            return rc;
        model_prefix_separate(&r->chain);
    }
    return 0;
}

/* Token numbers, four bytes each, as the rest of the house counts them. */
static int read_tokens(struct reader *r, json_t *tokens, const char *name)
{
    size_t i;
    json_t *token;

    json_array_foreach(tokens, i, token)
    {
        if (!json_is_integer(token))
            return refuse(r, name, "%s[%zu]: expected a token number", name, i);
        uint32_t v = (uint32_t)json_integer_value(token);
        const unsigned char bytes[4] = {(unsigned char)v, (unsigned char)(v >> 8),
                                        (unsigned char)(v >> 16), (unsigned char)(v >> 24)};
        feed(r, slice_of((const char *)bytes, sizeof(bytes)));
    }
    return 0;
}

/* One prompt: a string or an array of token numbers. */
static int read_prompt(struct reader *r, json_t *prompt, const char *name)
{
    if (json_is_string(prompt)) {
        feed(r, text_of(prompt));
        return 0;
    }
    if (json_is_array(prompt) && json_array_size(prompt) > 0)
        return read_tokens(r, prompt, name);
    return refuse(r, name, "%s: expected a string or a non-empty array of token numbers", name);
}

static int read_completion(struct reader *r, json_t *body)
{
    json_t *prompt = json_object_get(body, "prompt");
    json_t *first = json_array_get(prompt, 0);

    if (first && !json_is_integer(first)) {
        if (json_array_size(prompt) > 1)
            return refuse(r, "prompt", "prompt: the emulated worker takes one prompt per request");
        prompt = first;
    }
    return read_prompt(r, prompt, "prompt");
}

static int read_embedding(struct reader *r, json_t *body)
{
    json_t *input = json_object_get(body, "input");
    json_t *encoding = json_object_get(body, "encoding_format");
    json_t *dimensions = json_object_get(body, "dimensions");
    bool many = json_is_array(input) && !json_is_integer(json_array_get(input, 0));
    size_t n = many ? json_array_size(input) : 1;

    if (n == 0 || n > ASK_INPUTS_MAX)
        return refuse(r, "input", "input: expected 1 to %d texts", ASK_INPUTS_MAX);
    if (encoding && !json_is_null(encoding)) {
        r->ask->base64 = json_is_string(encoding) && slice_eq(text_of(encoding), SLICE("base64"));
        if (!r->ask->base64 &&
            !(json_is_string(encoding) && slice_eq(text_of(encoding), SLICE("float"))))
            return refuse(r, "encoding_format",
                          "encoding_format: expected \"float\" or \"base64\"");
    }
    r->ask->dimensions = ASK_DIMENSIONS;
    if (dimensions && !json_is_null(dimensions)) {
        json_int_t d = json_integer_value(dimensions);
        if (d < 1 || d > ASK_DIMENSIONS_MAX)
            return refuse(r, "dimensions", "dimensions: expected 1 to %d", ASK_DIMENSIONS_MAX);
        r->ask->dimensions = (uint32_t)d;
    }
    if (n * r->ask->dimensions > ASK_NUMBERS_MAX)
        return refuse(r, "dimensions", "dimensions: inputs times dimensions may be at most %d",
                      ASK_NUMBERS_MAX);
    r->ask->inputs = mem_array(loop_mem(), n, sizeof(uint64_t));
    if (!r->ask->inputs)
        return WEIR_E_NOMEM;
    for (size_t i = 0; i < n; i++) {
        r->ask->prompt_hash = 0;
        int rc = read_prompt(r, many ? json_array_get(input, i) : input, "input");
        if (rc)
            return rc;
        r->ask->inputs[r->ask->n_inputs++] = r->ask->prompt_hash;
    }
    return 0;
}

static int read_max_tokens(struct reader *r, json_t *body)
{
    static const char *const names[] = {"max_completion_tokens", "max_tokens"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        json_t *value = json_object_get(body, names[i]);
        if (!value || json_is_null(value))
            continue;
        if (!json_is_integer(value) || json_integer_value(value) < 1 ||
            json_integer_value(value) > UINT32_MAX)
            return refuse(r, names[i], "%s: expected a whole number of at least 1", names[i]);
        r->ask->has_max_tokens = true;
        r->ask->max_tokens = (uint32_t)json_integer_value(value);
        return 0;
    }
    return 0;
}

static int read_flags(struct reader *r, json_t *body)
{
    json_t *stream = json_object_get(body, "stream");
    json_t *options = json_object_get(body, "stream_options");
    json_t *n = json_object_get(body, "n");

    if (stream && !json_is_boolean(stream) && !json_is_null(stream))
        return refuse(r, "stream", "stream: expected true or false");
    if (n && !json_is_null(n) && json_integer_value(n) != 1)
        return refuse(r, "n", "n: the emulated worker gives one choice per request");
    r->ask->stream = json_is_true(stream);
    r->ask->include_usage = json_is_true(json_object_get(options, "include_usage"));
    return read_max_tokens(r, body);
}

static int find_model(struct reader *r, json_t *body, const struct slice *models, uint32_t n_models)
{
    json_t *model = json_object_get(body, "model");

    r->ask->model = models[0];
    if (!model || json_is_null(model))
        return 0;
    if (!json_is_string(model))
        return refuse(r, "model", "model: expected a string");
    struct slice name = text_of(model);
    for (uint32_t i = 0; i < n_models; i++) {
        if (!slice_eq(models[i], name))
            continue;
        r->ask->model = models[i];
        return 0;
    }
    (void)refuse(r, "model", "The model `%.*s` does not exist.", (int)MIN(name.n, (size_t)256),
                 name.p);
    r->error->status = 404;
    r->error->type = "NotFoundError";
    return WEIR_E_INVALID;
}

static int read_all(
    struct reader *r, json_t *body, size_t bytes, const struct slice *models, uint32_t n_models)
{
    struct ask *a = r->ask;
    json_t *salt = json_object_get(body, "cache_salt");
    uint32_t max = (uint32_t)MIN(bytes / PREFIX_BLOCK_BYTES + 1, (size_t)UINT32_MAX / 2);
    int rc = find_model(r, body, models, n_models);

    if (rc == 0)
        rc = read_flags(r, body);
    if (rc)
        return rc;
    a->blocks = mem_array(loop_mem(), max, sizeof(uint64_t));
    if (!a->blocks)
        return WEIR_E_NOMEM;
    const struct slice none = {NULL, 0};
    model_prefix_begin(
        &r->chain,
        model_prefix_root(a->model, none, none, json_is_string(salt) ? text_of(salt) : none),
        a->blocks, max);
    if (a->kind == ASK_CHAT)
        rc = read_messages(r, body);
    else if (a->kind == ASK_COMPLETION)
        rc = read_completion(r, body);
    else
        rc = read_embedding(r, body);
    if (rc)
        return rc;
    uint64_t tokens = (r->chain.bytes + 3) / 4;
    a->prompt_tokens = (uint32_t)MIN(MAX(tokens, 1), UINT32_MAX);
    a->n_blocks = a->kind == ASK_EMBEDDING ? 0 : r->chain.n;
    return 0;
}

int ask_parse(enum ask_kind kind,
              struct slice body,
              const struct slice *models,
              uint32_t n_models,
              struct ask *out,
              struct ask_error *error)
{
    struct reader r = {.ask = out, .error = error};
    json_error_t why;
    json_t *root = json_loadb(body.p ? body.p : "", body.n, JSON_ALLOW_NUL, &why);
    int rc;

    *out = (struct ask){.kind = kind};
    if (!root)
        rc = refuse(&r, NULL, "Invalid JSON at line %d column %d: %s", why.line, why.column,
                    why.text);
    else if (!json_is_object(root))
        rc = refuse(&r, NULL, "Invalid request: expected a JSON object");
    else
        rc = read_all(&r, root, body.n, models, n_models);
    json_decref(root);
    if (rc)
        ask_fini(out);
    return rc;
}

void ask_fini(struct ask *a)
{
    mem_free(loop_mem(), a->blocks);
    mem_free(loop_mem(), a->inputs);
    a->blocks = a->inputs = NULL;
}
