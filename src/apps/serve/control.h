/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The control side of a running gateway: owns the fleet table, turns what sources and checks say into snapshots
 * and health, and answers the admin API. Everything here runs on the control loop.
 */
#ifndef WEIR_APPS_SERVE_CONTROL_H
#define WEIR_APPS_SERVE_CONTROL_H

#include "admin/admin.h"
#include "apps/serve/changes.h"
#include "apps/serve/exporters.h"
#include "apps/serve/metrics.h"
#include "apps/serve/panic.h"
#include "conf/conf.h"
#include "discovery/discovery.h"
#include "fleet/fleet.h"
#include "fleet/health.h"
#include "loop/loop.h"
#include "model/update_t.h"
#include "net/addr.h"
#include "net/fetch.h"
#include "probe/probe.h"
#include "proxy/proxy.h"

enum {
    CONTROL_CONFIG_SOURCES =
        20, /**< places for those of the config, in its order; the others follow */
    CONTROL_SOURCES_MAX = CONTROL_CONFIG_SOURCES + 2,
    CONTROL_OWN_MAX = 20,
    CONTROL_WHY_TEXT = 120
};

enum control_source_state { SOURCE_SILENT, SOURCE_OK, SOURCE_FAILED };

/** Why the last check of an endpoint failed; "" when it passed. */
struct control_note {
    uint32_t generation;
    char why[CONTROL_WHY_TEXT];
};

struct control {
    struct loop *loop;
    struct fetcher *fetcher;
    const struct fetch_tls *tls; /**< for checks; set by serve */
    struct fleet *fleet;
    struct proxy *proxy; /**< set by serve once it exists; NULL before */
    struct admin *admin; /**< set by serve: who is told of events; NULL = nobody */
    struct prober *prober;
    const struct conf *conf;         /**< in use */
    const struct snapshot *snapshot; /**< the newest */
    struct update_sink sink;         /**< for sources */
    struct metrics_source sources[CONTROL_SOURCES_MAX];
    struct discovery *running[CONTROL_CONFIG_SOURCES]; /**< those that are not static */
    uint64_t pending_since_ns[CONTROL_SOURCES_MAX];    /**< first unpublished word; 0 = none */
    enum control_source_state source_state[CONTROL_SOURCES_MAX]; /**< as the events have it */
    bool told[CONTROL_SOURCES_MAX]; /**< said that it has synced, but the fleet was not told yet */
    uint16_t n_sources;
    uint16_t source_registry,
        source_workers;                   /**< indexes of the two that the config does not list */
    struct net_addr own[CONTROL_OWN_MAX]; /**< our listeners: nobody may register them */
    uint32_t n_own;
    struct loop_timer build;   /**< publishes changes, at most one snapshot per 20 ms */
    struct loop_timer reclaim; /**< frees snapshots that nobody uses any more */
    struct loop_timer watch;   /**< breakers whose cooldown is over, panic */
    struct panic_watch panic;
    struct changes changes;
    struct exporters *exporters; /**< who knows the GPUs of hosts; NULL before the start */
    uint64_t built_ns;
    uint32_t trimmed_at; /**< endpoints when free memory was last given back */
    uint64_t reloads_ok, reloads_failed;
    struct control_note *notes; /**< by slot: why the last check failed */
    uint32_t n_notes;
};

/** Build an empty fleet for this configuration. Borrows conf, loop and fetcher. */
int control_init(struct control *c,
                 struct loop *loop,
                 struct fetcher *fetcher,
                 const struct conf *conf) MUST_CHECK;
/** Start the checks. The first snapshot is built; call it once control.proxy is set. */
int control_start(struct control *c) MUST_CHECK;
/** Addresses we listen on: an endpoint there would be ourselves, a loop, and is refused. */
void control_own(struct control *c, const struct net_addr *addrs, uint32_t n);
/** What the config's sources have now, besides what they had. Nothing is dropped and nothing is published yet. */
void control_tell_sources(struct control *c, const struct conf *conf);
/** What only `before` had is gone. */
void control_drop_sources(struct control *c, const struct conf *before, const struct conf *now);
/** Stop them: nobody is told any more. */
void control_end_sources(struct control *c);
/** Names and numbers of the config's sources for metrics and events; names are the configuration's. */
void control_name_sources(struct control *c, const struct conf *conf);
/** Tell those who follow the events when that is news. @param why NULL: nothing to say. */
void control_source_is(struct control *c, uint16_t source, bool ok, const char *why);
/** Which of them work, by their numbers. */
void control_look_at_sources(struct control *c);
/** Another configuration: models, health. Endpoints that did not change keep all that is known of them. */
void control_reload(struct control *c, const struct conf *conf);
/** Publish what changed now, not in up to 20 ms: what an operator did is in force when the answer is sent. */
void control_publish(struct control *c);
/** Why the last check of this endpoint failed; absent when it passed or none ended yet. Borrowed until the next check. */
struct slice control_why(const struct control *c, const struct endpoint *e);
/** Stop checks and timers; the proxy must be gone. */
void control_fini(struct control *c);

/** Live count of requests at an address, for the registry's lists. @param ctx a struct control. */
uint32_t control_current_requests(void *ctx, struct slice host, uint16_t port);
/** Endpoints of a kind in the newest snapshot, for the registry. @param ctx a struct control. */
void control_endpoints(void *ctx,
                       enum engine_kind kind,
                       void (*one)(void *to, const struct endpoint *e),
                       void *to);
/** The first data listener, for the registry. @param ctx a struct control. */
bool control_data_address(void *ctx, struct net_addr *out);

#endif /* WEIR_APPS_SERVE_CONTROL_H */
