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

/** Tables of plugins, for conf (names to indexes) and explain (indexes to names). */
struct sched_filter {
    const char *name;
    const char *why; /**< words for explain: what it means to be dropped by it */
    bool (*keep)(const struct policy *p, const struct features *f, const struct sched_row *r);
};
struct sched_score {
    const char *name;
    /** Cost, Q16.16, saturating; lower is better. */
    uint64_t (*cost)(const struct policy *p, const struct features *f, const struct sched_row *r);
};
struct sched_state;
struct sched_picker {
    const char *name;
    /** @param rows, costs of the n_fit candidates named by fit[] (indexes). @return index into rows. */
    uint32_t (*pick)(const struct policy *p, const struct features *f, const struct sched_row *rows,
                     const uint32_t *fit, uint32_t n_fit, const uint64_t *costs, struct sched_state *state, uint64_t seed);
};
extern const struct sched_filter sched_filters[];
extern const uint32_t sched_n_filters;
extern const struct sched_score sched_scores[];
extern const uint32_t sched_n_scores;
extern const struct sched_picker sched_pickers[];
extern const uint32_t sched_n_pickers;

/** Fill a policy for one of the built-in names (chain, round_robin, ...) and its accepted synonyms. WEIR_E_NOTFOUND. */
int sched_policy_named(struct slice name, struct policy *out) MUST_CHECK;
/** Recompute policy.hash after a change. */
void sched_policy_seal(struct policy *p);
/** Does the policy read anything from the body beyond the model (prompt size, session from body fields)? */
bool sched_policy_reads_body(const struct policy *p);

/** Rotation and ring of one pool; survives snapshots for the endpoints that stay. */
int sched_state_new(const struct mem *mem, struct sched_state **out) MUST_CHECK;
void sched_state_free(struct sched_state *s);
/** The pool's members changed. Allocates; cost O(members). Per-endpoint credit of those that stay is kept. */
int sched_state_members(struct sched_state *s, const struct policy *p, const struct member *members,
                        const uint32_t *indexes, uint32_t n) MUST_CHECK;

/** Endpoints that were tried already. */
enum { SCHED_EXCLUDE_MAX = 8 };
struct sched_exclude {
    uint32_t n;
    struct {
        uint32_t slot, generation;
    } tried[SCHED_EXCLUDE_MAX];
};

enum { SCHED_ROWS_MAX = 4096 };

/** Work space of one pick, one per thread; about 24 bytes a row. */
struct sched_scratch {
    struct sched_row *rows;
    uint32_t *fit;
    uint64_t *costs;
    uint32_t cap;
};

/**
 * Filter, score, pick. Pure but for `state` (rotation), which it moves on only when somebody was chosen.
 * @param exclude may be NULL.
 * @param why NULL, or n explain rows to fill.
 * Thread: whoever holds the pool's lock. Cost: O(n), no allocation.
 */
void sched_pick(const struct policy *p, const struct features *f, const struct sched_row *rows, uint32_t n,
                const struct sched_exclude *exclude, struct sched_state *state, uint64_t seed, struct sched_scratch *scratch,
                struct decision *out, struct explain_row *why);

#endif /* WEIR_SCHED_PICK_H */
