/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Registers one endpoint at a Weir registry, keeps its lease, and reports its load. One thread, one loop.
 *
 * Register at once, renew every third of the TTL, report every interval from the first registration on. An answer 404
 * means the registry lost us: register again. Failures are retried after 0.2 s .. 5 s, doubling, with jitter; they are
 * logged when they begin and when they end. Reports do not pile up: while one is under way the next is left out.
 * At the end renewals and reports stop first, what is under way is waited for, then the endpoint is deregistered.
 *
 * Kinds of registry: Weir's own ("http://host:8848"); a Nacos server of any version over HTTP
 * ("nacos://host:8848/nacos?namespace=N&group=G&cluster=C"); a Consul agent ("consul://host:8500"): a service with a TTL
 * check; etcd v3.4 or later ("etcd://host:2379/prefix/"): a key with a lease; the last three also with +https. Consul and
 * etcd get load reports as metadata too, the registration again whenever a value changed. Nacos gets its load reports as metadata, in a
 * registration with the whole map whenever a value changed, and a beat every 5 s. Nothing merges there, so an address
 * that someone else registered in that service is left alone, with an error in the log, until it is free.
 */
#ifndef WEIR_REPORT_REPORT_H
#define WEIR_REPORT_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "loop/loop.h"
#include "model/update_t.h"
#include "net/fetch.h"

struct reporter;

struct report_options {
    const char *registry_url; /**< copied */
    const char *bearer;       /**< token, NULL = none; copied */
    const char *username;     /**< for the login of Nacos and etcd, NULL = none; copied */
    const char *password;     /**< likewise */
    const struct fetch_tls
        *tls; /**< for https; borrowed until report_free(); NULL = what the system trusts */
    const struct instance
        *instance;   /**< borrowed until report_free(); its epoch is where this reporter starts */
    uint64_t ttl_ns; /**< of the lease; Nacos has its own */
    uint64_t interval_ns; /**< between load reports; 0 = none are sent */
    uint64_t timeout_ns;  /**< of one exchange */
    uint64_t seed;        /**< for jitter */
    /** Fill the sample's values and known bits; epoch and seq are set afterwards. */
    void (*fill)(void *ctx, struct sample *s);
    /** The registry has it for the first time. May be NULL. */
    void (*on_registered)(void *ctx);
    /** report_stop() is through: deregistered, or given up after two timeouts at most. Not called inside report_stop(). May free the reporter. */
    void (*on_stopped)(void *ctx);
    void *ctx;
};

struct report_stats {
    uint64_t registrations; /**< that succeeded */
    uint64_t renewals;
    uint64_t reports;
    uint64_t failures; /**< of any kind */
    bool registered;
};

/** Starts at once. @return 0, WEIR_E_NOMEM, WEIR_E_INVALID (URL, TTL). */
int report_new(struct loop *loop,
               struct fetcher *fetcher,
               const struct report_options *o,
               struct reporter **out) MUST_CHECK;
/** The instance that was borrowed differs now: register it again, in its place. */
void report_changed(struct reporter *r);
/** What it reports on is another process now: register it again with a later epoch, at least this one. */
void report_new_epoch(struct reporter *r, uint64_t epoch);
/** Deregister; on_stopped follows. */
void report_stop(struct reporter *r);
/** Drop everything at once, without a word to the registry. */
void report_free(struct reporter *r);
void report_read_stats(const struct reporter *r, struct report_stats *out);

#endif /* WEIR_REPORT_REPORT_H */
