/* SPDX-License-Identifier: Apache-2.0 */
/* Picks that spare themselves scores choose as the pick that scores every row, over random fleets: endpoint, turns and
 * all. */
#include "ct.h"

#include "base/bug.h"
#include "base/prng.h"
#include "mirror_rig.h"
#include "sched/plugin.h"
#include "sched/queued.h"
#include "sched/quick.h"

enum { HELD = 600, BLOCKS = 6 };

struct held {
    struct features f;
    struct reservation r;
    uint64_t blocks[BLOCKS];
};

struct pair {
    struct rig rig;
    struct mirror_rig x;
    struct sched_state *quick, *slow;
    struct sched_scratch scratch;
    struct sched_memo *memo;
    struct held held[HELD];
};

static void ask(struct rig *r, struct held *h, struct prng *p)
{
    h->f = (struct features){.model = RIG_MODEL,
                             .task = TASK_CHAT,
                             .stream = true,
                             .prompt_complete = true,
                             .prompt_bytes = UINT64_C(1) << prng_below(p, 20),
                             .output_tokens = prng_below(p, 1000),
                             .n_images = prng_below(p, 8) == 0,
                             .has_session = prng_below(p, 2) != 0,
                             .session = prng_below(p, 64),
                             .priority = PRIORITY_DEFAULT,
                             .blocks = h->blocks,
                             .n_blocks = (uint32_t)prng_below(p, BLOCKS + 1)};
    if (prng_below(p, 4) == 0)
        h->f.required_bytes = prng_below(p, 60) << 30;
    uint64_t chat = prng_below(p, 40);
    for (uint32_t i = 0; i < BLOCKS; i++)
        h->blocks[i] = i < 2 ? i + 1 : chat * 100 + i;
    sched_lore_prepare(r->lore, &h->f);
}

static void sample(struct rig *r, struct prng *p)
{
    struct rig_host h;
    struct sample s = {.known = 1u << SAMPLE_MEMORY_FREE,
                       .fresh_for_ns = prng_below(p, 30000) * NS_PER_MS,
                       .memory_free_bytes = prng_below(p, 80) << 30,
                       .running = (uint32_t)prng_below(p, 9),
                       .waiting = (uint32_t)prng_below(p, 5)};

    if (prng_below(p, 2))
        s.known |= 1u << SAMPLE_RUNNING | 1u << SAMPLE_WAITING;
    rig_host(&h, (uint32_t)prng_below(p, r->snapshot->n_members), "");
    assert_int_equal(fleet_sample(r->fleet, 0, h.i.key, &s, r->now), 0);
}

static void step(struct pair *t, struct prng *p)
{
    struct rig *r = &t->rig;
    struct held *h = &t->held[prng_below(p, HELD)];
    struct usage u = {.known = USAGE_COMPLETION | USAGE_CACHED};

    if (prng_below(p, 6) == 0)
        sample(r, p);
    /* Hours among milliseconds: what was learned fades. */
    r->now += prng_below(p, 50) ? prng_below(p, 20 * NS_PER_MS) : prng_below(p, 60 * NS_PER_S);
    if (!h->r.cell) {
        ask(r, h, p);
        r->f = h->f;
        if (rig_admit(r, &h->r) == 0)
            sched_work_sent(&h->r, r->now);
    } else if (!h->r.first_byte) {
        sched_work_first_byte(&h->r, r->now);
    } else {
        u.cached_tokens = prng_below(p, h->f.prompt_tokens + 1);
        u.completion_tokens = prng_below(p, 300);
        sched_work_end(r->lore, &h->r, &h->f, &u, r->now);
        rig_end(&h->r);
    }
}

/* @return how many endpoints were equal in the end, by the slow pick's costs; 0: nobody fits. */
static uint32_t compare(struct pair *t, const struct features *f, const struct sched_exclude *e)
{
    struct sched_mirror *m = t->x.m;
    struct sched_common common = sched_mirror_refresh(m, t->rig.now);
    struct sched_view v = {.policy = &t->rig.policy,
                           .features = f,
                           .candidates = t->x.c,
                           .rows = m->rows,
                           .common = common,
                           .work = m->work,
                           .n = m->n,
                           .model = RIG_MODEL,
                           .memo = t->memo};
    struct decision quick;
    struct decision slow;
    uint32_t equals = 0;

    assert_false(common.any & SCHED_YOUNG);
    assert_true(sched_quick_pick(m, t->rig.lore, &v, e, t->rig.now, t->quick, &t->scratch, &quick));
    const uint32_t *hits = sched_mirror_hits(m, t->rig.lore, f);
    struct sched_work chosen = {0};
    if (quick.row != DECISION_NOBODY)
        chosen = m->work[quick.row];
    uint32_t slot = 0;
    uint32_t generation = 0;
    bool any = f->has_session && sched_lore_session(t->rig.lore, f->session, &slot, &generation);
    for (uint32_t i = 0; i < m->n; i++) {
        sched_mirror_work(m, f, i, hits ? hits[i] : 0, sched_block_tokens(f), t->rig.now);
        if (any && t->x.c[i].slot == slot && t->x.c[i].generation == generation)
            m->work[i].flags = WORK_SESSION;
    }
    sched_pick(&v, e, t->slow, 1, &t->scratch, &slow, NULL);
    assert_int_equal(quick.row, slow.row);
    assert_int_equal(quick.fit, slow.fit);
    assert_int_equal(quick.rejection, slow.rejection);
    assert_memory_equal(t->quick->credit, t->slow->credit, m->n * sizeof(*t->slow->credit));
    if (slow.row == DECISION_NOBODY)
        return 0;
    assert_memory_equal(&chosen, &m->work[slow.row], sizeof(chosen));
    for (uint32_t i = 0; t->scratch.fit[i] != slow.row || (equals = i, false); i++) {
    }
    uint64_t cost = t->scratch.costs[equals].num;
    equals = 0;
    for (uint32_t i = 0; i < slow.fit && i < m->n; i++)
        equals += t->scratch.costs[i].num == cost;
    return equals;
}

/* Nobody is young any more. */
static void pair_open(struct pair *t, uint32_t n)
{
    mirror_follow(&t->x, &t->rig);
    assert_non_null(t->x.m->columns);
    RIG_MUST(sched_state_new(&t->rig.mem, &t->quick));
    RIG_MUST(sched_state_new(&t->rig.mem, &t->slow));
    RIG_MUST(sched_state_members(t->quick, t->x.c, n));
    RIG_MUST(sched_state_members(t->slow, t->x.c, n));
    RIG_MUST(sched_scratch_reserve(&t->scratch, &t->rig.mem, n));
    t->memo = mem_array(&t->rig.mem, n, sizeof(*t->memo));
}

static void pair_close(struct pair *t)
{
    sched_state_free(t->quick);
    sched_state_free(t->slow);
    sched_scratch_fini(&t->scratch, &t->rig.mem);
    mem_free(&t->rig.mem, t->memo);
    mirror_close(&t->x);
    rig_close(&t->rig);
}

static void same_choice_and_turns(void **state)
{
    (void)state;
    static struct pair t;
    uint64_t alone = 0;
    uint64_t turns = 0;
    uint64_t nobody = 0;

    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct prng p = {seed};
        uint32_t n =
            SCHED_EXACT_ROWS + 1 + (uint32_t)prng_below(&p, MIRROR_ROWS - SCHED_EXACT_ROWS);
        memset(&t, 0, sizeof(t));
        rig_open(&t.rig, "queued_work");
        if (seed % 2)
            sched_policy_stay(&t.rig.policy, &(struct place){.zone = SLICE("a")});
        for (uint32_t i = 0; i < n; i++)
            rig_add(&t.rig, i,
                    seed % 3 == 0 ? i % 4 ? "gpu_type=A100 max_concurrency=3"
                                          : "gpu_type=A100 max_concurrency=3 zone=a"
                    : i % 7 == 0  ? "gpu_type=A100 zone=a"
                    : i % 3       ? "gpu_type=A100"
                    : i % 2       ? "gpu_type=CPU"
                                  : "gpu_type=L4");
        rig_refresh(&t.rig);
        assert_int_equal(rig_once(&t.rig) >= 0, 1); /* nobody is young any more */
        pair_open(&t, n);
        for (uint32_t i = 0; i < 3000; i++) {
            struct held probe;
            struct sched_exclude e = {.n = i % 8 == 0};
            e.tried[0].slot = i % n;
            e.tried[0].generation = 1;
            step(&t, &p);
            do
                ask(&t.rig, &probe, &p);
            while (sched_queued_whole(&probe.f));
            uint32_t equals = compare(&t, &probe.f, &e);
            nobody += equals == 0;
            alone += equals == 1;
            turns += equals > 1;
        }
        for (uint32_t i = 0; i < HELD; i++)
            rig_end(&t.held[i].r);
        pair_close(&t);
    }
    /* All of it was tried. */
    assert_true(alone > 1000);
    assert_true(turns > 1000);
    assert_true(nobody > 0);
}

/* One with more than an hour of work is scored exactly, for a float does not tell its cost: but not when it does not fit. */
static void who_does_not_fit_is_not_chosen_for_its_cost(void **state)
{
    (void)state;
    enum { N = SCHED_EXACT_ROWS + 2, BUSY = 7 };
    static struct pair t;
    struct held *h = &t.held[0];
    struct prng p = {1};
    struct rig_host host;
    struct sample s = {.known = 1u << SAMPLE_RUNNING | 1u << SAMPLE_WAITING,
                       .fresh_for_ns = 30 * NS_PER_S,
                       .waiting = 1000000};

    memset(&t, 0, sizeof(t));
    rig_open(&t.rig, "queued_work");
    for (uint32_t i = 0; i < N; i++)
        rig_add(&t.rig, i, "gpu_type=A100");
    rig_refresh(&t.rig);
    assert_true(rig_once(&t.rig) >= 0);
    pair_open(&t, N);
    /* The others say that a million requests wait there, which takes longer still. */
    for (uint32_t i = 0; i < N; i++) {
        rig_host(&host, i, "");
        if (i != BUSY)
            assert_int_equal(fleet_sample(t.rig.fleet, 0, host.i.key, &s, t.rig.now), 0);
    }
    ask(&t.rig, h, &p);
    struct cell *c = t.rig.snapshot->members[BUSY].cell;
    assert_int_equal(sched_reserve(&h->r, c, 0, &h->f), 0);
    atomic_store(&c->work_until_ns, t.rig.now + 7200 * NS_PER_S);
    cell_changed(c);
    struct sched_exclude e = {.n = 1};
    e.tried[0].slot = t.x.c[BUSY].slot;
    e.tried[0].generation = t.x.c[BUSY].generation;
    struct held probe;
    do
        ask(&t.rig, &probe, &p);
    while (sched_queued_whole(&probe.f) || probe.f.required_bytes);
    assert_true(compare(&t, &probe.f, &e) > 1);
    rig_end(&h->r);
    pair_close(&t);
}

/* Everything that changes a row, also of a young one, and whatever a filter may drop. */
static void steady_step(struct rig *r, struct held *h, struct prng *p)
{
    struct rig_host host;
    struct sample s = {.known = (uint32_t)prng_next(p) & ((1u << (SAMPLE_STATE + 1)) - 1),
                       .fresh_for_ns = prng_below(p, 3000) * NS_PER_MS,
                       .gpu_util_bp = (uint32_t)prng_below(p, 10001),
                       .memory_free_bytes = prng_below(p, 80) << 30,
                       .memory_total_bytes = UINT64_C(80) << 30,
                       .running = (uint32_t)prng_below(p, 9),
                       .waiting = (uint32_t)prng_below(p, 5),
                       .state = prng_below(p, 8) ? REPORTED_HEALTHY : REPORTED_BUSY};
    uint32_t n = r->snapshot->n_members;

    r->now += prng_below(p, 300 * NS_PER_MS);
    switch (prng_below(p, 3)) {
    case 0:
        rig_host(&host, (uint32_t)prng_below(p, n), "");
        assert_true(fleet_sample(r->fleet, 0, host.i.key, &s, r->now) <= 1);
        break;
    case 1:
        (void)fleet_probe(r->fleet, (uint32_t)prng_below(p, n), 1, prng_below(p, 4) != 0, r->now);
        break;
    default:
        if (h->r.cell)
            rig_end(&h->r);
        break;
    }
}

/* What the pool does, and what an explanation of the same moment, which fills and scores everybody anew, says that it
 * will do; also after a reload that moves the gateway to another place and weighs devices differently. */
static void same_choice_with_kept_costs(void **state)
{
    (void)state;
    static const char *const policies[] = {"chain", "least_request"};
    static struct held held[HELD];
    static struct explain_row why[MIRROR_ROWS];
    uint64_t chosen = 0;
    uint64_t nobody = 0;
    uint64_t spilled = 0;
    uint64_t stayed = 0;

    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct prng p = {seed};
        struct rig r;
        struct sched_record *anew;
        uint32_t n = 1 + (uint32_t)prng_below(&p, seed % 4 ? MIRROR_ROWS : 12);
        memset(held, 0, sizeof(held));
        rig_open(&r, policies[seed % 2]);
        r.policy.slow_start_ns = seed % 3 ? 0 : 20 * NS_PER_S;
        r.policy.gpu_weights[0].gpu_type = slice_str("L4");
        r.policy.gpu_weights[0].weight = WEIGHT_ONE * 3 / 2;
        r.policy.n_gpu_weights = 1;
        for (uint32_t i = 0; i < n; i++)
            rig_add(&r, i,
                    seed % 4 == 1 ? i % 5 ? "max_concurrency=2" : "max_concurrency=2 zone=a"
                    : i % 3       ? "gpu_type=L4"
                                  : "zone=a");
        rig_refresh(&r);
        RIG_MUST(sched_record_new(&r.mem, n, &anew));
        for (uint32_t i = 0; i < 2500; i++) {
            struct held *h = &held[prng_below(&p, HELD)];
            struct decision d;
            if (i == 1250) {
                r.policy.gpu_weights[0].weight = WEIGHT_ONE * 4;
                sched_policy_stay(&r.policy, &(struct place){.zone = SLICE("a")});
                RIG_MUST(sched_pool_reconfigure(r.pool, &r.policy, &r.queue));
            }
            steady_step(&r, h, &p);
            if (h->r.cell)
                continue;
            ask(&r, h, &p);
            r.f = h->f;
            r.scratch.record = anew;
            sched_pool_explain(r.pool, &r.f, r.now, r.seed, &r.scratch, &d, why);
            r.scratch.record = NULL;
            int rc = rig_admit(&r, &h->r);
            assert_int_equal(rc == 0, d.row != DECISION_NOBODY);
            assert_int_equal(r.d.row, d.row);
            assert_int_equal(r.d.fit, d.fit);
            assert_int_equal(r.d.rejection, d.rejection);
            chosen += rc == 0;
            nobody += rc != 0;
            spilled += rc == 0 && h->r.spilled;
            stayed += rc == 0 && i >= 1250 && !h->r.spilled;
        }
        for (uint32_t i = 0; i < HELD; i++)
            rig_end(&held[i].r);
        sched_record_free(anew);
        rig_close(&r);
    }
    assert_true(chosen > 2000);
    assert_true(nobody > 0);
    assert_true(spilled > 0 && stayed > 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_choice_and_turns),
        cmocka_unit_test(who_does_not_fit_is_not_chosen_for_its_cost),
        cmocka_unit_test(same_choice_with_kept_costs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
