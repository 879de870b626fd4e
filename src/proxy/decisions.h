/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Why: the log of decisions that were made (docs/decisions.md), and the answer to "who would get this request"
 * (docs/explain.md). Neither moves anything.
 */
#ifndef WEIR_PROXY_DECISIONS_H
#define WEIR_PROXY_DECISIONS_H

#include "base/buf.h"
#include "model/endpoint_t.h"

struct proxy;

enum { PROXY_DECISIONS_MAX = 4096 /**< kept */ };

/**
 * The newest `limit` decisions, newest first.
 * @param lines true: one JSON object a line; false: {"decisions": [...]}.
 * @return 0, or out->err. Thread: any. Cost: O(limit); a data loop waits at most for the copy of one record.
 */
int proxy_decisions(struct proxy *p, uint32_t limit, bool lines, struct buf *out) MUST_CHECK;

/** A request that is asked about. Everything borrowed for the length of the call. */
struct proxy_question {
    struct slice method, path; /**< absent: POST, /v1/chat/completions */
    const struct kv *headers;
    uint32_t n_headers;
    struct slice body;      /**< absent: none */
    uint64_t prompt_tokens; /**< above 0: beats what the body says */
    uint64_t output_tokens; /**< likewise */
};

/**
 * Take the request through everything that routes it, but reserve, send and move nothing.
 * @param out one JSON object. @return 0; WEIR_E_INVALID with plain words in out when the request cannot be read;
 * WEIR_E_NOMEM. Thread: control. Cost: O(members).
 */
int proxy_explain(struct proxy *p, const struct proxy_question *q, struct buf *out) MUST_CHECK;

#endif /* WEIR_PROXY_DECISIONS_H */
