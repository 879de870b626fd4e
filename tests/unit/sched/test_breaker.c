/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <pthread.h>

#include "base/bug.h"
#include "base/prng.h"
#include "fleet_rig.h"
#include "sched/breaker.h"
#include "sched/evidence.h"

#define S(n)  ((n)*NS_PER_S)
#define MS(n) ((n)*NS_PER_MS)

static const struct breaker_rules rules = {.enabled = true,
                                           .consecutive = 5,
                                           .first_byte_timeouts = 3,
                                           .error_percent = 50,
                                           .min_requests = 20,
                                           .successes = 1,
                                           .window_ns = S(10),
                                           .cooldown_ns = S(5),
                                           .cooldown_max_ns = S(60),
                                           .stall_ns = S(30)};

/* Time starts at 1,000 s, as a monotonic clock may. */
static const uint64_t T0 = UINT64_C(1000) * NS_PER_S;

static enum breaker_step went_wrong(struct cell *c, uint64_t now)
{
    return sched_breaker_failed(c, &rules, BREAKER_FAILED, false, now);
}

static void open_it(struct cell *c, uint64_t now)
{
    for (uint32_t i = 1; i < rules.consecutive; i++)
        assert_int_equal(went_wrong(c, now), BREAKER_SAME);
    assert_int_equal(went_wrong(c, now), BREAKER_OPENED);
}

static void expect(const struct cell *c, uint64_t now, enum breaker_state state, uint64_t left_ns)
{
    struct breaker_look look = sched_breaker_look(c, now);

    assert_int_equal(look.state, state);
    assert_int_equal(look.left_ns, left_ns);
    assert_int_equal((atomic_load(&c->gate) & GATE_BREAKER) != 0, state != BREAKER_CLOSED);
}

static void five_in_a_row_open_it_and_one_good_answer_closes_it(void **state)
{
    (void)state;
    RIG_CELL(c);
    c.gate = GATE_YOUNG;

    for (int i = 0; i < 4; i++)
        assert_int_equal(went_wrong(&c, T0), BREAKER_SAME);
    /* A good answer between them starts the count again. */
    assert_int_equal(sched_breaker_answered(&c, &rules, 0, T0), BREAKER_SAME);
    expect(&c, T0, BREAKER_CLOSED, 0);
    assert_int_equal(sched_breaker_pass(&c, T0), BREAKER_FREE);
    open_it(&c, T0);
    assert_int_equal(atomic_load(&c.gate), GATE_YOUNG | GATE_BREAKER);
    expect(&c, T0, BREAKER_OPEN, S(5));
    expect(&c, T0 + S(5) - 1, BREAKER_OPEN, 1);
    assert_int_equal(sched_breaker_pass(&c, T0 + S(5) - 1), BREAKER_BLOCKED);
    assert_int_equal(sched_breaker_enter(&c, T0 + S(5) - 1), BREAKER_BLOCKED);
    /* A late good answer of before says nothing about those that failed. */
    assert_int_equal(sched_breaker_answered(&c, &rules, 0, T0 + S(1)), BREAKER_SAME);
    expect(&c, T0 + S(5), BREAKER_HALF_OPEN, 0);
    assert_int_equal(sched_breaker_pass(&c, T0 + S(5)), BREAKER_TRIAL);
    assert_int_equal(sched_breaker_enter(&c, T0 + S(5)), BREAKER_TRIAL);
    /* One at a time. */
    assert_int_equal(sched_breaker_pass(&c, T0 + S(5)), BREAKER_BLOCKED);
    assert_int_equal(sched_breaker_enter(&c, T0 + S(5)), BREAKER_BLOCKED);
    assert_int_equal(sched_breaker_answered(&c, &rules, 0, T0 + S(6)), BREAKER_CLOSED_AGAIN);
    sched_breaker_leave(&c);
    expect(&c, T0 + S(6), BREAKER_CLOSED, 0);
    assert_int_equal(atomic_load(&c.gate), GATE_YOUNG);
    assert_int_equal(sched_breaker_enter(&c, T0 + S(6)), BREAKER_FREE);
    for (int i = 0; i < 4; i++)
        assert_int_equal(went_wrong(&c, T0 + S(6)), BREAKER_SAME);
}

static void each_failed_trial_doubles_the_cooldown_up_to_its_maximum(void **state)
{
    (void)state;
    static const uint64_t expected[] = {5, 10, 20, 40, 60, 60};
    RIG_CELL(c);
    uint64_t now = T0;

    open_it(&c, now);
    for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
        expect(&c, now, BREAKER_OPEN, S(expected[i]));
        assert_int_equal(sched_breaker_look(&c, now).trips, i + 1);
        now += S(expected[i]);
        assert_int_equal(sched_breaker_enter(&c, now), BREAKER_TRIAL);
        assert_int_equal(sched_breaker_failed(&c, &rules, BREAKER_FAILED, true, now),
                         BREAKER_REOPENED);
        sched_breaker_leave(&c);
    }
    /* Readmitted, it fails again at once: the cooldown goes on from where it was. */
    now += S(60);
    assert_int_equal(sched_breaker_answered(&c, &rules, 0, now), BREAKER_CLOSED_AGAIN);
    open_it(&c, now + S(1));
    expect(&c, now + S(1), BREAKER_OPEN, S(60));
    /* After a good while it starts over. */
    now += S(61);
    assert_int_equal(sched_breaker_answered(&c, &rules, 0, now), BREAKER_CLOSED_AGAIN);
    open_it(&c, now + S(60));
    expect(&c, now + S(60), BREAKER_OPEN, S(5));
}

static void the_longer_of_two_deadlines_wins(void **state)
{
    (void)state;
    RIG_CELL(c);

    open_it(&c, T0);
    assert_int_equal(went_wrong(&c, T0 + S(3)), BREAKER_SAME);
    expect(&c, T0 + S(3), BREAKER_OPEN, S(5));
    /* Trips: the trial of 8 s fails, so 10 s; a straggler's shorter word changes nothing. */
    assert_int_equal(sched_breaker_enter(&c, T0 + S(8)), BREAKER_TRIAL);
    assert_int_equal(sched_breaker_failed(&c, &rules, BREAKER_FAILED, true, T0 + S(8)),
                     BREAKER_REOPENED);
    sched_breaker_leave(&c);
    expect(&c, T0 + S(8), BREAKER_OPEN, S(10));
    assert_int_equal(sched_breaker_timed_out(&c, &rules, false, T0, T0 + S(9)), BREAKER_SAME);
    expect(&c, T0 + S(9), BREAKER_OPEN, S(9));
}

/* Requests that ended are counted by the ledger; here by hand. */
static void a_share_of_failures_opens_it(void **state)
{
    (void)state;
    struct breaker_rules r = rules;
    RIG_CELL(c);
    uint64_t total = 100;

    r.consecutive = 0;
    for (int i = 1; i <= 9; i++) {
        /* One fails, one does not. */
        atomic_store(&c.requests_total, ++total);
        atomic_store(&c.inflight, 1);
        assert_int_equal(sched_breaker_failed(&c, &r, BREAKER_FAILED, false, T0), BREAKER_SAME);
        atomic_store(&c.requests_total, ++total);
        assert_int_equal(sched_breaker_answered(&c, &r, 0, T0), BREAKER_SAME);
    }
    /* Nine of 19; with the next it is ten of 20. */
    atomic_store(&c.requests_total, ++total);
    atomic_store(&c.requests_total, ++total);
    assert_int_equal(sched_breaker_failed(&c, &r, BREAKER_FAILED, false, T0), BREAKER_OPENED);

    /* The same, but the tenth comes when the window is over. */
    RIG_CELL(d);
    total = 0;
    for (int i = 1; i <= 9; i++) {
        total += 2;
        atomic_store(&d.requests_total, total);
        assert_int_equal(sched_breaker_failed(&d, &r, BREAKER_FAILED, false, T0), BREAKER_SAME);
    }
    atomic_store(&d.requests_total, total + 2);
    assert_int_equal(sched_breaker_failed(&d, &r, BREAKER_FAILED, false, T0 + S(10)), BREAKER_SAME);
    expect(&d, T0 + S(10), BREAKER_CLOSED, 0);
}

static void first_byte_timeouts_of_a_silent_endpoint_open_it(void **state)
{
    (void)state;
    RIG_CELL(c);

    assert_int_equal(sched_breaker_timed_out(&c, &rules, false, T0, T0 + S(1)), BREAKER_SAME);
    assert_int_equal(sched_breaker_timed_out(&c, &rules, false, T0, T0 + S(1)), BREAKER_SAME);
    assert_int_equal(sched_breaker_timed_out(&c, &rules, false, T0, T0 + S(1)), BREAKER_OPENED);
    assert_int_equal(sched_breaker_look(&c, T0 + S(1)).cause, BREAKER_SILENT);
    /* Whoever was written off too early says so with the next byte of a good answer. */
    assert_int_equal(sched_breaker_alive(&c, T0 + S(2)), BREAKER_CLOSED_AGAIN);
    expect(&c, T0 + S(2), BREAKER_CLOSED, 0);

    /* It sent others their bytes meanwhile: busy. */
    sched_saw_progress(&c, T0 + S(3));
    for (int i = 0; i < 10; i++)
        assert_int_equal(sched_breaker_timed_out(&c, &rules, false, T0 + S(2), T0 + S(4)),
                         BREAKER_SAME);
    expect(&c, T0 + S(4), BREAKER_CLOSED, 0);
    /* But that was long ago. */
    for (int i = 0; i < 2; i++)
        assert_int_equal(sched_breaker_timed_out(&c, &rules, false, T0 + S(2), T0 + S(33)),
                         BREAKER_SAME);
    assert_int_equal(sched_breaker_timed_out(&c, &rules, false, T0 + S(2), T0 + S(33)),
                     BREAKER_OPENED);
    /* The trial is judged whatever others got. */
    assert_int_equal(sched_breaker_enter(&c, T0 + S(43)), BREAKER_TRIAL);
    sched_saw_progress(&c, T0 + S(44));
    assert_int_equal(sched_breaker_timed_out(&c, &rules, true, T0 + S(43), T0 + S(44)),
                     BREAKER_REOPENED);
    sched_breaker_leave(&c);
}

static void silence_for_the_length_of_stall_opens_it(void **state)
{
    (void)state;
    RIG_CELL(c);

    sched_saw_progress(&c, T0 + S(1));
    assert_int_equal(sched_breaker_waits(&c, &rules, false, T0, T0 + S(31) - 1), BREAKER_SAME);
    assert_int_equal(sched_breaker_waits(&c, &rules, false, T0, T0 + S(31)), BREAKER_OPENED);
    /* The others that wait say nothing new. */
    assert_int_equal(sched_breaker_waits(&c, &rules, false, T0, T0 + S(35)), BREAKER_SAME);
    expect(&c, T0 + S(35), BREAKER_OPEN, S(1));
    /* A trial that meets silence too. */
    assert_int_equal(sched_breaker_enter(&c, T0 + S(36)), BREAKER_TRIAL);
    assert_int_equal(sched_breaker_waits(&c, &rules, true, T0 + S(36), T0 + S(66)),
                     BREAKER_REOPENED);
    sched_breaker_leave(&c);
    expect(&c, T0 + S(66), BREAKER_OPEN, S(10));
    /* It was a prefill of 70 s: whoever waited so long once is given twice that from now on. */
    sched_saw_progress(&c, T0 + S(70));
    assert_int_equal(sched_breaker_answered(&c, &rules, S(70), T0 + S(70)), BREAKER_CLOSED_AGAIN);
    assert_int_equal(sched_breaker_waits(&c, &rules, false, T0 + S(71), T0 + S(210)), BREAKER_SAME);
    assert_int_equal(sched_breaker_waits(&c, &rules, false, T0 + S(71), T0 + S(211)),
                     BREAKER_OPENED);
    /* Half of it is forgotten after ten minutes, and all in the end. */
    assert_int_equal(sched_breaker_alive(&c, T0 + S(212)), BREAKER_CLOSED_AGAIN);
    assert_int_equal(sched_breaker_waits(&c, &rules, false, T0 + S(670), T0 + S(739)),
                     BREAKER_SAME);
    assert_int_equal(sched_breaker_waits(&c, &rules, false, T0 + S(670), T0 + S(740)),
                     BREAKER_OPENED);
}

static void silence_goes_on_when_clients_give_up_and_others_come(void **state)
{
    (void)state;
    RIG_CELL(c);

    /* Each waits 8 s, one after the other. */
    for (uint64_t ms = 0; ms < 30000; ms += 250)
        assert_int_equal(
            sched_breaker_waits(&c, &rules, false, T0 + MS(ms / 8000 * 8000), T0 + MS(ms)),
            BREAKER_SAME);
    assert_int_equal(sched_breaker_waits(&c, &rules, false, T0 + S(24), T0 + S(30)),
                     BREAKER_OPENED);

    /* With pauses in which nobody waits there is no silence: nobody asked. */
    RIG_CELL(d);
    for (uint64_t s = 0; s < 100; s += 10)
        for (uint64_t ms = 0; ms < 8000; ms += 250)
            assert_int_equal(sched_breaker_waits(&d, &rules, false, T0 + S(s), T0 + S(s) + MS(ms)),
                             BREAKER_SAME);

    /* Nor with a byte to anybody. */
    RIG_CELL(e);
    for (uint64_t ms = 0; ms < 100000; ms += 250) {
        if (ms % 20000 == 0)
            sched_saw_progress(&e, T0 + MS(ms));
        assert_int_equal(
            sched_breaker_waits(&e, &rules, false, T0 + MS(ms / 8000 * 8000), T0 + MS(ms)),
            BREAKER_SAME);
    }
}

static void a_passed_probe_ends_a_cooldown_for_connections_only(void **state)
{
    (void)state;
    RIG_CELL(c);

    for (int i = 0; i < 5; i++)
        (void)sched_breaker_failed(&c, &rules, BREAKER_CONNECT, false, T0);
    expect(&c, T0, BREAKER_OPEN, S(5));
    sched_breaker_reached(&c, T0 + S(1));
    expect(&c, T0 + S(1), BREAKER_HALF_OPEN, 0);
    /* One answer that failed is more than a connection. */
    assert_int_equal(went_wrong(&c, T0 + S(1)), BREAKER_SAME);
    expect(&c, T0 + S(1), BREAKER_OPEN, S(5));
    sched_breaker_reached(&c, T0 + S(2));
    expect(&c, T0 + S(2), BREAKER_OPEN, S(4));
}

static void several_good_answers_may_be_asked_for(void **state)
{
    (void)state;
    struct breaker_rules r = rules;
    RIG_CELL(c);

    r.successes = 3;
    open_it(&c, T0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sched_breaker_answered(&c, &r, 0, T0 + S(5)), BREAKER_SAME);
        expect(&c, T0 + S(5), BREAKER_HALF_OPEN, 0);
    }
    assert_int_equal(sched_breaker_answered(&c, &r, 0, T0 + S(5)), BREAKER_CLOSED_AGAIN);
}

static void off_means_off(void **state)
{
    (void)state;
    static const struct breaker_rules off;
    RIG_CELL(c);

    for (int i = 0; i < 100; i++) {
        assert_int_equal(sched_breaker_failed(&c, &off, BREAKER_FAILED, false, T0), BREAKER_SAME);
        assert_int_equal(sched_breaker_timed_out(&c, &off, false, T0, T0 + S(9)), BREAKER_SAME);
        assert_int_equal(sched_breaker_waits(&c, &off, false, T0, T0 + S(900)), BREAKER_SAME);
    }
    expect(&c, T0 + S(900), BREAKER_CLOSED, 0);
}

/* ---- in a pool ---- */

static struct cell *cell_of(const struct rig *r, uint32_t i)
{
    return r->snapshot->members[i].cell;
}

static void half_open_lets_one_request_try(void **state)
{
    (void)state;
    struct rig r;
    struct reservation trial = {0};
    struct reservation other = {0};

    rig_open(&r, "round_robin");
    for (uint32_t i = 0; i < 3; i++)
        rig_add(&r, i, "");
    rig_refresh(&r);
    open_it(cell_of(&r, 1), r.now);
    for (int i = 0; i < 10; i++)
        assert_int_equal(rig_once(&r), i % 2 ? 2 : 0);
    r.now += S(5);
    assert_int_equal(rig_once(&r), 0);
    assert_int_equal(rig_admit(&r, &trial), 0);
    assert_int_equal(r.chosen.endpoint->slot, 1);
    assert_true(trial.trial);
    /* While it is under way the others get everything. */
    for (int i = 0; i < 10; i++)
        assert_int_equal(rig_once(&r), i % 2 ? 0 : 2);
    /* It ends without a verdict, as when its client leaves: the next one tries. */
    rig_end(&trial);
    assert_int_equal(rig_admit(&r, &trial), 0);
    assert_true(trial.trial);
    assert_int_equal(r.chosen.endpoint->slot, 1);
    /* The verdict gives the slot back, long before the answer ends. */
    assert_int_equal(sched_breaker_answered(cell_of(&r, 1), &rules, 0, r.now),
                     BREAKER_CLOSED_AGAIN);
    sched_trial_over(&trial);
    assert_int_equal(atomic_load(&cell_of(&r, 1)->trial), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rig_admit(&r, &other), 0);
        assert_false(other.trial);
        rig_end(&other);
    }
    rig_end(&trial);
    rig_close(&r);
}

static uint32_t slots_used(struct rig *r, int picks)
{
    uint32_t used = 0;

    for (int i = 0; i < picks; i++) {
        int slot = rig_once(r);
        if (slot >= 0)
            used |= 1u << slot;
    }
    return used;
}

static void panic_uses_all_when_most_are_red(void **state)
{
    (void)state;
    struct rig r;

    rig_open(&r, "round_robin");
    r.policy.panic_percent = 50;
    for (uint32_t i = 0; i < 4; i++)
        rig_add(&r, i, "");
    rig_refresh(&r);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(fleet_probe(r.fleet, i, 1, true, r.now), HEALTH_UP);
    assert_int_equal(slots_used(&r, 8), 0xf);
    open_it(cell_of(&r, 0), r.now);
    assert_int_equal(slots_used(&r, 8), 0xe);
    for (int i = 0; i < 3; i++)
        (void)fleet_probe(r.fleet, 1, 1, false, r.now);
    /* Two of four is not more than half. */
    assert_int_equal(slots_used(&r, 8), 0xc);
    open_it(cell_of(&r, 2), r.now);
    assert_int_equal(slots_used(&r, 8), 0xf);
    /* 100 asks for all of them to be red. */
    r.policy.panic_percent = 100;
    assert_int_equal(slots_used(&r, 8), 0x8);
    open_it(cell_of(&r, 3), r.now);
    assert_int_equal(slots_used(&r, 8), 0xf);
    r.policy.panic_percent = 50;
    assert_int_equal(sched_breaker_answered(cell_of(&r, 3), &rules, 0, r.now + S(5)),
                     BREAKER_CLOSED_AGAIN);
    assert_int_equal(sched_breaker_answered(cell_of(&r, 2), &rules, 0, r.now + S(5)),
                     BREAKER_CLOSED_AGAIN);
    assert_int_equal(slots_used(&r, 8), 0xc);
    rig_close(&r);
}

static void what_refuses_connections_is_no_last_resort(void **state)
{
    (void)state;
    struct rig r;

    rig_open(&r, "round_robin");
    r.policy.panic_percent = 50;
    rig_add(&r, 0, "");
    rig_add(&r, 1, "");
    rig_refresh(&r);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(fleet_probe(r.fleet, i, 1, true, r.now), HEALTH_UP);
    for (int i = 0; i < SCHED_REFUSED_AFTER; i++)
        (void)sched_saw_connect_failure(cell_of(&r, 0));
    open_it(cell_of(&r, 1), r.now);
    assert_int_equal(slots_used(&r, 4), 0x2);
    rig_close(&r);
}

static void a_new_generation_starts_closed(void **state)
{
    (void)state;
    struct rig r;
    struct rig_host h;

    rig_open(&r, "round_robin");
    rig_add(&r, 0, "");
    rig_add(&r, 1, "");
    rig_refresh(&r);
    open_it(cell_of(&r, 0), r.now);
    assert_int_equal(slots_used(&r, 4), 0x2);
    rig_host(&h, 0, "");
    h.i.epoch = 7;
    rig_put(&r, &h);
    h.i.epoch = 8;
    rig_put(&r, &h);
    rig_refresh(&r);
    assert_true(r.snapshot->members[0].endpoint->generation > 1);
    expect(cell_of(&r, 0), r.now, BREAKER_CLOSED, 0);
    assert_int_equal(slots_used(&r, 4), 0x3);
    rig_close(&r);
}

/* ---- many threads ---- */

enum { THREADS = 4, STEPS = 40000, HELD = 16 };

struct churn {
    pthread_t thread;
    struct cell *cell;
    atomic_uint *trying, *peak;
    atomic_ullong *clock;
    uint64_t seed;
    uint32_t trials;
};

/* Every way a request can end, at random, over a clock that all move on. */
static void *churn(void *arg)
{
    struct churn *w = arg;
    struct breaker_rules quick = rules;
    struct reservation held[HELD] = {0};
    struct features f = {0};
    struct prng r = {w->seed};

    quick.cooldown_ns = MS(1);
    quick.cooldown_max_ns = MS(4);
    for (int step = 0; step < STEPS; step++) {
        struct reservation *x = &held[prng_below(&r, HELD)];
        uint64_t now = atomic_fetch_add(w->clock, 20000) + 20000;
        if (!x->cell) {
            if (sched_breaker_pass(w->cell, now) == BREAKER_BLOCKED)
                continue;
            if (sched_reserve_trial(x, w->cell, 0, &f, now) != 0 || !x->trial)
                continue;
            w->trials++;
            if (atomic_fetch_add(w->trying, 1) != 0)
                atomic_fetch_add(w->peak, 1);
            continue;
        }
        bool was_trial = x->trial;
        switch (prng_below(&r, 5)) {
        case 0:
            (void)sched_breaker_failed(w->cell, &quick, BREAKER_FAILED, x->trial, now);
            break;
        case 1:
            (void)sched_breaker_timed_out(w->cell, &quick, x->trial, now, now);
            break;
        case 2:
            (void)sched_breaker_answered(w->cell, &quick, 0, now);
            break;
        case 3: /* the client left */
            break;
        case 4:
            if (was_trial)
                atomic_fetch_sub(w->trying, 1);
            sched_trial_over(x);
            continue;
        }
        if (was_trial)
            atomic_fetch_sub(w->trying, 1);
        rig_end(x);
    }
    for (int i = 0; i < HELD; i++) {
        if (held[i].trial)
            atomic_fetch_sub(w->trying, 1);
        rig_end(&held[i]);
    }
    return NULL;
}

static void the_trial_slot_never_leaks_and_never_doubles(void **state)
{
    (void)state;
    struct rig r;
    struct churn w[THREADS];
    atomic_uint trying = 0;
    atomic_uint peak = 0;
    atomic_ullong clock = T0;
    uint32_t trials = 0;

    rig_open(&r, "round_robin");
    rig_add(&r, 0, "");
    rig_refresh(&r);
    struct cell *c = cell_of(&r, 0);
    for (int i = 0; i < THREADS; i++) {
        w[i] = (struct churn){
            .cell = c, .trying = &trying, .peak = &peak, .clock = &clock, .seed = (uint64_t)i + 11};
        assert_int_equal(pthread_create(&w[i].thread, NULL, churn, &w[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(w[i].thread, NULL), 0);
        trials += w[i].trials;
    }
    assert_true(trials > 100);
    assert_int_equal(peak, 0);
    assert_int_equal(trying, 0);
    assert_int_equal(atomic_load(&c->trial), 0);
    assert_int_equal(atomic_load(&c->inflight), 0);
    /* The gate tells the truth at rest. */
    struct breaker_look look = sched_breaker_look(c, atomic_load(&clock));
    assert_int_equal((atomic_load(&c->gate) & GATE_BREAKER) != 0, look.state != BREAKER_CLOSED);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(five_in_a_row_open_it_and_one_good_answer_closes_it),
        cmocka_unit_test(each_failed_trial_doubles_the_cooldown_up_to_its_maximum),
        cmocka_unit_test(the_longer_of_two_deadlines_wins),
        cmocka_unit_test(a_share_of_failures_opens_it),
        cmocka_unit_test(first_byte_timeouts_of_a_silent_endpoint_open_it),
        cmocka_unit_test(silence_for_the_length_of_stall_opens_it),
        cmocka_unit_test(silence_goes_on_when_clients_give_up_and_others_come),
        cmocka_unit_test(a_passed_probe_ends_a_cooldown_for_connections_only),
        cmocka_unit_test(several_good_answers_may_be_asked_for),
        cmocka_unit_test(off_means_off),
        cmocka_unit_test(half_open_lets_one_request_try),
        cmocka_unit_test(panic_uses_all_when_most_are_red),
        cmocka_unit_test(what_refuses_connections_is_no_last_resort),
        cmocka_unit_test(a_new_generation_starts_closed),
        cmocka_unit_test(the_trial_slot_never_leaks_and_never_doubles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
