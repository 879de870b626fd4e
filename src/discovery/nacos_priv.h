/* SPDX-License-Identifier: Apache-2.0 */
/** @file What the files of the Nacos source share: nacos.c (lists), nacos_http.c (asking), nacos_write.c (writing back). */
#ifndef WEIR_DISCOVERY_NACOS_PRIV_H
#define WEIR_DISCOVERY_NACOS_PRIV_H

#include "discovery/adapter.h"
#include "discovery/nacos_list_codec.h"

struct nacos;
struct nacos_push;

enum { NACOS_ANSWER_MAX = 16 << 20, NACOS_LIST_BYTES_MAX = 64 << 20, NACOS_URL_MAX = 8192 };

/** One service that is looked up. */
struct nacos_service {
    struct nacos *nacos;
    struct source_list list;
    struct slice grouped, group, name; /**< "GROUP@@name" and its halves */
    struct slice shown;                /**< what endpoints say their service is */
    struct loop_timer poll;
    struct fetch *fetch; /**< of a list */
    uint64_t hash;       /**< of the answer that the list stands for */
    bool known;          /**< hash is set */
    bool waits;          /**< for the login */
    bool renewed;        /**< this poll has caused a new login already */
    bool subscribed;     /**< changes are pushed: not polled */
    bool strange;        /**< some instances cannot be read, and that was said */
    uint32_t tried;      /**< servers, in this poll */
    uint32_t asked;      /**< the server that fetch is of */
    uint32_t login;      /**< the login whose token it shows */
    struct loop_timer write;
    struct list writes; /**< under way */
    uint32_t write_at;  /**< where the next round of writing back starts */
};

/** Of a server. */
struct nacos_server {
    struct slice url; /**< without a slash at its end */
    bool v3;          /**< it has switched the older calls off */
};

struct nacos {
    const struct discovery_env *env;
    const struct conf_source *conf;
    struct source *source;
    struct arena arena;
    struct nacos_service *services;
    struct nacos_server *servers;
    uint32_t server; /**< asked first */
    char *password, *secret_key;
    char *token; /**< of the last login; NULL: none */
    uint64_t token_until_ns;
    uint32_t logins; /**< number of the last one */
    bool login_v3;
    struct fetch *login;
    bool polls;              /**< lists are asked for over HTTP where nothing is pushed */
    struct nacos_push *push; /**< NULL: nothing is pushed */
    struct buf clusters;     /**< comma list */
};

/** The namespace as requests carry it: absent is the default one. */
struct slice nacos_namespace(const struct nacos *n);

/**
 * An answer came: the fleet is told when it is another list than before.
 * @return 0; WEIR_E_INVALID: it is no list; WEIR_E_NOMEM. Then nothing changed, and nobody was told of it.
 */
int nacos_take_list(struct nacos_service *s, struct slice body) MUST_CHECK;
/** The same for one that was read already, and has hosts. */
void nacos_take_answer(struct nacos_service *s,
                       struct slice body,
                       const struct nacos_answer *answer);

/* --- nacos_http.c --- */

/** Ask for the list at `at_ns`, unless it is asked for already. */
void nacos_poll_at(struct nacos_service *s, uint64_t at_ns);
void nacos_http_init(struct nacos_service *s);
void nacos_http_fini(struct nacos_service *s);
/** Must a token be had first? Then a login is under way after this call. */
bool nacos_needs_login(struct nacos *n);
/** Append ak, data and signature for this service, where there is a secret key. */
void nacos_sign(const struct nacos *n, struct slice grouped, struct buf *query);
/** Start a call at the server in use, `query` behind the path. */
int nacos_call(struct nacos *n,
               const char *method,
               const char *path,
               struct slice query,
               fetch_done_fn done,
               void *ctx,
               struct fetch **out) MUST_CHECK;

/* --- nacos_push.c --- */

int nacos_push_start(struct nacos *n) MUST_CHECK;
/** Harmless when it was not started. */
void nacos_push_stop(struct nacos *n);
/** A login has ended. */
void nacos_push_login(struct nacos_push *p, bool in);

/* --- nacos_write.c --- */

void nacos_write_init(struct nacos_service *s);
void nacos_write_fini(struct nacos_service *s);

#endif /* WEIR_DISCOVERY_NACOS_PRIV_H */
