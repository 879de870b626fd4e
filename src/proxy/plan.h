/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Inside the room: one configuration as the data plane uses it (a plan), and what outlives it (tracks, pools).
 *
 * The plan in use is one atomic pointer. A lane loads it when a request begins and counts the request in plan.users;
 * the request keeps that plan to its end. Whoever uses a plan without a request (a connection between two of them)
 * loads the pointer anew in each callback. A plan that was left is freed once every lane has run the job that was
 * posted after the swap (nobody holds the old pointer from before) and no request of any lane counts on it.
 */
#ifndef WEIR_PROXY_PLAN_H
#define WEIR_PROXY_PLAN_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "loop/loop.h"
#include "model/route_t.h"
#include "sched/allowance.h"

struct lane;
struct pool;
struct proxy;
struct proxy_options;

enum {
    TRACKS_MAX = 8192,   /* different routes since the start */
    ACCOUNTS_MAX = 4096, /* tenants that metrics name at one time, and one for the others */
};

/** One route through all configurations that have it: its pools and counters. Never freed before the proxy. */
struct track {
    struct slice match; /**< what tells routes apart; owned text */
    uint32_t nth;       /**< of routes with the same match in one configuration */
    struct slice path;  /**< or its name, for metrics; owned text */
    struct map pools;   /**< model -> struct pool; under proxy.pools_lock */
    uint32_t index;     /**< in proxy.tracks and lane.pools */
    uint32_t series;    /**< of its counters */
};

/** Another name for a model. */
struct alias {
    struct slice name;
    const struct model_config *model;
};

/** What is known of a route beyond its configuration. */
struct plan_route {
    struct track *track;
    bool reads_body;       /**< its policy looks into the body beyond the model */
    bool reads_prefix_key; /**< its policy goes by the first characters of a prompt */
    bool reads_work;       /**< its policy counts work, so prefixes and sessions matter */
    bool uses_session;     /**< its policy picks by session */
};

/** Requests of one lane under a plan; written by that lane alone. A line for each. */
struct plan_users {
    atomic_uint n;
    char line[60];
};

/** Run by a lane once, when another plan has taken over. */
struct plan_leave {
    struct loop_job job;
    struct plan *plan; /**< the one that is left */
    struct lane *lane;
};

struct policy_copy;

/**
 * One name in the metrics: a tenant that some configuration named, or all others. It outlives the plans that name it, so
 * that its counts go on when it comes back, until its place is needed.
 */
struct tenant_account {
    struct slice name;               /**< owned text */
    uint32_t plans;                  /**< that name it; control thread */
    atomic_uint inflight;            /**< requests waiting or being answered */
    atomic_ullong requests, refused; /**< let in and ended; refused by its limits */
    atomic_ullong input, output;     /**< tokens, as the answers say */
    atomic_ullong queued_ns;
    struct sched_allowance request_allowance, token_allowance;
    atomic_uint requests_a_minute,
        tokens_a_minute; /**< by the plan that is in force, or was last */
};

/** A tenant of this configuration. */
struct plan_tenant {
    struct tenant_config config;
    struct tenant_account *account;
};

struct plan {
    struct list node; /**< in proxy.left */
    struct proxy *proxy;
    const struct routing *routing; /**< borrowed */
    struct plan_route *routes;     /**< beside routing->routes */
    struct alias *aliases;         /**< sorted by name, without duplicates */
    uint32_t n_aliases;
    struct plan_tenant *tenants; /**< sorted by name; one more behind them for those not listed */
    uint32_t n_tenants;
    uint32_t connections_max; /**< client connections of the process */
    bool access_log;          /**< its requests are written there */
    char *admin_token;        /**< owned; NULL = none */
    struct plan_users *users; /**< per lane */

    /* When it is left. */
    struct plan_leave *leaves; /**< per lane */
    atomic_uint inside;        /**< lanes that did not pass yet */
    uint64_t opened, closed; /**< listeners that lanes start and stop then; a bit for each place */
    struct policy_copy
        *policies; /**< of pools, replaced when it was left: a lane may still write one down */
};

/** Build it; tracks of new routes are made. WEIR_E_NOMEM, WEIR_E_FULL (TRACKS_MAX). Under pools_lock, control thread. */
int plan_new(struct proxy *p, const struct proxy_options *o, struct plan **out) MUST_CHECK;
/** It is in force: its limits count for what was used before, too. Under pools_lock, control thread. */
void plan_in_force(struct plan *n);
/** NULL is allowed. */
void plan_free(struct plan *n);
/** After the last plan. */
void plan_accounts_free(struct proxy *p);

static inline const struct plan_route *plan_route(const struct plan *n, const struct route *r)
{
    return &n->routes[r - n->routing->routes];
}
/** The model an alias stands for, or NULL. */
const struct model_config *plan_alias(const struct plan *n, struct slice name);
/** Who that is: a listed tenant, or the one for all others. */
const struct plan_tenant *plan_tenant(const struct plan *n, struct slice name);
/** The plan in use; valid to the end of the lane's callback. */
const struct plan *plan_now(const struct proxy *p);
/** The same for a request: valid until plan_put(). */
struct plan *plan_take(struct lane *l);
void plan_put(struct lane *l, struct plan *n);

/** A policy that a pool owns, so that no pool depends on the life of a configuration. */
struct policy_copy {
    struct policy_copy *next; /**< in plan.policies */
    struct policy policy;
};
/** NULL without memory. */
struct policy_copy *policy_copy_new(const struct mem *mem, const struct policy *from);

/** Bring the pools of the routes of `to` to its policies and queues; where nothing changed a pool is not touched.
 * Copies that were replaced go to `from`. WEIR_E_NOMEM: they are as before. Under pools_lock. */
int pools_follow(struct proxy *p, const struct plan *to, struct plan *from) MUST_CHECK;

#endif /* WEIR_PROXY_PLAN_H */
