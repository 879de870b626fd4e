/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file OpenAI's chat, completions and embeddings to the words of a FastChat model worker, and its answers back. Pure: texts in,
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

/** Texts to be embedded, asked for batch by batch (fastchat_embed_codec.c). */
struct fastchat_embedding {
    const struct json_node
        *next;         /**< the first text of the next batch; in the arena it was read into */
    uint32_t left;     /**< texts not asked for yet */
    uint32_t asked;    /**< texts of the batch under way */
    uint32_t done;     /**< vectors that are here */
    bool base64;       /**< the client wants the vectors so */
    bool tokens_known; /**< every batch told them */
    uint64_t tokens;
    struct buf data; /**< owned: what is here, as elements of OpenAI's "data" */
};

/** @param out fastchat_embedding_fini() it, whatever is returned. @return as fastchat_read(). */
int fastchat_embed_read(struct arena *a,
                        struct slice body,
                        struct fastchat_embedding *out,
                        struct fastchat_fault *why) MUST_CHECK;
void fastchat_embedding_fini(struct fastchat_embedding *e);
/** The body of /worker_get_embeddings for the next batch. e->left must not be 0. */
void fastchat_embed_ask(struct buf *out, struct fastchat_embedding *e, struct slice model);
/**
 * The whole answer to it. Vectors come as numbers or, where that was asked, as base64; numbers are packed here then.
 * @return 0; WEIR_E_INVALID with why filled: the worker told an error; WEIR_E_PROTO: no FastChat; WEIR_E_NOMEM,
 * WEIR_E_FULL.
 */
int fastchat_embed_hear(struct fastchat_embedding *e,
                        struct slice body,
                        struct fastchat_fault *why) MUST_CHECK;
/** Nothing is left: the whole HTTP/1.1 answer. @return the error of a buffer. */
int fastchat_embed_write(struct buf *out,
                         const struct fastchat_embedding *e,
                         struct slice model) MUST_CHECK;

/** A whole HTTP/1.1 answer with a JSON body. */
void fastchat_write_whole(struct buf *out, unsigned status, struct slice body);
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
