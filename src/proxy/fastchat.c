/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OpenAI's requests to a FastChat model worker. It stands between the worker's connection and the exchange: the worker
 * is asked in its own words, one question after the other on one connection (its conversation template and context
 * length, which are remembered for a minute; how many tokens the prompt has; then the answer itself; or vectors, batch
 * by batch), and what comes back is handed on as the HTTP/1.1 answer that an OpenAI server would have given. So the exchange, its timeouts, its
 * retries and its cancellation are those of every other engine, and no other engine pays for it.
 */
#include "base/bug.h"
#include "base/num.h"
#include "proxy/exchange.h"
#include "proxy/fastchat_codec.h"
#include "sched/evidence.h"

#define REMEMBER_NS (60 * NS_PER_S)

enum {
    ANSWER_MAX = 4 << 20,   /* of the small questions, and of one batch of vectors */
    MESSAGE_MAX = 64 << 20, /* what is made of a request or a piece of an answer */
    KNOWN_MAX = 64,         /* models remembered for one worker */
};

/* What a worker told of one of its models. */
struct fastchat_known {
    struct fastchat_known *next;
    struct slice model; /* beside it, as the next */
    struct slice conv;  /* answer of /worker_get_conv_template */
    uint64_t context;   /* tokens; 0 = not told */
    uint64_t since_ns;
};

enum step { STEP_TEMPLATE, STEP_DETAILS, STEP_COUNT, STEP_GENERATE, STEP_EMBED };

struct translation {
    struct arena arena; /* the request, and the template in use */
    struct fastchat_request request;
    struct fastchat_answer answer;
    struct fastchat_embedding embedding;
    const struct json_node *conv;
    struct buf conv_text; /* as it came */
    struct buf prompt, images;
    uint64_t context, tokens;
    bool begun; /* the request is whole, and a question is on its way */
    enum step step;

    /* the answer to the question under way */
    bool in_body;
    unsigned status;
    enum http1_framing framing;
    uint64_t left;
    struct chunked dechunk;
    struct buf body;
    struct buf out; /* for the exchange */
};

static const struct slice absent = {NULL, 0};

static bool path_ends(const struct exchange *x, struct slice end)
{
    struct slice path = exchange_path(x);

    return slice_ends(path, end);
}

bool fastchat_speaks(const struct exchange *x)
{
    static const struct {
        uint32_t task;
        const char *end;
    } spoken[] = {{TASK_CHAT, "/v1/chat/completions"},
                  {TASK_COMPLETION, "/v1/completions"},
                  {TASK_EMBEDDING, "/v1/embeddings"}};

    if (!x->target->fastchat || !slice_eq(exchange_method(x), SLICE("POST")))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(spoken); i++)
        if (x->f.task == spoken[i].task && path_ends(x, slice_str(spoken[i].end)))
            return true;
    return false;
}

void fastchat_end(struct exchange *x)
{
    struct translation *t = x->translation;

    if (!t)
        return;
    x->translation = NULL;
    fastchat_answer_fini(&t->answer);
    fastchat_embedding_fini(&t->embedding);
    buf_fini(&t->conv_text);
    buf_fini(&t->prompt);
    buf_fini(&t->images);
    buf_fini(&t->body);
    buf_fini(&t->out);
    arena_fini(&t->arena);
    mem_free(loop_mem(), t);
}

/* --- what is remembered --- */

static struct fastchat_known *find(const struct target *t, struct slice model)
{
    for (struct fastchat_known *k = t->known; k; k = k->next)
        if (slice_eq(k->model, model))
            return k;
    return NULL;
}

void fastchat_forget(struct target *t)
{
    while (t->known) {
        struct fastchat_known *k = t->known;
        t->known = k->next;
        mem_free(loop_mem(), k);
    }
}

static void remember(struct exchange *x)
{
    struct translation *t = x->translation;
    struct slice conv = buf_slice(&t->conv_text);
    struct fastchat_known *old = find(x->target, x->f.model);
    unsigned n = 0;

    if (old) {
        struct fastchat_known **at = &x->target->known;
        while (*at != old)
            at = &(*at)->next;
        *at = old->next;
        mem_free(loop_mem(), old);
    }
    for (struct fastchat_known *k = x->target->known; k; k = k->next)
        n++;
    if (n >= KNOWN_MAX)
        fastchat_forget(x->target);
    struct fastchat_known *k = mem_zalloc(loop_mem(), sizeof(*k) + x->f.model.n + conv.n);
    if (!k)
        return; /* it is asked again */
    char *at = (char *)(k + 1);
    if (x->f.model.n)
        memcpy(at, x->f.model.p, x->f.model.n);
    if (conv.n)
        memcpy(at + x->f.model.n, conv.p, conv.n);
    k->model = slice_of(at, x->f.model.n);
    k->conv = slice_of(at + x->f.model.n, conv.n);
    k->context = t->context;
    k->since_ns = loop_now(x->lane->loop);
    k->next = x->target->known;
    x->target->known = k;
}

/* --- to the exchange --- */

/* Hand on what was made. The exchange may be over, and t with it. */
static void deliver(struct exchange *x)
{
    struct buf out = x->translation->out;

    buf_init(&x->translation->out, loop_mem(), MESSAGE_MAX);
    if (out.err && x->state == X_RELAY)
        relay_end_of_stream(x, false);
    else if (out.err)
        attempt_broke(x);
    else if (buf_len(&out))
        (void)relay_data(x, out.p + out.from, buf_len(&out));
    buf_fini(&out);
}

static void answer_fault(struct exchange *x, const struct fastchat_fault *why)
{
    struct translation *t = x->translation;

    fastchat_write_fault(&t->out, why);
    deliver(x);
}

/* What went wrong is the worker's fault, or ours. */
static void broke(struct exchange *x, int rc)
{
    struct fastchat_fault why;

    if (x->state == X_RELAY) {
        relay_end_of_stream(x, false);
        return;
    }
    if (rc == WEIR_E_NOMEM || rc == WEIR_E_FULL)
        fastchat_fault_set(&why, 503, "overloaded",
                           SLICE("the request or its answer is too large"));
    else
        fastchat_fault_set(&why, 502, "upstream_failed",
                           SLICE("the FastChat worker's answer cannot be read"));
    answer_fault(x, &why);
}

/* --- asking --- */

static int ask(struct exchange *x, const char *path, struct slice body)
{
    struct translation *t = x->translation;
    struct buf *out = &x->lane->out;

    t->in_body = false;
    t->dechunk = (struct chunked){0};
    buf_clear(&t->body);
    buf_clear(out);
    buf_put_str(out, "POST ");
    buf_put_str(out, path);
    buf_put_str(out, " HTTP/1.1\r\nHost: ");
    buf_put_slice(out, x->target->authority);
    buf_put_str(out, "\r\nContent-Type: application/json\r\nX-Request-Id: ");
    buf_put_slice(out, exchange_request_id(x));
    buf_put_str(out, "\r\nContent-Length: ");
    buf_put_u64(out, body.n);
    buf_put_str(out, "\r\n\r\n");
    if (out->err)
        return out->err;
    struct iovec v[2] = {{out->p + out->from, buf_len(out)}, {(void *)(uintptr_t)body.p, body.n}};
    /* A connection that takes no more is told by on_closed. */
    (void)net_conn_send(&x->up->conn, v, 2);
    x->sent_ns = loop_now(x->lane->loop);
    client_arm(x->client);
    return 0;
}

static int ask_named(struct exchange *x, const char *path, struct slice prompt)
{
    struct buf body;

    buf_init(&body, loop_mem(), MESSAGE_MAX);
    buf_put_str(&body, "{\"model\":");
    buf_put_json(&body, x->f.model);
    if (prompt.p) {
        buf_put_str(&body, ",\"prompt\":");
        buf_put_json(&body, prompt);
    }
    buf_put_char(&body, '}');
    int rc = body.err ? body.err : ask(x, path, buf_slice(&body));
    buf_fini(&body);
    return rc;
}

/* The template is there: make the prompt of it. @return WEIR_E_INVALID: answered. */
static int make_prompt(struct exchange *x, struct slice conv)
{
    struct translation *t = x->translation;
    const struct json_node *root;
    struct fastchat_fault why;

    int rc = wire_json_tree(&t->arena, conv, &root);
    t->conv = wire_json_get(root, "conv");
    if (rc == 0 && !t->conv)
        rc = WEIR_E_PROTO;
    if (rc == 0)
        rc = fastchat_prompt(t->conv, &t->request, &t->prompt, &t->images, &why);
    if (rc == WEIR_E_INVALID)
        answer_fault(x, &why);
    return rc;
}

static int generate(struct exchange *x)
{
    struct translation *t = x->translation;
    uint64_t want = t->request.max_tokens;
    struct fastchat_fault why;
    struct buf body;

    if (t->context) {
        if (t->tokens >= t->context) {
            char text[FASTCHAT_WHY_MAX];
            struct buf words = {.p = text, .cap = sizeof(text), .max = sizeof(text)};
            buf_put_str(&words, "This model's maximum context length is ");
            buf_put_u64(&words, t->context);
            buf_put_str(&words, " tokens. However, your messages resulted in ");
            buf_put_u64(&words, t->tokens);
            buf_put_str(&words, " tokens. Please reduce the length of the messages.");
            fastchat_fault_set(&why, 400, "context_length_exceeded", buf_slice(&words));
            answer_fault(x, &why);
            return WEIR_E_INVALID;
        }
        uint64_t room = t->context - t->tokens;
        want = want && want < room ? want : room;
    }
    buf_init(&body, loop_mem(), MESSAGE_MAX);
    fastchat_write_request(&body, &t->request, t->conv, x->f.model, buf_slice(&t->prompt),
                           buf_slice(&t->images), want);
    int rc = body.err ? body.err : ask(x, "/worker_generate_stream", buf_slice(&body));
    buf_fini(&body);
    return rc;
}

static int embed(struct exchange *x)
{
    struct buf body;

    buf_init(&body, loop_mem(), MESSAGE_MAX);
    fastchat_embed_ask(&body, &x->translation->embedding, x->f.model);
    int rc = body.err ? body.err : ask(x, "/worker_get_embeddings", buf_slice(&body));
    buf_fini(&body);
    return rc;
}

/* @return WEIR_E_INVALID: the exchange was answered, and may be over. */
static int go(struct exchange *x, enum step step)
{
    x->translation->step = step;
    switch (step) {
    case STEP_TEMPLATE:
        return ask_named(x, "/worker_get_conv_template", absent);
    case STEP_DETAILS:
        return ask_named(x, "/model_details", absent);
    case STEP_COUNT:
        return ask_named(x, "/count_token", buf_slice(&x->translation->prompt));
    case STEP_GENERATE:
        return generate(x);
    case STEP_EMBED:
        return embed(x);
    }
    return WEIR_E_INVALID;
}

static int begin(struct exchange *x)
{
    struct translation *t = x->translation;
    const struct fastchat_known *k = find(x->target, x->f.model);
    struct slice body = buf_slice(&x->body);
    bool embedding = x->f.task == TASK_EMBEDDING;
    struct fastchat_fault why;

    t->begun = x->head_sent = x->request_sent = true;
    x->body_sent = x->body_base + body.n;
    int rc = embedding ? fastchat_embed_read(&t->arena, body, &t->embedding, &why)
                       : fastchat_read(&t->arena, body, x->f.task == TASK_CHAT, &t->request, &why);
    if (rc) {
        if (rc == WEIR_E_INVALID)
            answer_fault(x, &why);
        return rc;
    }
    if (embedding)
        return go(x, STEP_EMBED);
    fastchat_answer_init(&t->answer, loop_mem(), &t->request, x->f.model,
                         prng_next(&x->lane->asker.prng), loop_wall_clock() / NS_PER_S);
    if (!k || loop_now(x->lane->loop) - k->since_ns > REMEMBER_NS)
        return go(x, STEP_TEMPLATE);
    t->context = k->context;
    rc = make_prompt(x, k->conv);
    return rc ? rc : go(x, t->context ? STEP_COUNT : STEP_GENERATE);
}

void fastchat_pump(struct exchange *x)
{
    struct translation *t = x->translation;

    if (t->begun || !x->complete)
        return;
    int rc = begin(x);
    if (rc && rc != WEIR_E_INVALID)
        broke(x, rc);
}

int fastchat_begin(struct exchange *x)
{
    struct translation *t = mem_zalloc(loop_mem(), sizeof(*t));

    if (!t)
        return WEIR_E_NOMEM;
    arena_init(&t->arena, loop_mem(), FASTCHAT_TREE_MAX);
    buf_init(&t->conv_text, loop_mem(), ANSWER_MAX);
    buf_init(&t->prompt, loop_mem(), MESSAGE_MAX);
    buf_init(&t->images, loop_mem(), MESSAGE_MAX);
    buf_init(&t->body, loop_mem(), ANSWER_MAX);
    buf_init(&t->out, loop_mem(), MESSAGE_MAX);
    x->translation = t;
    return 0;
}

/* --- hearing --- */

static bool whole_number(const struct json_node *n, uint64_t *out)
{
    double v;

    if (!wire_json_number(n, &v) || v < 0 || v > 1e12)
        return false;
    *out = (uint64_t)v;
    return true;
}

/* A worker that refuses: its status, in OpenAI's shape. */
static void refused(struct exchange *x)
{
    struct translation *t = x->translation;
    struct fastchat_fault why;

    fastchat_fault_set(&why, t->status < 400 ? 502 : t->status,
                       t->status == 429   ? "rate_limit_exceeded"
                       : t->status >= 500 ? "upstream_failed"
                                          : "invalid_request",
                       buf_len(&t->body) ? buf_slice(&t->body)
                                         : SLICE("the FastChat worker refused the request"));
    answer_fault(x, &why);
}

/* A batch of vectors is here. @return as go(). */
static int next_batch(struct exchange *x)
{
    struct translation *t = x->translation;
    struct fastchat_fault why;

    int rc = fastchat_embed_hear(&t->embedding, buf_slice(&t->body), &why);
    if (rc == WEIR_E_INVALID)
        answer_fault(x, &why);
    if (rc)
        return rc;
    if (t->embedding.left)
        return go(x, STEP_EMBED);
    rc = fastchat_embed_write(&t->out, &t->embedding, x->f.model);
    if (rc)
        return rc;
    deliver(x);
    return WEIR_E_INVALID;
}

/* The answer to a small question is whole. @return as go(). */
static int next_step(struct exchange *x)
{
    struct translation *t = x->translation;
    const struct json_node *root;
    int rc;

    if (t->step == STEP_EMBED)
        return next_batch(x);
    if (t->step == STEP_TEMPLATE) {
        buf_put_slice(&t->conv_text, buf_slice(&t->body));
        rc = t->conv_text.err ? t->conv_text.err : make_prompt(x, buf_slice(&t->conv_text));
        return rc ? rc : go(x, STEP_DETAILS);
    }
    rc = wire_json_tree(&t->arena, buf_slice(&t->body), &root);
    if (rc)
        return rc;
    if (t->step == STEP_DETAILS) {
        if (!whole_number(wire_json_get(root, "context_length"), &t->context))
            t->context = 0;
        remember(x);
        return go(x, t->context ? STEP_COUNT : STEP_GENERATE);
    }
    if (!whole_number(wire_json_get(root, "count"), &t->tokens))
        t->tokens = 0; /* the worker will see */
    return go(x, STEP_GENERATE);
}

/* @return as go(). */
static int ended(struct exchange *x)
{
    struct translation *t = x->translation;

    if (t->status != 200) {
        refused(x);
        return WEIR_E_INVALID;
    }
    if (t->step != STEP_GENERATE)
        return next_step(x);
    int rc = fastchat_answer_end(&t->answer, &t->out);
    if (rc)
        return rc;
    if (t->answer.has_usage && !x->reader.usage.known) {
        x->reader.usage.known = USAGE_PROMPT | USAGE_COMPLETION;
        x->reader.usage.prompt_tokens = t->answer.prompt_tokens;
        x->reader.usage.completion_tokens = t->answer.completion_tokens;
    }
    deliver(x);
    return WEIR_E_INVALID;
}

static int hear_head(struct exchange *x, const char *p, size_t n, size_t *used)
{
    struct translation *t = x->translation;
    struct http1_head *h = &x->lane->head;
    struct http1_error error;

    for (;;) {
        int64_t took = wire_http1_response(p + *used, n - *used, SLICE("POST"), h, &error);
        if (took == 0 && n - *used < UPSTREAM_HEAD_MAX)
            return 0;
        if (took <= 0)
            return WEIR_E_PROTO;
        *used += (size_t)took;
        if (h->status >= 200)
            break;
    }
    t->in_body = true;
    t->status = h->status;
    t->framing = h->framing;
    t->left = h->content_length;
    return 0;
}

/* @param done out: the answer is whole. */
static int hear_body(struct exchange *x, const char *p, size_t n, size_t *used, bool *done)
{
    struct translation *t = x->translation;

    *done = t->framing == HTTP1_BODY_NONE || (t->framing == HTTP1_BODY_LENGTH && t->left == 0);
    while (!*done && *used < n) {
        struct slice s = slice_of(p + *used, n - *used);
        if (t->framing == HTTP1_BODY_CHUNKED) {
            int64_t took = wire_chunked_read(&t->dechunk, p + *used, n - *used, &s);
            if (took < 0)
                return (int)took;
            if (took == 0)
                return 0;
            *used += (size_t)took;
            *done = t->dechunk.done;
        } else {
            if (t->framing == HTTP1_BODY_LENGTH) {
                s.n = (size_t)MIN((uint64_t)s.n, t->left);
                t->left -= s.n;
                *done = t->left == 0;
            }
            *used += s.n;
        }
        int rc = t->step == STEP_GENERATE && t->status == 200
                     ? fastchat_answer_feed(&t->answer, s, &t->out)
                     : buf_put_slice(&t->body, s);
        if (rc)
            return rc;
    }
    return 0;
}

size_t fastchat_data(struct exchange *x, const char *p, size_t n)
{
    struct translation *t = x->translation;
    size_t used = 0;
    bool done = false;
    int rc = 0;

    x->last_rx_ns = loop_now(x->lane->loop);
    sched_saw_progress(x->reservation.cell, x->last_rx_ns);
    if (!t->begun) { /* it answers what nobody asked */
        broke(x, WEIR_E_PROTO);
        return n;
    }
    x->rsp_started = x->rsp_started || t->step == STEP_GENERATE;
    if (!t->in_body)
        rc = hear_head(x, p, n, &used);
    if (rc == 0 && t->in_body)
        rc = hear_body(x, p, n, &used, &done);
    if (rc == 0 && (t->answer.failed || (done && t->step == STEP_GENERATE))) {
        rc = ended(x);
        return rc && rc != WEIR_E_INVALID ? (broke(x, rc), n) : n;
    }
    if (rc == 0 && done)
        rc = ended(x);
    else if (rc == 0 && t->in_body && buf_len(&t->out))
        deliver(x);
    if (rc && rc != WEIR_E_INVALID)
        broke(x, rc);
    return rc ? n : used;
}

void fastchat_eof(struct exchange *x)
{
    struct translation *t = x->translation;
    int rc = WEIR_E_PROTO;

    if (t->in_body && t->framing == HTTP1_BODY_CLOSE && t->step == STEP_GENERATE)
        rc = ended(x);
    if (rc && rc != WEIR_E_INVALID)
        relay_end_of_stream(x, false);
}
