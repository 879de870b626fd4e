/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/fastchat_codec.h"

#include "base/bug.h"
#include "base/num.h"
#include "base/utf8.h"
#include "wire/chunked.h"
#include "wire/http1.h"

enum {
    PIECE_MAX = 16 << 20, /* one object; the text in it is cumulative */
    OUT_MAX = 64 << 20,
};

/* What FastChat's own API server uses where a request says nothing. */
#define TEMPERATURE "0.7"
enum { COMPLETION_TOKENS = 16 };

void fastchat_fault_set(struct fastchat_fault *f,
                        unsigned status,
                        const char *code,
                        struct slice message)
{
    size_t n = MIN(message.n, sizeof(f->message) - 1);

    f->status = status;
    f->code = code;
    if (n)
        memcpy(f->message, message.p, n);
    f->message[n] = '\0';
}

static int refuse(struct fastchat_fault *why, const char *message)
{
    fastchat_fault_set(why, 400, "invalid_request", slice_str(message));
    return WEIR_E_INVALID;
}

/* --- requests --- */

/* Given and out of range? null counts as not given. */
static bool
beyond(const struct json_node *body, const char *key, double min, double max, double *out)
{
    const struct json_node *n = wire_json_get(body, key);
    double v;

    if (!n || n->kind == JSON_NODE_NULL)
        return false;
    if (!wire_json_number(n, &v) || v < min || v > max)
        return true;
    if (out)
        *out = v;
    return false;
}

static int check(struct fastchat_request *r, struct fastchat_fault *why)
{
    double tokens = 0;
    const struct json_node *stop = wire_json_get(r->body, "stop");

    if (beyond(r->body, "max_tokens", 1, 1e9, &tokens) ||
        beyond(r->body, "max_completion_tokens", 1, 1e9, &tokens))
        return refuse(why, "max_tokens must be a number, 1 or above");
    r->max_tokens = (uint64_t)tokens;
    if (beyond(r->body, "temperature", 0, 2, NULL))
        return refuse(why, "temperature must be a number, 0 to 2");
    if (beyond(r->body, "top_p", 0, 1, NULL))
        return refuse(why, "top_p must be a number, 0 to 1");
    if (beyond(r->body, "n", 1, 1, NULL))
        return refuse(why, "n must be 1: a FastChat worker gives one answer at a time");
    if (stop && stop->kind != JSON_NODE_NULL && stop->kind != JSON_NODE_STRING &&
        stop->kind != JSON_NODE_ARRAY)
        return refuse(why, "stop must be a text or a list of texts");
    return 0;
}

static int read_prompt(struct fastchat_request *r, struct fastchat_fault *why)
{
    const struct json_node *p = wire_json_get(r->body, "prompt");

    if (wire_json_is(p, JSON_NODE_ARRAY) && p->n == 1)
        p = p->first;
    if (!wire_json_is(p, JSON_NODE_STRING))
        return refuse(why, "prompt must be one text: a FastChat worker takes neither several nor "
                           "tokens");
    r->text = p->text;
    if (r->max_tokens == 0)
        r->max_tokens = COMPLETION_TOKENS;
    return 0;
}

int fastchat_read(struct arena *a,
                  struct slice body,
                  bool chat,
                  struct fastchat_request *out,
                  struct fastchat_fault *why)
{
    *out = (struct fastchat_request){.chat = chat};
    int rc = wire_json_tree(a, body, &out->body);
    if (rc == WEIR_E_NOMEM)
        return rc;
    if (rc || !wire_json_is(out->body, JSON_NODE_OBJECT))
        return refuse(why, "the body is not a JSON object");
    rc = check(out, why);
    if (rc)
        return rc;
    out->stream = wire_json_is(wire_json_get(out->body, "stream"), JSON_NODE_TRUE);
    const struct json_node *more = wire_json_get(out->body, "stream_options");
    out->usage_asked = wire_json_is(wire_json_get(more, "include_usage"), JSON_NODE_TRUE);
    if (!chat)
        return read_prompt(out, why);
    const struct json_node *messages = wire_json_get(out->body, "messages");
    if (wire_json_is(messages, JSON_NODE_STRING))
        out->text = messages->text;
    else if (wire_json_is(messages, JSON_NODE_ARRAY) && messages->n)
        out->messages = messages;
    else
        return refuse(why, "messages must be a list of messages");
    return 0;
}

/* A JSON value as it was. */
static void put_value(struct buf *out, const struct json_node *n)
{
    static const char *const words[] = {
        [JSON_NODE_NULL] = "null", [JSON_NODE_FALSE] = "false", [JSON_NODE_TRUE] = "true"};

    if (!n)
        buf_put_str(out, "null");
    else if (n->kind <= JSON_NODE_TRUE)
        buf_put_str(out, words[n->kind]);
    else if (n->kind == JSON_NODE_NUMBER)
        buf_put_slice(out, n->text);
    else if (n->kind == JSON_NODE_STRING)
        buf_put_json(out, n->text);
    else
        buf_put_str(out, "null"); /* nothing that nests is passed on */
}

static void
put_field(struct buf *out, const struct fastchat_request *r, const char *name, const char *fallback)
{
    const struct json_node *n = wire_json_get(r->body, name);

    buf_put_str(out, ",\"");
    buf_put_str(out, name);
    buf_put_str(out, "\":");
    if (n && n->kind != JSON_NODE_NULL)
        put_value(out, n);
    else
        buf_put_str(out, fallback);
}

/* Texts of one or a list, without the empty ones. */
static void put_stops(struct buf *out, const struct json_node *n, bool *first)
{
    const struct json_node *one = wire_json_is(n, JSON_NODE_ARRAY) ? n->first : n;

    for (; one; one = n->kind == JSON_NODE_ARRAY ? one->next : NULL) {
        if (one->kind != JSON_NODE_STRING || one->text.n == 0)
            continue;
        if (!*first)
            buf_put_char(out, ',');
        *first = false;
        buf_put_json(out, one->text);
    }
}

void fastchat_write_request(struct buf *out,
                            const struct fastchat_request *r,
                            const struct json_node *conv,
                            struct slice model,
                            struct slice prompt,
                            struct slice images,
                            uint64_t max_new_tokens)
{
    const struct json_node *ids = wire_json_get(conv, "stop_token_ids");
    bool first = true;

    buf_put_str(out, "{\"model\":");
    buf_put_json(out, model);
    buf_put_str(out, ",\"prompt\":");
    buf_put_json(out, prompt);
    put_field(out, r, "temperature", TEMPERATURE);
    put_field(out, r, "top_p", "1.0");
    put_field(out, r, "top_k", "-1");
    put_field(out, r, "presence_penalty", "0.0");
    put_field(out, r, "frequency_penalty", "0.0");
    if (max_new_tokens) {
        buf_put_str(out, ",\"max_new_tokens\":");
        buf_put_u64(out, max_new_tokens);
    }
    if (r->chat) {
        buf_put_str(out, ",\"logprobs\":null,\"echo\":false");
    } else {
        put_field(out, r, "logprobs", "null");
        put_field(out, r, "echo", "false");
        if (wire_json_is(wire_json_get(r->body, "best_of"), JSON_NODE_NUMBER))
            put_field(out, r, "best_of", "null");
        if (wire_json_is(wire_json_get(r->body, "use_beam_search"), JSON_NODE_TRUE))
            put_field(out, r, "use_beam_search", "null");
    }
    buf_put_str(out, ",\"stop_token_ids\":");
    if (wire_json_is(ids, JSON_NODE_ARRAY)) {
        buf_put_char(out, '[');
        for (const struct json_node *n = ids->first; n; n = n->next) {
            put_value(out, n);
            if (n->next)
                buf_put_char(out, ',');
        }
        buf_put_char(out, ']');
    } else {
        buf_put_str(out, "null");
    }
    buf_put_str(out, ",\"stop\":[");
    put_stops(out, wire_json_get(r->body, "stop"), &first);
    put_stops(out, wire_json_get(conv, "stop_str"), &first);
    buf_put_char(out, ']');
    if (images.n) {
        buf_put_str(out, ",\"images\":[");
        buf_put_slice(out, images);
        buf_put_char(out, ']');
    }
    buf_put_char(out, '}');
}

/* --- errors --- */

void fastchat_fault_of(uint64_t error_code, struct slice text, struct fastchat_fault *out)
{
    static const struct {
        uint64_t from, to;
        unsigned status;
        const char *code;
    } meanings[] = {
        {40101, 40102, 401, "invalid_api_key"},     {40103, 40103, 403, "forbidden"},
        {40301, 40301, 404, "model_not_found"},     {40303, 40303, 400, "context_length_exceeded"},
        {40000, 40999, 400, "invalid_request"},     {42902, 42902, 429, "insufficient_quota"},
        {42900, 42999, 429, "rate_limit_exceeded"}, {50002, 50002, 503, "cuda_out_of_memory"},
        {50005, 50005, 503, "no_healthy_upstream"}, {50006, 50006, 504, "upstream_timeout"},
    };

    for (size_t i = 0; i < ARRAY_LEN(meanings); i++)
        if (error_code >= meanings[i].from && error_code <= meanings[i].to) {
            fastchat_fault_set(out, meanings[i].status, meanings[i].code, text);
            return;
        }
    fastchat_fault_set(out, 500, "upstream_failed", text);
}

static void put_error(struct buf *out, const struct fastchat_fault *why)
{
    buf_put_str(out, "{\"error\":{\"message\":");
    buf_put_json(out, slice_str(why->message));
    buf_put_str(out, why->status >= 500   ? ",\"type\":\"server_error\""
                     : why->status == 429 ? ",\"type\":\"rate_limit_error\""
                                          : ",\"type\":\"invalid_request_error\"");
    buf_put_str(out, ",\"param\":null,\"code\":");
    buf_put_json(out, slice_str(why->code));
    buf_put_str(out, "}}");
}

void fastchat_write_whole(struct buf *out, unsigned status, struct slice body)
{
    buf_put_str(out, "HTTP/1.1 ");
    buf_put_u64(out, status);
    buf_put_char(out, ' ');
    buf_put_str(out, wire_http1_reason(status));
    buf_put_str(out, "\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: ");
    buf_put_u64(out, body.n);
    buf_put_str(out, "\r\n\r\n");
    buf_put_slice(out, body);
}

void fastchat_write_fault(struct buf *out, const struct fastchat_fault *why)
{
    struct buf body;

    buf_init(&body, out->mem, OUT_MAX);
    put_error(&body, why);
    fastchat_write_whole(out, why->status, buf_slice(&body));
    buf_fini(&body);
}

/* --- answers --- */

void fastchat_answer_init(struct fastchat_answer *f,
                          const struct mem *mem,
                          const struct fastchat_request *r,
                          struct slice model,
                          uint64_t id,
                          uint64_t created_s)
{
    *f = (struct fastchat_answer){.chat = r->chat,
                                  .stream = r->stream,
                                  .usage_asked = r->usage_asked,
                                  .model = model,
                                  .id = id,
                                  .created_s = created_s,
                                  .mem = mem};
    buf_init(&f->piece, mem, PIECE_MAX);
    buf_init(&f->text, mem, PIECE_MAX);
}

void fastchat_answer_fini(struct fastchat_answer *f)
{
    buf_fini(&f->piece);
    buf_fini(&f->text);
}

/* {"id":..., up to what differs. */
static void put_envelope(struct buf *out, const struct fastchat_answer *f)
{
    buf_put_str(out, f->chat ? "{\"id\":\"chatcmpl-" : "{\"id\":\"cmpl-");
    buf_put_hex(out, f->id, 16);
    buf_put_str(out, !f->chat    ? "\",\"object\":\"text_completion\""
                     : f->stream ? "\",\"object\":\"chat.completion.chunk\""
                                 : "\",\"object\":\"chat.completion\"");
    buf_put_str(out, ",\"created\":");
    buf_put_u64(out, f->created_s);
    buf_put_str(out, ",\"model\":");
    buf_put_json(out, f->model);
    buf_put_str(out, ",\"choices\":[");
}

static void put_finish(struct buf *out, const char *finish)
{
    buf_put_str(out, ",\"finish_reason\":");
    if (finish)
        buf_put_json(out, slice_str(finish[0] ? finish : "stop"));
    else
        buf_put_str(out, "null");
    buf_put_char(out, '}');
}

static void put_usage(struct buf *out, const struct fastchat_answer *f)
{
    buf_put_str(out, ",\"usage\":{\"prompt_tokens\":");
    buf_put_u64(out, f->prompt_tokens);
    buf_put_str(out, ",\"completion_tokens\":");
    buf_put_u64(out, f->completion_tokens);
    buf_put_str(out, ",\"total_tokens\":");
    buf_put_u64(out, f->prompt_tokens + f->completion_tokens);
    buf_put_char(out, '}');
}

/* Events are gathered in `out` as chunks of the answer. */
static void put_event(struct buf *out, const struct buf *event)
{
    char prefix[CHUNKED_PREFIX_MAX];
    struct slice text = buf_slice(event);

    buf_put(out, prefix, wire_chunked_prefix(prefix, text.n + 8));
    buf_put_str(out, "data: ");
    buf_put_slice(out, text);
    buf_put_str(out, "\n\n\r\n");
    if (event->err && !out->err)
        out->err = event->err;
}

/* @param role the first event of a chat. @param finish NULL: not the last. */
static void put_delta(
    struct fastchat_answer *f, struct buf *out, bool role, struct slice text, const char *finish)
{
    struct buf event;

    buf_init(&event, f->mem, OUT_MAX);
    put_envelope(&event, f);
    if (f->chat) {
        buf_put_str(&event, "{\"index\":0,\"delta\":{");
        if (role)
            buf_put_str(&event, "\"role\":\"assistant\",\"content\":\"\"");
        else if (text.n) {
            buf_put_str(&event, "\"content\":");
            buf_put_json(&event, text);
        }
        buf_put_char(&event, '}');
    } else {
        buf_put_str(&event, "{\"index\":0,\"text\":");
        buf_put_json(&event, text);
        buf_put_str(&event, ",\"logprobs\":null");
    }
    put_finish(&event, finish);
    buf_put_str(&event, "]}");
    put_event(out, &event);
    buf_fini(&event);
}

static void begin_stream(struct fastchat_answer *f, struct buf *out)
{
    static const struct slice nothing = {"", 0};

    f->begun = true;
    buf_put_str(out, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache"
                     "\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n");
    if (f->chat)
        put_delta(f, out, true, nothing, NULL);
}

static void put_done(struct fastchat_answer *f, struct buf *out)
{
    struct buf event;

    buf_init(&event, f->mem, 64);
    buf_put_str(&event, "[DONE]");
    put_event(out, &event);
    buf_fini(&event);
    buf_put_str(out, "0\r\n\r\n");
}

static void put_fault(struct fastchat_answer *f, struct buf *out, const struct fastchat_fault *why)
{
    struct buf event;

    f->failed = true;
    if (!f->stream || !f->begun) { /* of a whole answer nothing is out yet */
        fastchat_write_fault(out, why);
        return;
    }
    buf_init(&event, f->mem, OUT_MAX);
    put_error(&event, why);
    put_event(out, &event);
    buf_fini(&event);
    put_done(f, out);
}

/* Half a character at the end of a piece is shown as U+FFFD until the rest is there: it is left out. */
static int put_clean(struct buf *out, struct slice s)
{
    static const char mark[] = "\xef\xbf\xbd";

    for (size_t i = 0; i < s.n;) {
        size_t run = i;
        while (run < s.n && !(s.n - run >= 3 && memcmp(s.p + run, mark, 3) == 0))
            run++;
        buf_put(out, s.p + i, run - i);
        i = run < s.n ? run + 3 : run;
    }
    return out->err;
}

/* The text so far, from where the last piece ended. */
static int take_text(struct fastchat_answer *f, struct slice text, struct buf *out)
{
    struct slice all;

    buf_clear(&f->text);
    if (put_clean(&f->text, text))
        return f->text.err;
    if (!f->stream)
        return 0;
    all = buf_slice(&f->text);
    size_t from = f->told;
    while (from < all.n && ((unsigned char)all.p[from] & 0xc0) == 0x80)
        from++; /* it changed what it had said: at least not within a character */
    if (from < all.n) {
        put_delta(f, out, false, slice_from(all, from), NULL);
        f->told = all.n;
    }
    return out->err;
}

static void take_usage(struct fastchat_answer *f, const struct json_node *usage)
{
    double prompt;
    double completion;

    if (!wire_json_number(wire_json_get(usage, "prompt_tokens"), &prompt) ||
        !wire_json_number(wire_json_get(usage, "completion_tokens"), &completion) || prompt < 0 ||
        completion < 0 || prompt > 1e15 || completion > 1e15)
        return;
    f->prompt_tokens = (uint64_t)prompt;
    f->completion_tokens = (uint64_t)completion;
    f->has_usage = true;
}

static int take_object(struct fastchat_answer *f, struct slice json, struct buf *out)
{
    struct fastchat_fault why;
    const struct json_node *o;
    struct arena a;
    double code = 0;

    arena_init(&a, f->mem, FASTCHAT_TREE_MAX);
    int rc = wire_json_tree(&a, json, &o);
    const struct json_node *text = wire_json_get(o, "text");
    if (rc == 0 && !wire_json_is(text, JSON_NODE_STRING))
        rc = WEIR_E_PROTO;
    (void)wire_json_number(wire_json_get(o, "error_code"), &code);
    if (rc == 0 && code != 0) {
        fastchat_fault_of(code > 0 && code < 1e6 ? (uint64_t)code : 50001, text->text, &why);
        put_fault(f, out, &why);
    } else if (rc == 0) {
        struct slice finish = wire_json_text(wire_json_get(o, "finish_reason"));
        if (finish.n && finish.n < sizeof(f->finish)) {
            memcpy(f->finish, finish.p, finish.n);
            f->finish[finish.n] = '\0';
        }
        take_usage(f, wire_json_get(o, "usage"));
        if (f->stream && !f->begun)
            begin_stream(f, out);
        f->begun = true;
        rc = take_text(f, text->text, out);
    }
    arena_fini(&a);
    return rc ? rc : out->err;
}

int fastchat_answer_feed(struct fastchat_answer *f, struct slice bytes, struct buf *out)
{
    int rc = 0;

    while (bytes.n && rc == 0 && !f->failed) {
        size_t end = slice_find(bytes, '\0');
        bool whole = end < bytes.n;
        struct slice part = slice_of(bytes.p, end);
        bytes = slice_from(bytes, whole ? end + 1 : end);
        if (!whole || buf_len(&f->piece)) {
            if (buf_put_slice(&f->piece, part))
                return f->piece.err;
            part = buf_slice(&f->piece);
        }
        if (!whole)
            return 0;
        if (part.n)
            rc = take_object(f, part, out);
        buf_clear(&f->piece);
    }
    return rc;
}

static void end_stream(struct fastchat_answer *f, struct buf *out)
{
    static const struct slice nothing = {"", 0};
    struct buf event;

    put_delta(f, out, false, nothing, f->finish);
    if (f->usage_asked && f->has_usage) {
        buf_init(&event, f->mem, OUT_MAX);
        put_envelope(&event, f);
        buf_put_char(&event, ']');
        put_usage(&event, f);
        buf_put_char(&event, '}');
        put_event(out, &event);
        buf_fini(&event);
    }
    put_done(f, out);
}

static void end_whole(struct fastchat_answer *f, struct buf *out)
{
    struct buf body;

    buf_init(&body, f->mem, OUT_MAX);
    put_envelope(&body, f);
    buf_put_str(&body, f->chat ? "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":"
                               : "{\"index\":0,\"text\":");
    buf_put_json(&body, buf_slice(&f->text));
    if (f->chat)
        buf_put_char(&body, '}');
    else
        buf_put_str(&body, ",\"logprobs\":null");
    put_finish(&body, f->finish);
    buf_put_char(&body, ']');
    if (f->has_usage)
        put_usage(&body, f);
    buf_put_char(&body, '}');
    fastchat_write_whole(out, 200, buf_slice(&body));
    if (body.err && !out->err)
        out->err = body.err;
    buf_fini(&body);
}

int fastchat_answer_end(struct fastchat_answer *f, struct buf *out)
{
    if (f->failed)
        return 0;
    if (!f->begun || buf_len(&f->piece))
        return WEIR_E_PROTO;
    if (f->stream)
        end_stream(f, out);
    else
        end_whole(f, out);
    return out->err;
}
