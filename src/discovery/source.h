/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file What every source of endpoints shares: the last good lists, when somebody who left a list is let go, saved state,
 * counters. An adapter (nacos.c, consul.c, ...) owns a source, declares one list per service that it looks up, starts it,
 * and says what it hears; the source tells the fleet what changed. Thread: the control loop.
 *
 * Whole answers: source_list_begin(), source_list_put() for each instance, source_list_end(). An answer that turns out
 * bad before its end: source_list_abandon(); nothing was lost. Events, one or several at once: source_list_resume(), source_list_put(), source_list_miss(), source_list_end().
 *
 * Mass removal: an answer without hold_percent of those that were there (100: an empty one) is not believed at once. Who is
 * missing stays while our own checks pass, at most `grace`; whoever fails them goes at once. A list that is suddenly partial
 * is no removal: source_list_partial().
 */
#ifndef WEIR_DISCOVERY_SOURCE_H
#define WEIR_DISCOVERY_SOURCE_H

#include "base/arena.h"
#include "base/list.h"
#include "base/map.h"
#include "loop/statefile.h"
#include "model/update_t.h"

enum { SOURCE_LISTS_MAX = 256, SOURCE_WHY_MAX = 256 };

struct source_options {
    struct loop *loop;
    const struct update_sink *sink; /**< borrowed */
    uint16_t index;                 /**< of the source in the sink */
    const char *name;               /**< in logs and metrics; borrowed */
    const char *state_file;         /**< NULL: lists are not saved; borrowed */
    bool whole;                     /**< instances are kept whole even without a state file */
    uint64_t grace_ns;              /**< 0: every removal is believed at once */
    uint32_t hold_percent;          /**< 1 .. 100; 0 = 100 */
    /** Do our own checks of this address pass now? NULL: they do not. */
    bool (*passing)(void *ctx, bool tls, struct slice host, uint16_t port);
    void *ctx;
};

/** What metrics show. */
struct source_stats {
    bool up;                  /**< the last answer was good */
    uint64_t answers, errors; /**< since the start */
    uint64_t refused;         /**< instances that the fleet did not take */
    uint64_t good_ns;         /**< of the last good answer, monotonic; 0 = none yet */
    uint32_t n;               /**< instances */
    uint32_t n_leaving;       /**< of them held although the source no longer lists them */
    uint32_t n_partial; /**< lists of which the server shows a part: see source_list_partial() */
    char why[SOURCE_WHY_MAX]; /**< of the last error while not up */
};

struct source {
    struct source_options o;
    struct source_stats stats;
    struct statefile file;
    struct list lists;
    struct loop_timer check; /**< who is leaving: still passing, grace over? */
    uint64_t logged_ns;      /**< last line about an error */
    bool synced, silent, started;
};

/** One list of a source, as of one service. Embed it; must not move. */
struct source_list {
    struct list node;
    struct source *source;
    struct slice name;  /**< borrowed: in the state file, and in front of every key */
    struct map held;    /**< key to instance as last told */
    struct list missed; /**< of the answer under way */
    uint32_t n_leaving;
    uint32_t round;
    bool in_round, resumed;
    bool answered; /**< since the start */
    bool partial;  /**< the last answer was */
    bool narrowed; /**< the answer under way is the first that is partial */
};

void source_init(struct source *s, const struct source_options *o);
/** @param name unique in the source; borrowed. At most SOURCE_LISTS_MAX. */
void source_list_init(struct source_list *l, struct source *s, struct slice name);
/** Once all lists are there: what the state file has comes back in probation, and with that the source has synced. */
void source_start(struct source *s);
/** What is in lists of the same name moves over, before source_start(): the sink hears nothing. `from` keeps the others. */
void source_adopt(struct source *to, struct source *from);
/** The fleet is told to forget all its instances, lists first. Saves what is not saved. */
void source_list_fini(struct source_list *l);
void source_fini(struct source *s);

void source_list_begin(struct source_list *l);
/**
 * One instance as the source describes it; copied. instance.key is the adapter's, unique in the list; it goes to the
 * sink as "name key".
 * @return 0, WEIR_E_NOMEM, or what the sink said; then what was known stays. Cost: O(text); the sink is only told of changes.
 */
int source_list_put(struct source_list *l, const struct instance *instance) MUST_CHECK;
/** In an answer: it is listed, but what is said of it cannot be read. What was known of it stays. */
void source_list_keep(struct source_list *l, struct slice key);
/** An answer that begins as the one before: events follow. Nobody but who they name is looked at. */
void source_list_resume(struct source_list *l);
/** In an answer: it is listed no more. Unknown keys are ignored. */
void source_list_miss(struct source_list *l, struct slice key);
/**
 * In an answer: does its server say that it left out what we may not see? Who is missing from the first such answer may be
 * hidden and not gone, and stays while it passes our checks, until an answer is complete again. From then on, who leaves
 * what is still shown has left.
 */
void source_list_partial(struct source_list *l, bool partial);
/** The answer was whole: who was not put is removed, by the rule above. Counts as a good answer. */
void source_list_end(struct source_list *l);
void source_list_abandon(struct source_list *l);
/** The answer was word for word the one before. */
void source_list_same(struct source_list *l);

/** A good word without news (a watch that lives). */
void source_ok(struct source *s);
/** It cannot be asked, or answers nonsense. Lists stay as they are; loads told by metadata are stale until it answers again. */
void source_failed(struct source *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif /* WEIR_DISCOVERY_SOURCE_H */
