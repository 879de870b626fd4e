/* SPDX-License-Identifier: Apache-2.0 */
/** @file pick(features, rows, state, seed): the pure decision, replayable from its arguments. */
#ifndef WEIR_SCHED_PICK_H
#define WEIR_SCHED_PICK_H

#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"
#include "model/decision_t.h"
#include "model/features_t.h"
#include "model/policy_t.h"
#include "sched/row.h"
#include "sched/work.h"

enum { SCHED_EXCLUDE_MAX = 8, SCHED_ROWS_MAX = 4096 /**< most members of one pool */ };

/** Endpoints that were tried already. */
struct sched_exclude {
    uint32_t n;
    struct {
        uint32_t slot, generation;
    } tried[SCHED_EXCLUDE_MAX];
};

/** The last share computed for a row and from which utilization: reports are rare, picks are not. */
struct sched_memo {
    uint64_t share;
    uint32_t key; /**< 0 = none; utilization + 1, or SCHED_MEMO_UNKNOWN */
};
enum { SCHED_MEMO_UNKNOWN = 1 << 16 };

/** What a pick is made from. Rows stand beside their candidates. */
struct sched_view {
    const struct policy *policy;
    const struct features *features;
    const struct sched_candidate *candidates;
    const struct sched_row *rows;
    const struct sched_work *work; /**< beside the rows; NULL unless the policy reads work */
    uint32_t n;
    struct slice model; /**< present: every candidate's `model` is the one of this name */
    struct sched_memo
        *memo; /**< beside the rows, zeroed when policy or candidates change; may be NULL */
    uint64_t shortest_context; /**< no candidate's context is below this; 0 = not known */
    uint64_t
        least_total_bytes; /**< every endpoint is known to have at least so much; 0 = not known */
    uint32_t common_tasks; /**< tasks that every candidate's endpoint does; 0 = not known */
    bool any_loading;      /**< some candidate's engine says that its model is still being loaded */
    struct sched_common common; /**< of the rows; any == 0: not known, sched_pick() looks */
    uint64_t now_ns;            /**< for a pick that keeps probes */
    const struct sched_prefix_ask
        *hits; /**< beside the rows, for records; NULL: nobody was asked */
    /* filled by sched_pick() */
    struct sched_need need;
};

/** A cost as an exact fraction: equal costs are equal, however they came about. den > 0 is also the share of ties. */
struct sched_cost {
    uint64_t num, den;
};

static inline bool sched_cost_less(struct sched_cost a, struct sched_cost b)
{
    if (a.den == b.den)
        return a.num < b.num;
    return (unsigned __int128)a.num * b.den < (unsigned __int128)b.num * a.den;
}

/**
 * Tables of plugins, for conf (names to indexes) and explain (indexes to names). A plugin works on the whole list of
 * remaining rows at once: fit[] holds their indexes, rising.
 */
struct sched_filter {
    const char *name;
    const char *why; /**< words for explain: what it means to be dropped by it */
    bool passes;     /**< what it drops may fit later: the request waits instead of being refused */
    bool capacity;   /**< it is about being full */
    bool reads_body; /**< it looks at the size of the prompt */
    /** Keep those that pass, in order, in fit[]. @return how many. */
    uint32_t (*keep)(const struct sched_view *v, uint32_t *fit, uint32_t n);
};
struct sched_score {
    const char *name;
    uint64_t unit; /**< num x unit / den is the cost in its natural unit; below 2^48 */
    bool reads_body;
    bool reads_work; /**< it looks at view.work, so at prefix hits too */
    bool reads_peak; /**< of that at speed.first_byte_us, which falls all the time */
    bool steady;     /**< it looks at nothing but each candidate and row by themselves */
    /** costs[i] is of row fit[i]. */
    void (*cost)(const struct sched_view *v,
                 const uint32_t *fit,
                 uint32_t n,
                 struct sched_cost *costs);
};
struct sched_state;
struct sched_picker {
    const char *name;
    bool reads_work;
    bool reads_peak;
    bool needs_table;  /**< of maglev, made when members change */
    bool needs_ring;   /**< of prefix_hash, likewise */
    bool needs_probes; /**< it keeps answers to probes, and asks what time it is */
    bool reads_prefix_key;
    bool draws_two; /**< compares two only, so that even the cheapest is chosen at most so often */
    /** @param n above 0. @return index into fit. May move the state on. */
    uint32_t (*pick)(const struct sched_view *v,
                     const uint32_t *fit,
                     uint32_t n,
                     const struct sched_cost *costs,
                     struct sched_state *state,
                     uint64_t seed);
};
extern const struct sched_filter sched_filters[];
extern const uint32_t sched_n_filters;
extern const struct sched_score sched_scores[];
extern const uint32_t sched_n_scores;
extern const struct sched_picker sched_pickers[];
extern const uint32_t sched_n_pickers;

/** Fill a policy for one of the built-in names (chain, round_robin, ...) and its accepted synonyms. WEIR_E_NOTFOUND. */
int sched_policy_named(struct slice name, struct policy *out) MUST_CHECK;
/** The i-th built-in name, for "nearest known" hints; NULL past the end. Synonyms are not listed. */
const char *sched_policy_name(uint32_t i);
/** Stay in this place while somebody there fits: filter locality behind those that say who fits, unless it stands in the
 * list already. Seal the policy afterwards. Texts are borrowed. */
void sched_policy_stay(struct policy *p, const struct place *place);
/** Does it go by where endpoints are? */
bool sched_policy_stays(const struct policy *p);
/** Recompute policy.hash after a change. */
void sched_policy_seal(struct policy *p);
/** Does the policy read anything from the body beyond the model (the size of the prompt)? */
bool sched_policy_reads_body(const struct policy *p);

/** Does it look at work in seconds, prefix hits and sessions (sched/work.h)? */
bool sched_policy_reads_work(const struct policy *p);
/** Does it look at the peaks of first bytes? */
bool sched_policy_reads_peaks(const struct policy *p);

/** Does its pick go by features.prefix_key? */
static inline bool sched_policy_reads_prefix_key(const struct policy *p)
{
    return sched_pickers[p->pick].reads_prefix_key;
}

/** Rotation of one pool, and maglev's table; survives snapshots for the endpoints that stay. */
int sched_state_new(const struct mem *mem, struct sched_state **out) MUST_CHECK;
void sched_state_free(struct sched_state *s);
/** Which policy the state is for: the next sched_state_members() makes what its pick needs. */
void sched_state_policy(struct sched_state *s, const struct policy *p);
/**
 * The pool's members changed. Allocates; cost O(members). Credit of those that stay (slot and generation) is kept.
 * @param c sorted by slot. On failure nothing changed.
 */
int sched_state_members(struct sched_state *s,
                        const struct sched_candidate *c,
                        uint32_t n) MUST_CHECK;

struct sched_record;

/** Work space of one pick, one per thread; about 140 bytes a row. Zeroed = empty. */
struct sched_scratch {
    struct sched_row *rows;
    uint32_t *fit;
    struct sched_cost *costs;
    struct sched_work *work;
    struct sched_prefix_ask *ask;
    uint32_t *hits;
    uint32_t cap;
    struct sched_common common; /**< of rows, when the pool filled them */
    bool mirrored; /**< rows and work of the present pick are those that the pool keeps */
    struct sched_record *record; /**< borrowed: the pool's picks are captured there; NULL = not */
};
/** Room for at least n rows. On failure what was there stays. */
int sched_scratch_reserve(struct sched_scratch *s, const struct mem *mem, uint32_t n) MUST_CHECK;
void sched_scratch_fini(struct sched_scratch *s, const struct mem *mem);

/**
 * Filter, score, pick. Pure but for `state` (rotation), which it moves on only when somebody was chosen.
 * @param v its rows may be scratch->rows. need is filled here.
 * @param exclude may be NULL.
 * @param why NULL, or v->n explain rows to fill.
 * Thread: whoever holds the pool's lock. Cost: O(n), no allocation.
 */
void sched_pick(struct sched_view *v,
                const struct sched_exclude *exclude,
                struct sched_state *state,
                uint64_t seed,
                struct sched_scratch *scratch,
                struct decision *out,
                struct explain_row *why);

/** Would sched_pick() choose somebody? Moves nothing. */
bool sched_fits(struct sched_view *v,
                const struct sched_exclude *exclude,
                struct sched_scratch *scratch);

#endif /* WEIR_SCHED_PICK_H */
