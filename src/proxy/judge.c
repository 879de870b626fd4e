/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an exchange tells the breaker of its endpoint, and what is said aloud when that opens or closes.
 * Good news is the first payload of an answer below 400, or the end of one that has none. A 4xx, 429 or 503 is no news
 * at all, and neither is a client that left or a deadline of the client's.
 */
#include "base/num.h"
#include "loop/log.h"
#include "proxy/exchange.h"
#include "sched/breaker.h"
#include "sched/evidence.h"

static const struct breaker_rules *rules(const struct exchange *x)
{
    return &x->plan->routing->breaker;
}

static void tell(struct exchange *x, enum breaker_step step, uint64_t now)
{
    static const struct slice gone = {"?", 1};
    struct cell *c = x->reservation.cell;
    struct slice id = x->target ? x->target->id : gone;

    if (step == BREAKER_SAME)
        return;
    struct breaker_look look = sched_breaker_look(c, now);
    if (step == BREAKER_CLOSED_AGAIN) {
        log_info("proxy", "endpoint=%.*s: breaker closed, it answers", SLICE_ARG(id));
        offer_cell(&x->lane->asker, c);
        return;
    }
    log_warn("proxy", "endpoint=%.*s: breaker %s, %s; one request tries it in %llu ms",
             SLICE_ARG(id), step == BREAKER_OPENED ? "opened" : "stays open after a trial",
             sched_breaker_why(look.cause), (unsigned long long)(look.left_ns / NS_PER_MS));
}

void judge_connect(struct exchange *x)
{
    struct cell *c = x->reservation.cell;
    uint64_t now = loop_now(x->lane->loop);

    if (sched_saw_connect_failure(c) && x->target)
        log_warn("proxy", "endpoint=%.*s is down: connections to it fail",
                 SLICE_ARG(x->target->id));
    tell(x, sched_breaker_failed(c, rules(x), BREAKER_CONNECT, x->reservation.trial, now), now);
    sched_trial_over(&x->reservation);
}

void judge_failure(struct exchange *x)
{
    struct cell *c = x->reservation.cell;
    uint64_t now = loop_now(x->lane->loop);

    sched_saw_failure(c);
    tell(x, sched_breaker_failed(c, rules(x), BREAKER_FAILED, x->reservation.trial, now), now);
    sched_trial_over(&x->reservation);
}

void judge_timeout(struct exchange *x)
{
    struct cell *c = x->reservation.cell;
    uint64_t now = loop_now(x->lane->loop);

    sched_saw_failure(c);
    tell(x, sched_breaker_timed_out(c, rules(x), x->reservation.trial, x->sent_ns, now), now);
    sched_trial_over(&x->reservation);
}

void judge_answer(struct exchange *x, bool more)
{
    struct cell *c = x->reservation.cell;
    uint64_t now = x->last_rx_ns;

    if (x->status >= 400)
        return;
    if (!x->proven) {
        x->proven = true;
        sched_work_first_byte(&x->reservation, now);
        uint64_t waited = x->sent_ns && now > x->sent_ns ? now - x->sent_ns : 0;
        tell(x, sched_breaker_answered(c, rules(x), waited, now), now);
        sched_trial_over(&x->reservation);
    } else if (more) {
        tell(x, sched_breaker_alive(c, now), now);
    }
}

void judge_wait(struct exchange *x)
{
    uint64_t now = loop_now(x->lane->loop);
    uint64_t since = 0;

    if (x->state == X_AWAIT && x->request_sent)
        since = MAX(x->sent_ns, x->last_rx_ns);
    else if (x->state == X_RELAY && !x->proven && x->status < 400)
        since = x->last_rx_ns;
    if (!since || !x->up || x->up->conn.paused)
        return;
    enum breaker_step step =
        sched_breaker_waits(x->reservation.cell, rules(x), x->reservation.trial, since, now);
    tell(x, step, now);
    if (step == BREAKER_REOPENED)
        sched_trial_over(&x->reservation);
}
