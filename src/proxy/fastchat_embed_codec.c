/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base64.h"
#include "proxy/fastchat_codec.h"

/* As many texts as FastChat's own API server sends at a time: a worker runs one batch through its model at once. */
enum { BATCH = 4, DATA_MAX = 64 << 20 };

/* The largest 32 bit float. */
#define FLOAT_MAX 3.4028234663852886e38

static int refuse(struct fastchat_fault *why, const char *message)
{
    fastchat_fault_set(why, 400, "invalid_request", slice_str(message));
    return WEIR_E_INVALID;
}

static bool given(const struct json_node *n)
{
    return n && n->kind != JSON_NODE_NULL;
}

static int read_input(const struct json_node *input,
                      struct fastchat_embedding *out,
                      struct fastchat_fault *why)
{
    static const char shape[] = "input must be a text or a list of texts";

    if (wire_json_is(input, JSON_NODE_STRING)) {
        out->next = input;
        out->left = 1;
        return 0;
    }
    if (!wire_json_is(input, JSON_NODE_ARRAY))
        return refuse(why, shape);
    if (!input->first)
        return refuse(why, "input is empty: give at least one text");
    for (const struct json_node *n = input->first; n; n = n->next)
        if (n->kind == JSON_NODE_NUMBER || n->kind == JSON_NODE_ARRAY)
            return refuse(why, "input must be texts: a FastChat worker takes no tokens");
        else if (n->kind != JSON_NODE_STRING)
            return refuse(why, shape);
    out->next = input->first;
    out->left = input->n;
    return 0;
}

int fastchat_embed_read(struct arena *a,
                        struct slice body,
                        struct fastchat_embedding *out,
                        struct fastchat_fault *why)
{
    const struct json_node *root;

    *out = (struct fastchat_embedding){.tokens_known = true};
    buf_init(&out->data, a->mem, DATA_MAX);
    int rc = wire_json_tree(a, body, &root);
    if (rc == WEIR_E_NOMEM)
        return rc;
    if (rc || !wire_json_is(root, JSON_NODE_OBJECT))
        return refuse(why, "the body is not a JSON object");
    const struct json_node *format = wire_json_get(root, "encoding_format");
    out->base64 = slice_eq(wire_json_text(format), SLICE("base64"));
    if (given(format) && !out->base64 && !slice_eq(wire_json_text(format), SLICE("float")))
        return refuse(why, "encoding_format must be float or base64");
    if (given(wire_json_get(root, "dimensions")))
        return refuse(why, "dimensions cannot be chosen: a FastChat worker gives its model's own");
    return read_input(wire_json_get(root, "input"), out, why);
}

void fastchat_embedding_fini(struct fastchat_embedding *e)
{
    buf_fini(&e->data);
}

void fastchat_embed_ask(struct buf *out, struct fastchat_embedding *e, struct slice model)
{
    e->asked = 0;
    buf_put_str(out, "{\"model\":");
    buf_put_json(out, model);
    buf_put_str(out, ",\"input\":[");
    while (e->left && e->asked < BATCH) {
        if (e->asked++)
            buf_put_char(out, ',');
        buf_put_json(out, e->next->text);
        e->next = e->next->next;
        e->left--;
    }
    buf_put_str(out, e->base64 ? "],\"encoding_format\":\"base64\"}" : "]}");
}

/* Numbers, as they were written. */
static int put_numbers(struct buf *out, const struct json_node *vector)
{
    buf_put_char(out, '[');
    for (const struct json_node *n = vector->first; n; n = n->next) {
        if (n->kind != JSON_NODE_NUMBER)
            return WEIR_E_PROTO;
        buf_put_slice(out, n->text);
        if (n->next)
            buf_put_char(out, ',');
    }
    return buf_put_char(out, ']');
}

/* Numbers as base64 of 32 bit floats, low byte first: for workers that do not know the word. */
static int put_packed(struct buf *out, const struct json_node *vector)
{
    struct buf bytes;
    int rc = 0;

    buf_init(&bytes, out->mem, DATA_MAX);
    for (const struct json_node *n = vector->first; n && rc == 0; n = n->next) {
        double v;
        uint32_t bits;
        if (!wire_json_number(n, &v) || v > FLOAT_MAX || v < -FLOAT_MAX) {
            rc = WEIR_E_PROTO;
            break;
        }
        float f = (float)v;
        memcpy(&bits, &f, sizeof(bits));
        const char four[] = {(char)(bits & 0xff), (char)(bits >> 8 & 0xff),
                             (char)(bits >> 16 & 0xff), (char)(bits >> 24)};
        rc = buf_put(&bytes, four, sizeof(four));
    }
    buf_put_char(out, '"');
    if (rc == 0)
        rc = base64_put(out, buf_slice(&bytes));
    buf_fini(&bytes);
    return rc ? rc : buf_put_char(out, '"');
}

static int put_vector(struct fastchat_embedding *e, const struct json_node *vector)
{
    struct buf *out = &e->data;
    int rc = WEIR_E_PROTO;

    buf_put_str(out, e->done ? ",{\"object\":\"embedding\",\"index\":"
                             : "{\"object\":\"embedding\",\"index\":");
    buf_put_u64(out, e->done++);
    buf_put_str(out, ",\"embedding\":");
    if (wire_json_is(vector, JSON_NODE_ARRAY))
        rc = e->base64 ? put_packed(out, vector) : put_numbers(out, vector);
    else if (e->base64 && wire_json_is(vector, JSON_NODE_STRING))
        rc = buf_put_json(out, vector->text);
    return rc ? rc : buf_put_char(out, '}');
}

static int take(struct fastchat_embedding *e, const struct json_node *o, struct fastchat_fault *why)
{
    const struct json_node *vectors = wire_json_get(o, "embedding");
    double number = 0;

    if (wire_json_number(wire_json_get(o, "error_code"), &number) && number != 0) {
        struct slice words = wire_json_text(wire_json_get(o, "text"));
        fastchat_fault_of(number > 0 && number < 1e6 ? (uint64_t)number : 50001,
                          words.n ? words : SLICE("the FastChat worker failed"), why);
        return WEIR_E_INVALID;
    }
    if (!wire_json_is(vectors, JSON_NODE_ARRAY) || vectors->n != e->asked)
        return WEIR_E_PROTO;
    for (const struct json_node *v = vectors->first; v; v = v->next) {
        int rc = put_vector(e, v);
        if (rc)
            return rc;
    }
    if (wire_json_number(wire_json_get(o, "token_num"), &number) && number >= 0 && number < 1e12)
        e->tokens += (uint64_t)number;
    else
        e->tokens_known = false;
    return 0;
}

int fastchat_embed_hear(struct fastchat_embedding *e, struct slice body, struct fastchat_fault *why)
{
    const struct json_node *o;
    struct arena a;

    arena_init(&a, e->data.mem, FASTCHAT_TREE_MAX);
    int rc = wire_json_tree(&a, body, &o);
    if (rc == 0)
        rc = take(e, o, why);
    arena_fini(&a);
    return rc;
}

int fastchat_embed_write(struct buf *out, const struct fastchat_embedding *e, struct slice model)
{
    struct buf body;

    buf_init(&body, out->mem, DATA_MAX);
    buf_put_str(&body, "{\"object\":\"list\",\"data\":[");
    buf_put_slice(&body, buf_slice(&e->data));
    buf_put_str(&body, "],\"model\":");
    buf_put_json(&body, model);
    if (e->tokens_known) {
        buf_put_str(&body, ",\"usage\":{\"prompt_tokens\":");
        buf_put_u64(&body, e->tokens);
        buf_put_str(&body, ",\"total_tokens\":");
        buf_put_u64(&body, e->tokens);
        buf_put_char(&body, '}');
    }
    buf_put_char(&body, '}');
    int rc = body.err;
    if (rc == 0)
        fastchat_write_whole(out, 200, buf_slice(&body));
    buf_fini(&body);
    return rc ? rc : out->err;
}
