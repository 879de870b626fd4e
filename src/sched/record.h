/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file One decision with all that it was made from: captured by a pool (sched_scratch.record), written as JSON
 * (docs/decisions.md), decided again by sched_replay(). Numbers above 2^63 - 1 are kept as that: no pick tells them
 * apart.
 */
#ifndef WEIR_SCHED_RECORD_H
#define WEIR_SCHED_RECORD_H

#include "base/buf.h"
#include "sched/pick.h"

enum {
    SCHED_RECORD_FORMAT = 1, /**< rises when an old reader would misunderstand */
    SCHED_RECORD_ROWS =
        64, /**< rows of a record that is logged; of larger pools part is left out */
    SCHED_RECORD_BLOCKS = 64, /**< names of prefix blocks kept */
    SCHED_RECORD_ID_MAX =
        128, /**< bytes of an endpoint's id; it is for people, slot and generation name it */
};

/**
 * Numbers of a row that a pick may read, in the order they are written; 0 is left out. X(field) stands for
 * sched_record_row.row.field, so every number of struct sched_row must be listed here.
 */
#define SCHED_RECORD_ROW(X)                                                                        \
    X(free_bytes)                                                                                  \
    X(total_bytes)                                                                                 \
    X(free_tokens)                                                                                 \
    X(total_tokens)                                                                                \
    X(inflight)                                                                                    \
    X(load)                                                                                        \
    X(util_bp)                                                                                     \
    X(flags)                                                                                       \
    X(health)                                                                                      \
    X(state)                                                                                       \
    X(ramp)

/** Numbers of the work, where the policy reads it: sched_record_row.work.field. backlog_us stands before them. */
#define SCHED_RECORD_WORK(X)                                                                       \
    X(waiting_tokens)                                                                              \
    X(decoding)                                                                                    \
    X(recent_tokens)                                                                               \
    X(context_tokens)                                                                              \
    X(foreign_waiting)                                                                             \
    X(hit_tokens)                                                                                  \
    X(reported_running)                                                                            \
    X(reported_waiting)                                                                            \
    X(flags)                                                                                       \
    X(speed.fixed_us)                                                                              \
    X(speed.prefill_ns)                                                                            \
    X(speed.step_us)                                                                               \
    X(speed.context_ps)                                                                            \
    X(speed.service_us)                                                                            \
    X(speed.first_byte_us)                                                                         \
    X(speed.trust)

/** The same for the candidate: sched_record_row.field. */
#define SCHED_RECORD_CANDIDATE(X)                                                                  \
    X(slot)                                                                                        \
    X(generation)                                                                                  \
    X(weight)                                                                                      \
    X(limit)                                                                                       \
    X(context)                                                                                     \
    X(tasks)                                                                                       \
    X(hit_blocks)                                                                                  \
    X(probe.rif)                                                                                   \
    X(probe.us)                                                                                    \
    X(probe.uses)                                                                                  \
    X(probe.age_ms)

/** Numbers of the features, likewise. */
#define SCHED_RECORD_FEATURES(X)                                                                   \
    X(task)                                                                                        \
    X(required_bytes)                                                                              \
    X(prompt_bytes)                                                                                \
    X(prompt_tokens)                                                                               \
    X(n_prompts)                                                                                   \
    X(output_tokens)                                                                               \
    X(kv_bytes_per_token)                                                                          \
    X(n_images)                                                                                    \
    X(n_audio)                                                                                     \
    X(n_blocks)                                                                                    \
    X(body_bytes)                                                                                  \
    X(priority)                                                                                    \
    X(bytes_per_token)                                                                             \
    X(expected_output)                                                                             \
    X(slo_ttft_ns)                                                                                 \
    X(slo_tpot_ns)

/** One candidate as the pick saw it. */
struct sched_record_row {
    struct sched_row row;
    struct sched_work work; /**< zero unless sched_record.works */
    uint64_t weight;        /**< millionths */
    uint64_t hash;          /**< of the address */
    int64_t credit;         /**< in the rotation, before the pick */
    struct {
        uint32_t rif, us, uses, age_ms;
    } probe; /**< prequal's, before the pick; uses 0: none */
    uint32_t slot, generation;
    uint32_t limit;      /**< max_concurrency */
    uint32_t context;    /**< of the model there; 0 = unknown */
    uint32_t tasks;      /**< enum task bits; 0 = any */
    uint32_t hit_blocks; /**< leading blocks of the prompt believed to be there */
    bool serves;         /**< it has the model in the version asked for, ready */
    struct slice id;     /**< points into the record's text */
};

/** Fill by sched_record_new(). */
struct sched_record {
    const struct mem *mem;
    uint32_t cap;     /**< rows there is room for */
    bool captured;    /**< a pick was made since the record was armed */
    bool works;       /**< the policy read work */
    bool explained;   /**< why[] is filled */
    uint32_t members; /**< of the pool; above n the record is cut and cannot be replayed */
    uint32_t n;
    struct features
        features; /**< texts point into the record's; tenant, region and class are left out */
    uint64_t blocks[SCHED_RECORD_BLOCKS]; /**< names of the prompt's first blocks */
    uint32_t n_blocks;                    /**< kept; features.n_blocks says how many there were */
    uint64_t tenant;                      /**< hash of the tenant; 0 = none */
    bool
        version_unknown; /**< a version was asked for that no candidate has: its text is not kept */
    struct slice pool_model;     /**< sched_view.model */
    const struct policy *policy; /**< borrowed */
    uint64_t seed;
    uint32_t last_slot; /**< of round_robin, before the pick */
    bool any_last;
    struct sched_exclude exclude;
    struct decision decision; /**< row is an index into rows */
    struct sched_record_row *rows;
    struct explain_row *why; /**< beside the rows */
    char *text;
    size_t text_n, text_cap;
};

/** @param cap most rows. @return 0 or WEIR_E_NOMEM. */
int sched_record_new(const struct mem *mem, uint32_t cap, struct sched_record **out) MUST_CHECK;
/** NULL is allowed. */
void sched_record_free(struct sched_record *r);

/** Was the whole pool kept, so that it can be replayed? */
static inline bool sched_record_whole(const struct sched_record *r)
{
    return r->captured && r->n == r->members;
}

/** How a rejection is called; NULL for REJECT_NONE. */
const char *sched_rejection_code(enum rejection r);

/** Members of a JSON object (without braces) that hold the decision and all it was made from. */
int sched_record_put(struct buf *out, const struct sched_record *r);

/** For people: members of a JSON object with every endpoint, the rule that dropped it in words, or its terms. */
int sched_record_explain(struct buf *out, const struct sched_record *r);

/** One JSON object of at most `max` bytes (512 or more): the choice first, then as many endpoints as there is room for. */
int sched_record_brief(struct buf *out, const struct sched_record *r, size_t max);

/**
 * Decide again from the record alone. @param why NULL, or r->n rows.
 * @return 0; WEIR_E_UNSUPPORTED when the record is cut; WEIR_E_NOMEM.
 */
int sched_replay(const struct sched_record *r,
                 const struct mem *mem,
                 struct decision *out,
                 struct explain_row *why) MUST_CHECK;

#endif /* WEIR_SCHED_RECORD_H */
