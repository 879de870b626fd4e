/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file One candidate of a pick, as plain numbers: all that filters, scores and picks may look at.
 * What changes rarely stands in struct sched_candidate (made when members change), what changes with every request
 * or report in struct sched_row (made for each pick): small, because a pick fills one for every member.
 */
#ifndef WEIR_SCHED_ROW_H
#define WEIR_SCHED_ROW_H

#include <stdbool.h>
#include <stdint.h>

#include "model/cell_t.h"
#include "model/endpoint_t.h"
#include "model/features_t.h"
#include "model/policy_t.h"
#include "model/snapshot_t.h"

/** Bits of sched_candidate.flags and sched_row.flags. */
enum sched_flag {
    SCHED_HAS_UTIL = CELL_KNOWS_UTIL,   /**< row: util_bp is known */
    SCHED_HAS_BYTES = CELL_KNOWS_BYTES, /**< row: free_bytes is known */
    SCHED_HAS_KV = CELL_KNOWS_TOKENS,   /**< row: free_tokens is known */
    SCHED_FRESH = 1 << 3,               /**< row: the sample counts */
    SCHED_ENABLED = 1 << 4, /**< enabled, weight above 0, not draining, healthy for its registry */
    SCHED_VOUCHED = 1 << 5, /**< endpoint.vouched */
    SCHED_TOKENS = 1 << 6,  /**< its engine preallocates: free KV tokens decide, when known */
    SCHED_WILLING = 1 << 7, /**< row: enabled, and by its own report healthy or busy */
    SCHED_USABLE = 1 << 8,  /**< row: willing and healthy for us */
    SCHED_LAST_RESORT =
        1 << 9, /**< row: willing, up once, but red: down by probes, or its breaker blocks */
    SCHED_FULL = 1 << 10,  /**< row: at its limit of requests in flight */
    SCHED_TRIAL = 1 << 11, /**< row: usable for the one trial request of a half-open breaker */
    SCHED_YOUNG = 1 << 12, /**< row: its slow start is not known to be over */
    SCHED_NEAR = 1 << 13,  /**< it is where policy.place says that we are */
};

/** Plain numbers of how fast an endpoint is, as a pick uses them; learned by sched/rates.c. */
struct sched_speed {
    uint32_t fixed_us;      /**< of a prefill, whatever its length */
    uint32_t prefill_ns;    /**< per prompt token computed */
    uint32_t step_us;       /**< of one decode step with no context */
    uint32_t context_ps;    /**< more per token of context in the batch */
    uint32_t service_us;    /**< of a request whose tokens do not count; 0 = not known */
    uint32_t first_byte_us; /**< peak-EWMA; 0 = none seen */
    uint32_t trust; /**< share of the expected prefix hits that come true, of SCHED_TRUST_FULL */
};
enum { SCHED_TRUST_FULL = 256 };

/** Kinds of requests that take different times for the same number of tokens. */
enum sched_kind { SCHED_KIND_TEXT, SCHED_KIND_MEDIA, SCHED_KIND_OTHER, SCHED_KINDS };
static inline enum sched_kind sched_kind_of(const struct features *f)
{
    bool tokens = f->task == 0 || (f->task & (TASK_CHAT | TASK_COMPLETION));

    return !tokens                     ? SCHED_KIND_OTHER
           : f->n_images || f->n_audio ? SCHED_KIND_MEDIA
                                       : SCHED_KIND_TEXT;
}

/** The slow half. Borrowed pointers live as long as the snapshot they came from. */
struct sched_candidate {
    /* what each filling of a row reads, in one half of a cache line */
    struct cell *cell;    /**< for filling rows and the reservation; never read by plugins */
    uint64_t total_bytes; /**< endpoint.memory_total_bytes; 0 = unknown */
    uint32_t limit;       /**< max_concurrency; 0 = none */
    uint16_t flags;       /**< enum sched_flag, those without "row:" */
    uint32_t slot, generation;
    uint64_t weight; /**< millionths: registry weight x gpu weight, both in thousandths */
    uint64_t hash;   /**< of the authority: the same in every process */
    const struct endpoint *endpoint; /**< identity */
    const struct model_ref *model;   /**< of the pool's model; NULL: pool of any model */
    /** Of endpoint, model and kind of request, shared; NULL: the prior of its GPU. */
    struct sched_rates *rates[SCHED_KINDS];
    struct sched_speed prior;        /**< of its GPU */
    uint64_t rates_key[SCHED_KINDS]; /**< what they stand under while they are this one's */
};

/** The fast half; a logged decision carries these values. */
struct sched_row {
    uint64_t free_bytes;   /**< promises subtracted */
    uint64_t total_bytes;  /**< 0 = unknown */
    uint32_t free_tokens;  /**< promises subtracted */
    uint32_t total_tokens; /**< known with free_tokens */
    uint32_t inflight;     /**< our ledger at this address: what the limit counts */
    uint32_t load; /**< inflight + max(0, reported - our own when it reported); design section 3 */
    uint16_t util_bp;
    uint16_t flags; /**< enum sched_flag */
    uint8_t health; /**< enum health */
    uint8_t state;  /**< enum reported_state; healthy when unknown */
    uint16_t ramp;  /**< part of its weight that counts, of SCHED_RAMP_FULL: slow start */
};
enum { SCHED_RAMP_FULL = 10000, SCHED_RAMP_FIRST = 1000 };

/** The part of a weight or share that counts; at least 1 of more than 0. */
static inline uint64_t sched_ramped(uint64_t share, const struct sched_row *r)
{
    if (r->ramp == SCHED_RAMP_FULL || share == 0)
        return share;
    uint64_t part = (uint64_t)((unsigned __int128)share * r->ramp / SCHED_RAMP_FULL);
    return part ? part : 1;
}

/** dyn(util) of a policy, Q16.16: 1.0 when the utilization is unknown. Linear between points, flat outside. */
uint32_t sched_dyn(const struct policy *p, uint32_t util_bp, bool known);

/** The gpu weight of a type, thousandths; WEIGHT_ONE when not listed. */
uint32_t sched_gpu_weight(const struct policy *p, struct slice gpu_type);

/** weight x dyn(util), saturated at UINT64_MAX: the rightful share of an endpoint. */
uint64_t
sched_share(const struct policy *p, const struct sched_candidate *c, const struct sched_row *r);

/** Is any part of it said? */
static inline bool sched_placed(const struct place *p)
{
    return (p->region.n | p->zone.n | p->cluster.n) != 0;
}

/** Copy a cell's last sample. Any thread; retries while a writer is at work. sample.known is 0 before the first. */
void sched_sample_read(struct cell *c, struct sample *out);

/** @param model the pool's model; absent: any. */
void sched_candidate_fill(const struct member *m,
                          const struct policy *p,
                          struct slice model,
                          struct sched_candidate *out);

/** @param c sorted by slot. @return the index of the one with this slot, or n. */
static inline uint32_t
sched_candidate_find(const struct sched_candidate *c, uint32_t n, uint32_t slot)
{
    uint32_t low = 0;
    uint32_t high = n;

    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (c[mid].slot < slot)
            low = mid + 1;
        else
            high = mid;
    }
    return low < n && c[low].slot == slot ? low : n;
}

/** What all rows of a pick, and what some of them have. */
struct sched_common {
    uint16_t all, any;
};

/** Fill a row for each candidate from its cell. Any thread. Cost: one or two cache lines a row. */
struct sched_common sched_rows_fill(const struct sched_candidate *c,
                                    uint32_t n,
                                    uint64_t now_ns,
                                    struct sched_row *rows);

/**
 * Slow start, where some row says SCHED_YOUNG: the share of an endpoint rises from a tenth to all of it in
 * policy.slow_start_ns, counted from the first pick that could choose it. Not among newcomers alone: when the whole
 * pool is young, all count in full. Where nobody else is idle, a newcomer is held back by one request of virtual load
 * too, but for as many picks as its share: the emptiest would win every time else, whatever its weight.
 * @param seed of the pick; the same arguments give the same rows. @param begin a pick notes the start in the cell, an
 * explanation only looks. Cost: O(n).
 */
void sched_rows_ramp(const struct policy *p,
                     const struct sched_candidate *c,
                     uint32_t n,
                     uint64_t now_ns,
                     uint64_t seed,
                     bool begin,
                     struct sched_row *rows);

/**
 * Tokens of context that a request needs: of one prompt, the average one of a batch, and its answer. Our count of the
 * prompt is an estimate (4 bytes a token). What it needs at least counts 16 bytes a token, which no text of a natural or
 * programming language reaches on average with the tokenizers in use: what is too long by that is too long for sure.
 * Where the engine cuts prompts instead of refusing them (embeddings, reranking) only the limit on the answer counts.
 */
struct sched_context {
    uint64_t likely, least;
};
struct sched_context sched_context_of(const struct features *f);

/** What a request needs of memory, in both currencies; 0 = not known, so everything fits. */
struct sched_need {
    uint64_t bytes;  /**< X-Required-Memory, else tokens x the model's KV bytes per token */
    uint64_t tokens; /**< prompt + output, else X-Required-Memory over the KV bytes per token */
    bool
        explicit_bytes; /**< the client said so: bytes are compared even where tokens would decide */
    uint64_t kv_bytes_per_token;
};
struct sched_need sched_need_of(const struct features *f);

#endif /* WEIR_SCHED_ROW_H */
