/* SPDX-License-Identifier: Apache-2.0 */
/** @file What the state machine (report.c) and the registries it speaks to (native.c, nacos.c) share. */
#ifndef WEIR_REPORT_REPORT_PRIV_H
#define WEIR_REPORT_REPORT_PRIV_H

#include "base/buf.h"
#include "base/prng.h"
#include "report/report.h"

/** One exchange with a registry. */
enum report_step {
    STEP_LOGIN, /* get a token; only where the target wants one */
    STEP_CLAIM, /* what comes before a registration: is the place free, or ours? a lease */
    STEP_REGISTER,
    STEP_RENEW,
    STEP_LOAD,
    STEP_LEAVE,
};

/** What an answer means. */
enum report_verdict {
    VERDICT_OK,
    VERDICT_FAILED,
    VERDICT_UNKNOWN, /* the registry does not know us (any more) */
    VERDICT_DENIED,  /* the token is not (or no more) accepted */
    VERDICT_TAKEN,   /* someone else registered this address */
};

/** The request of one step. method and type are static text. */
struct report_request {
    const char *method;
    const char *type; /* NULL = no body */
    struct buf url;
    struct buf body;
};

struct reporter;

struct report_target {
    bool claims;      /* has a STEP_CLAIM */
    bool plain_token; /* the header is the token, without "Bearer" */
    /** Reads the URL. @return 0, WEIR_E_INVALID, WEIR_E_NOMEM. */
    int (*init)(struct reporter *r, const struct report_options *o);
    void (*fini)(struct reporter *r);
    /** A token has to be fetched before anything else. May be NULL. */
    bool (*wants_login)(const struct reporter *r);
    /** @return 0, the buffers' error, or WEIR_E_AGAIN for a STEP_LOAD that has nothing new to say. */
    int (*write)(struct reporter *r, enum report_step step, struct report_request *q);
    /** An answer with a 2xx status may still be none. */
    enum report_verdict (*judge)(struct reporter *r,
                                 enum report_step step,
                                 const struct fetch_result *f);
};

extern const struct report_target report_native;
extern const struct report_target report_nacos;
extern const struct report_target report_consul;
extern const struct report_target report_etcd;

/** Of report_nacos; owned. */
struct nacos_state {
    char *base;         /* "http://host:8848/nacos" */
    char *namespace_id; /* NULL = the default one */
    char *group;
    char *cluster;
    char *username; /* NULL = no login */
    char *password;
    uint64_t token_until_ns; /* 0 = none yet */
};

/** Of report_etcd; owned. */
struct etcd_state {
    char *prefix;
    char *username; /* NULL = no login */
    char *password;
    uint64_t lease;
};

struct reporter {
    const struct report_target *target;
    struct loop *loop;
    struct fetcher *fetcher;
    const struct fetch_tls *tls;
    const struct instance *instance;
    uint64_t ttl_ns;       /* in force */
    uint64_t asked_ttl_ns; /* by the options */
    uint64_t interval_ns;
    uint64_t timeout_ns;
    void (*fill)(void *ctx, struct sample *s);
    void (*on_registered)(void *ctx);
    void (*on_stopped)(void *ctx);
    void *ctx;

    char *base;        /* the registry as it was named; owned */
    char *where;       /* we in it, for logs; owned */
    char *bearer;      /* owned; NULL = none */
    char *url;         /* of consul and etcd: http or https, without a path; owned */
    struct slice rest; /* of base: behind the authority */
    struct nacos_state nacos;
    struct etcd_state etcd;
    /* where a load report is a registration: the last that was accepted, and what is under way */
    struct buf sent, sending;
    uint32_t left_out; /* metadata keys that found no room, when last logged */
    /* the next step of control; the end, when nothing is to be undone */
    struct loop_timer control_timer;
    struct loop_timer load_timer;
    struct fetch *control;
    struct fetch *load;
    enum report_step step; /* of control */
    struct prng rnd;
    uint64_t epoch;
    uint64_t seq;
    uint32_t failures; /* of control, in a row */
    unsigned logged;   /* what the last logged failure of control was */
    bool claimed;      /* the address is free or ours */
    bool attempted;    /* the registry may know of us */
    bool registered;
    bool changed; /* the instance differs from what was registered */
    bool load_failing;
    bool stopping;
    struct report_stats stats;
};

/** The registry has seen newer reports of ours: go on above them. */
void report_catch_up(struct reporter *r, uint64_t epoch, uint64_t seq);
/** A sample of now. */
void report_fill(struct reporter *r, struct sample *s);
/** Read base, "SCHEME://host:port...", into url, rest and where. @return 0, WEIR_E_INVALID, WEIR_E_NOMEM. */
int report_take_url(struct reporter *r, const char *scheme) MUST_CHECK;
/** This registration goes out. @return 0, or the buffer's error. */
int report_sending(struct reporter *r, const struct buf *body) MUST_CHECK;
/** Is it the one that was accepted last? */
bool report_same(const struct reporter *r);
/** It was accepted. */
enum report_verdict report_sent(struct reporter *r);

#endif /* WEIR_REPORT_REPORT_PRIV_H */
