/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Endpoints from etcd v3 through its JSON gateway: all keys below the prefix, then a watch from the next revision on.
 * Whatever ends the watch (a compaction, a restart, another server) is followed by a new list, which is right whatever was
 * missed. With a user each round logs in first: some servers hang up on an old token without a word.
 */
#include "base/num.h"
#include "confio/confio.h"
#include "discovery/etcd_read.h"
#include "discovery/remote.h"
#include "loop/alloc.h"
#include "loop/log.h"

enum {
    REQUEST_MAX = 8192,
    STREAM_KEPT = 64 << 10,
    ANSWER_BYTES_MAX = 128 << 20,
    LINE_MAX_BYTES = 32 << 20
};

static const uint64_t TIMEOUT_NS = 10 * NS_PER_S;
static const uint64_t GAP_NS = 200 * NS_PER_MS; /* between two lists, whatever ends the watch */

/* By age of the server: 3.4 and later, 3.3, before. */
static const char *const roots[] = {"/v3", "/v3beta", "/v3alpha"};

enum step { STEP_LOGIN, STEP_LIST, STEP_WATCH };

struct etcd {
    struct remote remote;
    struct remote_call call;
    struct source_list list;
    enum step step;
    char *password; /* NULL: nobody logs in */
    char *token;
    struct buf stream;       /* of the watch, not read yet */
    struct loop_timer lines; /* not inside fetch's callback: the fleet may want to fetch */
    uint64_t revision;
    uint64_t listed_ns;
    unsigned root;
    bool listed;
};

/* --- asking --- */

static int write_request(const struct etcd *e, struct buf *body)
{
    const struct conf_source *conf = e->remote.conf;

    if (e->step == STEP_LOGIN)
        return etcd_write_login(body, conf->username, slice_str(e->password));
    buf_put_str(body, e->step == STEP_WATCH ? "{\"create_request\":{" : "{");
    int rc = etcd_write_keys(body, conf->prefix);
    if (e->step == STEP_WATCH) {
        buf_put_str(body, ",\"progress_notify\":true,\"start_revision\":\"");
        buf_put_u64(body, e->revision + 1);
        buf_put_str(body, "\"}");
    }
    buf_put_char(body, '}');
    return rc ? rc : body->err;
}

static void begin_anew(struct etcd *e);

static void ask(struct remote_call *c)
{
    static const char *const calls[] = {
        [STEP_LOGIN] = "/auth/authenticate", [STEP_LIST] = "/kv/range", [STEP_WATCH] = "/watch"};
    struct etcd *e = container_of(c, struct etcd, call);
    char path[64];
    struct buf body;

    if (c->fetch) {
        begin_anew(e);
        remote_failed(c, "watch: no answer");
        return;
    }
    e->step = e->password && !e->token ? STEP_LOGIN : e->listed ? STEP_WATCH : STEP_LIST;
    size_t n = strlen(roots[e->root]);
    memcpy(path, roots[e->root], n);
    memcpy(path + n, calls[e->step], strlen(calls[e->step]) + 1);
    buf_init(&body, loop_mem(), REQUEST_MAX);
    buf_clear(&e->stream);
    if (e->step == STEP_LIST)
        e->listed_ns = loop_now(c->remote->env->loop);
    int rc = write_request(e, &body);
    const struct remote_request q = {
        .method = "POST",
        .path = path,
        .body = buf_slice(&body),
        .authorization = e->step == STEP_LOGIN ? NULL : e->token,
        .timeout_ns = e->step == STEP_WATCH ? 0 : TIMEOUT_NS,
        .streams = e->step == STEP_WATCH,
    };
    if (rc)
        remote_failed(c, "cannot ask: %s", err_text(rc));
    else
        remote_ask(c, &q);
    /* A watch has no end, but it has a beginning. */
    if (c->fetch && e->step == STEP_WATCH)
        remote_again(c, TIMEOUT_NS);
    buf_fini(&body);
}

/* From the beginning: log in, list, watch. */
static void begin_anew(struct etcd *e)
{
    confio_secret_free(loop_mem(), e->token);
    e->token = NULL;
    e->listed = false;
    loop_timer_cancel(&e->lines);
    if (e->call.fetch)
        fetch_cancel(e->call.fetch);
    e->call.fetch = NULL;
}

static void list_again(struct etcd *e)
{
    uint64_t now = loop_now(e->remote.env->loop);
    uint64_t next = e->listed_ns + GAP_NS;

    begin_anew(e);
    remote_again(&e->call, next > now ? next - now : 0);
}

/* --- answers --- */

static void put(struct etcd *e, struct arena *a, const struct etcd_kv *kv)
{
    struct slice prefix = e->remote.conf->prefix;
    struct instance i;
    char why[640];

    int rc = etcd_read_endpoint(a, kv, prefix, &i, why);
    if (rc == 0) {
        rc = source_list_put(&e->list, &i);
        if (rc)
            log_warn("discovery", "source=%s: %.*s is left out: %s", e->remote.source->o.name,
                     SLICE_ARG(kv->key), err_text(rc));
        return;
    }
    log_warn("discovery", "source=%s: %.*s: %s; what was known of it stays",
             e->remote.source->o.name, SLICE_ARG(kv->key), why);
    source_list_keep(&e->list, slice_from(kv->key, prefix.n));
}

static void tell(struct etcd *e, struct arena *a, const struct etcd_answer *answer)
{
    for (uint32_t i = 0; i < answer->n; i++)
        if (answer->kvs[i].deleted)
            source_list_miss(&e->list, slice_from(answer->kvs[i].key, e->remote.conf->prefix.n));
        else
            put(e, a, &answer->kvs[i]);
    source_list_end(&e->list);
}

static void on_list(struct etcd *e, const struct fetch_result *r)
{
    struct etcd_answer answer;
    struct arena a;

    arena_init(&a, loop_mem(), ANSWER_BYTES_MAX);
    int rc = etcd_read_range(&a, r->body, &answer);
    if (rc) {
        remote_failed(&e->call, "range: %s",
                      rc == WEIR_E_INVALID ? "the answer is not etcd's" : err_text(rc));
    } else {
        source_list_begin(&e->list);
        tell(e, &a, &answer);
        e->revision = answer.revision;
        e->listed = true;
        remote_worked(&e->call, 0);
    }
    arena_fini(&a);
}

static void on_token(struct etcd *e, const struct fetch_result *r)
{
    struct slice token;
    struct arena a;

    arena_init(&a, loop_mem(), ANSWER_BYTES_MAX);
    int rc = etcd_read_token(&a, r->body, &token);
    if (rc == 0)
        e->token = mem_strdup(loop_mem(), token);
    if (e->token)
        remote_again(&e->call, 0);
    else
        remote_failed(&e->call, "authenticate: no token in the answer");
    arena_fini(&a);
}

/* @return whether the watch goes on. */
static bool on_line(struct etcd *e, struct slice line)
{
    struct etcd_answer answer;
    struct arena a;
    bool on = true;

    arena_init(&a, loop_mem(), ANSWER_BYTES_MAX);
    int rc = etcd_read_watch(&a, line, &answer);
    if (rc || answer.canceled) {
        if (!rc && answer.compacted)
            log_info("discovery", "source=%s: the watch is behind a compaction; listing again",
                     e->remote.source->o.name);
        begin_anew(e);
        if (!rc && answer.compacted)
            remote_again(&e->call, GAP_NS);
        else
            remote_failed(&e->call, "watch: %.*s",
                          SLICE_ARG(rc             ? SLICE("not etcd's words")
                                    : answer.why.n ? answer.why
                                                   : SLICE("canceled")));
        on = false;
    } else if (answer.n) {
        source_list_resume(&e->list);
        tell(e, &a, &answer);
        e->revision = MAX(e->revision, answer.revision);
    } else {
        source_ok(e->remote.source);
    }
    arena_fini(&a);
    return on;
}

static void on_lines(struct loop_timer *t)
{
    struct etcd *e = container_of(t, struct etcd, lines);
    bool on = true;

    while (on) {
        struct slice s = buf_slice(&e->stream);
        size_t n = slice_find(s, '\n');
        if (n == s.n)
            break;
        on = n == 0 || on_line(e, slice_of(s.p, n));
        buf_consume(&e->stream, n + 1);
    }
    buf_slim(&e->stream, STREAM_KEPT);
}

static int on_data(void *call, struct slice piece)
{
    struct etcd *e = container_of(call, struct etcd, call);
    struct loop *loop = e->remote.env->loop;

    loop_timer_cancel(&e->call.timer);
    if (!loop_timer_active(&e->lines))
        loop_timer_set(loop, &e->lines, 0);
    return buf_put_slice(&e->stream, piece);
}

static void answered(struct remote_call *c, const struct fetch_result *r)
{
    struct etcd *e = container_of(c, struct etcd, call);

    if (e->step == STEP_WATCH && r->status == 200) {
        list_again(e); /* says soon enough whether the server is gone */
        return;
    }
    if (!r->error && r->status == 404 && e->step != STEP_WATCH && e->root + 1 < ARRAY_LEN(roots)) {
        e->root++;
        remote_again(c, 0);
        return;
    }
    if (r->error || r->status != 200) {
        static const char *const names[] = {"authenticate", "range", "watch"};
        e->root = 0;
        begin_anew(e);
        remote_refused(c, names[e->step], r);
    } else if (e->step == STEP_LOGIN) {
        on_token(e, r);
    } else {
        on_list(e, r);
    }
}

/* --- life --- */

static void etcd_close(void *adapter)
{
    struct etcd *e = adapter;

    remote_end(&e->call);
    loop_timer_cancel(&e->lines);
    buf_fini(&e->stream);
    confio_secret_free(loop_mem(), e->password);
    confio_secret_free(loop_mem(), e->token);
    mem_free(loop_mem(), e);
}

static int etcd_open(const struct discovery_env *env,
                     const struct conf_source *conf,
                     struct source *source,
                     void **out)
{
    struct etcd *e = mem_zalloc(loop_mem(), sizeof(*e));

    if (!e)
        return WEIR_E_NOMEM;
    remote_init(&e->remote, env, conf, source);
    e->call = (struct remote_call){
        .remote = &e->remote, .ask = ask, .answered = answered, .on_data = on_data};
    e->lines.on_timer = on_lines;
    buf_init(&e->stream, loop_mem(), LINE_MAX_BYTES);
    int rc = conf->username.n ? remote_secret(&e->remote, &conf->password, &e->password) : 0;
    if (rc) {
        etcd_close(e);
        return rc;
    }
    source_list_init(&e->list, source, SLICE("etcd"));
    *out = e;
    return 0;
}

static void etcd_begin(void *adapter)
{
    struct etcd *e = adapter;

    remote_begin(&e->call);
}

const struct adapter_kind discovery_etcd = {etcd_open, etcd_begin, etcd_close};
