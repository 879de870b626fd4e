/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From features to an endpoint: which model is meant, its pool, and then reserved, queued or refused.
 */
#include "base/num.h"
#include "proxy/decision_log.h"

/* One decision in so many is timed. */
enum { DECISION_SAMPLE = 16 };

static const struct slice absent = {NULL, 0};

/* The model of a request that names none: the route's default, else the only live one. */
static struct slice unnamed(struct exchange *x)
{
    const struct snapshot *s = x->lane->asker.snap;

    if (x->route->default_model.n)
        return x->route->default_model;
    for (uint32_t i = 0; s && s->n_live_models == 1 && i < s->n_models; i++)
        if (s->models[i].n_members)
            return s->models[i].id;
    return absent;
}

/* A live model of that very name beats an alias. */
static struct slice resolve(struct exchange *x, struct slice name)
{
    const struct model_config *m = plan_alias(x->plan, name);

    if (!m)
        return name;
    const struct snapshot_model *live =
        x->lane->asker.snap ? model_find(x->lane->asker.snap, name) : NULL;
    if (live && live->n_members)
        return name;
    x->alias = true;
    return m->id;
}

enum rejection decide_model(struct exchange *x, struct slice *out, struct slice *detail)
{
    struct slice name = x->f.model;

    if (!name.n) {
        /* Not found within what may be looked at is not the same as not named. */
        if (!x->route->default_model.n && !x->complete &&
            buf_len(&x->body) >= x->plan->routing->limits.peek_bytes)
            return REJECT_BODY_TOO_LARGE;
        name = unnamed(x);
        if (!name.n && x->any_model) {
            *out = absent;
            return REJECT_NONE;
        }
        if (!name.n) {
            const struct snapshot *s = x->lane->asker.snap;
            return s && s->synced ? REJECT_MODEL_REQUIRED : REJECT_STARTING;
        }
    }
    *detail = x->f.model;
    *out = resolve(x, name);
    return REJECT_NONE;
}

/* A version that stands in the path is the engine's to know, unless endpoints tell theirs. */
static bool version_told(const struct exchange *x)
{
    const struct snapshot *s = x->lane->asker.snap;
    const struct snapshot_model *m = s ? model_find(s, x->f.model) : NULL;

    for (uint32_t i = 0; m && i < m->n_members; i++) {
        const struct endpoint *e = s->members[m->members[i]].endpoint;
        for (uint32_t k = 0; k < e->n_models; k++)
            if (slice_eq(e->models[k].id, x->f.model) &&
                slice_eq(e->models[k].version, x->f.version))
                return true;
    }
    return false;
}

enum rejection decide_pool(struct exchange *x, struct slice *detail)
{
    bool named_in_request = x->f.model.n && !x->model_in_header;
    struct slice name;

    enum rejection why = decide_model(x, &name, detail);
    if (why)
        return why;
    x->pool = pool_get(x->lane, x->plan, x->route, name, &why);
    if (!x->pool)
        return why;
    x->alias = x->alias && named_in_request;
    x->f.model = x->pool->model;
    if (x->version_in_path && !version_told(x))
        x->f.version = absent;
    x->f.kv_bytes_per_token =
        atomic_load_explicit(&x->pool->kv_bytes_per_token, memory_order_relaxed);
    return REJECT_NONE;
}

bool decide_full(struct exchange *x, struct pool *pool)
{
    struct lane *l = x->lane;

    if (atomic_load_explicit(&pool->waiting, memory_order_relaxed) < x->route->queue.size)
        return false;
    /* Those who wait may want more than there is, and this one less. */
    if (!pool_enter(&l->asker, pool))
        return false;
    bool room = sched_pool_room(pool->sched, loop_clock(), &l->asker.scratch);
    pool_leave(&l->asker, pool);
    return !room;
}

/* The worker knows the model by its real name only. */
static bool rename_alias(struct exchange *x)
{
    if (!x->alias)
        return true;
    x->alias = false;
    return (x->model_in_path    ? route_rename_path(x, x->f.model)
            : x->model_in_query ? route_rename_query(x, x->f.model)
                                : body_rename_model(x, x->f.model)) == 0;
}

static void count_pick(struct exchange *x, const struct decision *d, uint64_t began)
{
    struct lane *l = x->lane;
    struct stat_series *s = stats_series(&l->stats, x->pool->series);

    if (began)
        stats_hist_add(&l->stats.decision, proxy_decision_bounds, loop_clock() - began);
    if (!s)
        return;
    stat_add(&s->picks, 1);
    stat_add(&s->fit_sum, d->fit);
    stat_add(&s->offered_sum, atomic_load_explicit(&x->pool->members, memory_order_relaxed));
}

void exchange_decide(struct exchange *x)
{
    struct lane *l = x->lane;
    struct slice detail = absent;
    struct decision d = {.rejection = REJECT_NONE};
    struct member chosen;

    if (x->f.deadline_ns && loop_now(l->loop) >= x->f.deadline_ns) {
        exchange_reject(x, REJECT_DEADLINE_EXCEEDED, NULL, absent);
        return;
    }
    enum rejection why = x->pool ? REJECT_NONE : decide_pool(x, &detail);
    if (why) {
        exchange_reject(
            x, why, why == REJECT_MODEL_NOT_FOUND || why == REJECT_MODEL_REQUIRED ? "model" : NULL,
            why == REJECT_MODEL_NOT_FOUND ? detail : absent);
        return;
    }
    if (!rename_alias(x)) {
        exchange_reject(x, REJECT_OVERLOADED, NULL, absent);
        return;
    }
    body_prefix(x);
    body_scanned(x);
    if (tenant_take_tokens(x) != REJECT_NONE) {
        exchange_reject(x, REJECT_RATE_LIMITED, NULL, absent);
        return;
    }
    uint64_t now = loop_clock();
    uint64_t began = l->decisions++ % DECISION_SAMPLE == 0 ? now : 0;
    if (!pool_enter(&l->asker, x->pool)) {
        exchange_reject(x, l->asker.snap ? REJECT_OVERLOADED : REJECT_STARTING, NULL, absent);
        return;
    }
    decision_arm(&l->asker, x->explain_asked, now);
    int rc = sched_pool_admit(x->pool->sched, &x->f, &x->exclude, now, prng_next(&l->asker.prng),
                              &l->asker.scratch, &x->reservation, &chosen, &d);
    int queued = WEIR_E_FULL;
    if (rc == WEIR_E_AGAIN) {
        x->waiter = (struct sched_waiter){.features = &x->f,
                                          .exclude = &x->exclude,
                                          .reservation = &x->reservation,
                                          .prefill_us = d.prefill_us};
        queued = sched_pool_enqueue(x->pool->sched, &x->waiter, now);
        if (queued == 0) {
            x->queue_from_ns = loop_now(l->loop);
            exchange_move(x, X_QUEUE);
        }
    }
    pool_leave(&l->asker, x->pool);
    count_pick(x, &d, began);
    decision_keep(&l->asker, x);
    if (rc == 0) {
        attempt_start(x);
    } else if (queued == 0) {
        client_arm(x->client);
        /* Room may have come between the pick and the queue; see offer.c. */
        offer_pool(&l->asker, x->pool);
    } else if (rc == WEIR_E_AGAIN) {
        exchange_reject(x, queued == WEIR_E_TIMEOUT ? x->waiter.rejection : REJECT_QUEUE_FULL, NULL,
                        absent);
    } else if (x->exclude.n && d.rejection != REJECT_SLO_UNREACHABLE) {
        exchange_reject(x, REJECT_UPSTREAM_FAILED, NULL, absent);
    } else {
        x->waiter.late_us = d.late_us;
        exchange_reject(x, d.rejection ? d.rejection : REJECT_NO_ENDPOINT, NULL, absent);
    }
}

void exchange_granted(struct loop_job *j)
{
    struct exchange *x = container_of(j, struct exchange, grant_job);
    struct lane *l = x->lane;

    if (x->state == X_ORPHAN) {
        decision_granted(x);
        decision_end(x, x->rejection ? error_outcome(x->rejection) : OUTCOME_CLIENT_GONE);
        exchange_move(x, X_ENDED);
        list_del(&x->node);
        list_add(&l->dead_exchanges, &x->node);
        exchange_release(x, &x->reservation);
        return;
    }
    BUG_ON(x->state != X_QUEUE || (!x->reservation.cell && !x->waiter.rejection));
    x->queue_ns += loop_now(l->loop) - x->queue_from_ns;
    decision_granted(x);
    if (x->f.deadline_ns && loop_now(l->loop) >= x->f.deadline_ns) {
        /* Its timer is due in this very turn. The place goes to the next one. */
        exchange_move(x, X_CONNECT);
        exchange_reject(x, REJECT_DEADLINE_EXCEEDED, NULL, absent);
        return;
    }
    if (x->waiter.rejection) {
        exchange_move(x, X_CONNECT);
        exchange_reject(x, x->waiter.rejection, NULL, absent);
        return;
    }
    attempt_start(x);
}

static bool has_body(const struct exchange *x)
{
    return x->framing != HTTP1_BODY_NONE;
}

void exchange_send(struct exchange *x)
{
    struct buf *out = &x->lane->out;

    exchange_move(x, X_AWAIT);
    if (x->target->fastchat && fastchat_speaks(x)) {
        if (fastchat_begin(x) != 0) {
            exchange_reject(x, REJECT_OVERLOADED, NULL, absent);
            return;
        }
        if (!x->complete)
            net_conn_resume(&x->client->conn);
        fastchat_pump(x);
        return;
    }
    buf_clear(out);
    buf_put_str(out, "Host: ");
    buf_put_slice(out, x->target->authority);
    buf_put(out, "\r\n", 2);
    x->up_chunked = false;
    if (x->framing == HTTP1_BODY_CHUNKED && !x->complete) {
        x->up_chunked = true;
        buf_put_str(out, "Transfer-Encoding: chunked\r\n");
    } else if (has_body(x)) {
        /* A chunked body that is here whole needs no chunks any more. */
        buf_put_str(out, "Content-Length: ");
        buf_put_u64(out, x->framing == HTTP1_BODY_LENGTH ? x->f.body_bytes : buf_len(&x->body));
        buf_put(out, "\r\n", 2);
    }
    if (x->forward_expect)
        buf_put_str(out, "Expect: 100-continue\r\n");
    buf_put(out, "\r\n", 2);
    if (out->err) {
        exchange_reject(x, REJECT_OVERLOADED, NULL, absent);
        return;
    }
    x->head_sent = true;
    body_push(x, buf_slice(&x->head), buf_slice(out));
    if (!x->complete && net_conn_queued(&x->up->conn) <= HIGH_WATER)
        net_conn_resume(&x->client->conn);
}
