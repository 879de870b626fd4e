/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One attempt after another, by the rules of design 5.4:
 * - a connect failure has consumed nothing: up to retry.connect_attempts other endpoints, outside the budget;
 * - a reused connection that died before any answer byte: once more on a fresh one, if the body is still held;
 * - a worker's 429 or 503: one other pick, else its answer is passed on unchanged;
 * - a fresh connection that died: only methods that are safe to repeat, or a route with retry_unsafe, once.
 * All but the first take from the retry budget; nothing is repeated after an answer byte reached the client.
 */
#include "base/num.h"
#include "loop/log.h"
#include "proxy/decision_log.h"
#include "proxy/exchange.h"

enum { LOST_MAX = 8 };

static bool budget(struct exchange *x)
{
    return retry_take(&x->lane->retry, &x->route->retry, loop_now(x->lane->loop));
}

static void exclude(struct exchange *x)
{
    const struct cell *cell = x->reservation.cell;

    if (x->exclude.n == SCHED_EXCLUDE_MAX)
        return;
    x->exclude.tried[x->exclude.n].slot = cell->slot;
    x->exclude.tried[x->exclude.n].generation = cell->generation;
    x->exclude.n++;
}

/* Forget this attempt: connection, endpoint, reservation. */
static void detach(struct exchange *x)
{
    fastchat_end(x);
    if (x->up)
        upstream_drop(x->up);
    if (x->target)
        upstream_target_put(x->lane, x->target);
    x->target = NULL;
    x->head_sent = x->request_sent = x->rsp_started = x->proven = false;
    x->fresh_only = false;
    x->stall_ns = 0;
    x->body_sent = x->body_base;
}

static void start_over(struct exchange *x)
{
    exclude(x);
    detach(x);
    exchange_release(x, &x->reservation);
    exchange_decide(x);
}

/* Nobody in this gateway's own place could take it. Who pays for what leaves it wants to hear of it. */
static void spilled(struct exchange *x)
{
    static struct log_limit limit;
    char more[LOG_MISSED_TEXT];
    uint64_t missed;

    /* Once: it is sent again when it met a kept connection that was closed meanwhile. */
    x->reservation.spilled = false;
    stat_add(&x->lane->stats.spilled, 1);
    if (log_limit_pass(&limit, loop_now(x->lane->loop), 10 * NS_PER_S, &missed))
        log_warn(
            "proxy",
            "a request for model=%.*s leaves locality for endpoint=%.*s: nobody there fits and "
            "has room%s",
            SLICE_ARG(x->pool->model), SLICE_ARG(x->target->id), log_missed(missed, more));
}

void attempt_start(struct exchange *x)
{
    exchange_move(x, X_CONNECT);
    x->target = upstream_target(x->lane, x->reservation.cell);
    if (!x->target) {
        /* It left the fleet between the pick and now; the pool knows by now, or we are out of memory. */
        if (x->lost++ < LOST_MAX) {
            exchange_release(x, &x->reservation);
            exchange_decide(x);
        } else {
            exchange_reject(x, REJECT_UPSTREAM_FAILED, NULL, (struct slice){NULL, 0});
        }
        return;
    }
    if (x->reservation.spilled)
        spilled(x);
    sched_work_note(x->lane->proxy->lore, &x->reservation, &x->f);
    if (!x->fresh_only && upstream_take(x)) {
        exchange_send(x);
        return;
    }
    int rc = upstream_connect(x);
    if (rc)
        attempt_connect_failed(x, rc);
}

void attempt_connect_failed(struct exchange *x, int error)
{
    static struct log_limit limit;
    uint64_t now = loop_now(x->lane->loop);
    char more[LOG_MISSED_TEXT];
    uint64_t missed;

    /* What we lack ourselves (descriptors, ports, memory) says nothing about the endpoint. */
    bool ours = error == WEIR_E_NOTFOUND || error == WEIR_E_NOMEM || error == WEIR_E_FULL ||
                error == WEIR_E_UNSUPPORTED;
    if (!ours && x->reservation.cell)
        judge_connect(x);
    if (x->target && log_limit_pass(&limit, now, NS_PER_S, &missed))
        log_warn("proxy", "cannot connect to endpoint=%.*s: %s%s", SLICE_ARG(x->target->id),
                 err_text(error), log_missed(missed, more));
    if (x->connect_failures++ < x->route->retry.connect_attempts) {
        stat_add(&x->lane->stats.retries[RETRY_CONNECT], 1);
        start_over(x);
        return;
    }
    exchange_reject(x, REJECT_UPSTREAM_FAILED, NULL, (struct slice){NULL, 0});
}

void attempt_broke(struct exchange *x)
{
    bool reused = x->up_reused;
    bool untouched = !x->rsp_started && body_replayable(x);

    if (untouched && reused && !x->retried_reused && budget(x)) {
        x->retried_reused = true;
        stat_add(&x->lane->stats.retries[RETRY_REUSED], 1);
        detach(x);
        x->fresh_only = true;
        attempt_start(x);
        return;
    }
    judge_failure(x);
    if (untouched && (x->idempotent || x->route->retry.retry_unsafe) && !x->retried_failed &&
        budget(x)) {
        x->retried_failed = true;
        stat_add(&x->lane->stats.retries[RETRY_FAILED], 1);
        start_over(x);
        return;
    }
    exchange_blame(x, "broke off before its answer");
    exchange_reject(x, REJECT_UPSTREAM_FAILED, NULL, (struct slice){NULL, 0});
}

bool attempt_repick(struct exchange *x)
{
    struct reservation other = {0};
    struct lane *l = x->lane;
    struct decision d;
    struct member chosen;

    if (x->retried_busy || !body_replayable(x))
        return false;
    struct sched_exclude excluded = x->exclude;
    exclude(x);
    /* The other endpoint is reserved before this answer is given up, so that nothing is lost when there is none. */
    int rc = WEIR_E_AGAIN;
    if (pool_enter(&l->asker, x->pool)) {
        uint64_t now = loop_clock();
        decision_arm(&l->asker, x->explain_asked, now);
        rc = sched_pool_admit(x->pool->sched, &x->f, &x->exclude, now, prng_next(&l->asker.prng),
                              &l->asker.scratch, &other, &chosen, &d);
        pool_leave(&l->asker, x->pool);
    }
    if (rc != 0 || !budget(x)) {
        x->exclude = excluded;
        decision_disarm(&l->asker);
        if (rc == 0)
            exchange_release(x, &other);
        return false;
    }
    decision_keep(&l->asker, x);
    x->retried_busy = true;
    stat_add(&l->stats.retries[RETRY_BUSY], 1);
    detach(x);
    exchange_release(x, &x->reservation);
    x->reservation = other;
    attempt_start(x);
    return true;
}
