/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The rows of one pool, kept from pick to pick. A cell says when it changed (cell_changed()), so that a pick reads
 * again only the few that did, and those whose numbers depend on the time. What stands here then is what
 * sched_rows_fill(), sched_work_fill() and sched_work_request() would fill in. Private to the room.
 */
#ifndef WEIR_SCHED_MIRROR_H
#define WEIR_SCHED_MIRROR_H

#include "sched/work.h"

enum { SCHED_FLAG_BITS = 14 /**< of enum sched_flag */ };

/**
 * Above so many candidates the slowest numbers of a row, what was computed there lately (half is forgotten in minutes) and
 * the fading of what was learned (half in 30 s), may be SCHED_LAG_NS old: each row is filled once in that time.
 */
enum { SCHED_EXACT_ROWS = 128 };
#define SCHED_LAG_NS (250 * NS_PER_MS)

/** Numbers for sched/quick.c, each beside the rows, whose number is rounded up to fours. In microseconds and tokens. */
#define SCHED_COLUMNS(X)                                                                           \
    X(fixed)                                                                                       \
    X(per_token)                                                                                   \
    X(trust)                                                                                       \
    X(step)                                                                                        \
    X(per_context)                                                                                 \
    X(context)                                                                                     \
    X(decoding)                                                                                    \
    X(until)                                                                                       \
    X(least)                                                                                       \
    X(foreign)                                                                                     \
    X(mine)                                                                                        \
    X(slack)
struct sched_columns {
#define FIELD(name) float *name;
    SCHED_COLUMNS(FIELD)
#undef FIELD
    int32_t *low, *high; /**< of the cost, in steps */
    uint64_t *mine_us;
    uint64_t sum_us;  /**< of mine_us */
    uint64_t base_ns; /**< until counts from here */
    uint32_t n;       /**< room, a multiple of 4 */
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
    uint32_t aged;                 /**< the next row to fill because of its age */
    uint64_t aged_ns;
    uint32_t counts[SCHED_FLAG_BITS]; /**< rows with this flag */
    struct sched_common common;       /**< by them */
};

/**
 * @param c candidates of the pool, borrowed. @param work the policy reads work. @param peaks it reads
 * sched_speed.first_byte_us. @param quick sched_quick_pick() will be asked, so keep columns. @return 0 or WEIR_E_NOMEM.
 */
int sched_mirror_new(const struct mem *mem,
                     const struct sched_candidate *c,
                     uint32_t n,
                     bool work,
                     bool peaks,
                     bool quick,
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
