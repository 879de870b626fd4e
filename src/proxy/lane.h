/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Inside the room: the proxy as a whole, one lane per data loop, and the pools they share.
 * A lane belongs to its loop's thread. What other threads read of it is atomic and written by that thread alone.
 */
#ifndef WEIR_PROXY_LANE_H
#define WEIR_PROXY_LANE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/map.h"
#include "base/prng.h"
#include "loop/alloc.h"
#include "net/listener.h"
#include "net/resolve.h"
#include "proxy/plan.h"
#include "proxy/proxy.h"
#include "proxy/retry.h"
#include "proxy/stats_t.h"
#include "sched/pool.h"
#include "wire/http1.h"

enum {
    LISTENER_PLACES = 2 * PROXY_LISTENERS_MAX, /* those of two configurations */
    LANE_SPARE_BUFS = 64,                      /* recycled buffers kept per lane */
    LANE_SPARE_BYTES = 65536,                  /* larger ones are freed */
    LANE_FREE_MAX = 1024,                      /* recycled structs kept per kind */
    POOLS_MAX = 16384,
    UPSTREAM_IDLE_MAX =
        512, /* idle connections per endpoint and lane; age ends most of them sooner */
    UPSTREAM_HEAD_MAX = 65536,    /* bytes of a worker's response head */
    REPLAY_MAX = 1 << 20,         /* body bytes kept for a retry */
    HIGH_WATER = 256 * 1024,      /* queued bytes above which the source is paused */
    HIGH_WATER_TIGHT = 16 * 1024, /* the same once the process is over its buffer budget */
};
#define SWEEP_NS (250 * NS_PER_MS)
/* Below uvicorn's keep-alive of 5 s by more than one sweep, so the worker is never the first to close. */
#define UPSTREAM_IDLE_NS (4 * NS_PER_S)

/** Whoever asks the scheduler: a lane, or the control thread. */
struct asker {
    struct proxy *proxy;
    struct sched_scratch scratch;
    struct prng prng;
    _Atomic(const struct snapshot *)
        pool_hazard;             /**< protects the snapshot used under a pool's lock */
    uint32_t turn;               /**< which pool is offered room first */
    const struct snapshot *snap; /**< of this turn; NULL for the control thread */
    struct sched_record *record; /**< room for a decision that somebody wants to know */
    bool sampled;                /**< the armed decision is for the log */
};

/** One model on one route. Never freed before the proxy; model and track never change. */
struct pool {
    pthread_mutex_t lock; /**< around every sched_pool_* call, and nothing else */
    struct sched_pool *sched;
    const struct track *track;
    struct policy_copy *policy; /**< owned; what sched uses. Under lock */
    struct kv *labels;          /**< owned; members have all of them */
    struct route_queue queue;   /**< as configured; control thread */
    struct slice model;         /**< owned text */
    atomic_ullong kv_bytes_per_token;
    uint32_t series;              /**< index of its counters */
    bool listed;                  /**< counted in proxy.n_waiting; under lock */
    bool usable;                  /**< the last refresh worked; under lock */
    uint64_t seq;                 /**< snapshot its members are from; under lock */
    atomic_uint waiting, members; /**< for metrics and early refusals */
    atomic_uint retry_after_s;    /**< for those that find the queue full */
};

struct lane {
    struct proxy *proxy;
    struct loop *loop;
    unsigned index;
    struct asker asker;
    _Atomic(const struct snapshot *) hazard; /**< the snapshot of this turn; NULL while waiting */
    struct lane_listener {
        struct net_listener net;
        struct lane *lane;
        int fd; /**< bound, not watched yet; -1 = none */
    } listeners[LISTENER_PLACES];
    struct resolver *resolver;
    struct map *pools;     /**< per track: model -> struct pool, this lane's view of track.pools */
    uint32_t n_pools;      /**< tracks in it */
    struct list clients;   /**< open connections */
    struct list exchanges; /**< under way */
    struct list orphans;   /**< ended, grant still under way */
    struct list targets;   /**< endpoints this lane has talked to */
    struct target **by_slot; /**< newest target of each slot */
    uint32_t n_slots;
    uint64_t swept_seq; /**< snapshot the targets were last compared with */
    struct list dead_clients, dead_exchanges,
        dead_upstreams; /**< buried this turn, reusable after it */
    struct list free_clients, free_exchanges, free_upstreams;
    unsigned n_free_clients, n_free_exchanges, n_free_upstreams;
    struct buf spare[LANE_SPARE_BUFS];
    unsigned n_spare;
    struct list scans;      /**< recycled body scanners */
    struct buf out;         /**< a head or answer under construction */
    struct http1_head head; /**< the head being handled; valid inside one callback */
    struct loop_timer sweep;
    struct retry_budget retry;
    struct lane_stats stats;
    struct buf log;     /**< access log lines not written yet */
    uint32_t decisions; /**< for sampling their duration */
    struct loop_job drain_job;
    bool draining, drained;
    uint64_t drain_deadline_ns;
};

struct decision_log;

struct proxy {
    const struct mem *mem;
    struct decision_log *decisions;
    _Atomic(struct plan *) plan; /**< in use */
    struct list left;            /**< plans that were, newest first; control thread */
    struct loop *control;
    struct listen_place {
        struct net_addr asked; /**< as configured; len 0 = a free place */
        struct net_addr bound;
        struct net_unix_file file;
        struct net_tls_slot tls; /**< empty = plain */
        bool closing;            /**< lanes are leaving it */
    } listen[LISTENER_PLACES];   /**< control thread; a place has the same number in each lane */
    struct net_tls_slot *upstream_tls;
    char hop_id[PROXY_HOP_ID_MAX];
    struct slice hop;
    atomic_int access_fd;   /**< -1 = none yet; set before a plan writes there, and never closed */
    atomic_bool access_cut; /**< that file ends in half a line */
    _Atomic(const struct snapshot *) snapshot;
    struct asker control_asker;

    pthread_mutex_t pools_lock; /**< all pools and tracks, but for what a lane has seen of them */
    struct track **tracks;
    uint32_t n_tracks;
    struct pool **pool_list;
    uint32_t n_pools;
    uint32_t n_series;             /**< given out; 0 = of requests without a route */
    _Atomic uint32_t n_pools_seen; /**< pool_list up to here may be read without the lock */

    struct tenant_account **accounts; /**< the first one is of those not listed */
    uint32_t n_accounts;              /**< of the control thread, as the list is */

    atomic_uint n_waiting; /**< pools with waiters */

    atomic_uint lanes_draining;
    struct loop_job drained_job;
    void (*drained)(void *ctx);
    void *drained_ctx;

    struct fetcher *fetcher;           /**< NULL = nothing is interrupted; control thread */
    const struct fetch_tls *fetch_tls; /**< control thread */
    pthread_mutex_t interrupts_lock;   /**< around interrupts */
    struct list interrupts;            /**< see interrupt.c */

    struct sched_lore *lore; /**< what is learned, shared by all pools */
    void *lore_pages;        /**< its memory */
    size_t lore_bytes;
    bool closing; /**< proxy_free() is at work: grant nothing */
    unsigned n_lanes;
    struct lane *lanes;
};

/* proxy.c */
/** Buffers without malloc in the steady state: take an empty one with memory, give it back when its content is done. */
void lane_buf_take(struct lane *l, struct buf *b, size_t max);
void lane_buf_give(struct lane *l, struct buf *b);
/** Bytes of request bodies and unsent answers held, all lanes. */
uint64_t proxy_buffered(const struct proxy *p);
static inline bool proxy_over_budget(const struct proxy *p)
{
    uint64_t max = plan_now(p)->routing->limits.buffer_bytes;
    return max && proxy_buffered(p) > max;
}
/** Client connections open now, all lanes. */
uint64_t proxy_connections(const struct proxy *p);

/* doors.c */
/** Bind what is new of n addresses; the bits of places to open and to close. @param bound out, len 0 from the first
 * that failed on. WEIR_E_IO (errno), WEIR_E_FULL (lanes are still closing others): nothing is open. Control thread. */
int doors_open(struct proxy *p,
               const struct net_listen_at *want,
               unsigned n,
               struct net_addr *bound,
               uint64_t *opened,
               uint64_t *closed) MUST_CHECK;
void doors_undo(struct proxy *p, uint64_t opened);
/** Have the places of these addresses, which are open, speak their TLS from now on. Control thread. */
void doors_tls(struct proxy *p, const struct net_listen_at *want, unsigned n);
void doors_init(struct proxy *p);
/** Lanes have stopped. */
void doors_fini(struct proxy *p);
/** Lanes are leaving these places; they have left them. Control thread. */
void doors_closing(struct proxy *p, uint64_t closed);
void doors_gone(struct proxy *p, uint64_t closed);
/** Accept at the opened places, no longer at the closed ones. The lane's thread, or before it runs. */
int doors_pass(struct lane *l, uint64_t opened, uint64_t closed);
void doors_stop(struct lane *l);

/* reload.c */
/** Within what the data plane can carry? */
bool proxy_routing_ok(const struct routing *r);

/* pools.c */
/** The pool of a known model; NULL with *why when there is none and none may be made. */
struct pool *pool_get(struct lane *l,
                      const struct plan *n,
                      const struct route *r,
                      struct slice model,
                      enum rejection *why);
/** The same, if this lane has used it before; else NULL. */
struct pool *pool_known(const struct lane *l, const struct track *t, struct slice model);
/** Lock it, with its members as new as the published snapshot. @return false (not locked) without memory or snapshot. */
bool pool_enter(struct asker *a, struct pool *p) MUST_CHECK;
/** Unlock; makes known whether somebody waits. */
void pool_leave(struct asker *a, struct pool *p);
/** The newest published snapshot, safe from reclaim until asker_done(); for use outside a pool's lock too. */
const struct snapshot *asker_newest(struct asker *a);
void asker_done(struct asker *a);
void pools_free(struct proxy *p);

/* access_log.c */
void access_log_flush(struct lane *l);

#endif /* WEIR_PROXY_LANE_H */
