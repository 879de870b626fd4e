/* SPDX-License-Identifier: Apache-2.0 */
/* What is learned, what work is counted, and how policies use it. */
#include "ct.h"

#include <pthread.h>

#include "base/bug.h"
#include "base/prng.h"
#include "engine/profile.h"
#include "fleet_rig.h"

static struct sched_speed
speed_now(const struct sched_rates *r, const struct sched_speed *prior, uint64_t now)
{
    struct sched_speed s;

    sched_rates_read(r, prior, now, &s);
    return s;
}

static const uint64_t blocks[8] = {11, 12, 13, 14, 15, 16, 17, 18};

/* A stream of `prompt` tokens with an answer of about 100. */
static void ask_for(struct rig *r, uint64_t prompt)
{
    r->f = (struct features){.model = RIG_MODEL,
                             .task = TASK_CHAT,
                             .stream = true,
                             .prompt_complete = true,
                             .prompt_bytes = prompt * 4,
                             .output_tokens = 200,
                             .priority = PRIORITY_DEFAULT};
    sched_lore_prepare(r->lore, &r->f);
}

static struct cell *cell_of(const struct rig *r, uint32_t slot)
{
    return sched_pool_member(r->pool, slot).cell;
}

static void nothing_left(const struct rig *r)
{
    for (uint32_t i = 0; i < sched_pool_members(r->pool); i++) {
        struct cell *c = cell_of(r, i);
        assert_int_equal(atomic_load(&c->await), 0);
        assert_int_equal(atomic_load(&c->await_us), 0);
        assert_int_equal(atomic_load(&c->whole), 0);
        assert_int_equal(atomic_load(&c->context_tokens), 0);
        assert_int_equal(atomic_load(&c->prefill_tokens), 0);
        assert_int_equal(atomic_load(&c->inflight), 0);
    }
}

static void priors_are_the_emulators_figures(void **state)
{
    (void)state;
    for (unsigned i = 0; engine_profile_at(i); i++) {
        const struct engine_profile *p = engine_profile_at(i);
        struct sched_speed s = sched_speed_prior(slice_str(p->gpu_type));
        assert_int_equal(s.step_us, (uint32_t)(p->floor_ms * 1e3 + 0.5));
        assert_int_equal(s.prefill_ns, (uint32_t)(p->b_ms * 1e6 + 0.5));
        assert_int_equal(s.context_ps, (uint32_t)(p->k_us * 1e6 + 0.5));
    }
    struct sched_speed a = sched_speed_prior(SLICE("NVIDIA A100-SXM4-80GB"));
    struct sched_speed l = sched_speed_prior(SLICE("NVIDIA L40S"));
    assert_int_equal(a.prefill_ns, 66500);
    assert_int_equal(l.prefill_ns, 59000);
    assert_int_equal(sched_speed_prior(SLICE("MI300X")).prefill_ns, a.prefill_ns);
}

/* Prefill times of 5 ms + 20 us a token are found from requests of any length, whatever the prior, also when each waits
 * for the one before it. One that takes a hundred times as long changes little. */
static void prefill_rates_are_learned(void **state)
{
    (void)state;
    for (int queued = 0; queued < 2; queued++) {
        struct sched_rates r = {.key = 0};
        struct sched_speed prior = sched_speed_prior(SLICE("T4"));
        struct prng rnd = {3};
        uint64_t now = 1000 * NS_PER_S;
        sched_rates_reset(&r, 1, &prior);
        for (int i = 0; i < 1000; i++) {
            uint64_t tokens = 100 + prng_below(&rnd, 8000);
            uint64_t sent = queued ? now - now % NS_PER_S : now;
            now += 5 * NS_PER_MS + tokens * 20000;
            sched_rates_first_byte(&r, tokens, sent, now, true);
            if (!queued)
                now += NS_PER_MS;
        }
        struct sched_speed s = speed_now(&r, &prior, now);
        assert_in_range(s.fixed_us, 4900, 5100);
        assert_in_range(s.prefill_ns, 19800, 20200);
        sched_rates_first_byte(&r, 1000, now, now + 2500 * NS_PER_MS, true);
        s = speed_now(&r, &prior, now);
        assert_in_range(s.fixed_us + (uint64_t)s.prefill_ns * 1000 / 1000, 20000, 36000);
    }
}

static void steps_and_services_are_learned(void **state)
{
    (void)state;
    struct sched_rates r = {.key = 0};
    struct sched_speed prior = sched_speed_prior(SLICE("A100"));
    uint64_t now = 1000 * NS_PER_S;

    sched_rates_reset(&r, 1, &prior);
    for (int i = 0; i < 2000; i++) {
        struct sched_speed s = speed_now(&r, &prior, now);
        sched_rates_answer(&r, 100, 100 * 30 * NS_PER_MS, s.step_us + 2000);
    }
    assert_in_range(speed_now(&r, &prior, now).step_us, 27500, 28500);
    /* Jobs one after another, all sent at once: each took 40 ms, not the time since it was sent. */
    for (int i = 1; i <= 100; i++)
        sched_rates_service(&r, now, now + (uint64_t)i * 40 * NS_PER_MS);
    assert_in_range(speed_now(&r, &prior, now).service_us, 39900, 40100);
}

/* An endpoint that looked slow is tried again: what was learned fades while it is not used. */
static void what_looks_slow_and_is_not_used_fades(void **state)
{
    (void)state;
    struct sched_rates r = {.key = 0};
    struct sched_speed prior = sched_speed_prior(SLICE("A100"));
    uint64_t now = 1000 * NS_PER_S;

    sched_rates_reset(&r, 1, &prior);
    for (int i = 0; i < 200; i++) {
        now += 3 * NS_PER_S;
        sched_rates_first_byte(&r, 1000, now - 2 * NS_PER_S, now, true);
    }
    struct sched_speed then = speed_now(&r, &prior, now);
    struct sched_speed later = speed_now(&r, &prior, now + 3000 * NS_PER_S);
    uint64_t before = then.fixed_us + then.prefill_ns;
    uint64_t after = later.fixed_us + later.prefill_ns;
    uint64_t usual = prior.fixed_us + prior.prefill_ns;
    assert_true(before > 10 * usual);
    assert_true(after < 2 * usual);
}

static void trust_in_hits_follows_the_engines_word(void **state)
{
    (void)state;
    struct sched_rates r = {.key = 0};
    struct sched_speed prior = sched_speed_prior(SLICE("A100"));

    sched_rates_reset(&r, 1, &prior);
    for (int i = 0; i < 200; i++)
        sched_rates_cached(&r, 1000, 0);
    assert_int_equal(speed_now(&r, &prior, 0).trust, 0);
    for (int i = 0; i < 200; i++)
        sched_rates_cached(&r, 1000, 500);
    assert_int_equal(speed_now(&r, &prior, 0).trust, SCHED_TRUST_FULL / 2);
    for (int i = 0; i < 400; i++)
        sched_rates_cached(&r, 1000, 4000);
    assert_int_equal(speed_now(&r, &prior, 0).trust, SCHED_TRUST_FULL);
}

/* Lengths uniform in 1 .. 1,000: mean and median about 500, nine in ten below 900. Another tenant's are its own. */
static void lengths_are_learned_as_quantiles(void **state)
{
    (void)state;
    static struct sched_lengths l;
    struct prng r = {9};
    struct features f = {.model = RIG_MODEL, .tenant = SLICE("a"), .output_tokens = 4000};

    assert_int_equal(sched_lengths_guess(&l, &f).mean, LENGTH_DEFAULT);
    f.output_tokens = 100;
    assert_int_equal(sched_lengths_guess(&l, &f).mean, 50);
    f.output_tokens = 4000;
    uint64_t mean = 0, median = 0, p90 = 0;
    for (int i = 0; i < 5000; i++) {
        struct usage u = {.completion_tokens = 1 + prng_below(&r, 1000), .known = USAGE_COMPLETION};
        sched_lengths_learn(&l, &f, &u);
        struct sched_length_guess g = sched_lengths_guess(&l, &f);
        if (i >= 1000) {
            mean += g.mean;
            median += g.median;
            p90 += g.p90;
        }
    }
    assert_in_range(mean / 4000, 480, 520);
    assert_in_range(median / 4000, 460, 540);
    assert_in_range(p90 / 4000, 840, 940);
    struct features b = {.model = RIG_MODEL, .tenant = SLICE("b"), .output_tokens = 4000};
    struct usage ten = {.completion_tokens = 10, .known = USAGE_COMPLETION};
    for (int i = 0; i < 50; i++)
        sched_lengths_learn(&l, &b, &ten);
    assert_int_equal(sched_lengths_guess(&l, &b).mean, 10);
    assert_in_range(sched_lengths_guess(&l, &f).mean, 300, 700);
    /* Who has sent nothing yet gets what the model's others got, and never more than it asks for. */
    b.tenant = SLICE("c");
    b.output_tokens = 5;
    assert_int_equal(sched_lengths_guess(&l, &b).mean, 5);
}

static void bytes_per_token_are_learned(void **state)
{
    (void)state;
    static struct sched_lengths l;
    struct features f = {.model = RIG_MODEL, .prompt_bytes = 30000, .prompt_complete = true};
    struct usage u = {.prompt_tokens = 10000, .known = USAGE_PROMPT};

    assert_int_equal(sched_lengths_bytes_per_token(&l, RIG_MODEL), 4 << 8);
    sched_lengths_learn(&l, &f, &u);
    assert_int_equal(sched_lengths_bytes_per_token(&l, RIG_MODEL), 3 << 8);
    f.n_images = 1; /* says nothing of text */
    u.prompt_tokens = 20000;
    sched_lengths_learn(&l, &f, &u);
    assert_int_equal(sched_lengths_bytes_per_token(&l, RIG_MODEL), 3 << 8);
    assert_int_equal(sched_lengths_bytes_per_token(&l, SLICE("other")), 4 << 8);
}

/* Three idle endpoints, 66.5 us a token: 1,000 tokens wait 77.1 ms on each; then the fourth waits behind one. */
static void work_is_spread_by_seconds(void **state)
{
    (void)state;
    struct rig r;
    struct reservation held[4] = {{0}};
    uint32_t slots[4];

    rig_open(&r, "queued_work");
    for (uint32_t i = 0; i < 3; i++)
        rig_add(&r, i, "gpu_type=A100");
    rig_refresh(&r);
    ask_for(&r, 20000);
    assert_int_equal(rig_admit(&r, &held[0]), 0);
    slots[0] = r.chosen.endpoint->slot;
    assert_int_equal(held[0].own_us, 10600 + 20000 * 665 / 10);
    ask_for(&r, 1000);
    for (uint32_t i = 1; i < 4; i++) {
        assert_int_equal(rig_admit(&r, &held[i]), 0);
        slots[i] = r.chosen.endpoint->slot;
        assert_int_not_equal(slots[i],
                             slots[0]); /* two small ones wait less than behind one large */
    }
    struct cell *c = cell_of(&r, slots[0]);
    assert_int_equal(atomic_load(&c->work_until_ns), r.now + held[0].own_us * NS_PER_US);
    assert_int_equal(atomic_load(&c->await), 1);
    /* Half-way nothing else changed; at the first byte nothing waits there any more. */
    r.now += 100 * NS_PER_MS;
    sched_work_first_byte(&held[0], r.now);
    assert_int_equal(atomic_load(&c->work_until_ns), r.now);
    for (uint32_t i = 0; i < 4; i++)
        rig_end(&held[i]);
    nothing_left(&r);
    rig_close(&r);
}

/* The index knows of a request from when it is noted, once for each reservation. */
static void blocks_are_noted_when_it_is_sent(void **state)
{
    (void)state;
    struct rig r;
    struct reservation x = {0};
    struct sched_prefix_ask ask = {0, 0, 0};

    rig_open(&r, "queued_work");
    rig_add(&r, 1, "");
    rig_refresh(&r);
    ask_for(&r, 8 * 512);
    r.f.blocks = blocks;
    r.f.n_blocks = ARRAY_LEN(blocks);
    assert_int_equal(
        sched_pool_admit(r.pool, &r.f, NULL, r.now, 1, &r.scratch, &x, &r.chosen, &r.d), 0);
    ask.slot = x.cell->slot;
    ask.generation = x.cell->generation;
    sched_prefix_hits(&r.lore->prefix, blocks, ARRAY_LEN(blocks), &ask, 1);
    assert_int_equal(ask.hits, 0);
    sched_work_note(r.lore, &x, &r.f);
    sched_prefix_hits(&r.lore->prefix, blocks, ARRAY_LEN(blocks), &ask, 1);
    assert_int_equal(ask.hits, ARRAY_LEN(blocks));
    unsigned clock = atomic_load(&r.lore->prefix.clock);
    sched_work_note(r.lore, &x, &r.f);
    assert_int_equal(atomic_load(&r.lore->prefix.clock), clock);
    rig_end(&x);
    sched_work_note(r.lore, &x, &r.f); /* there is none any more */
    assert_int_equal(atomic_load(&r.lore->prefix.clock), clock);
    rig_close(&r);
}

/* A prefix is sought where it was sent, while the wait there costs less than computing it again. */
static void a_prefix_draws_as_far_as_it_saves_time(void **state)
{
    (void)state;
    struct rig r;
    struct reservation held[64] = {{0}};
    uint32_t count[2] = {0, 0};

    rig_open(&r, "queued_work");
    rig_add(&r, 0, "gpu_type=A100");
    rig_add(&r, 1, "gpu_type=A100");
    rig_refresh(&r);
    ask_for(&r, 8 * 512);
    r.f.blocks = blocks;
    r.f.n_blocks = ARRAY_LEN(blocks);
    int home = rig_once(&r);
    for (int i = 0; i < 20; i++) {
        r.now += NS_PER_S;
        assert_int_equal(rig_once(&r), home);
    }
    /* All at once they would wait for each other: both are used. */
    for (uint32_t i = 0; i < 64; i++) {
        assert_int_equal(rig_admit(&r, &held[i]), 0);
        count[r.chosen.endpoint->slot]++;
    }
    assert_in_range(count[home], 16, 48);
    for (uint32_t i = 0; i < 64; i++)
        rig_end(&held[i]);
    nothing_left(&r);
    rig_close(&r);
}

/* A session stays where it was until that is clearly worse, or full. */
static void a_session_stays_until_it_is_clearly_worse(void **state)
{
    (void)state;
    struct rig r;
    struct reservation held[8] = {{0}};

    rig_open(&r, "queued_work");
    rig_add(&r, 0, "gpu_type=A100 max_concurrency=8");
    rig_add(&r, 1, "gpu_type=A100 max_concurrency=8");
    rig_refresh(&r);
    ask_for(&r, 100);
    r.f.has_session = true;
    r.f.session = 77;
    int home = rig_once(&r);
    for (int i = 0; i < 20; i++)
        assert_int_equal(rig_once(&r), home);
    /* Somebody else's work goes there: a little of it does not matter, 30 s do. */
    struct cell *c = cell_of(&r, (uint32_t)home);
    ask_for(&r, 100);
    r.f.has_session = true;
    r.f.session = 77;
    atomic_store(&c->work_until_ns, r.now + 30 * NS_PER_S);
    cell_changed(c);
    assert_int_equal(rig_admit(&r, &held[0]), 0); /* idle: nothing can be waiting there */
    assert_int_equal((int)r.chosen.endpoint->slot, home);
    atomic_store(&c->work_until_ns, r.now + 30 * NS_PER_S);
    cell_changed(c);
    assert_int_not_equal(rig_once(&r), home);
    rig_end(&held[0]);
    nothing_left(&r);
    rig_close(&r);
}

/* Among equal idle endpoints requests take turns. */
static void equals_take_turns(void **state)
{
    (void)state;
    struct rig r;
    uint32_t count[4] = {0};

    rig_open(&r, "queued_work");
    for (uint32_t i = 0; i < 4; i++)
        rig_add(&r, i, "");
    rig_refresh(&r);
    ask_for(&r, 10);
    for (int i = 0; i < 400; i++)
        count[rig_once(&r)]++;
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(count[i], 100);
    rig_close(&r);
}

/* 4 fast and 4 slow endpoints that nobody knows: after some requests the fast ones get what they can bear. */
static void the_slow_are_found_out_and_still_used(void **state)
{
    (void)state;
    enum { N = 8, MAX = 4000 };
    struct rig r;
    static struct {
        struct reservation r;
        uint64_t first_ns;
    } job[MAX];
    uint64_t free_at[N] = {0};
    uint32_t count[N] = {0};

    rig_open(&r, "queued_work");
    for (uint32_t i = 0; i < N; i++)
        rig_add(&r, i, "");
    rig_refresh(&r);
    memset(job, 0, sizeof(job));
    for (uint32_t i = 0; i < MAX; i++) {
        r.now += 60 * NS_PER_MS;
        for (uint32_t k = i > 500 ? i - 500 : 0; k < i; k++)
            if (job[k].r.cell && job[k].first_ns <= r.now) {
                sched_work_first_byte(&job[k].r, job[k].first_ns);
                rig_end(&job[k].r);
            }
        ask_for(&r, 1000);
        assert_int_equal(rig_admit(&r, &job[i].r), 0);
        uint32_t s = r.chosen.endpoint->slot;
        uint64_t takes = (s < N / 2 ? 100 : 1000) * NS_PER_MS;
        free_at[s] = (free_at[s] > r.now ? free_at[s] : r.now) + takes;
        job[i].first_ns = free_at[s];
        if (i >= MAX / 2)
            count[s]++;
    }
    /* 4 x 10 + 4 x 1 requests a second are possible, 16.7 come. */
    for (uint32_t i = 0; i < N / 2; i++) {
        assert_in_range(count[i], 350, 650);
        assert_in_range(count[N / 2 + i], 0, 60);
    }
    for (uint32_t i = 0; i < MAX; i++)
        rig_end(&job[i].r);
    nothing_left(&r);
    rig_close(&r);
}

/* Every policy serves, within the limits, whatever comes, and leaves nothing behind. */
static void every_policy_keeps_the_books(void **state)
{
    (void)state;
    for (uint32_t p = 0; sched_policy_name(p); p++) {
        struct rig r;
        struct reservation held[40] = {{0}};
        struct prng rnd = {p + 1};
        rig_open(&r, sched_policy_name(p));
        for (uint32_t i = 0; i < 5; i++)
            rig_add(&r, i, "max_concurrency=4 gpu_util=20");
        rig_refresh(&r);
        for (int i = 0; i < 3000; i++) {
            struct reservation *x = &held[prng_below(&rnd, ARRAY_LEN(held))];
            r.now += prng_below(&rnd, NS_PER_S);
            if (x->cell) {
                if (prng_below(&rnd, 2))
                    sched_work_first_byte(x, r.now);
                if (prng_below(&rnd, 2)) {
                    struct usage u = {prng_below(&rnd, 5000), prng_below(&rnd, 500),
                                      prng_below(&rnd, 5000), (uint8_t)prng_below(&rnd, 8)};
                    sched_work_end(r.lore, x, &r.f, &u, r.now);
                    rig_end(x);
                }
                continue;
            }
            ask_for(&r, prng_below(&rnd, 20000));
            r.f.task = prng_below(&rnd, 4) ? TASK_CHAT : TASK_EMBEDDING;
            r.f.stream = prng_below(&rnd, 2);
            r.f.n_images = prng_below(&rnd, 8) == 0;
            r.f.blocks = blocks;
            r.f.n_blocks = (uint32_t)prng_below(&rnd, 9);
            r.f.prefix_key = r.f.n_blocks ? blocks[0] : 0;
            r.f.has_session = prng_below(&rnd, 2);
            r.f.session = prng_below(&rnd, 6);
            int rc = rig_admit(&r, x);
            assert_true(rc == 0 || rc == WEIR_E_AGAIN);
            uint32_t inflight = 0;
            for (uint32_t k = 0; k < 5; k++) {
                assert_true(atomic_load(&cell_of(&r, k)->inflight) <= 4);
                inflight += atomic_load(&cell_of(&r, k)->inflight);
            }
            assert_true(rc == 0 || inflight == 20);
        }
        for (uint32_t i = 0; i < ARRAY_LEN(held); i++)
            rig_end(&held[i]);
        nothing_left(&r);
        rig_close(&r);
    }
}

/* A member more or less moves few sessions of the others. */
static void maglev_moves_little(void **state)
{
    (void)state;
    enum { KEYS = 2000 };
    struct rig r;
    static uint32_t before[KEYS];
    uint32_t count[9] = {0};
    uint32_t moved = 0;

    rig_open(&r, "maglev");
    for (uint32_t i = 0; i < 8; i++)
        rig_add(&r, i, "");
    rig_refresh(&r);
    ask_for(&r, 10);
    r.f.has_session = true;
    for (uint32_t k = 0; k < KEYS; k++) {
        r.f.session = k * UINT64_C(0x9E3779B97F4A7C15);
        before[k] = (uint32_t)rig_once(&r);
        assert_int_equal(rig_once(&r), (int)before[k]);
        count[before[k]]++;
    }
    for (uint32_t i = 0; i < 8; i++)
        assert_in_range(count[i], KEYS / 8 * 8 / 10, KEYS / 8 * 12 / 10);
    rig_add(&r, 8, "");
    rig_refresh(&r);
    for (uint32_t k = 0; k < KEYS; k++) {
        r.f.session = k * UINT64_C(0x9E3779B97F4A7C15);
        uint32_t now = (uint32_t)rig_once(&r);
        moved += now != before[k] && now != 8;
    }
    assert_true(moved < KEYS / 20);
    rig_close(&r);
}

/* Everything that is learned, by four threads at once: nothing is locked, nothing tears (ThreadSanitizer looks on). */
struct crowd {
    struct sched_lore *lore;
    uint64_t seed;
};

static void *learn_all(void *arg)
{
    const struct crowd *c = arg;
    struct sched_lore *l = c->lore;
    struct prng r = {c->seed};
    struct sched_speed prior = sched_speed_prior(SLICE("A100"));

    for (uint32_t i = 0; i < 3000; i++) {
        uint64_t chain[16];
        uint64_t now = (1000 + i) * NS_PER_MS;
        uint32_t slot = (uint32_t)prng_below(&r, 50);
        struct sched_prefix_ask ask = {slot, 1 + i / 1000, 0};
        struct features f = {.model = RIG_MODEL, .output_tokens = 100};
        struct usage u = {.completion_tokens = i % 90, .known = USAGE_COMPLETION};
        uint32_t where, generation;
        for (uint64_t k = 0, family = prng_below(&r, 200); k < ARRAY_LEN(chain); k++)
            chain[k] = (family << 32 | k) * UINT64_C(0x9E3779B97F4A7C15);
        sched_prefix_expect(&l->prefix, slot);
        sched_prefix_note(&l->prefix, chain, 1 + (uint32_t)prng_below(&r, 16), slot, 1 + i / 1000,
                          64);
        sched_prefix_hits(&l->prefix, chain, 16, &ask, 1);
        if (ask.hits > 16)
            abort();
        struct sched_rates *rates =
            sched_lore_rates(l, sched_lore_key(slot, RIG_MODEL, 0), SLICE("A100"));
        sched_rates_first_byte(rates, 100, now, now + NS_PER_MS, true);
        sched_rates_answer(rates, 100, NS_PER_S, 9000);
        sched_rates_service(rates, now, now + NS_PER_MS);
        sched_rates_cached(rates, 10, i % 20);
        if (speed_now(rates, &prior, now).trust > SCHED_TRUST_FULL)
            abort();
        sched_lengths_learn(l->lengths, &f, &u);
        sched_lore_prepare(l, &f);
        sched_lore_session_put(l, prng_below(&r, 100), slot, 1);
        (void)sched_lore_session(l, prng_below(&r, 100), &where, &generation);
    }
    return NULL;
}

static void many_threads_learn_at_once(void **state)
{
    (void)state;
    struct rig r;
    pthread_t threads[4];
    struct crowd crowd[4];

    rig_open(&r, "queued_work");
    /* The rig's allocator counts without a lock: what is allocated is made before. */
    for (uint32_t slot = 0; slot < 50; slot++) {
        sched_prefix_expect(&r.lore->prefix, slot);
        assert_non_null(
            sched_lore_rates(r.lore, sched_lore_key(slot, RIG_MODEL, 0), SLICE("A100")));
    }
    for (uint32_t i = 0; i < 4; i++) {
        crowd[i] = (struct crowd){r.lore, i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, learn_all, &crowd[i]), 0);
    }
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(priors_are_the_emulators_figures),
        cmocka_unit_test(prefill_rates_are_learned),
        cmocka_unit_test(steps_and_services_are_learned),
        cmocka_unit_test(what_looks_slow_and_is_not_used_fades),
        cmocka_unit_test(trust_in_hits_follows_the_engines_word),
        cmocka_unit_test(lengths_are_learned_as_quantiles),
        cmocka_unit_test(bytes_per_token_are_learned),
        cmocka_unit_test(work_is_spread_by_seconds),
        cmocka_unit_test(blocks_are_noted_when_it_is_sent),
        cmocka_unit_test(a_prefix_draws_as_far_as_it_saves_time),
        cmocka_unit_test(a_session_stays_until_it_is_clearly_worse),
        cmocka_unit_test(equals_take_turns),
        cmocka_unit_test(the_slow_are_found_out_and_still_used),
        cmocka_unit_test(every_policy_keeps_the_books),
        cmocka_unit_test(maglev_moves_little),
        cmocka_unit_test(many_threads_learn_at_once),
    };

    return cmocka_run_group_tests_name("work", tests, NULL, NULL);
}
