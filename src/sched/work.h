/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Work in seconds: what waits at an endpoint, how fast it is done there, and what one request more would take.
 * Made for policies that ask (sched_policy_reads()), one beside each row, and logged with it.
 */
#ifndef WEIR_SCHED_WORK_H
#define WEIR_SCHED_WORK_H

#include "base/bug.h"
#include "base/num.h"
#include "sched/ledger.h"
#include "sched/lore.h"
#include "sched/row.h"

enum sched_work_flag {
    WORK_SESSION = 1, /**< this request's session was here last */
    /* Set for requests with targets only (sched/slo.h). */
    WORK_PREFILL_KNOWN =
        2, /**< how long a first byte takes was measured here, and lately or it is at work */
    WORK_STEP_KNOWN = 4, /**< the same of a step */
};

enum {
    SCHED_LATE = 8, /**< what is late is done at the earliest after this part of what still waits */
};
/** In which half of the recent tokens is forgotten. */
#define SCHED_RECENT_MS UINT64_C(300000)

/** Prompt tokens computed lately. Halved for each whole period, linear inside one: every machine computes the same. */
static inline uint64_t sched_work_recent(uint64_t tokens, uint64_t at_ns, uint64_t now_ns)
{
    uint64_t age_ms = now_ns > at_ns ? (now_ns - at_ns) / NS_PER_MS : 0;

    if (__builtin_expect(age_ms >= SCHED_RECENT_MS, 0)) {
        uint64_t halves = age_ms / SCHED_RECENT_MS;
        if (halves >= 64)
            return 0;
        tokens >>= halves;
        age_ms %= SCHED_RECENT_MS;
    }
    tokens = MIN(tokens, UINT64_C(1) << 40);
    return tokens - tokens * age_ms / (SCHED_RECENT_MS * 2);
}

/** @param until_ns 0 = nothing of ours is there. @param least_us what is late is not done earlier. */
static inline uint32_t sched_work_backlog(uint64_t until_ns, uint64_t least_us, uint64_t now_ns)
{
    uint64_t us = until_ns > now_ns ? (until_ns - now_ns) / NS_PER_US : 0;

    return (uint32_t)MIN(MAX(us, least_us), (uint64_t)UINT32_MAX);
}

/** All a plugin may know of one endpoint's work. Numbers are saturated. */
struct sched_work {
    uint32_t backlog_us;     /**< until the prefills that were sent there are done, by prediction */
    uint32_t waiting_tokens; /**< prompt tokens to compute, of requests without a first byte */
    uint32_t decoding;       /**< requests in the batch: ours past their first byte, and others' */
    uint32_t recent_tokens;  /**< computed there in the last minutes */
    uint32_t context_tokens; /**< of ours in flight */
    uint32_t foreign_waiting; /**< requests that others have waiting there */
    uint32_t hit_tokens;      /**< of this prompt, expected in its prefix cache */
    uint32_t reported_running, reported_waiting; /**< as its last fresh report says */
    uint32_t flags;                              /**< enum sched_work_flag */
    struct sched_speed speed;
};

/** Tokens of the prompt that must be computed there. */
uint64_t sched_work_uncached(const struct features *f, const struct sched_work *w);

/** What a request would take at an endpoint, in microseconds. */
struct sched_forecast {
    uint64_t wait_us;    /**< until its turn */
    uint64_t prefill_us; /**< its own prompt, hits left out */
    uint64_t decode_us;  /**< its answer of the expected length */
};

/** What of a request matters to the time it takes, the same for every endpoint. */
struct sched_question {
    uint64_t prompt; /**< tokens, images and audio among them */
    uint64_t output; /**< tokens expected */
    bool by_tokens;  /**< its time depends on them */
};
struct sched_question sched_work_question(const struct features *f);

enum { SCHED_FOREIGN_TOKENS = 512 /**< of a request that somebody else has waiting there */ };
/** Times any rate it fits 64 bits, which divide fast. */
#define SCHED_TOKENS_MOST (UINT64_C(1) << 31)

static inline uint64_t sched_question_uncached(uint64_t prompt, const struct sched_work *w)
{
    /* An engine computes at least the last token anew. */
    return prompt > w->hit_tokens ? prompt - w->hit_tokens : 1;
}

static inline uint64_t sched_step_us(const struct sched_work *w, uint64_t context)
{
    return w->speed.step_us +
           (uint64_t)w->speed.context_ps * MIN(context, SCHED_TOKENS_MOST) / 1000000;
}

/** Until what others have waiting there is done. Nothing is known of it but how many they are. */
static inline uint64_t sched_work_foreign(const struct sched_work *w)
{
    if (!w->foreign_waiting)
        return 0;
    uint64_t each = w->speed.service_us ? w->speed.service_us
                                        : w->speed.fixed_us + (uint64_t)w->speed.prefill_ns *
                                                                  SCHED_FOREIGN_TOKENS / 1000;
    return w->foreign_waiting * each;
}

/** Tokens of one prefix block of this request; at least 1. */
uint64_t sched_block_tokens(const struct features *f);

/** Tokens that so many blocks spare. */
static inline uint32_t sched_hit_tokens(const struct features *f,
                                        uint64_t per,
                                        uint32_t blocks,
                                        const struct sched_speed *s)
{
    uint64_t tokens =
        blocks ? MIN(blocks * per, f->prompt_tokens) * s->trust / SCHED_TRUST_FULL : 0;

    return (uint32_t)MIN(tokens, (uint64_t)UINT32_MAX);
}

/** Here, because a pick asks for every endpoint. */
static inline struct sched_forecast sched_work_forecast(const struct sched_question *q,
                                                        const struct sched_work *w)
{
    struct sched_forecast s = {.wait_us = w->backlog_us + sched_work_foreign(w)};

    if (!q->by_tokens && w->speed.service_us) {
        s.prefill_us = w->speed.service_us;
        return s;
    }
    s.prefill_us = w->speed.fixed_us +
                   (uint64_t)w->speed.prefill_ns * sched_question_uncached(q->prompt, w) / 1000;
    if (q->by_tokens)
        s.decode_us = q->output * sched_step_us(w, w->context_tokens + q->prompt + q->output / 2);
    return s;
}

/** Fill the part that is the same for every request. Cost: some cache lines a row. */
void sched_work_fill(const struct sched_candidate *c,
                     const struct sched_row *rows,
                     uint32_t n,
                     uint64_t now_ns,
                     struct sched_work *work);

/** Room to ask the prefix index for every candidate; beside the rows in a scratch. */
struct sched_prefix_ask;
/** Fill the part that depends on the request: speed, hits and session. @param ask, hits room for one of each candidate. */
void sched_work_request(struct sched_lore *l,
                        const struct features *f,
                        const struct sched_candidate *c,
                        uint32_t n,
                        uint64_t now_ns,
                        struct sched_prefix_ask *ask,
                        uint32_t *hits,
                        struct sched_work *work);

/** The two halves of it. @return from when on the speed is another without anything learned; UINT64_MAX: never. */
uint64_t sched_work_speed(const struct sched_candidate *c,
                          enum sched_kind kind,
                          uint64_t now_ns,
                          struct sched_speed *out);
/** Hits, of which the speed says how many come true, and the session. @param hits blocks, beside the work; or NULL. */
void sched_work_hits(const struct sched_lore *l,
                     const struct features *f,
                     const struct sched_candidate *c,
                     uint32_t n,
                     const uint32_t *hits,
                     struct sched_work *work);

/**
 * The reservation just raised is for this request: count the work, note its session.
 * @param w as the pick saw it; NULL: the policy does not ask.
 */
void sched_work_begin(struct sched_lore *l,
                      struct reservation *r,
                      const struct features *f,
                      const struct sched_candidate *c,
                      const struct sched_row *row,
                      const struct sched_work *w,
                      uint64_t now_ns);

/**
 * The blocks of this request are about to be where it is sent. Before it is sent, and after the pool's lock: it takes as
 * long as the pick. Once for each reservation; harmless when repeated, or on an empty one. Cost: one place of the index a
 * block.
 */
void sched_work_note(struct sched_lore *l, struct reservation *r, const struct features *f);

/** The request went out whole: prefill is counted from here. */
void sched_work_sent(struct reservation *r, uint64_t now_ns);
/** First response byte: learns, and does what sched_first_byte() does. */
void sched_work_first_byte(struct reservation *r, uint64_t now_ns);
/** A good answer ended. Learns; the reservation is still to be released. @param u NULL or what it says it used. */
void sched_work_end(struct sched_lore *l,
                    struct reservation *r,
                    const struct features *f,
                    const struct usage *u,
                    uint64_t now_ns);

#endif /* WEIR_SCHED_WORK_H */
