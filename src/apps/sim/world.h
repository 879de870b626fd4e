/* SPDX-License-Identifier: Apache-2.0 */
/** @file The inside of a run. */
#ifndef WEIR_APPS_SIM_WORLD_H
#define WEIR_APPS_SIM_WORLD_H

#include "apps/sim/run.h"
#include "base/list.h"
#include "des/draw.h"
#include "des/queue.h"
#include "engine/engine.h"
#include "fleet/fleet.h"
#include "sched/pool.h"

/** The virtual clock starts here, not at 0, which means "none" in many places. */
#define SIM_EPOCH UINT64_C(1000000000)

/** Kinds of des_event. */
enum {
    EVENT_ENGINE,  /**< a worker's engine has something to do */
    EVENT_REPORT,  /**< a worker looks at itself and reports */
    EVENT_ARRIVAL, /**< of a report */
    EVENT_JOIN,    /**< of a worker */
    EVENT_TIMEOUT, /**< of a wait in the queue */
    EVENT_TICK,    /**< of the load map */
};

/** Uses of the seed: each has its stream. */
enum { STREAM_JITTER = 1, STREAM_PICK, STREAM_SIGNAL };

struct sim_worker {
    struct engine *engine;
    const struct sim_group *group;
    struct sim_worker_result *result;
    struct cell *cell; /**< NULL until it joined */
    struct list jobs;  /**< sent there and not ended */
    struct des_event engine_event, report_event, arrival_event, join_event;
    /* Reports on their way, a ring. */
    struct sample *travelling;
    uint64_t *arrives;
    uint32_t ring, first, n_travelling;
    uint64_t seq;
    bool joined;
    bool advancing;
};

/** A request between its arrival and its end. */
struct sim_job {
    struct engine_request request;
    struct features features;
    struct reservation reservation;
    struct sched_waiter waiter;
    struct des_event timeout;
    struct list node; /**< of worker.jobs, or of world.spare */
    struct sim_worker *worker;
    uint32_t index; /**< in the trace */
};

struct sim_world {
    const struct sim_options *o;
    const struct mem *mem;
    struct sim_result *result;
    struct des_queue queue;
    struct fleet *fleet;
    const struct snapshot *snapshot;
    struct sched_lore *lore;
    void *lore_memory; /**< owned, the block that lore_pages is cut from */
    struct sched_pool *pool;
    struct sched_scratch scratch;
    struct sim_worker *workers;
    uint32_t n_workers;
    struct sim_worker **by_slot;
    uint32_t n_slots;
    struct sim_job **slabs;
    uint32_t n_slabs;
    struct list spare;
    uint32_t n_jobs;    /**< places in the event queue are kept for so many */
    uint64_t *arrivals; /**< jittered and scaled, of each request; open loop */
    uint32_t *order;    /**< requests by arrival */
    uint32_t next;      /**< in order: the next to arrive */
    uint32_t live;      /**< arrived and not ended */
    uint32_t done;
    bool arrivals_over;
    bool offering;
    struct prng pick_prng, signal_prng;
    struct des_event tick;
    int rc; /**< sticky: out of memory */
};

/* world_signal.c */

/** Look at a worker and send its report on its way. */
void sim_signal_report(struct sim_world *w, struct sim_worker *k);
/** What comes with the registration: known at once, whatever becomes of reports. */
void sim_signal_first(struct sim_world *w, struct sim_worker *k);
/** Reports that are due arrive. */
void sim_signal_arrive(struct sim_world *w, struct sim_worker *k);
int sim_signal_init(struct sim_world *w, struct sim_worker *k) MUST_CHECK;

/* world.c, for run.c and world_signal.c */

int sim_world_init(struct sim_world *w,
                   const struct sim_options *o,
                   struct sim_result *r) MUST_CHECK;
void sim_world_fini(struct sim_world *w);
/** A worker joins, or the fleet is built for the first time. */
void sim_world_join(struct sim_world *w, struct sim_worker *k);
void sim_world_refresh(struct sim_world *w);

/* run.c */

/** A job for the request of this index; NULL: out of memory, noted in w->rc. */
struct sim_job *sim_run_job(struct sim_world *w, uint32_t index);

/** Room may have come: serve those who wait. */
void sim_run_offer(struct sim_world *w);
/** Let an engine live up to now, and set its next event. */
void sim_run_engine(struct sim_world *w, struct sim_worker *k);

#endif /* WEIR_APPS_SIM_WORLD_H */
