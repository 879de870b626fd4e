/* SPDX-License-Identifier: Apache-2.0 */
/** @file Answers in OpenAI's and vLLM's shapes, written into a buffer. Texts are words drawn from a seed. */
#ifndef WEIR_APPS_WORKER_ANSWER_H
#define WEIR_APPS_WORKER_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "apps/worker/ask.h"
#include "base/buf.h"

/** What every event and the whole answer of one request have in common. */
struct answer {
    enum ask_kind kind; /**< ASK_CHAT or ASK_COMPLETION */
    uint64_t id;
    uint64_t created_s;
    struct slice model;
    uint64_t seed; /**< of the text */
    uint32_t prompt_tokens;
    uint32_t cached_tokens;
};

/** The stream's first event: the role, no text. Chat only. */
void answer_event_role(struct buf *out, const struct answer *a);
/** The event of one token. @param finish NULL, or the reason: this is the last. */
void answer_event_token(struct buf *out,
                        const struct answer *a,
                        uint32_t index,
                        const char *finish);
/** The usage event of stream_options.include_usage. */
void answer_event_usage(struct buf *out, const struct answer *a, uint32_t generated);
void answer_event_done(struct buf *out);

/** The answer without stream. */
void answer_whole(struct buf *out, const struct answer *a, uint32_t generated, const char *finish);

/** Embeddings: unit-scale vectors drawn from the hash of each input, equal for equal inputs. */
void answer_embeddings(struct buf *out, const struct ask *ask);

/** vLLM's error body. @param param NULL = null. */
void answer_error(
    struct buf *out, unsigned status, const char *type, const char *param, struct slice message);

#endif /* WEIR_APPS_WORKER_ANSWER_H */
