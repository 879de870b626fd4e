/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The rows of one pool, kept from pick to pick. A cell says when it changed (cell_changed()), so that a pick reads
 * again only the few that did, and those whose numbers depend on the time. What stands here then is what
 * sched_rows_fill(), sched_work_fill() and sched_work_request() would fill in. Private to the room.
 */
#ifndef WEIR_SCHED_MIRROR_H
#define WEIR_SCHED_MIRROR_H

#include "sched/pick.h"
#include "sched/work.h"

enum { SCHED_FLAG_BITS = 14 /**< of enum sched_flag */ };

/**
 * Above so many candidates the slowest numbers of a row, what was computed there lately (half is forgotten in minutes) and
 * the fading of what was learned (half in 30 s), may be SCHED_LAG_NS old: each row is filled once in that time.
 */
enum { SCHED_EXACT_ROWS = 128 };
#define SCHED_LAG_NS (250 * NS_PER_MS)

/** Of so many rows the numbers for sched/quick.c stand together, each kind in a row. */
enum { SCHED_LANES = 4 };
/** In microseconds and tokens. */
struct sched_lanes {
    float fixed[SCHED_LANES];
    float per_token[SCHED_LANES];
    float trust[SCHED_LANES];
    float step[SCHED_LANES];        /**< of decoding, with the context that is there */
    float per_context[SCHED_LANES]; /**< more per token */
    float decoding[SCHED_LANES];
    float until[SCHED_LANES]; /**< what others have waiting there added, as to the least */
    float least[SCHED_LANES];
    float mine[SCHED_LANES]; /**< the part of it that counts when it is above the others' */
    float slack[SCHED_LANES];
};
struct sched_columns {
    struct sched_lanes *lanes;
    float *low, *high; /**< bounds of the cost */
    float *gone;       /**< more than any cost where a filter dropped the row, else 0 */
    uint64_t *mine_us;
    uint64_t sum_us;  /**< of mine_us */
    uint64_t base_ns; /**< until counts from here */
    uint32_t n;       /**< room, a multiple of SCHED_LANES */
    bool any_gone;
};

/** Costs that depend on nothing but candidate and row, as of the row's last filling; for sched/steady.c. */
struct sched_costs {
    struct sched_cost *costs;
    float *about;   /**< the same as one number, some 2^-22 of it wrong; below 0: not known yet */
    uint32_t *todo; /**< those */
    uint32_t n_todo;
};

/** What the work of a row that depends on the time is made from. */
struct sched_still {
    uint64_t until_ns; /**< 0 = nothing of ours is there */
    uint64_t least_us;
    uint64_t recent_tokens, recent_at_ns;
    uint32_t recent;       /**< tokens, when the row was filled */
    uint64_t speed_due_ns; /**< from then on the speed depends on the time */
};

struct sched_mirror {
    const struct mem *mem;
    const struct sched_candidate *candidates; /**< borrowed */
    uint32_t n;
    bool stale;    /**< nothing of it is filled */
    bool peaks;    /**< the speeds' peaks are read, which fall all the time */
    uint32_t kind; /**< enum sched_kind of the speeds */
    struct sched_row *rows;
    struct sched_work *work;           /**< NULL: not read */
    struct sched_still *still;         /**< beside the work */
    struct sched_prefix_group *groups; /**< of all candidates */
    uint32_t n_groups;
    uint32_t *hits; /**< beside the work: prefix blocks */
    const atomic_uint **changes;
    uint32_t *seen;   /**< the cell's changes when the row was filled */
    uint64_t *due_ns; /**< when it has to be filled again without a change */
    uint64_t next_due_ns;
    struct sched_columns *columns; /**< NULL: not kept */
    struct sched_costs costs;      /**< its pointers are NULL: not kept */
    uint32_t aged;                 /**< the next row to fill because of its age */
    uint64_t aged_ns;
    uint32_t counts[SCHED_FLAG_BITS]; /**< rows with this flag */
    struct sched_common common;       /**< by them */
};

/** What is kept, because picks will read it. */
struct sched_mirror_use {
    bool work;
    bool peaks;  /**< of that, sched_speed.first_byte_us */
    bool quick;  /**< of many rows, columns for sched_quick_pick() */
    bool steady; /**< costs for sched_steady_pick() */
};

/** @param c candidates of the pool, borrowed. @return 0 or WEIR_E_NOMEM. */
int sched_mirror_new(const struct mem *mem,
                     const struct sched_candidate *c,
                     uint32_t n,
                     struct sched_mirror_use use,
                     struct sched_mirror **out) MUST_CHECK;
/** NULL is allowed. */
void sched_mirror_free(struct sched_mirror *m);

/** Bring rows, and of the work what is the same for every request but not the time, to now. Cost: a word for each
 * candidate, some cache lines for those that changed. */
struct sched_common sched_mirror_refresh(struct sched_mirror *m, uint64_t now_ns);

/** One row again, whatever it says of itself; its ramp stays. */
struct sched_common sched_mirror_row(struct sched_mirror *m, uint32_t i, uint64_t now_ns);

/** Fill what depends on the time and on the request. */
void sched_mirror_request(struct sched_mirror *m,
                          struct sched_lore *l,
                          const struct features *f,
                          uint64_t now_ns);

/** The same of one row, as of its last filling; sched_mirror_kind() was called. @param blocks hits. @param per tokens a block. */
void sched_mirror_work(struct sched_mirror *m,
                       const struct features *f,
                       uint32_t i,
                       uint32_t blocks,
                       uint64_t per,
                       uint64_t now_ns);

/** Speeds are those of this kind of requests from now on. */
void sched_mirror_kind(struct sched_mirror *m, enum sched_kind kind, uint64_t now_ns);

/** Hits of each row, in blocks; NULL when nothing is known. */
const uint32_t *
sched_mirror_hits(struct sched_mirror *m, struct sched_lore *l, const struct features *f);

#endif /* WEIR_SCHED_MIRROR_H */
