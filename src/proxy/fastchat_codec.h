/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file OpenAI's chat and completions to the words of a FastChat model worker, and its answers back. Pure: texts in,
 * texts out. The conversation with the worker is held by fastchat.c.
 */
#ifndef WEIR_PROXY_FASTCHAT_CODEC_H
#define WEIR_PROXY_FASTCHAT_CODEC_H

#include "base/buf.h"
#include "wire/json_tree.h"

enum { FASTCHAT_TREE_MAX = 64 << 20, FASTCHAT_WHY_MAX = 200 };

/** Why a request or an answer became an error. */
struct fastchat_fault {
    unsigned status;
    const char *code; /**< as OpenAI's; static text */
    char message[FASTCHAT_WHY_MAX];
};

/** A request as it was read; all of it lives in the arena it was read into. */
struct fastchat_request {
    bool chat, stream, usage_asked;
    const struct json_node *body;
    const struct json_node *messages; /**< chat */
    struct slice text;                /**< completions, and chat whose messages are a text */
    uint64_t max_tokens;              /**< 0 = not given */
};

/**
 * @param body a whole JSON body.
 * @return 0; WEIR_E_INVALID with why filled; WEIR_E_NOMEM.
 */
int fastchat_read(struct arena *a,
                  struct slice body,
                  bool chat,
                  struct fastchat_request *out,
                  struct fastchat_fault *why) MUST_CHECK;

/**
 * The text that the model sees, by the worker's conversation template (fastchat_prompt_codec.c).
 * @param conv what /worker_get_conv_template told, its member "conv". @param images added: URLs, as JSON texts joined by
 * commas.
 * @return 0; WEIR_E_INVALID with why filled; the error of a buffer.
 */
int fastchat_prompt(const struct json_node *conv,
                    const struct fastchat_request *r,
                    struct buf *prompt,
                    struct buf *images,
                    struct fastchat_fault *why) MUST_CHECK;

/** The body of /worker_generate_stream. @param max_new_tokens 0: left to the worker. */
void fastchat_write_request(struct buf *out,
                            const struct fastchat_request *r,
                            const struct json_node *conv,
                            struct slice model,
                            struct slice prompt,
                            struct slice images,
                            uint64_t max_new_tokens);

/** An answer under way: JSON objects, each ended by a zero byte, become an HTTP/1.1 answer of OpenAI's shape. */
struct fastchat_answer {
    bool chat, stream, usage_asked;
    struct slice model; /**< borrowed */
    uint64_t id, created_s;
    struct buf piece; /**< of an object whose end did not come yet */
    struct buf text;  /**< whole answers: what was said so far */
    size_t told;      /**< streams: bytes of the cumulative text that were passed on */
    char finish[32];  /**< why it ended; "" = not told */
    uint64_t prompt_tokens, completion_tokens;
    bool has_usage;
    bool begun;  /**< the head is written */
    bool failed; /**< an error was written: nothing more follows */
    const struct mem *mem;
};

void fastchat_answer_init(struct fastchat_answer *f,
                          const struct mem *mem,
                          const struct fastchat_request *r,
                          struct slice model,
                          uint64_t id,
                          uint64_t created_s);
void fastchat_answer_fini(struct fastchat_answer *f);
/** Bytes of the worker's answer. @return 0; WEIR_E_PROTO: no FastChat; the error of a buffer. */
int fastchat_answer_feed(struct fastchat_answer *f, struct slice bytes, struct buf *out) MUST_CHECK;
/** It ended, whole. @return WEIR_E_PROTO: in the middle of an object, or before any. */
int fastchat_answer_end(struct fastchat_answer *f, struct buf *out) MUST_CHECK;

/** A whole HTTP/1.1 error answer of OpenAI's shape. */
void fastchat_write_fault(struct buf *out, const struct fastchat_fault *why);
/** What an error_code of FastChat's means. @param text its words. */
void fastchat_fault_of(uint64_t error_code, struct slice text, struct fastchat_fault *out);
/** Fill in. @param message cut to what fits. */
void fastchat_fault_set(struct fastchat_fault *f,
                        unsigned status,
                        const char *code,
                        struct slice message);

#endif /* WEIR_PROXY_FASTCHAT_CODEC_H */
