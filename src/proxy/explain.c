/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why, for a request that passes through (X-Weir-Explain), and for one that is only asked about. The latter is written
 * down as a head and goes through the same functions as a real one, on a lane and a client of its own that have no
 * sockets, so that an explanation cannot differ from what would happen. It is asked of the live pool where there is
 * one, with its rotation as it stands, and leaves that as it was.
 */
#include "base/num.h"
#include "loop/log.h"
#include "proxy/decision_log.h"
#include "proxy/decisions.h"
#include "sched/record.h"

bool explain_asked(const struct plan *p, const struct request_fields *f)
{
    if (!slice_eq(slice_trim(f->explain), SLICE("1")))
        return false;
    if (log_get_level() == LOG_DEBUG)
        return true;
    return p->admin_token && f->token.n && slice_same_secret(f->token, slice_str(p->admin_token));
}

void explain_put_header(struct buf *out, const struct exchange *x)
{
    if (!x->explain)
        return;
    buf_put_str(out, "X-Weir-Explain: ");
    if (x->explain_waited) {
        char text[SCHED_RECORD_ID_MAX + 2];
        struct buf id = {.p = text, .cap = sizeof(text), .max = sizeof(text)};
        for (size_t i = 0; x->target && i < MIN(x->target->id.n, (size_t)SCHED_RECORD_ID_MAX);
             i++) {
            char c = x->target->id.p[i];
            buf_put_char(&id, c >= ' ' && c < 0x7f ? c : '?');
        }
        buf_put_str(out, "{\"chosen\":");
        buf_put_json(out, buf_slice(&id));
        buf_put_str(out, ",\"waited_ms\":");
        buf_put_f64(out, (double)x->queue_ns / 1e6, 3);
        buf_put_str(out, ",\"before\":");
    }
    buf_put(out, x->explain, x->explain_len);
    buf_put_str(out, x->explain_waited ? "}\r\n" : "\r\n");
}

/* ---- a request that is only asked about ---- */

struct asking {
    struct lane lane;
    struct client client;
    struct exchange x;
    struct buf text; /* the head */
    struct route_answer {
        enum rejection why;
        const char *param;
        struct slice detail;
    } no;
};

static int refuse(struct buf *out, const char *message)
{
    buf_clear(out);
    buf_put_str(out, message);
    return WEIR_E_INVALID;
}

static bool clean(struct slice v)
{
    for (size_t i = 0; i < v.n; i++)
        if (v.p[i] == '\r' || v.p[i] == '\n' || v.p[i] == '\0')
            return false;
    return true;
}

/* What belongs to a connection or to framing is ours to write. */
static bool framing_field(struct slice name)
{
    static const struct slice ours[] = {
        {"Host", 4},   {"Connection", 10}, {"Content-Length", 14}, {"Transfer-Encoding", 17},
        {"Expect", 6}, {"Upgrade", 7}};

    for (size_t i = 0; i < ARRAY_LEN(ours); i++)
        if (slice_eq_nocase(name, ours[i]))
            return true;
    return false;
}

static int write_head(const struct proxy_question *q, struct buf *text, struct buf *out)
{
    buf_put_slice(text, q->method.p ? q->method : SLICE("POST"));
    buf_put_char(text, ' ');
    buf_put_slice(text, q->path.p ? q->path : SLICE("/v1/chat/completions"));
    struct slice host = SLICE("weir");
    for (uint32_t i = 0; i < q->n_headers; i++)
        if (slice_eq_nocase(q->headers[i].key, SLICE("Host")))
            host = q->headers[i].value;
    buf_put_str(text, " HTTP/1.1\r\nHost: ");
    buf_put_slice(text, host);
    buf_put(text, "\r\n", 2);
    if (!clean(q->method) || !clean(q->path))
        return refuse(out, "method and path are single lines");
    for (uint32_t i = 0; i < q->n_headers; i++) {
        if (!clean(q->headers[i].key) || !clean(q->headers[i].value))
            return refuse(out, "headers are single lines");
        if (framing_field(q->headers[i].key))
            continue;
        buf_put_slice(text, q->headers[i].key);
        buf_put_str(text, ": ");
        buf_put_slice(text, q->headers[i].value);
        buf_put(text, "\r\n", 2);
    }
    if (q->body.p) {
        buf_put_str(text, "Content-Length: ");
        buf_put_u64(text, q->body.n);
        buf_put(text, "\r\n", 2);
    }
    buf_put(text, "\r\n", 2);
    return text->err == WEIR_E_FULL ? refuse(out, "the request's head is too large") : text->err;
}

static struct asking *asking_new(struct proxy *p)
{
    struct asking *a = mem_zalloc(p->mem, sizeof(*a));

    if (!a)
        return NULL;
    a->lane.proxy = p;
    a->lane.loop = p->control;
    a->lane.asker.proxy = p;
    a->lane.asker.prng.state = loop_clock() ^ loop_wall_clock();
    a->lane.asker.snap = atomic_load(&p->snapshot); /* freed by this thread only */
    list_init(&a->lane.scans);
    a->client.lane = &a->lane;
    a->x.lane = &a->lane;
    a->x.client = &a->client;
    a->x.plan = atomic_load(&p->plan); /* likewise */
    a->x.start_ns = loop_now(p->control);
    buf_init(&a->text, p->mem, plan_now(p)->routing->limits.header_bytes);
    return a;
}

static void asking_free(struct proxy *p, struct asking *a)
{
    body_free(&a->x);
    exchange_drop_head(&a->x);
    while (!list_empty(&a->lane.scans)) {
        struct list *node = a->lane.scans.next;
        list_del(node);
        mem_free(loop_mem(), container_of(node, struct scan, node));
    }
    for (unsigned i = 0; i < a->lane.n_spare; i++)
        buf_fini(&a->lane.spare[i]);
    buf_fini(&a->text);
    mem_free(p->mem, a);
}

/* Head and body to features, as exchange_begin() and exchange_request_data() do it. @return 0; INVALID; NOMEM. */
static int read_request(struct asking *a, const struct proxy_question *q, struct buf *out)
{
    struct exchange *x = &a->x;
    struct http1_head *h = &a->lane.head;
    struct http1_error error;
    struct request_fields fields;

    int rc = write_head(q, &a->text, out);
    if (rc)
        return rc;
    struct slice text = buf_slice(&a->text);
    int64_t took = wire_http1_request(text.p, text.n, x->plan->routing->limits.headers, h, &error);
    if (took <= 0)
        return refuse(out, took ? error.message : "this is not one request head");
    x->framing = h->framing;
    x->body_left = h->content_length;
    x->complete = q->body.n == 0;
    const struct route *route = route_of(x->plan->routing, h);
    a->no.why = route_head(x, route, h, text.p + took, &fields);
    if (!a->no.why) {
        x->route = route;
        a->no.why = x->route ? route_features(x, h, &fields, &a->no.param, &a->no.detail)
                             : REJECT_ROUTE_NOT_FOUND;
    }
    uint64_t body_max = x->plan->routing->limits.body_bytes;
    if (!a->no.why && body_max && q->body.n > body_max)
        a->no.why = REJECT_BODY_TOO_LARGE;
    if (a->no.why)
        return 0;
    if (!body_begin(x, fields.content_type))
        return WEIR_E_NOMEM;
    if (q->body.n && body_receive(x, q->body.p, q->body.n) < 0)
        return WEIR_E_NOMEM;
    body_found(x);
    if (q->prompt_tokens) {
        x->f.prompt_tokens = q->prompt_tokens;
        x->f.prompt_bytes = MIN(q->prompt_tokens, UINT64_MAX / 4) * 4;
    }
    if (q->output_tokens)
        x->f.output_tokens = q->output_tokens;
    return 0;
}

static struct pool *pool_find(struct proxy *p, const struct exchange *x, struct slice model)
{
    pthread_mutex_lock(&p->pools_lock);
    struct pool *pool = map_get(&plan_route(x->plan, x->route)->track->pools, model);
    pthread_mutex_unlock(&p->pools_lock);
    return pool;
}

/* Ask a pool that is there. The lock of a live one is held by pool_enter(). */
static void
ask(struct sched_pool *pool, struct asking *a, struct asker *asker, struct sched_record *record)
{
    struct decision d;

    asker->scratch.record = record;
    sched_pool_explain(pool, &a->x.f, loop_clock(), prng_next(&a->lane.asker.prng), &asker->scratch,
                       &d, record->why);
    asker->scratch.record = NULL;
}

/* Nobody has asked for this model yet: a pool for this one question. */
static int ask_new(struct proxy *p, struct asking *a, struct sched_record *record)
{
    struct sched_pool_options o = {.mem = p->mem,
                                   .policy = a->x.route->policy,
                                   .queue = &a->x.route->queue,
                                   .labels = a->x.route->labels,
                                   .n_labels = a->x.route->n_labels,
                                   .lore = p->lore};
    const struct snapshot *s = a->lane.asker.snap;
    struct asker *asker = &p->control_asker;
    struct sched_pool *pool;

    int rc = sched_pool_new(&o, &pool);
    if (rc)
        return rc;
    rc = sched_pool_refresh(pool, s, a->x.f.model);
    if (rc == 0)
        rc = sched_scratch_reserve(&asker->scratch, p->mem, sched_pool_members(pool));
    if (rc == 0)
        ask(pool, a, asker, record);
    sched_pool_free(pool);
    return rc;
}

static uint64_t kv_bytes(const struct routing *r, struct slice model)
{
    for (uint32_t i = 0; i < r->n_models; i++)
        if (slice_eq(r->models[i].id, model))
            return r->models[i].kv_bytes_per_token;
    return 0;
}

static int decide(struct proxy *p, struct asking *a, struct sched_record *record)
{
    struct exchange *x = &a->x;
    const struct snapshot *s = a->lane.asker.snap;
    struct slice name;

    a->no.why = decide_model(x, &name, &a->no.detail);
    if (!a->no.why && !(s && (!name.n || model_find(s, name))))
        a->no.why = s && s->synced ? REJECT_MODEL_NOT_FOUND : REJECT_STARTING;
    if (a->no.why) {
        a->no.param = a->no.why == REJECT_STARTING ? NULL : "model";
        return 0;
    }
    x->f.model = name;
    x->f.kv_bytes_per_token = kv_bytes(x->plan->routing, name);
    body_prefix(x);
    struct pool *pool = pool_find(p, x, name);
    if (!pool)
        return ask_new(p, a, record);
    if (!pool_enter(&p->control_asker, pool))
        return WEIR_E_NOMEM;
    ask(pool->sched, a, &p->control_asker, record);
    pool_leave(&p->control_asker, pool);
    return 0;
}

static bool in_record(const struct sched_record *r, const struct endpoint *e)
{
    uint32_t from = 0;
    uint32_t to = r->captured ? r->n : 0;

    while (from < to) {
        uint32_t mid = from + (to - from) / 2;
        if (r->rows[mid].slot < e->slot)
            from = mid + 1;
        else
            to = mid;
    }
    return r->captured && from < r->n && r->rows[from].slot == e->slot &&
           r->rows[from].generation == e->generation;
}

/* Those that did not even come into the pool: they have other models or labels, or are switched off. */
static void
put_elsewhere(const struct asking *a, const struct sched_record *record, struct buf *out)
{
    const struct snapshot *s = a->lane.asker.snap;
    bool any = false;

    buf_put_str(out, ",\"elsewhere\":[");
    for (uint32_t i = 0; s && a->x.f.model.n && i < s->n_members; i++) {
        const struct endpoint *e = s->members[i].endpoint;
        if (in_record(record, e))
            continue;
        buf_put_str(out, any ? ",{\"endpoint\":" : "{\"endpoint\":");
        buf_put_json(out, e->id);
        buf_put_str(out,
                    !e->enabled ? ",\"rule\":\"usable\",\"why\":\"disabled\"}"
                    : a->x.route && !model_labelled(e, a->x.route->labels, a->x.route->n_labels)
                        ? ",\"rule\":\"labels\",\"why\":\"lacks a label that the route asks for\"}"
                        : ",\"rule\":\"model\",\"why\":\"does not have this model\"}");
        any = true;
    }
    buf_put_str(out, "]}");
}

static void put_answer(const struct asking *a, const struct sched_record *record, struct buf *out)
{
    enum rejection why = a->no.why;

    buf_put_str(out, "{\"route\":");
    if (a->x.route)
        buf_put_json(out, route_name(a->x.route));
    else
        buf_put_str(out, "null");
    buf_put_char(out, ',');
    if (record->captured) {
        (void)sched_record_explain(out, record);
        put_elsewhere(a, record, out);
        return;
    }
    buf_put_str(out, "\"chosen\":null,\"rejection\":");
    buf_put_json(out, slice_str(error_code(why)));
    if (a->no.param) {
        buf_put_str(out, ",\"param\":");
        buf_put_json(out, slice_str(a->no.param));
    }
    if (a->no.detail.n) {
        buf_put_str(out, ",\"value\":");
        buf_put_json(out, slice_of(a->no.detail.p, MIN(a->no.detail.n, (size_t)256)));
    }
    buf_put_str(out, ",\"waits\":false,\"fit\":0,\"endpoints\":[]");
    put_elsewhere(a, record, out);
}

int proxy_explain(struct proxy *p, const struct proxy_question *q, struct buf *out)
{
    const struct snapshot *s = atomic_load(&p->snapshot);
    struct sched_record *record = NULL;
    struct asking *a = asking_new(p);

    if (!a)
        return WEIR_E_NOMEM;
    int rc = sched_record_new(p->mem, s ? s->n_members : 0, &record);
    if (rc == 0)
        rc = read_request(a, q, out);
    if (rc == 0 && !a->no.why)
        rc = decide(p, a, record);
    if (rc == 0) {
        put_answer(a, record, out);
        rc = out->err;
    }
    sched_record_free(record);
    asking_free(p, a);
    return rc;
}
