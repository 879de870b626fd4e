/* SPDX-License-Identifier: Apache-2.0 */
/** @file What a running gateway consists of. Inside apps/serve: serve.c starts and ends it, reload.c changes it. */
#ifndef WEIR_APPS_SERVE_STATE_H
#define WEIR_APPS_SERVE_STATE_H

#include <pthread.h>

#include "admin/admin.h"
#include "apps/serve/control.h"
#include "apps/serve/flags.h"
#include "apps/serve/systemd.h"
#include "apps/serve/tls.h"
#include "registry/registry.h"

/** One configuration, in use or kept until no request goes by it any more. */
struct edition {
    struct edition *older;
    struct conf *conf; /**< owned */
};

/** What stands in files (or variables) that a configuration refers to: read anew with every reload. */
struct referred {
    char *admin_token, *registry_token; /**< NULL = none */
    int access_fd;                      /**< freshly opened; -1 = none */
    struct serve_tls tls;
};

struct serve {
    struct serve_flags flags; /**< kept: a reload reads the same file under the same flags */
    struct edition *edition;  /**< newest first */
    struct loop *control_loop;
    struct loop *loops[PROXY_LOOPS_MAX];
    pthread_t threads[PROXY_LOOPS_MAX];
    unsigned n_loops, n_threads;
    struct fetcher *fetcher;
    struct control control;
    struct proxy *proxy;
    struct registry *registry;
    struct admin *admin;
    struct net_addr admin_addr, registry_addr; /**< bound; len 0 = off */
    struct referred referred; /**< of the newest; access_fd is -1 once it is moved */
    int access_fd; /**< what the data plane writes to, always the same number; -1 = never opened */
    struct loop_timer reclaim; /**< frees editions that nobody goes by */
    struct net_tls_slot admin_tls, registry_tls, upstream_tls; /**< in force */
    struct fetch_tls fetch_tls;                                /**< the same for checks */
    struct systemd_watchdog watchdog;
    bool draining;
};

/* referred.c */
/** Read all of it. @return 0; WEIR_E_INVALID, WEIR_E_IO with lines in errors; WEIR_E_NOMEM. */
int referred_read(const struct conf *conf,
                  struct referred *out,
                  struct conf_errors *errors) MUST_CHECK;
void referred_fini(struct referred *r);
/** Put the opened access log in the place of the one before, under its number. */
void referred_use_access(struct serve *s, struct referred *r);
/** For log rotation: open the access log anew, under the same name. */
void serve_reopen_logs(struct serve *s);

/* reload.c */
/**
 * Options of the data plane for a configuration and what it refers to. @param listen room for PROXY_LISTENERS_MAX.
 * @return 0; WEIR_E_NOTFOUND, WEIR_E_INVALID with a line in out; WEIR_E_FULL.
 */
int serve_proxy_options(struct serve *s,
                        const struct conf *conf,
                        const struct referred *r,
                        struct net_listen_at *listen,
                        struct proxy_options *o,
                        struct buf *out) MUST_CHECK;
/** The TLS of everything but listeners, from now on. */
void serve_use_tls(struct serve *s, const struct conf *conf, const struct serve_tls *t);
/**
 * Another configuration takes over, whole or not at all.
 * @param text absent: the file is read again. @param out what was done, as JSON; or what is wrong, line by line.
 * @return 0; WEIR_E_INVALID; WEIR_E_UNSUPPORTED (needs a restart); WEIR_E_IO; WEIR_E_FULL; WEIR_E_NOMEM: all is as before.
 */
int serve_reload(struct serve *s, struct slice text, struct buf *out) MUST_CHECK;
/** What serve_reload() would say, without doing it. */
int serve_validate(struct serve *s, struct slice text, struct buf *out) MUST_CHECK;
void serve_reclaim_init(struct serve *s);

#endif /* WEIR_APPS_SERVE_STATE_H */
