/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/worker/answer.h"

#include "base/bug.h"
#include "base/hash.h"
#include "base/prng.h"

static const char *const words[64] = {
    "water", "river", "stone",  "light",   "over",   "under",   "still",  "flow",
    "gate",  "level", "bridge", "north",   "valley", "rain",    "quiet",  "early",
    "wheel", "mill",  "bank",   "reed",    "heron",  "boat",    "rope",   "slow",
    "swift", "clear", "deep",   "cold",    "warm",   "summer",  "field",  "the",
    "a",     "of",    "and",    "to",      "in",     "with",    "from",   "by",
    "at",    "where", "when",   "then",    "there",  "holds",   "turns",  "opens",
    "falls", "rises", "keeps",  "spreads", "meets",  "carries", "leaves", "runs",
    "waits", "even",  "fair",   "each",    "other",  "same",    "near",   "far",
};

static void put_word(struct buf *out, uint64_t seed, uint32_t index)
{
    if (index > 0)
        buf_put_char(out, ' ');
    buf_put_str(out, words[hash_pair(seed, index) % ARRAY_LEN(words)]);
}

static void put_u64(struct buf *out, const char *key, uint64_t v)
{
    buf_put_str(out, key);
    buf_put_u64(out, v);
}

/* {"id":...,"object":...,"created":...,"model":... without the end */
static void put_common(struct buf *out, const struct answer *a, const char *object)
{
    buf_put_str(out, a->kind == ASK_CHAT ? "{\"id\":\"chatcmpl-" : "{\"id\":\"cmpl-");
    buf_put_hex(out, a->id, 16);
    buf_put_str(out, "\",\"object\":\"");
    buf_put_str(out, object);
    put_u64(out, "\",\"created\":", a->created_s);
    buf_put_str(out, ",\"model\":");
    buf_put_json(out, a->model);
}

static void put_finish(struct buf *out, const char *finish)
{
    buf_put_str(out, "\"finish_reason\":");
    if (finish)
        buf_put_json(out, slice_str(finish));
    else
        buf_put_str(out, "null");
}

static void put_usage(struct buf *out, const struct answer *a, uint32_t generated)
{
    put_u64(out, "\"usage\":{\"prompt_tokens\":", a->prompt_tokens);
    put_u64(out, ",\"total_tokens\":", (uint64_t)a->prompt_tokens + generated);
    put_u64(out, ",\"completion_tokens\":", generated);
    put_u64(out, ",\"prompt_tokens_details\":{\"cached_tokens\":", a->cached_tokens);
    buf_put_str(out, "}}");
}

static const char *chunk_object(const struct answer *a)
{
    return a->kind == ASK_CHAT ? "chat.completion.chunk" : "text_completion";
}

void answer_event_role(struct buf *out, const struct answer *a)
{
    buf_put_str(out, "data: ");
    put_common(out, a, chunk_object(a));
    buf_put_str(out,
                ",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                "\"logprobs\":null,\"finish_reason\":null}]}\n\n");
}

void answer_event_token(struct buf *out, const struct answer *a, uint32_t index, const char *finish)
{
    buf_put_str(out, "data: ");
    put_common(out, a, chunk_object(a));
    buf_put_str(out, a->kind == ASK_CHAT ? ",\"choices\":[{\"index\":0,\"delta\":{\"content\":\""
                                         : ",\"choices\":[{\"index\":0,\"text\":\"");
    put_word(out, a->seed, index);
    buf_put_str(out, a->kind == ASK_CHAT ? "\"},\"logprobs\":null," : "\",\"logprobs\":null,");
    put_finish(out, finish);
    buf_put_str(out, "}]}\n\n");
}

void answer_event_usage(struct buf *out, const struct answer *a, uint32_t generated)
{
    buf_put_str(out, "data: ");
    put_common(out, a, chunk_object(a));
    buf_put_str(out, ",\"choices\":[],");
    put_usage(out, a, generated);
    buf_put_str(out, "}\n\n");
}

void answer_event_done(struct buf *out)
{
    buf_put_str(out, "data: [DONE]\n\n");
}

void answer_whole(struct buf *out, const struct answer *a, uint32_t generated, const char *finish)
{
    put_common(out, a, a->kind == ASK_CHAT ? "chat.completion" : "text_completion");
    buf_put_str(
        out, a->kind == ASK_CHAT
                 ? ",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\""
                 : ",\"choices\":[{\"index\":0,\"text\":\"");
    for (uint32_t i = 0; i < generated; i++)
        put_word(out, a->seed, i);
    buf_put_str(out, a->kind == ASK_CHAT ? "\"},\"logprobs\":null," : "\",\"logprobs\":null,");
    put_finish(out, finish);
    buf_put_str(out, "}],");
    put_usage(out, a, generated);
    buf_put_char(out, '}');
}

/* In (-1, 1), a multiple of 2^-16: exact as a 32-bit float. */
static double coordinate(struct prng *rnd)
{
    return ((double)prng_below(rnd, 131071) - 65535.0) / 65536.0;
}

static void put_base64(struct buf *out, const unsigned char *p, size_t n)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";

    for (size_t i = 0; i < n; i += 3) {
        unsigned have = n - i >= 3 ? 3 : (unsigned)(n - i);
        unsigned v = (unsigned)p[i] << 16 | (have > 1 ? (unsigned)p[i + 1] << 8 : 0) |
                     (have > 2 ? p[i + 2] : 0);
        buf_put_char(out, digits[v >> 18]);
        buf_put_char(out, digits[v >> 12 & 63]);
        buf_put_char(out, digits[have > 1 ? v >> 6 & 63 : 64]);
        buf_put_char(out, digits[have > 2 ? v & 63 : 64]);
    }
}

static void put_vector(struct buf *out, uint64_t seed, const struct ask *ask)
{
    struct prng rnd = {seed};
    /* Three floats make twelve bytes, sixteen digits: base64 needs no state between pieces. */
    unsigned char bytes[12];
    unsigned have = 0;

    buf_put_char(out, ask->base64 ? '"' : '[');
    for (uint32_t i = 0; i < ask->dimensions; i++) {
        double v = coordinate(&rnd);
        if (!ask->base64) {
            if (i)
                buf_put_char(out, ',');
            buf_put_f64(out, v, 9);
            continue;
        }
        float f = (float)v;
        uint32_t bits;
        memcpy(&bits, &f, sizeof(bits));
        for (unsigned b = 0; b < 4; b++)
            bytes[have++] = (unsigned char)(bits >> (8 * b));
        if (have == sizeof(bytes) || i + 1 == ask->dimensions) {
            put_base64(out, bytes, have);
            have = 0;
        }
    }
    buf_put_char(out, ask->base64 ? '"' : ']');
}

void answer_embeddings(struct buf *out, const struct ask *ask)
{
    buf_put_str(out, "{\"object\":\"list\",\"data\":[");
    for (uint32_t i = 0; i < ask->n_inputs; i++) {
        put_u64(out,
                i ? ",{\"object\":\"embedding\",\"index\":"
                  : "{\"object\":\"embedding\",\"index\":",
                i);
        buf_put_str(out, ",\"embedding\":");
        put_vector(out, ask->inputs[i], ask);
        buf_put_char(out, '}');
    }
    buf_put_str(out, "],\"model\":");
    buf_put_json(out, ask->model);
    put_u64(out, ",\"usage\":{\"prompt_tokens\":", ask->prompt_tokens);
    put_u64(out, ",\"total_tokens\":", ask->prompt_tokens);
    buf_put_str(out, ",\"completion_tokens\":0}}");
}

void answer_error(
    struct buf *out, unsigned status, const char *type, const char *param, struct slice message)
{
    buf_put_str(out, "{\"error\":{\"message\":");
    buf_put_json(out, message);
    buf_put_str(out, ",\"type\":");
    buf_put_json(out, slice_str(type));
    buf_put_str(out, ",\"param\":");
    if (param)
        buf_put_json(out, slice_str(param));
    else
        buf_put_str(out, "null");
    put_u64(out, ",\"code\":", status);
    buf_put_str(out, "}}");
}
