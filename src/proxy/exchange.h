/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Inside the room: client connection, exchange (one request and its answer), upstream connection, target
 * (one endpoint generation as one lane knows it). All belong to one lane; the one thing another thread does is to
 * grant a queued exchange (offer.c). Dead structs are buried and become reusable only after the loop's turn.
 */
#ifndef WEIR_PROXY_EXCHANGE_H
#define WEIR_PROXY_EXCHANGE_H

#include "net/conn.h"
#include "net/tls.h"
#include "peek/multipart.h"
#include "peek/peek.h"
#include "peek/usage.h"
#include "proxy/acks.h"
#include "proxy/lane.h"
#include "wire/chunked.h"

enum exchange_state {
    X_NEW,
    X_PEEK,    /* head accepted; reading the body until the decision can be made */
    X_QUEUE,   /* waits in its pool */
    X_CONNECT, /* has an endpoint; resolving or connecting */
    X_AWAIT,   /* request (being) sent, no final answer yet */
    X_RELAY,   /* answer begun: nothing can be retried or replaced any more */
    X_TUNNEL,  /* switched to another protocol: bytes pass both ways */
    X_ENDED,
    X_ORPHAN, /* ended while another thread was granting it; freed by the grant */
    X_STATES
};

/** What to do with the client connection after an exchange. */
enum fate {
    FATE_KEEP,   /* next request */
    FATE_LINGER, /* close politely */
    FATE_ABORT,  /* reset: the answer is cut */
    FATE_GONE,   /* it is closed already */
};

/** A connection to one worker. */
struct upstream {
    struct net_conn conn;
    struct list node; /**< in target.idle, or a lane list */
    struct lane *lane;
    struct target *target;
    struct exchange *x; /**< NULL while idle */
    uint64_t idle_since_ns;
    const struct net_tls_context *tls; /**< NULL = plain; compared, never looked into */
    struct resolve_query query;
    uint64_t connect_by_ns; /**< timeouts.connect, from the look-up of the name on */
    bool resolving;
};

/** An endpoint generation. Lives while the snapshot lists it, or somebody uses it. */
struct target {
    struct list node;                 /**< lane.targets */
    struct cell *cell;                /**< referenced */
    struct slice id, host, authority; /**< owned, one block */
    uint16_t port;
    bool tls;
    bool literal;
    struct net_addr addr;     /**< when literal */
    struct net_tls_peer peer; /**< for tls */
    struct list idle;         /**< struct upstream, newest last */
    unsigned n_idle;
    uint8_t acks_held;            /**< see acks.h */
    unsigned users;               /**< upstreams and exchanges that point here */
    bool fastchat;                /**< a FastChat model worker */
    struct fastchat_known *known; /**< owned: what it told of its models; see fastchat.c */
};

/** Room for a body being scanned; recycled, because it is only needed until the decision. */
struct scan {
    struct list node;
    bool multipart;
    union {
        struct peek json;
        struct multipart form;
    };
};

struct exchange {
    struct list node; /**< lane.exchanges */
    struct lane *lane;
    struct client *client;     /**< NULL once ended */
    struct plan *plan;         /**< the configuration it goes by, to its end */
    const struct route *route; /**< NULL before it matched */
    struct pool *pool;
    const struct plan_tenant *tenant_of; /**< whose it is; NULL: nobody told */
    const char *limit_hit;               /**< which of its limits refused it; NULL: none */
    uint64_t limit_wait_ns;              /**< and until when */
    uint64_t input_taken, output_taken;  /**< tokens of its allowance */
    struct target *target;               /**< while it has an endpoint */
    struct upstream *up;
    enum exchange_state state;

    /* request */
    struct buf head;     /**< as it goes upstream, without Host, framing and the empty line */
    uint32_t method_len; /**< at the front of head */
    uint32_t path_at, path_len;       /**< in head */
    uint32_t rid_at, rid_len;         /**< X-Request-Id, in head */
    uint32_t upgrade_at, upgrade_len; /**< protocols the client offers to switch to, in head */
    struct features f;
    char version[64], tenant[TENANT_NAME_MAX],
        named[PEEK_TEXT_MAX]; /**< what f's slices point to */
    struct scan *scan;
    enum http1_framing framing;
    uint64_t body_left; /**< of Content-Length, not received yet */
    struct chunked chunked;
    uint64_t body_seen;            /**< payload bytes received */
    struct buf body;               /**< payload kept: [body_base, body_base + len) */
    uint64_t body_base, body_sent; /**< absolute payload offsets */
    uint64_t *blocks;              /**< owned: f.blocks; until nothing can be decided any more */
    uint64_t charged;              /**< bytes counted in the lane's buffered */
    uint64_t pace_ns, pace_seen;   /**< since when its pace is measured, and body_seen then */

    bool http10 : 1;
    bool keep_asked : 1; /**< the client allows another request */
    bool is_head : 1;
    bool idempotent : 1; /**< by method */
    bool model_in_header : 1;
    bool model_in_query : 1;
    bool model_in_path : 1, version_in_path : 1;
    bool any_model : 1;  /**< it needs none (OPTIONS): any endpoint of the route may answer */
    bool reads_rest : 1; /**< the decision needs the body beyond the model */
    bool complete : 1;   /**< request received to its end */
    bool discard : 1;    /**< drop what the client still sends */
    bool held : 1;       /**< the client was not read from for a while since pace_ns */
    bool expect : 1;     /**< the client waits for a 100 that nobody sent yet */
    bool forward_expect : 1;
    bool head_sent : 1;
    bool request_sent : 1; /**< to its end */
    bool up_chunked : 1;   /**< framing towards the worker */
    bool rsp_started : 1;  /**< any answer byte was received */
    bool proven : 1;       /**< a good answer began: the breaker was told */
    bool retried_reused : 1, retried_busy : 1, retried_failed : 1;
    bool fresh_only : 1;  /**< no pooled connection for the next attempt */
    bool up_reused : 1;   /**< the present attempt runs on one */
    bool keep : 1;        /**< the client connection goes on after this answer */
    bool rsp_keep : 1;    /**< the worker keeps its connection open */
    bool rsp_whole : 1;   /**< nothing more comes on it: only then it may serve another request */
    bool rsp_close : 1;   /**< answer delimited by close towards the client */
    bool rsp_chunked : 1; /**< answer chunked towards the client */
    bool alias : 1;       /**< the model named in the body is an alias of the pool's */
    bool client_done : 1, worker_done : 1; /**< X_TUNNEL: nothing more comes from there */
    bool reads_usage : 1;                  /**< the answer is text that may say what was used */
    bool counted : 1;                      /**< exchange_count() was here */
    bool explain_asked : 1;                /**< it may know why, and asked */
    bool explain_waited : 1;               /**< what explain says is why it had to wait */
    uint8_t connect_failures;
    uint8_t lost;         /**< endpoints that left the fleet between the pick and the attempt */
    uint8_t session_rank; /**< which entry of hash_on gave the session; n_hash_on = none */

    /* decision */
    struct reservation reservation;
    struct sched_exclude exclude;
    struct sched_waiter waiter;
    struct loop_job grant_job; /**< posted by whoever grants */
    uint64_t decision_seq;     /**< in the log; 0 = not logged */
    uint64_t granted_seq;      /**< of the grant; set by who grants */
    char *explain; /**< owned: why, as one line of JSON; NULL = not asked, or not decided yet */
    uint32_t explain_len;

    struct translation *translation; /**< owned: between it and a FastChat worker; NULL = none */

    /* answer */
    uint16_t status;
    enum rejection rejection;
    enum http1_framing rsp_framing;
    uint64_t rsp_left;
    struct chunked rsp_dechunk;
    struct acks acks;
    uint64_t rsp_bytes;
    struct peek_usage reader; /**< reader.usage: what the answer says it used, so far */

    /* times, monotonic; 0 = not yet */
    uint64_t start_ns, queue_from_ns, queue_ns, sent_ns, first_byte_ns, last_rx_ns;
    uint64_t
        stall_ns; /**< since when the client takes nothing (X_AWAIT: the worker), 0 = it does */
    size_t stall_queued; /**< bytes it had to take then */
};

/** A client connection; between requests it holds no buffer. */
struct client {
    struct net_conn conn;
    struct list node;
    struct lane *lane;
    struct exchange *x; /**< the request under way */
    struct net_addr peer;
    struct loop_timer timer;  /**< lazy: at or before the earliest due time */
    uint64_t since_ns;        /**< start of the present phase: idle, head, body silence */
    uint32_t scanned;         /**< bytes of an incomplete head known to hold no new line end */
    size_t dropped;           /**< bytes read and dropped while closing */
    uint64_t linger_until_ns; /**< closing ends then, whatever still comes */
    size_t linger_queued;     /**< bytes it had to take at the last look */
    size_t charged;   /**< unsent bytes of ended exchanges, counted in the lane's buffered */
    bool closing : 1; /**< politely: FIN is sent or will be, what still comes is dropped */
    bool in_head : 1; /**< part of a head was received */
    bool spare : 1;   /**< beyond the limit of connections: only Weir's own paths are answered */
    bool eof : 1;     /**< the client sent FIN, and all before it was read */
};

/* client.c */
/** @param tls NULL, or empty = plain. */
void client_accept(struct lane *l, int fd, const struct net_addr *peer, struct net_tls_slot *tls);
/** The exchange is over: go on, or close. */
void client_after(struct client *c, enum fate fate);
/** Have the timer run by the earliest due time of the connection and its exchange. */
void client_arm(struct client *c);
void client_close(struct client *c, enum fate fate);

/* route.c */
/** The fields of a request that mean something to Weir; borrowed from the head, absent when not there. */
struct request_fields {
    struct slice content_type, request_id, traceparent, tracestate, model, version, memory, session,
        priority, tenant, timeout, slo, slo_tpot, explain, token, forwarded_for, forwarded_proto,
        forwarded_host;
    enum forwarded forwarded; /**< of the route */
    bool own_hop;             /**< X-Weir-Hop names this instance */
    bool new_trace;
};
/** The route of a request, or NULL. */
const struct route *route_of(const struct routing *r, const struct http1_head *h);
/**
 * Read the head and render what goes upstream into x->head. @return REJECT_NONE or why not.
 * @param route its route; NULL: none. @param end past the head.
 */
enum rejection route_head(struct exchange *x,
                          const struct route *route,
                          const struct http1_head *h,
                          const char *end,
                          struct request_fields *f);
/** Fill the features from headers and route. @param param, detail out: the header that cannot be read. */
enum rejection route_features(struct exchange *x,
                              const struct http1_head *h,
                              const struct request_fields *f,
                              const char **param,
                              struct slice *detail);
/** First route for a path and what else the head says, or NULL. @param h not looked at by routes of a path alone. */
const struct route *
route_match(const struct routing *r, struct slice path, const struct http1_head *h);
/** A parameter of the target's query. @param raw out: its first value, still encoded. @return false when it is not there. */
bool route_query_find(struct slice target, struct slice name, struct slice *raw);
/** Put another model name into the query of the rendered head (alias). @return 0, or WEIR_E_NOTFOUND, WEIR_E_FULL, WEIR_E_NOMEM. */
int route_rename_query(struct exchange *x, struct slice model) MUST_CHECK;
/** The same for a path that names it. */
int route_rename_path(struct exchange *x, struct slice model) MUST_CHECK;
/** Session key of the body, where it beats what the headers gave. */
void route_session_from_body(struct exchange *x, const struct peek_found *found);
/** A well-formed traceparent? (W3C Trace Context) */
bool route_traceparent_ok(struct slice v);
/**
 * Free of "." and ".." segments, also percent-encoded ones? A worker that resolves them would serve another path than
 * the one that was routed.
 */
bool route_path_ok(struct slice path);
/** May it be passed on, echoed and logged as it is? */
bool route_request_id_ok(struct slice v);

/* forwarded.c */
/** Is this field of the client's not passed on as it came? */
bool forwarded_drops(enum forwarded mode, struct slice name);
/** X-Forwarded-For, -Proto, -Host as the mode has them. */
void forwarded_put(struct buf *out,
                   enum forwarded mode,
                   const struct client *c,
                   const struct http1_head *h,
                   const struct request_fields *f);

/* body.c */
/** Start looking at the body. @return false when memory or the buffer budget does not allow it. */
bool body_begin(struct exchange *x, struct slice content_type) MUST_CHECK;
/** Take request bytes (framed). @return bytes used, or a negative error: PROTO (bad chunk), RANGE (above limits.body), FULL (buffers). */
int64_t body_receive(struct exchange *x, const char *p, size_t n) MUST_CHECK;
/** May the decision be made now? */
bool body_decidable(const struct exchange *x);
/** Move what was found into the features. */
void body_found(struct exchange *x);
/** Put another model name into the kept body (alias). @return 0, or WEIR_E_NOTFOUND, WEIR_E_NOMEM. */
int body_rename_model(struct exchange *x, struct slice model) MUST_CHECK;
/**
 * For a policy that counts work: prefix blocks of the body that is here, tokens as the model counts them, expected output.
 * The model must be known.
 */
void body_prefix(struct exchange *x);
/** The decision is made: let the scanner go. */
void body_scanned(struct exchange *x);
/** Send upstream what may be sent, after the two slices (head), which may be empty. */
void body_push(struct exchange *x, struct slice head, struct slice tail);
void body_pump(struct exchange *x);
/** Keep the process's count of buffered bytes in step with what this exchange holds. */
void body_charge(struct exchange *x);
bool body_replayable(const struct exchange *x);
void body_free(struct exchange *x);

/* alias.c (pure) */
/** Byte range of the string value of the top-level key "model", quotes included. @return false when there is none. */
bool alias_find_json(struct slice body, size_t *from, size_t *to);
/** Byte range of the value of the form field "model". @param delimiter CR LF -- boundary. */
bool alias_find_form(struct slice body, struct slice delimiter, size_t *from, size_t *to);

/* exchange.c */
void exchange_move(struct exchange *x, enum exchange_state to);
/**
 * A parsed head: make the exchange of c. It may be over when this returns (c->x is NULL then).
 * @param end just past the head. @param n bytes that follow it. @return how many of them were used.
 */
size_t exchange_begin(struct client *c, const struct http1_head *h, const char *end, size_t n);
/** Request bytes of the exchange. @return bytes used. */
size_t exchange_request_data(struct exchange *x, const char *p, size_t n);
/** The client sent FIN. */
void exchange_client_eof(struct exchange *x);
/** Answer with an error of Weir's and end. Before X_RELAY only. @param param may be NULL. */
void exchange_reject(struct exchange *x,
                     enum rejection code,
                     const char *param,
                     struct slice detail);
/** Say in the log what its endpoint did wrong ("broke off ..."), at most once a second. Nothing without an endpoint. */
void exchange_blame(const struct exchange *x, const char *what);
/** Count it, once, before its last byte goes out: whoever has the answer finds it counted. */
void exchange_count(struct exchange *x, enum proxy_outcome outcome);
/** The only door out. */
void exchange_end(struct exchange *x, enum proxy_outcome outcome, enum fate fate);
/** Earliest time at which exchange_timeout() must be called; 0 = none. */
uint64_t exchange_due(const struct exchange *x);
void exchange_timeout(struct exchange *x);
/** Go for an endpoint: pick, queue or refuse. */
void exchange_decide(struct exchange *x);
/** The grant of another thread arrived. */
void exchange_granted(struct loop_job *j);
/** Drop a reservation for x, its own or one that was not used, and offer the room. */
void exchange_release(struct exchange *x, struct reservation *r);
void exchange_sweep(struct lane *l);
/** Free what waits for grants that will not come, once the loops stand still. */
void exchange_fini(struct lane *l);
/** Drop the rendered head: nothing will be sent again. */
void exchange_drop_head(struct exchange *x);
/** Send head and body on the connected upstream. */
void exchange_send(struct exchange *x);
static inline struct slice exchange_method(const struct exchange *x)
{
    return slice_of(x->head.p + x->head.from, x->method_len);
}
static inline struct slice exchange_request_id(const struct exchange *x)
{
    return x->rid_len ? slice_of(x->head.p + x->head.from + x->rid_at, x->rid_len)
                      : (struct slice){NULL, 0};
}
static inline struct slice exchange_path(const struct exchange *x)
{
    return x->path_len ? slice_of(x->head.p + x->head.from + x->path_at, x->path_len)
                       : (struct slice){NULL, 0};
}

/* attempt.c */
/** The exchange has a reservation: find its target and a connection. */
void attempt_start(struct exchange *x);
/** No connection could be made. */
void attempt_connect_failed(struct exchange *x, int error);
/** The connection ended before any answer byte, or with half a head. */
void attempt_broke(struct exchange *x);
/** A worker says 429 or 503: go to another one? @return true when the exchange left this upstream. */
bool attempt_repick(struct exchange *x);

/* decide.c */
/** Find x->pool by the features. @param detail out: what the client called the model. @return REJECT_NONE, or why not. */
enum rejection decide_pool(struct exchange *x, struct slice *detail);
/** Would its queue refuse a newcomer? Asked before the body is there. */
bool decide_full(struct exchange *x, struct pool *pool);
/** Which model is meant, by its real name. @param detail out: what the client called it. */
enum rejection decide_model(struct exchange *x, struct slice *name, struct slice *detail);

/* upstream.c */
/** The target of a granted cell; made from the snapshot when new. NULL when the endpoint is gone or memory is short. */
struct target *upstream_target(struct lane *l, struct cell *cell);
/** This generation in the newest snapshot, until asker_done(); NULL = it is not in the fleet. */
const struct member *upstream_member(struct asker *a, const struct cell *cell);
/** Is this generation in the fleet now? */
bool upstream_listed(struct asker *a, const struct cell *cell);
void upstream_target_put(struct lane *l, struct target *t);
/** A pooled connection, or NULL. */
struct upstream *upstream_take(struct exchange *x);
/** A new one; exchange_send() or attempt_connect_failed() follows, never inside. */
int upstream_connect(struct exchange *x) MUST_CHECK;
/** Detach from the exchange: back to the pool, or closed. */
void upstream_put(struct upstream *u);
void upstream_drop(struct upstream *u);
/** Close it politely: what is queued is written, then FIN; u is gone for the caller. */
void upstream_linger(struct upstream *u);
/** Idle connections that are too old, targets that left the fleet. @param all true: everything idle. */
void upstream_sweep(struct lane *l, bool all);
void upstream_fini(struct lane *l);

/* relay.c */
/** Bytes of the worker. @return bytes used. */
size_t relay_data(struct exchange *x, const char *p, size_t n);
/** Slow the worker down when the client is slow; after anything was sent to the client. */
void relay_throttle(struct exchange *x);
/** The worker's FIN or death, in X_AWAIT or X_RELAY. */
void relay_end_of_stream(struct exchange *x, bool clean);

/* fastchat.c */
/** Does this endpoint need this request in other words? */
bool fastchat_speaks(const struct exchange *x);
/** It is connected: translate from here on. Followed by fastchat_pump(), now and whenever more of the body came. */
int fastchat_begin(struct exchange *x) MUST_CHECK;
/** Ask, once the request is whole. The exchange may be over. */
void fastchat_pump(struct exchange *x);
/** Bytes of the worker. @return bytes used. */
size_t fastchat_data(struct exchange *x, const char *p, size_t n);
/** Its FIN. */
void fastchat_eof(struct exchange *x);
/** Free the translation, if there is one. */
void fastchat_end(struct exchange *x);
/** Free what is remembered of a worker. */
void fastchat_forget(struct target *t);

/* tunnel.c */
/** The protocols that a request offers to switch to and that are passed on; absent: none. Borrowed from the head. */
struct slice tunnel_asked(const struct http1_head *h);
/** Is this 101 an answer to what the client offered? */
bool tunnel_accepts(const struct exchange *x, const struct http1_head *h);
/** The worker switched. @param end past its head. @param more what it sent after it. The exchange may be over. */
void tunnel_begin(struct exchange *x,
                  const struct http1_head *h,
                  const char *end,
                  struct slice more);
size_t tunnel_from_worker(struct exchange *x, const char *p, size_t n);
size_t tunnel_from_client(struct exchange *x, const char *p, size_t n);
/** The worker took all that was queued. */
void tunnel_drained(struct exchange *x);
/** A FIN; the exchange may be over. */
void tunnel_client_eof(struct exchange *x);
void tunnel_worker_eof(struct exchange *x);

/* offer.c */
/** Endpoint `cell` may have room: offer it to pools with waiters, in rotation. */
void offer_cell(struct asker *a, const struct cell *cell);
/** Offer to every pool with waiters (its members changed). */
void offer_all(struct asker *a);
/** The end of a reservation: release it and offer its room. Harmless on an empty one. */
void offer_release(struct asker *a, struct reservation *r);
/** Offer to one pool: somebody just queued there. */
void offer_pool(struct asker *a, struct pool *p);

/* interrupt.c */
struct interrupt;
/**
 * Its client left. @return what stops its job on a Stable Diffusion webui, to be given to interrupt_post(); NULL: there is
 * none, or it must not be stopped, or no memory. Before the exchange leaves X_AWAIT. Cost: nothing for other paths.
 */
struct interrupt *interrupt_for(struct exchange *x);
/** Takes the reservation over, and leaves an empty one; it ends once the webui has answered. */
void interrupt_post(struct interrupt *i, struct reservation *r);
/** Give up those under way. Lanes and the control loop have stopped. Control thread. */
void interrupts_free(struct proxy *p);

/* own.c */
/** Weir's own paths. @return true when the request was answered (the exchange is over). */
bool own_answer(struct exchange *x, const struct http1_head *h);

/* error.c */
unsigned error_status(enum rejection code);
const char *error_code(enum rejection code);
/** How metrics count it. */
enum proxy_outcome error_outcome(enum rejection code);
struct error_answer {
    enum rejection code;
    unsigned status;        /**< 0: the code's own */
    unsigned retry_after_s; /**< of a 429 or 503; 0: 1 */
    const char *message;    /**< NULL: the code's own */
    const char *param;      /**< NULL: null */
    struct slice detail;    /**< appended to the message in backquotes; absent: nothing */
    struct slice request_id;
    struct slice explain; /**< JSON of at most EXPLAIN_HEADER_MAX bytes; absent: nothing */
    bool close, head_only;
};
/** A whole answer into out. */
void error_write(struct buf *out, const struct error_answer *e);

/* tenant.c */
/** Whose request it is, by its features; counts it. @return REJECT_NONE, or REJECT_RATE_LIMITED. */
enum rejection tenant_enter(struct exchange *x);
/**
 * It is about to be sent or queued for the first time: take the tokens that are expected of its tenant's allowance.
 * Harmless without a tenant, or when repeated. @return REJECT_NONE, or REJECT_RATE_LIMITED.
 */
enum rejection tenant_take_tokens(struct exchange *x);
/** It is answered: count what it used. @param queued_ns its wait. Harmless without a tenant. */
void tenant_leave(struct exchange *x, uint64_t queued_ns);
/** Set right what the tenant was charged for this reservation; before it is released. */
void tenant_settle(struct exchange *x, struct reservation *r);

/* judge.c */
/** A connection to the endpoint of x failed. */
void judge_connect(struct exchange *x);
/** Its answer broke off, never began or is a 5xx. */
void judge_failure(struct exchange *x);
/** No first byte in time. */
void judge_timeout(struct exchange *x);
/** Payload came, or the end of an answer without any. @param more it is not the first. */
void judge_answer(struct exchange *x, bool more);
/** From time to time: does it wait for a silent endpoint? */
void judge_wait(struct exchange *x);

/* access_log.c */
void access_log_add(struct exchange *x, enum proxy_outcome outcome);

#endif /* WEIR_PROXY_EXCHANGE_H */
