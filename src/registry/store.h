/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The one store behind both APIs: who is registered, until when, and how it said it is.
 *
 * A record is one registration: a native endpoint (by id) or a Nacos instance (by namespace, service, ip and port).
 * Time comes in; every change goes to the sink first and takes effect only when the sink took it, so a refused
 * registration leaves what was there. Nothing of a removed record is kept.
 * One thread.
 */
#ifndef WEIR_REGISTRY_STORE_H
#define WEIR_REGISTRY_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"
#include "model/update_t.h"
#include "registry/meta.h"

#define STORE_TTL_DEFAULT_NS (UINT64_C(15) * 1000000000)
#define STORE_TTL_MIN_NS     (UINT64_C(1) * 1000000000)
#define STORE_TTL_MAX_NS     (UINT64_C(3600) * 1000000000)
/** Where native endpoints appear for Nacos clients. */
#define NACOS_PUBLIC            "public"
#define NACOS_GROUP             "DEFAULT_GROUP"
#define NACOS_CLUSTER           "DEFAULT"
#define NACOS_BEAT_INTERVAL_MS  UINT32_C(5000)
#define NACOS_BEAT_TIMEOUT_MS   UINT32_C(15000)
#define NACOS_DELETE_TIMEOUT_MS UINT32_C(30000)

/** A Nacos service: a name within a namespace; native endpoints appear under namespace "public". */
struct service {
    struct slice key;         /**< namespace, LF, grouped name; owned */
    struct slice ns;          /**< part of key */
    struct slice grouped;     /**< "GROUP@@name", part of key */
    double protect_threshold; /**< 0..1 */
    bool kept;                /**< created by the service API: stays while empty */
    uint32_t n_nacos;         /**< Nacos instances in it */
    bool ephemeral;           /**< what they all are, while there are any */
    struct list links;        /**< of struct service_link */
    struct list node;         /**< in store.services, oldest first */
};

/** One record being in one service. */
struct service_link {
    struct list node; /**< in service.links */
    struct service *service;
    struct record *record;
};

enum record_kind { RECORD_NATIVE, RECORD_NACOS };

struct record {
    enum record_kind kind;
    struct instance
        instance;         /**< as the sink knows it; its text is in `text`, `meta` and `cluster` */
    struct slice address; /**< host:port, IPv6 in brackets */
    struct slice map_key; /**< in store.native or store.nacos */
    struct arena text;
    struct meta *meta;      /**< owned; NULL = empty */
    char *cluster;          /**< Nacos clusterName; owned */
    bool ephemeral;         /**< Nacos: liveness by beats */
    uint32_t client_weight; /**< as registered; instance.weight is what is in force */
    bool client_enabled;
    bool weight_held;  /**< an operator set instance.weight: clients do not change it */
    bool enabled_held; /**< the same for instance.enabled */

    bool kept; /**< by a connection: no lease */

    uint64_t ttl_ns;                             /**< native lease */
    uint32_t interval_ms, timeout_ms, delete_ms; /**< Nacos beat rules of this instance */
    uint64_t alive_ns;                           /**< last proof of life, monotonic */
    uint64_t due_ns; /**< next thing its lease does; ordered in store.due */
    struct heap_node due;

    bool has_load;       /**< load is the last report */
    bool epoch_given;    /**< instance.epoch came from the registration */
    bool has_load_epoch; /**< load_epoch is known: reports of an older one are refused */
    bool has_load_seq;   /**< load_seq is known within it */
    uint64_t load_epoch, load_seq;
    struct sample load;

    struct service_link *links; /**< in `text` */
    uint32_t n_links;
    struct list node;         /**< in store.records, oldest first */
    struct list same_address; /**< ring of records at one address */
};

enum store_event {
    STORE_UPSERT, /**< visible change */
    STORE_REMOVE, /**< about to go: the record is still whole */
    STORE_NOTED,  /**< only what has to be saved changed */
};

enum store_reason { REASON_NONE, REASON_DEREGISTERED, REASON_EXPIRED };

struct store_options {
    const struct mem *mem;
    struct update_sink sink; /**< any callback may be NULL */
    uint16_t source;
    uint32_t records_max;
    /** Told after each change (before, for removals). May be NULL. Must not change the store. */
    void (*on_event)(void *ctx,
                     enum store_event event,
                     const struct record *r,
                     enum store_reason reason);
    void *ctx;
};

struct store {
    struct store_options o;
    struct map native;     /**< id to record */
    struct map nacos;      /**< ns LF grouped LF address to record */
    struct map addresses;  /**< host:port to one record of the ring */
    struct map by_service; /**< service.key to service */
    struct list records;
    struct list services;
    struct heap due;
    uint32_t n;
    uint64_t next_epoch; /**< for registrations that bring none */
};

void store_init(struct store *s, const struct store_options *o);
/** Frees everything; tells nobody. */
void store_fini(struct store *s);

/* --- looking up --- */

struct record *store_native(const struct store *s, struct slice id);
/** A native endpoint by id, else a Nacos instance by host:port, else NULL. */
struct record *store_find(const struct store *s, struct slice id);
/** A Nacos instance, else a native endpoint in that service, else NULL. */
struct record *store_find_nacos(const struct store *s,
                                struct slice ns,
                                struct slice grouped,
                                struct slice address);
struct service *store_service(const struct store *s, struct slice ns, struct slice grouped);

/** host:port with IPv6 in brackets, appended to out. */
void store_address(struct buf *out, struct slice host, uint16_t port);

/* --- native --- */

/** What a native registration says beside the instance. */
struct native_put {
    const struct instance *instance; /**< borrowed; key and probation are the store's */
    uint64_t ttl_ns;
    bool
        has_epoch; /**< instance->epoch was given; else the record keeps its own or gets a new one */
};

/**
 * Register, or replace whole what is there under this id.
 * @param created may be NULL.
 * @return 0, WEIR_E_STALE (epoch older than known), WEIR_E_FULL, WEIR_E_NOMEM, or what the sink said; then nothing changed.
 */
int store_put(struct store *s,
              const struct native_put *put,
              uint64_t now_ns,
              struct record **out,
              bool *created) MUST_CHECK;

/** Proof of life: the lease starts anew, probation ends. Returns the sink's error, if any. */
int store_renew(struct store *s, struct record *r, uint64_t now_ns) MUST_CHECK;

/**
 * A load report, ordered by (epoch, seq). An accepted one also renews the lease.
 * @return 0, WEIR_E_STALE (not newer: nothing changed), or the sink's error.
 */
int store_load(struct store *s, struct record *r, const struct sample *load, uint64_t now_ns)
    MUST_CHECK;

void store_remove(struct store *s, struct record *r, enum store_reason reason);

/* --- Nacos --- */

/** One call of the Nacos API on one instance; what is not given does not change. Borrowed. */
struct nacos_write {
    struct slice ns, grouped, host;
    uint16_t port;
    struct slice cluster; /**< absent: not given */
    bool has_weight, has_enabled, has_healthy, has_ephemeral;
    uint32_t weight; /**< thousandths */
    bool enabled, healthy, ephemeral;
    const struct kv *metadata;
    uint32_t n_metadata;
};

/**
 * Register, or merge into what lives there.
 * @return 0, WEIR_E_UNSUPPORTED (the service is of the other type), WEIR_E_RANGE (beat rules in the metadata contradict
 * each other), WEIR_E_FULL, WEIR_E_NOMEM, or the sink's error; then nothing changed.
 */
int store_nacos_register(struct store *s,
                         const struct nacos_write *w,
                         uint64_t now_ns,
                         struct record **out) MUST_CHECK;

/** A beat on an instance that lives: healthy again, metadata merged; weight and enabled are not touched. */
int store_nacos_beat(struct store *s,
                     struct record *r,
                     const struct nacos_write *w,
                     uint64_t now_ns) MUST_CHECK;

/** A connection stands for it from now on, or no more: then its lease starts anew. */
void store_nacos_keep(struct store *s, struct record *r, bool kept, uint64_t now_ns);

/** PUT, PATCH, batch: an operator's or sidecar's edit; weight and enabled given here outlive the client's. */
int store_edit(struct store *s, struct record *r, const struct nacos_write *w) MUST_CHECK;

/** Create (kept) or change a service. @param protect_threshold < 0: leave. */
int store_service_put(struct store *s,
                      struct slice ns,
                      struct slice grouped,
                      double protect_threshold,
                      struct service **out) MUST_CHECK;
/** @return 0, WEIR_E_NOTFOUND, WEIR_E_EXISTS (it still has instances). */
int store_service_delete(struct store *s, struct slice ns, struct slice grouped) MUST_CHECK;

/* --- leases --- */

/** When the next lease does something, or UINT64_MAX. */
uint64_t store_next_due(const struct store *s);
/** Instances without a beat turn unhealthy, then go; native leases go. */
void store_expire(struct store *s, uint64_t now_ns);

/* --- saved state --- */

/** A record as it was saved. The lease starts anew; the record is in probation. */
struct saved_record {
    enum record_kind kind;
    const struct instance *instance; /**< host, port, epoch and the rest; metadata is in effect */
    uint64_t ttl_ns;
    struct slice ns, grouped, cluster; /**< Nacos */
    bool ephemeral;
    uint32_t client_weight;
    bool client_enabled, weight_held, enabled_held, epoch_given;
    const struct kv *told; /**< what clients last said of metadata */
    uint32_t n_told;
};
int store_restore(struct store *s, const struct saved_record *saved, uint64_t now_ns) MUST_CHECK;

#endif /* WEIR_REGISTRY_STORE_H */
