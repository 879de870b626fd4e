/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants in one pool: who is served next, what is charged, and what a flood can do to others. */
#include "ct.h"

#include "base/bug.h"
#include "base/prng.h"
#include "fleet_rig.h"

enum { ONE = TENANT_WEIGHT_ONE };

struct request {
    struct features f;
    struct reservation r;
    struct sched_waiter w;
};

static void ask(struct request *q, const char *tenant, uint64_t prompt, uint32_t output)
{
    *q = (struct request){.f = {.model = RIG_MODEL,
                                .task = TASK_CHAT,
                                .priority = PRIORITY_DEFAULT,
                                .tenant = slice_str(tenant),
                                .prompt_tokens = prompt,
                                .expected_output = output}};
    q->w = (struct sched_waiter){.features = &q->f, .reservation = &q->r};
}

static void open_pool(struct rig *r, const char *host)
{
    rig_open(r, "chain");
    r->queue.by_tenant = true;
    RIG_MUST(sched_pool_reconfigure(r->pool, &r->policy, &r->queue));
    rig_add(r, 0, host);
    rig_refresh(r);
}

static int admit(struct rig *r, struct request *q)
{
    return sched_pool_admit(r->pool, &q->f, NULL, r->now, r->seed++, &r->scratch, &q->r, &r->chosen,
                            &r->d);
}

static void enqueue(struct rig *r, struct request *q)
{
    assert_int_equal(sched_pool_enqueue(r->pool, &q->w, r->now), 0);
}

static void end_as(struct rig *r, struct request *q, uint64_t input, uint64_t output)
{
    sched_pool_settle(r->pool, &q->r, input, output);
    rig_end(&q->r);
}

static void end(struct rig *r, struct request *q)
{
    end_as(r, q, UINT64_MAX, UINT64_MAX);
}

static struct request *next(struct rig *r)
{
    struct sched_waiter *w = sched_pool_offer(r->pool, r->now, r->seed++, &r->scratch, &r->chosen);

    return w ? container_of(w, struct request, w) : NULL;
}

static uint64_t counter_of(const struct request *q)
{
    return q->r.charge.tenant->counter;
}

static void one_for_input_two_for_output(void **state)
{
    (void)state;
    struct rig r;
    struct request q;

    open_pool(&r, "");
    ask(&q, "a", 100, 50);
    assert_int_equal(admit(&r, &q), 0);
    assert_int_equal(q.r.charge.input, 100);
    assert_int_equal(q.r.charge.output, 50);
    uint64_t begun = counter_of(&q) - 200 * ONE;
    struct sched_tenant *a = q.r.charge.tenant;
    assert_int_equal(a->inflight, 1);
    end_as(&r, &q, 110, 20); /* as it turned out */
    assert_int_equal(a->counter - begun, 150 * ONE);
    assert_int_equal(a->inflight, 0);
    assert_null(q.r.charge.tenant);
    assert_int_equal(admit(&r, &q), 0);
    assert_ptr_equal(q.r.charge.tenant, a);
    end_as(&r, &q, 0, 0); /* nothing was done for it */
    assert_int_equal(a->counter - begun, 150 * ONE);
    q.f.tenant_weight = 4 * ONE;
    assert_int_equal(admit(&r, &q), 0);
    assert_int_equal(a->counter - begun, 150 * ONE + 50 * ONE);
    q.f.tenant_weight = ONE / 2; /* what was charged is settled at the weight it was charged at */
    end(&r, &q);
    assert_int_equal(a->counter - begun, 200 * ONE);
    rig_close(&r);
}

/* What has no answer of tokens pays for what it sends. */
static void an_embedding_has_no_output(void **state)
{
    (void)state;
    struct rig r;
    struct request q;

    open_pool(&r, "");
    ask(&q, "a", 100, 50);
    q.f.task = TASK_EMBEDDING;
    assert_int_equal(admit(&r, &q), 0);
    assert_int_equal(q.r.charge.output, 0);
    end(&r, &q);
    rig_close(&r);
}

/* Class, then tenant, then deadline, then arrival; and the counter counts as it is, not as it was at the enqueue. */
static void order_is_class_tenant_deadline_arrival(void **state)
{
    (void)state;
    enum { N = 8 };
    static const int want[N] = {7, 3, 4, 1, 5, 2, 0, 6};
    struct rig r;
    struct request busy;
    struct request q[N];

    open_pool(&r, "max_concurrency=1");
    ask(&busy, "c", 1, 0);
    assert_int_equal(admit(&r, &busy), 0);
    for (int i = 0; i < N; i++)
        ask(&q[i], i == 3 || i == 4 || i == 5 ? "b" : "a", 100, 0);
    q[1].f.deadline_ns = r.now + 1;
    q[2].f.deadline_ns = r.now + 2;
    q[7].f.priority = 4;
    for (int i = 0; i < N; i++)
        enqueue(&r, &q[i]);
    /* b came second, a token behind a, for that is what runs; a pays for its request of class 4 first. */
    struct request *running = &busy;
    for (int i = 0; i < N; i++) {
        end(&r, running);
        running = next(&r);
        assert_ptr_equal(running, &q[want[i]]);
    }
    end(&r, running);
    assert_null(next(&r));
    rig_close(&r);
}

/* Served in proportion to their weights, and what is used beyond what was expected is paid for. */
static void shares_follow_weights_and_usage(void **state)
{
    (void)state;
    enum { N = 400 };
    static struct request q[2][N];
    struct rig r;
    uint32_t served[2] = {0, 0};

    open_pool(&r, "max_concurrency=1");
    r.queue.size = 4096;
    RIG_MUST(sched_pool_reconfigure(r.pool, &r.policy, &r.queue));
    struct request *running = &q[0][0];
    for (int i = 0; i < N; i++)
        for (int t = 0; t < 2; t++) {
            ask(&q[t][i], t ? "b" : "a", 100, 50);
            q[t][i].f.tenant_weight = t ? 3 * ONE : ONE;
            if (i + t == 0)
                assert_int_equal(admit(&r, running), 0);
            else
                enqueue(&r, &q[t][i]);
        }
    for (int i = 0; i < N; i++) {
        bool b = running >= q[1];
        served[b]++;
        /* Of b twice as much is generated as was expected: 100 + 2 x 100 = 300 against 200. */
        end_as(&r, running, 100, b ? 100 : 50);
        running = next(&r);
        assert_non_null(running);
    }
    /* a: 200 each at weight 1, b: 300 each at weight 3: one of a for two of b. */
    assert_in_range(served[0], N / 3 - 2, N / 3 + 2);
    end(&r, running);
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < N; i++)
            sched_pool_cancel(r.pool, &q[t][i].w);
    rig_close(&r);
}

/*
 * The bound of virtual token counters: of two tenants that always have somebody waiting, the service differs in any
 * interval by at most 2 max(wp x longest prompt, wq x tokens that are generated at one time).
 */
static void two_backlogged_tenants_differ_by_a_bounded_service(void **state)
{
    (void)state;
    enum { N = 3000, SLOTS = 8, PROMPT = 2000, OUTPUT = 400 };
    const int64_t bound = 2 * MAX(TENANT_INPUT * PROMPT, TENANT_OUTPUT * SLOTS * OUTPUT);
    static struct request q[2][N];
    static uint32_t used[2][N];
    int64_t widest = 0;

    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct rig r;
        struct prng random = {.state = seed};
        struct request *running[SLOTS];
        uint32_t came[2] = {0, 0};
        int64_t service[2] = {0, 0};
        int64_t least = 0;
        int64_t most = 0;
        uint32_t backlogged = 0;

        open_pool(&r, "max_concurrency=8");
        r.queue.age_ns = 0;
        RIG_MUST(sched_pool_reconfigure(r.pool, &r.policy, &r.queue));
        for (uint32_t i = 0; i < SLOTS; i++) {
            int t = i % 2;
            running[i] = &q[t][came[t]];
            used[t][came[t]++] = OUTPUT;
            ask(running[i], t ? "b" : "a", 1, OUTPUT / 2);
            assert_int_equal(admit(&r, running[i]), 0);
        }
        const struct sched_tenant *a = running[0]->r.charge.tenant;
        const struct sched_tenant *b = running[1]->r.charge.tenant;
        for (uint32_t step = 0; step < 2000; step++) {
            /* Each has at least two waiting; one asks for much more at a time, and in bursts. */
            for (int t = 0; t < 2; t++) {
                uint32_t more = t ? (uint32_t)(prng_next(&random) % 3) : 1;
                for (uint32_t i = 0; i < more && came[t] < N; i++) {
                    struct request *x = &q[t][came[t]];
                    uint64_t prompt = 1 + prng_next(&random) % (t ? PROMPT : PROMPT / 10);
                    used[t][came[t]] = (uint32_t)(prng_next(&random) % (OUTPUT + 1));
                    ask(x, t ? "b" : "a", prompt, OUTPUT / 2); /* all are expected alike */
                    if (sched_pool_enqueue(r.pool, &x->w, r.now) != 0) {
                        break; /* its places are taken: it waits with others */
                    }
                    came[t]++;
                }
            }
            if (step < 20)
                continue; /* both have some waiting */
            uint32_t at = (uint32_t)(prng_next(&random) % SLOTS);
            int of = running[at] >= q[1];
            uint32_t output = used[of][running[at] - q[of]];
            service[of] += TENANT_OUTPUT * (int64_t)output;
            end_as(&r, running[at], running[at]->f.prompt_tokens, output);
            struct request *got = next(&r);
            if (!got) {
                fail_msg("nobody waits at step %u", step);
                return;
            }
            running[at] = got;
            service[got >= q[1]] += TENANT_INPUT * (int64_t)got->f.prompt_tokens;
            /* Any interval: the highest and the lowest difference since both have somebody waiting. */
            int64_t apart = service[0] - service[1];
            bool both = a->waiting && b->waiting;
            least = both ? MIN(least, apart) : apart;
            most = both ? MAX(most, apart) : apart;
            assert_true(most - least <= bound);
            widest = MAX(widest, most - least);
            backlogged += both;
        }
        assert_true(backlogged > 1000);
        for (uint32_t i = 0; i < SLOTS; i++)
            end(&r, running[i]);
        for (int t = 0; t < 2; t++)
            for (uint32_t i = 0; i < came[t]; i++)
                sched_pool_cancel(r.pool, &q[t][i].w);
        rig_close(&r);
    }
    assert_true(widest > bound / 4); /* it is no empty promise */
}

/* Nobody saves up by staying away: at most what the others have under way. */
static void who_comes_back_is_lifted(void **state)
{
    (void)state;
    enum { N = 20 };
    struct rig r;
    struct request first;
    struct request flood[N];
    struct request calm[N];

    open_pool(&r, "max_concurrency=1");
    ask(&first, "calm", 10, 0);
    assert_int_equal(admit(&r, &first), 0);
    struct sched_tenant *who = first.r.charge.tenant;
    end(&r, &first);
    for (int i = 0; i < N; i++) {
        ask(&flood[i], "flood", 1000, 0);
        if (i)
            enqueue(&r, &flood[i]);
        else
            assert_int_equal(admit(&r, &flood[i]), 0);
    }
    int served = 0;
    for (; served < 10; served++) {
        end(&r, &flood[served]);
        assert_ptr_equal(next(&r), &flood[served + 1]);
    }
    /* 11,000 were charged to flood, of them 1,000 for what runs. */
    ask(&calm[0], "calm", 1000, 0);
    enqueue(&r, &calm[0]);
    assert_int_equal(flood[served].r.charge.tenant->counter - who->counter, 1000 * ONE);
    /* So calm is next, twice at most: once for its credit, and once as its equal. */
    ask(&calm[1], "calm", 1000, 0);
    ask(&calm[2], "calm", 1000, 0);
    enqueue(&r, &calm[1]);
    enqueue(&r, &calm[2]);
    end(&r, &flood[served]);
    struct request *running = next(&r);
    assert_ptr_equal(running, &calm[0]);
    int of_calm = 1;
    for (int i = 0; i < 4; i++) {
        end(&r, running);
        running = next(&r);
        of_calm += running >= calm && running < calm + N;
    }
    assert_in_range(of_calm, 2, 3);
    end(&r, running);
    for (int i = 0; i < N; i++)
        sched_pool_cancel(r.pool, &flood[i].w);
    for (int i = 0; i < 3; i++)
        sched_pool_cancel(r.pool, &calm[i].w);
    rig_close(&r);
}

/* A flood may have four times what is free: 80 of 100, and then others still find places. */
static void a_flood_leaves_places(void **state)
{
    (void)state;
    struct rig r;
    struct request busy;
    static struct request flood[100];
    struct request calm;
    uint32_t n = 0;

    open_pool(&r, "max_concurrency=1");
    r.queue.size = 100;
    RIG_MUST(sched_pool_reconfigure(r.pool, &r.policy, &r.queue));
    ask(&busy, "flood", 1, 0);
    assert_int_equal(admit(&r, &busy), 0);
    for (; n < 100; n++) {
        ask(&flood[n], "flood", 1, 0);
        if (sched_pool_enqueue(r.pool, &flood[n].w, r.now) != 0)
            break;
    }
    assert_int_equal(n, 80);
    ask(&calm, "calm", 1, 0);
    enqueue(&r, &calm);
    sched_pool_cancel(r.pool, &calm.w);
    end(&r, &busy);
    for (uint32_t i = 0; i < n; i++)
        sched_pool_cancel(r.pool, &flood[i].w);
    rig_close(&r);
}

/* However long its own backlog has waited, a flood stands in no better class than who just came. */
static void a_backlog_does_not_age_past_others(void **state)
{
    (void)state;
    enum { N = 100 };
    struct rig r;
    struct request busy;
    static struct request flood[N];
    struct request calm;

    open_pool(&r, "max_concurrency=1");
    ask(&busy, "flood", 10, 0);
    assert_int_equal(admit(&r, &busy), 0);
    for (int i = 0; i < N; i++) {
        ask(&flood[i], "flood", 10, 0);
        enqueue(&r, &flood[i]);
    }
    struct request *running = &busy;
    for (int i = 0; i < 60; i++) { /* a minute: each waiter would be in class 0 by its own age */
        end(&r, running);
        running = next(&r);
        assert_ptr_equal(running, &flood[i]);
        r.now += NS_PER_S;
    }
    ask(&calm, "calm", 10, 0);
    enqueue(&r, &calm);
    end(&r, running);
    running = next(&r);
    assert_ptr_equal(running, &calm);
    end(&r, running);
    for (int i = 60; i < N; i++)
        sched_pool_cancel(r.pool, &flood[i].w);
    rig_close(&r);
}

/* Behind another's class 1 for ever, a tenant of class 9 gets its turn after nine times the age. */
static void no_tenant_starves_behind_better_classes(void **state)
{
    (void)state;
    enum { N = 400 };
    struct rig r;
    struct request busy;
    static struct request high[N];
    struct request low[3];
    int got[3] = {0, 0, 0};

    open_pool(&r, "max_concurrency=1");
    ask(&busy, "high", 10, 0);
    assert_int_equal(admit(&r, &busy), 0);
    for (int i = 0; i < 3; i++) {
        ask(&low[i], "low", 10, 0);
        low[i].f.priority = 9;
        enqueue(&r, &low[i]);
    }
    struct request *running = &busy;
    for (int i = 0; i < N && !got[2]; i++) {
        ask(&high[i], "high", 10, 0);
        high[i].f.priority = 1;
        enqueue(&r, &high[i]);
        end(&r, running);
        running = next(&r);
        r.now += NS_PER_S;
        if (running >= low && running < low + 3)
            got[running - low] = i;
    }
    /* It takes 80 s to class 1, where low used less: once a turn. */
    assert_int_equal(got[0], 80);
    assert_int_equal(got[1], 160);
    assert_int_equal(got[2], 240);
    end(&r, running);
    for (int i = 0; i < N; i++)
        sched_pool_cancel(r.pool, &high[i].w);
    rig_close(&r);
}

/*
 * A deadline is hopeless only while a better class is served for sure until then: a line that will have risen by then is
 * let in, or its tenant would be refused for ever and never rise.
 */
static void a_deadline_counts_on_how_a_line_rises(void **state)
{
    (void)state;
    enum { N = 300, SERVED = 20 };
    struct rig r;
    struct request busy;
    static struct request high[N];
    struct request low[3];
    uint32_t n = 0;

    open_pool(&r, "max_concurrency=1");
    ask(&busy, "high", 10, 0);
    assert_int_equal(admit(&r, &busy), 0);
    struct request *running = &busy;
    for (; n < N; n++) {
        ask(&high[n], "high", 10, 0);
        high[n].f.priority = 1;
        enqueue(&r, &high[n]);
    }
    for (int i = 0; i < SERVED; i++) {
        end(&r, running);
        running = next(&r);
        r.now += NS_PER_S;
    }
    /* One place a second, and 280 of a better class before it. It stands beside them after 80 s. */
    for (int i = 0; i < 3; i++) {
        ask(&low[i], "low", 10, 0);
        low[i].f.priority = 9;
    }
    low[0].f.deadline_ns = r.now + 79 * NS_PER_S;
    assert_int_equal(sched_pool_enqueue(r.pool, &low[0].w, r.now), WEIR_E_TIMEOUT);
    assert_int_equal(low[0].w.rejection, REJECT_DEADLINE_EXCEEDED);
    low[1].f.deadline_ns = r.now + 81 * NS_PER_S;
    enqueue(&r, &low[1]);
    for (int i = 0; i < 80; i++) {
        end(&r, running);
        running = next(&r);
        assert_ptr_not_equal(running, &low[1]);
        r.now += NS_PER_S;
    }
    /* It has risen: the same deadline is no hopeless one for who comes now. */
    low[2].f.deadline_ns = r.now + 79 * NS_PER_S;
    enqueue(&r, &low[2]);
    end(&r, running);
    running = next(&r);
    assert_ptr_equal(running, &low[1]);
    end(&r, running);
    sched_pool_cancel(r.pool, &low[2].w);
    for (uint32_t i = 0; i < n; i++)
        sched_pool_cancel(r.pool, &high[i].w);
    rig_close(&r);
}

/* More tenants than places: who waits or runs is never forgotten; the rest share one. */
static void tenants_are_bounded(void **state)
{
    (void)state;
    enum { N = SCHED_TENANTS_MAX + 10 };
    static struct request q[N];
    static char names[N][8];
    struct rig r;

    open_pool(&r, "");
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++) {
            names[i][0] = (char)('a' + round);
            names[i][1] = (char)('a' + i % 16);
            names[i][2] = (char)('a' + i / 16);
            ask(&q[i], names[i], 10, 0);
            assert_int_equal(admit(&r, &q[i]), 0);
            for (int k = 0; k < i && i < SCHED_TENANTS_MAX; k++)
                assert_ptr_not_equal(q[i].r.charge.tenant, q[k].r.charge.tenant);
            if (i >= SCHED_TENANTS_MAX) {
                assert_int_equal(q[i].r.charge.tenant->key, 0);
                assert_int_equal(q[i].r.charge.weight, ONE);
            }
        }
        for (int i = 0; i < N; i++)
            end(&r, &q[i]);
    }
    rig_close(&r);
}

/* Switched off and on again with waiters of several tenants: all are served, and counters stay. */
static void it_can_be_switched_while_they_wait(void **state)
{
    (void)state;
    struct rig r;
    struct request busy;
    struct request q[9];

    open_pool(&r, "max_concurrency=1");
    ask(&busy, "a", 500, 0);
    assert_int_equal(admit(&r, &busy), 0);
    struct sched_tenant *a = busy.r.charge.tenant;
    uint64_t counter = a->counter;
    for (int i = 0; i < 9; i++) {
        if (i % 3 == 0) {
            r.queue.by_tenant = i != 3;
            RIG_MUST(sched_pool_reconfigure(r.pool, &r.policy, &r.queue));
            assert_int_equal(a->counter, counter);
        }
        ask(&q[i], i % 2 ? "a" : "b", 100, 0);
        enqueue(&r, &q[i]);
    }
    end(&r, &busy);
    int served = 0;
    for (struct request *got; (got = next(&r)); served++)
        end(&r, got);
    assert_int_equal(served, 9);
    rig_close(&r);
}

/* Told apart no longer, those who wait stand by deadline and arrival at once, and none is left behind newcomers. */
static void switched_off_all_are_one_line(void **state)
{
    (void)state;
    enum { N = 6 };
    static const int want[N] = {5, 0, 1, 2, 3, 4};
    struct rig r;
    struct request busy;
    struct request q[N];

    open_pool(&r, "max_concurrency=1");
    ask(&busy, "a", 500, 0);
    assert_int_equal(admit(&r, &busy), 0);
    for (int i = 0; i < N; i++) {
        ask(&q[i], i < 2 ? "a" : i < 4 ? "b" : "", 100, 0);
        if (i == 4) { /* by tenants b would be first */
            r.queue.by_tenant = false;
            RIG_MUST(sched_pool_reconfigure(r.pool, &r.policy, &r.queue));
        }
        if (i == 5)
            q[i].f.deadline_ns = r.now + 1;
        enqueue(&r, &q[i]);
    }
    struct request *running = &busy;
    for (int i = 0; i < N; i++) {
        end(&r, running);
        running = next(&r);
        assert_ptr_equal(running, &q[want[i]]);
    }
    end(&r, running);
    rig_close(&r);
}

/* Told apart from now on, those who wait are too: a flood does not keep what it had. And where memory fails, nothing is. */
static void switched_on_those_who_wait_are_told_apart(void **state)
{
    (void)state;
    enum { N = 6 };
    static const int want[N] = {0, 4, 1, 5, 2, 3};
    struct rig r;
    struct request busy;
    struct request q[N];

    rig_open(&r, "chain");
    rig_add(&r, 0, "max_concurrency=1");
    rig_refresh(&r);
    ask(&busy, "", 100, 0);
    assert_int_equal(admit(&r, &busy), 0);
    for (int i = 0; i < N; i++) {
        ask(&q[i], i < 4 ? "a" : "b", 100, 0);
        enqueue(&r, &q[i]);
    }
    r.queue.by_tenant = true;
    for (long k = 1;; k++) {
        r.heap.fail_at = k;
        int rc = sched_pool_reconfigure(r.pool, &r.policy, &r.queue);
        bool failed = r.heap.fail_at == 0;
        r.heap.fail_at = 0;
        if (!failed)
            break;
        assert_int_equal(rc, WEIR_E_NOMEM);
        assert_ptr_equal(q[0].w.tenant, q[N - 1].w.tenant);
    }
    struct request *running = &busy;
    for (int i = 0; i < N; i++) {
        end(&r, running);
        running = next(&r);
        assert_ptr_equal(running, &q[want[i]]);
    }
    end(&r, running);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_for_input_two_for_output),
        cmocka_unit_test(an_embedding_has_no_output),
        cmocka_unit_test(order_is_class_tenant_deadline_arrival),
        cmocka_unit_test(shares_follow_weights_and_usage),
        cmocka_unit_test(two_backlogged_tenants_differ_by_a_bounded_service),
        cmocka_unit_test(who_comes_back_is_lifted),
        cmocka_unit_test(a_flood_leaves_places),
        cmocka_unit_test(a_backlog_does_not_age_past_others),
        cmocka_unit_test(no_tenant_starves_behind_better_classes),
        cmocka_unit_test(a_deadline_counts_on_how_a_line_rises),
        cmocka_unit_test(tenants_are_bounded),
        cmocka_unit_test(it_can_be_switched_while_they_wait),
        cmocka_unit_test(switched_off_all_are_one_line),
        cmocka_unit_test(switched_on_those_who_wait_are_told_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
