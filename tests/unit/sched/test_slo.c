/* SPDX-License-Identifier: Apache-2.0 */
/* Latency targets: who is left out of a pick, who is refused, and that nobody is without a measurement. */
#include "ct.h"

#include "base/bug.h"
#include "base/hash.h"
#include "fleet_rig.h"
#include "sched/record.h"
#include "sched/slo.h"

enum { PROMPT = 1000 };

/* An endpoint as if so many answers of it had been measured: a prompt of PROMPT tokens takes first_us, a token step_us. */
static void host(
    struct rig *r, uint32_t n, uint32_t first_us, uint32_t step_us, uint32_t seen, const char *more)
{
    struct rig_host h;
    char authority[40];

    rig_host(&h, n, more);
    size_t len = h.i.host.n;
    memcpy(authority, h.i.host.p, len);
    memcpy(authority + len, ":8000", 5);
    struct slice model = RIG_MODEL;
    struct sched_rates *x = sched_lore_rates(
        r->lore,
        sched_lore_key(hash_slice(slice_of(authority, len + 5), 0), model, sched_kind_of(&r->f)),
        slice_of(NULL, 0));
    assert_non_null(x);
    atomic_store(&x->fixed_us, first_us - PROMPT);
    atomic_store(&x->prefill_ns, 1000);
    atomic_store(&x->step_us, step_us);
    atomic_store(&x->context_ps, 0);
    atomic_store(&x->firsts, seen);
    atomic_store(&x->answers, seen);
    atomic_store(&x->used_ns, r->now);
    rig_put(r, &h);
}

static void open_rig(struct rig *r)
{
    rig_open(r, "queued_work");
    r->f.task = TASK_CHAT;
    r->f.stream = true;
    r->f.prompt_complete = true;
    r->f.prompt_tokens = PROMPT;
    r->f.expected_output = 100;
}

static void target(struct rig *r, uint64_t ttft_ns, uint64_t tpot_ns)
{
    r->f.slo_ttft_ns = ttft_ns;
    r->f.slo_by_ns = ttft_ns ? r->now + ttft_ns : 0;
    r->f.slo_tpot_ns = tpot_ns;
}

/* The host that is chosen, or -1 - the rejection. */
static int ask(struct rig *r)
{
    struct reservation res = {0};
    int rc = rig_admit(r, &res);

    if (rc)
        return -1 - (int)r->d.rejection;
    int at = (int)r->chosen.endpoint->host.p[r->chosen.endpoint->host.n - 1] - '0';
    rig_end(&res);
    return at;
}

#define SHED (-1 - (int)REJECT_SLO_UNREACHABLE)

/* What passes is the target and a tenth. */
static uint64_t target_for(uint64_t most_us)
{
    return (most_us * NS_PER_US * 100 + SLO_MARGIN_PERCENT - 1) / SLO_MARGIN_PERCENT;
}

static void refused_exactly_when_every_first_byte_is_later(void **state)
{
    (void)state;
    struct rig r;

    open_rig(&r);
    host(&r, 0, 400000, 10000, SCHED_RATES_SURE, "");
    host(&r, 1, 300000, 10000, SCHED_RATES_SURE, "");
    rig_refresh(&r);
    target(&r, target_for(300000), 0);
    assert_int_equal(ask(&r), 1);
    target(&r, target_for(300000) - 1, 0);
    assert_int_equal(ask(&r), SHED);
    assert_int_equal(r.d.row, DECISION_NOBODY);
    assert_int_equal(r.d.fit, 2);
    assert_int_equal(r.d.late_us, 1);
    target(&r, target_for(200000), 0);
    assert_int_equal(ask(&r), SHED);
    assert_int_equal(r.d.late_us, 100000);
    /* What of the target is left counts, not what it was. */
    target(&r, NS_PER_S, 0);
    r.now += NS_PER_S - target_for(300000);
    assert_int_equal(ask(&r), 1);
    r.now += 1;
    assert_int_equal(ask(&r), SHED);
    /* Of an answer in one piece the first byte is the last: 0.3 s and 100 tokens of 10 ms. */
    r.f.stream = false;
    target(&r, target_for(1300000), 0);
    assert_int_equal(ask(&r), 1);
    target(&r, target_for(1300000) - 1, 0);
    assert_int_equal(ask(&r), SHED);
    /* Without a target nothing is late. */
    target(&r, 0, 0);
    assert_true(ask(&r) >= 0);
    rig_close(&r);
}

/* Without a measurement nobody is refused by a prediction, but the past is none. */
static void a_target_that_has_passed_is_missed(void **state)
{
    (void)state;
    struct rig r;
    struct reservation busy = {0};

    open_rig(&r);
    host(&r, 0, 300000, 10000, 0, "max_concurrency=1");
    rig_refresh(&r);
    target(&r, NS_PER_S, 0);
    r.now += NS_PER_S - NS_PER_US;
    assert_int_equal(ask(&r), 0);
    r.now += NS_PER_US;
    assert_int_equal(ask(&r), SHED);
    assert_true(r.d.late_us > 0);
    target(&r, NS_PER_S, 0);
    assert_int_equal(rig_admit(&r, &busy), 0);
    /* The same of who would have to wait, and of who waits when a place comes free. */
    struct features late = r.f;
    struct reservation place = {0};
    struct sched_waiter w = {.features = &late, .reservation = &place};
    assert_int_equal(sched_pool_enqueue(r.pool, &w, r.now), 0);
    r.now += NS_PER_S;
    assert_int_equal(ask(&r), SHED);
    rig_end(&busy);
    assert_ptr_equal(sched_pool_offer(r.pool, r.now, 1, &r.scratch, &r.chosen), &w);
    assert_int_equal(w.rejection, REJECT_SLO_UNREACHABLE);
    assert_null(place.cell);
    rig_close(&r);
}

static void what_waits_there_counts(void **state)
{
    (void)state;
    struct rig r;
    struct reservation first = {0};

    open_rig(&r);
    host(&r, 0, 300000, 10000, SCHED_RATES_SURE, "");
    rig_refresh(&r);
    target(&r, target_for(300000), 0);
    assert_int_equal(rig_admit(&r, &first), 0);
    sched_work_sent(&first, r.now);
    assert_int_equal(ask(&r), SHED);
    assert_int_equal(r.d.late_us, 300000);
    target(&r, target_for(600000), 0);
    assert_int_equal(ask(&r), 0);
    target(&r, target_for(600000) - 1, 0);
    assert_int_equal(ask(&r), SHED);
    rig_end(&first);
    rig_close(&r);
}

static void steps_have_a_target_too(void **state)
{
    (void)state;
    struct rig r;

    open_rig(&r);
    host(&r, 0, 10000, 50000, SCHED_RATES_SURE, "");
    host(&r, 1, 900000, 20000, SCHED_RATES_SURE, "");
    rig_refresh(&r);
    target(&r, 0, target_for(50000));
    assert_int_equal(ask(&r), 0);
    target(&r, 0, target_for(50000) - 1);
    assert_int_equal(ask(&r), 1);
    target(&r, 0, target_for(20000) - 1);
    assert_int_equal(ask(&r), SHED);
    /* One is too slow to answer, the other to begin. */
    target(&r, target_for(500000), target_for(30000));
    assert_int_equal(ask(&r), SHED);
    rig_close(&r);
}

static void the_chosen_one_meets_the_target_though_another_costs_less(void **state)
{
    (void)state;
    struct rig r;

    open_rig(&r);
    host(&r, 0, 300000, 10000, SCHED_RATES_SURE, ""); /* 0.3 + 1.0 / 10 */
    host(&r, 1, 100000, 50000, SCHED_RATES_SURE, ""); /* 0.1 + 5.0 / 10 */
    rig_refresh(&r);
    assert_int_equal(ask(&r), 0);
    target(&r, target_for(200000), 0);
    assert_int_equal(ask(&r), 1);
    target(&r, target_for(300000), 0);
    assert_int_equal(ask(&r), 0);
    rig_close(&r);
}

static void the_unknown_is_never_too_late(void **state)
{
    (void)state;
    struct rig r;
    struct reservation held = {0};

    open_rig(&r);
    host(&r, 0, 900000, 90000, SCHED_RATES_SURE - 1, "gpu_type=A100");
    rig_refresh(&r);
    target(&r, NS_PER_MS, NS_PER_MS);
    assert_int_equal(ask(&r), 0);
    /* Enough was measured, and then nothing for long: one finds out, and while it does it is known again. */
    host(&r, 0, 900000, 90000, SCHED_RATES_SURE, "gpu_type=A100");
    r.now += SLO_STALE_NS - 1;
    target(&r, NS_PER_MS, NS_PER_MS);
    assert_int_equal(ask(&r), SHED);
    r.now += 1;
    target(&r, NS_PER_MS, NS_PER_MS);
    assert_int_equal(rig_admit(&r, &held), 0);
    assert_int_equal(ask(&r), SHED);
    rig_end(&held);
    assert_int_equal(ask(&r), 0);
    rig_close(&r);
}

static void a_policy_that_predicts_nothing_refuses_nobody(void **state)
{
    (void)state;
    struct rig r;

    rig_open(&r, "round_robin");
    host(&r, 0, 900000, 90000, SCHED_RATES_SURE, "");
    rig_refresh(&r);
    target(&r, 1, 1);
    assert_int_equal(ask(&r), 0);
    rig_close(&r);
}

struct request {
    struct features f;
    struct reservation r;
    struct sched_waiter w;
};

static int wait(struct rig *r, struct request *q)
{
    *q = (struct request){.f = r->f};
    q->w = (struct sched_waiter){.features = &q->f, .reservation = &q->r};
    int rc = sched_pool_admit(r->pool, &q->f, NULL, r->now, r->seed++, &r->scratch, &q->r,
                              &r->chosen, &r->d);
    assert_int_equal(rc, WEIR_E_AGAIN);
    q->w.prefill_us = r->d.prefill_us;
    return sched_pool_enqueue(r->pool, &q->w, r->now);
}

static struct request *offer(struct rig *r)
{
    struct sched_waiter *w = sched_pool_offer(r->pool, r->now, r->seed++, &r->scratch, &r->chosen);

    return w ? container_of(w, struct request, w) : NULL;
}

static void waiters_are_looked_at_again_when_a_place_comes_free(void **state)
{
    (void)state;
    struct rig r;
    struct reservation busy = {0};
    struct request tight;
    struct request loose;

    open_rig(&r);
    host(&r, 0, 100000, 10000, SCHED_RATES_SURE, "max_concurrency=1");
    rig_refresh(&r);
    assert_int_equal(rig_admit(&r, &busy), 0);
    sched_work_sent(&busy, r.now);
    sched_work_first_byte(&busy, r.now + 100 * NS_PER_MS);
    r.now += 100 * NS_PER_MS;
    /* Full, and with a place at once it would be too late: it does not wait. */
    target(&r, 1, 0);
    struct reservation none = {0};
    assert_int_equal(rig_admit(&r, &none), WEIR_E_NOTFOUND);
    assert_int_equal(r.d.rejection, REJECT_SLO_UNREACHABLE);
    target(&r, NS_PER_S, 0);
    assert_int_equal(wait(&r, &tight), 0);
    assert_in_range(tight.w.prefill_us, 1, 200000);
    target(&r, 100 * NS_PER_S, 0);
    assert_int_equal(wait(&r, &loose), 0);
    assert_null(offer(&r)); /* nobody is refused as long as it may come in time */
    r.now += 2 * NS_PER_S;
    rig_end(&busy);
    assert_ptr_equal(offer(&r), &tight);
    assert_int_equal(tight.w.rejection, REJECT_SLO_UNREACHABLE);
    assert_null(tight.r.cell);
    assert_false(tight.w.queued);
    assert_ptr_equal(offer(&r), &loose);
    assert_int_equal(loose.w.rejection, REJECT_NONE);
    assert_non_null(loose.r.cell);
    assert_int_equal(sched_pool_waiting(r.pool), 0);
    rig_end(&loose.r);
    rig_close(&r);
}

static void the_measured_rate_of_the_queue_counts(void **state)
{
    (void)state;
    struct rig r;
    struct reservation busy = {0};
    static struct request q[20];
    struct request late;

    rig_open(&r, "chain");
    rig_add(&r, 0, "max_concurrency=1");
    rig_refresh(&r);
    assert_int_equal(rig_admit(&r, &busy), 0);
    struct reservation *running = &busy;
    for (int i = 0; i < 20; i++)
        assert_int_equal(wait(&r, &q[i]), 0);
    for (int i = 0; i < 10; i++) {
        r.now += NS_PER_S;
        rig_end(running);
        running = &offer(&r)->r;
    }
    /* Ten stand before it, each a second. */
    target(&r, target_for(11000000) - 1, 0);
    assert_int_equal(wait(&r, &late), WEIR_E_TIMEOUT);
    assert_int_equal(late.w.rejection, REJECT_SLO_UNREACHABLE);
    target(&r, target_for(11000000), 0);
    assert_int_equal(wait(&r, &late), 0);
    sched_pool_cancel(r.pool, &late.w);
    /* Those whose target has passed take no place. */
    for (int i = 10; i < 20; i++) {
        q[i].f.slo_ttft_ns = q[i].f.slo_by_ns = 1;
    }
    target(&r, target_for(1000000), 0);
    assert_int_equal(wait(&r, &late), 0);
    sched_pool_cancel(r.pool, &late.w);
    for (int i = 10; i < 20; i++)
        q[i].f.slo_ttft_ns = 0;
    for (int i = 0; i < 10; i++) {
        rig_end(running);
        running = &offer(&r)->r;
    }
    rig_end(running);
    rig_close(&r);
}

static void a_refusal_replays_and_says_why(void **state)
{
    (void)state;
    struct rig r;
    struct sched_record *record;
    struct decision again;
    struct explain_row why[2];
    struct buf out;

    open_rig(&r);
    host(&r, 0, 300000, 10000, SCHED_RATES_SURE, "");
    host(&r, 1, 100000, 50000, SCHED_RATES_SURE, "");
    rig_refresh(&r);
    assert_int_equal(sched_record_new(&r.mem, 8, &record), 0);
    r.scratch.record = record;
    buf_init(&out, &r.mem, 1 << 16);
    for (int miss = 0; miss < 2; miss++) {
        target(&r, target_for(miss ? 50000 : 200000), 0);
        r.f.slo_by_ns -= 1000; /* of which a microsecond has passed */
        assert_int_equal(ask(&r), miss ? SHED : 1);
        assert_int_equal(record->features.slo_ttft_ns, r.f.slo_ttft_ns - 1000);
        assert_int_equal(sched_replay(record, &r.mem, &again, why), 0);
        assert_int_equal(again.row, r.d.row);
        assert_int_equal(again.rejection, r.d.rejection);
        assert_int_equal(again.late_us, r.d.late_us);
        assert_int_equal(why[0].dropped_by, EXPLAIN_SLO);
        assert_int_equal(why[1].dropped_by, miss ? EXPLAIN_SLO : EXPLAIN_KEPT);
        buf_clear(&out);
        assert_int_equal(sched_record_explain(&out, record), 0);
        buf_put_char(&out, 0);
        const char *text = out.p + out.from;
        assert_non_null(strstr(text, "\"rule\":\"slo\",\"why\":\"would miss the request's latency "
                                     "targets\""));
        assert_non_null(strstr(text, "\"first_byte_seconds\":0.3,\"step_seconds\":0.01,"
                                     "\"measured\":true"));
    }
    buf_fini(&out);
    r.scratch.record = NULL;
    sched_record_free(record);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_exactly_when_every_first_byte_is_later),
        cmocka_unit_test(a_target_that_has_passed_is_missed),
        cmocka_unit_test(what_waits_there_counts),
        cmocka_unit_test(steps_have_a_target_too),
        cmocka_unit_test(the_chosen_one_meets_the_target_though_another_costs_less),
        cmocka_unit_test(the_unknown_is_never_too_late),
        cmocka_unit_test(a_policy_that_predicts_nothing_refuses_nobody),
        cmocka_unit_test(waiters_are_looked_at_again_when_a_place_comes_free),
        cmocka_unit_test(the_measured_rate_of_the_queue_counts),
        cmocka_unit_test(a_refusal_replays_and_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
