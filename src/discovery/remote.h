/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Asking a registry that has several servers: which one now, TLS, patience after failures. A source has one remote,
 * and a call for each thing that is asked at the same time. Internal to discovery. Thread: the control loop.
 */
#ifndef WEIR_DISCOVERY_REMOTE_H
#define WEIR_DISCOVERY_REMOTE_H

#include "base/prng.h"
#include "discovery/adapter.h"

struct remote {
    const struct discovery_env *env;
    const struct conf_source *conf;
    struct source *source;
    struct fetch_tls tls;
    uint32_t server; /**< of conf->servers, that is asked */
    struct prng rnd;
    uint64_t seed; /**< of hashes that no registrant can know */
};

struct remote_call {
    struct remote *remote;
    struct fetch *fetch; /**< under way */
    struct loop_timer timer;
    uint32_t server;   /**< that was asked last */
    uint32_t failures; /**< in a row */
    /** It is time: remote_ask(). */
    void (*ask)(struct remote_call *c);
    /** Any end of an exchange. */
    void (*answered)(struct remote_call *c, const struct fetch_result *r);
    /** As fetch_options.on_data; NULL: the answer comes whole. */
    int (*on_data)(void *call, struct slice piece);
};

struct remote_request {
    const char *method;
    const char *path;  /**< behind the server's URL; with the query */
    struct slice body; /**< JSON; absent: none */
    const char *bearer, *authorization, *accept;
    uint64_t timeout_ns; /**< 0: none */
    bool streams;        /**< to on_data */
};

/** All borrowed until the last remote_end(). */
void remote_init(struct remote *r,
                 const struct discovery_env *env,
                 const struct conf_source *conf,
                 struct source *source);
/**
 * The secret anew: it may have changed on disk.
 * @param out as confio_secret(). @return 0, or an error that was said in the log.
 */
int remote_secret(const struct remote *r, const struct conf_secret *s, char **out) MUST_CHECK;

/** Set remote and the functions first. Asks at once. */
void remote_begin(struct remote_call *c);
void remote_end(struct remote_call *c);
/** Send; what goes wrong here is a failure like any other. */
void remote_ask(struct remote_call *c, const struct remote_request *q);
/** Ask again after that long. */
void remote_again(struct remote_call *c, uint64_t wait_ns);
/** The answer was good: again after that long. */
void remote_worked(struct remote_call *c, uint64_t wait_ns);
/** Say why, take the next server, ask again in 0.1 s .. 5 s. */
void remote_failed(struct remote_call *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/** The same for an exchange without an answer, or with a status that is none. @param what was asked: "health of llm". */
void remote_refused(struct remote_call *c, const char *what, const struct fetch_result *r);

#endif /* WEIR_DISCOVERY_REMOTE_H */
