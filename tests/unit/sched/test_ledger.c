/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <pthread.h>

#include "base/prng.h"
#include "fleet/cell.h"
#include "fleet_rig.h"
#include "sched/evidence.h"

enum { THREADS = 4, STEPS = 25000, HELD = 300, LIMIT = 96 };

struct worker {
    pthread_t thread;
    struct cell **cells;
    uint32_t n_cells;
    uint32_t limit;
    uint64_t seed;
    atomic_uint *over; /* times that more than the limit was seen */
    atomic_uint *full; /* reservations refused */
};

/* @param uuids parted by blanks. */
static void add_with_devices(struct rig *r, uint32_t n, enum engine_kind engine, const char *uuids)
{
    struct rig_host h;
    struct device devices[4] = {{.memory_total_bytes = 0}};
    struct slice rest = slice_str(uuids);

    rig_host(&h, n, "");
    h.i.engine = engine;
    h.i.devices = devices;
    while (slice_cut(&rest, ' ', &devices[h.i.n_devices].uuid))
        h.i.n_devices++;
    rig_put(r, &h);
}

static uint64_t on_device(const struct cell *c, uint32_t i)
{
    return atomic_load(&atomic_load(&c->devices)->list[i]->promised_bytes);
}

/* Random reserve, first byte, settle and release over several endpoints; up to HELD at once. */
static void *churn(void *arg)
{
    struct worker *w = arg;
    struct reservation held[HELD] = {0};
    struct prng r = {w->seed};

    for (int step = 0; step < STEPS; step++) {
        uint32_t i = (uint32_t)prng_below(&r, HELD);
        if (!held[i].cell) {
            struct cell *c = w->cells[prng_below(&r, w->n_cells)];
            struct features f = {.prompt_tokens = prng_below(&r, 1000),
                                 .output_tokens = prng_below(&r, 1000),
                                 .kv_bytes_per_token = 1 + prng_below(&r, 100),
                                 .required_bytes = prng_below(&r, 2) ? prng_below(&r, 1000000) : 0};
            if (sched_reserve(&held[i], c, w->limit, &f) != 0)
                atomic_fetch_add(w->full, 1);
            if (atomic_load(&c->address->inflight) > w->limit)
                atomic_fetch_add(w->over, 1);
        } else if (prng_below(&r, 3) == 0) {
            rig_end(&held[i]);
        } else if (prng_below(&r, 2)) {
            sched_first_byte(&held[i]);
        } else {
            sched_settle(&held[i]);
        }
    }
    for (int i = 0; i < HELD; i++)
        rig_end(&held[i]);
    return NULL;
}

static void counters_return_to_zero_and_stay_within_the_limit(void **state)
{
    (void)state;
    struct rig r;
    struct worker w[THREADS];
    struct cell *cells[2];
    atomic_uint over = 0;
    atomic_uint full = 0;
    struct sample s = {.known = 1u << SAMPLE_RUNNING, .while_leased = true};

    rig_open(&r, "chain");
    for (uint32_t i = 0; i < 2; i++)
        add_with_devices(&r, i, ENGINE_LLAMACPP, i ? "GPU-1 GPU-2" : "GPU-1");
    rig_refresh(&r);
    for (int i = 0; i < 2; i++)
        cells[i] = r.snapshot->members[i].cell;
    for (int i = 0; i < THREADS; i++) {
        w[i] = (struct worker){.cells = cells,
                               .n_cells = 2,
                               .limit = LIMIT,
                               .seed = (uint64_t)i + 1,
                               .over = &over,
                               .full = &full};
        assert_int_equal(pthread_create(&w[i].thread, NULL, churn, &w[i]), 0);
    }
    /* Meanwhile the control thread publishes: picks and settles see whole samples. */
    for (uint32_t i = 0; i < 2000; i++) {
        struct sample seen;
        s.running = s.waiting = i;
        fleet_cell_publish(cells[i % 2], &s);
        sched_sample_read(cells[i % 2], &seen);
        assert_int_equal(seen.running, seen.waiting);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(w[i].thread, NULL), 0);
    assert_int_equal(over, 0);
    /* Each thread alone would hold some 225 over 2 x 96 places: the limit must have been felt. */
    assert_true(full > 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(atomic_load(&cells[i]->inflight), 0);
        assert_int_equal(atomic_load(&cells[i]->address->inflight), 0);
        assert_int_equal(atomic_load(&cells[i]->prefill_tokens), 0);
        assert_int_equal(atomic_load(&cells[i]->promised_bytes), 0);
        assert_int_equal(atomic_load(&cells[i]->promised_tokens), 0);
        assert_int_equal(on_device(cells[1], (uint32_t)i), 0);
    }
    rig_close(&r);
}

/* One writer, one reader on another thread: never a mix of two samples. */
static void *read_samples(void *arg)
{
    struct worker *w = arg;

    for (int i = 0; i < 20000; i++) {
        struct sample s;
        sched_sample_read(w->cells[0], &s);
        if (s.kv_used_tokens != s.kv_capacity_tokens || s.memory_free_bytes != s.kv_capacity_tokens)
            atomic_fetch_add(w->over, 1);
        struct sched_candidate c = {.cell = w->cells[0]};
        struct sched_row row;
        sched_rows_fill(&c, 1, 0, &row);
        if (row.free_bytes != row.total_tokens)
            atomic_fetch_add(w->over, 1);
    }
    return NULL;
}

static void readers_never_see_half_a_sample(void **state)
{
    (void)state;
    struct rig r;
    atomic_uint torn = 0;

    rig_open(&r, "chain");
    rig_add(&r, 0, "");
    rig_refresh(&r);
    struct cell *c = r.snapshot->members[0].cell;
    struct worker w = {.cells = &c, .over = &torn};
    assert_int_equal(pthread_create(&w.thread, NULL, read_samples, &w), 0);
    for (uint64_t i = 0; i < 20000; i++) {
        struct sample s = {.known = 1u << SAMPLE_KV_CAPACITY | 1u << SAMPLE_KV_USED |
                                    1u << SAMPLE_MEMORY_FREE,
                           .while_leased = true,
                           .kv_capacity_tokens = i,
                           .kv_used_tokens = i,
                           .memory_free_bytes = i};
        fleet_cell_publish(c, &s);
    }
    assert_int_equal(pthread_join(w.thread, NULL), 0);
    assert_int_equal(torn, 0);
    rig_close(&r);
}

static void queued_300_at_limit_96_never_exceed_it(void **state)
{
    (void)state;
    enum { REQUESTS = 96 + 300 };
    static struct {
        struct features f;
        struct reservation r;
        struct sched_waiter w;
    } q[REQUESTS];
    struct rig r;
    struct prng rnd = {9};
    uint32_t running[REQUESTS];
    uint32_t n = 0;
    uint32_t queued = 0;

    rig_open(&r, "chain");
    rig_add(&r, 0, "max_concurrency=96");
    rig_refresh(&r);
    struct address_count *address = r.snapshot->members[0].cell->address;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        q[i].f = r.f;
        q[i].r = (struct reservation){0};
        q[i].w = (struct sched_waiter){.features = &q[i].f, .reservation = &q[i].r};
        if (rig_admit(&r, &q[i].r) == 0) {
            running[n++] = i;
            continue;
        }
        assert_int_equal(sched_pool_enqueue(r.pool, &q[i].w, r.now), 0);
        queued++;
    }
    assert_int_equal(queued, 300);
    uint32_t ended = 0;
    while (n > 0) {
        uint32_t at = (uint32_t)prng_below(&rnd, n);
        uint32_t i = running[at];
        running[at] = running[--n];
        rig_end(&q[i].r);
        ended++;
        /* Sometimes a waiter gives up instead. */
        if (prng_below(&rnd, 4) == 0)
            sched_pool_cancel(r.pool, &q[prng_below(&rnd, REQUESTS)].w);
        struct sched_waiter *w;
        while ((w = sched_pool_offer(r.pool, r.now, r.seed++, &r.scratch, &r.chosen)))
            for (uint32_t k = 0; k < REQUESTS; k++)
                if (w == &q[k].w)
                    running[n++] = k;
        assert_int_equal(atomic_load(&address->inflight), n);
        assert_true(n <= LIMIT);
    }
    assert_int_equal(sched_pool_waiting(r.pool), 0);
    assert_in_range(ended, 97, REQUESTS);
    assert_int_equal(atomic_load(&address->inflight), 0);
    rig_close(&r);
}

static void promises_settle_when_two_newer_samples_show_them(void **state)
{
    (void)state;
    struct rig r;
    struct reservation res = {0};
    struct sample s = {
        .known = 1u << SAMPLE_MEMORY_FREE, .while_leased = true, .memory_free_bytes = 100};

    rig_open(&r, "chain");
    rig_add(&r, 0, "");
    rig_refresh(&r);
    r.f.required_bytes = 60;
    r.f.prompt_tokens = 7;
    RIG_MUST(fleet_sample(r.fleet, 0, SLICE("10.0.0.0"), &s, r.now));
    assert_int_equal(rig_admit(&r, &res), 0);
    struct cell *c = r.chosen.cell;
    assert_int_equal(atomic_load(&c->promised_bytes), 60);
    assert_int_equal(atomic_load(&c->prefill_tokens), 7);
    RIG_MUST(fleet_sample(r.fleet, 0, SLICE("10.0.0.0"), &s, r.now));
    RIG_MUST(fleet_sample(r.fleet, 0, SLICE("10.0.0.0"), &s, r.now));
    sched_settle(&res); /* no first byte yet: it may still wait there */
    assert_int_equal(atomic_load(&c->promised_bytes), 60);
    sched_first_byte(&res);
    sched_first_byte(&res);
    assert_int_equal(atomic_load(&c->prefill_tokens), 0);
    sched_settle(&res);
    sched_settle(&res);
    assert_int_equal(atomic_load(&c->promised_bytes), 0);
    assert_int_equal(atomic_load(&c->inflight), 1);
    struct cell *back = sched_release(&res);
    assert_ptr_equal(back, c);
    sched_cell_put(back);
    assert_null(sched_release(&res));
    sched_first_byte(&res);
    sched_settle(&res);
    /* One newer sample is not enough: it may have been taken before the request arrived. */
    assert_int_equal(rig_admit(&r, &res), 0);
    sched_first_byte(&res);
    RIG_MUST(fleet_sample(r.fleet, 0, SLICE("10.0.0.0"), &s, r.now));
    sched_settle(&res);
    assert_int_equal(atomic_load(&c->promised_bytes), 60);
    rig_end(&res);
    assert_int_equal(atomic_load(&c->promised_bytes), 0);
    rig_close(&r);
}

static uint64_t free_of(struct rig *r, uint32_t i)
{
    struct sched_candidate c;
    struct sched_row row;

    sched_candidate_fill(&r->snapshot->members[i], &r->policy, RIG_MODEL, &c);
    (void)sched_rows_fill(&c, 1, r->now, &row);
    return row.free_bytes;
}

static void endpoints_share_what_is_free_on_their_devices(void **state)
{
    (void)state;
    enum { SMALL, OTHER, WIDE, ALONE, KV, N };
    static const char *const uuids[N] = {"GPU-1", "GPU-1", "GPU-1 GPU-2", "GPU-3", "GPU-2 GPU-2"};
    struct rig r;
    struct reservation a = {0};
    struct reservation b = {0};
    struct reservation c = {0};
    struct sample s = {
        .known = 1u << SAMPLE_MEMORY_FREE, .while_leased = true, .memory_free_bytes = 1000};
    struct features f = {.required_bytes = 100};
    struct features estimate = {.prompt_tokens = 10, .kv_bytes_per_token = 7};

    rig_open(&r, "chain");
    for (uint32_t i = 0; i < N; i++) {
        struct rig_host h;
        add_with_devices(&r, i, i == KV ? ENGINE_VLLM : ENGINE_LLAMACPP, uuids[i]);
        rig_host(&h, i, "");
        RIG_MUST(fleet_sample(r.fleet, 0, h.i.key, &s, r.now));
    }
    rig_refresh(&r);
    struct cell *cells[N];
    for (uint32_t i = 0; i < N; i++) {
        cells[i] = r.snapshot->members[i].cell;
        assert_int_equal(free_of(&r, i), 1000);
    }
    /* One device: all of it. Two: half on each, rounded up, and the fuller one counts for both. */
    assert_int_equal(sched_reserve(&a, cells[SMALL], 0, &f), 0);
    assert_true(sched_shares_devices(&a));
    f.required_bytes = 51;
    assert_int_equal(sched_reserve(&b, cells[WIDE], 0, &f), 0);
    assert_int_equal(on_device(cells[WIDE], 0), 126);
    assert_int_equal(on_device(cells[WIDE], 1), 26);
    assert_int_equal(free_of(&r, SMALL), 1000 - 126);
    assert_int_equal(free_of(&r, OTHER), 1000 - 126);
    assert_int_equal(free_of(&r, WIDE), 1000 - 2 * 126);
    assert_int_equal(free_of(&r, ALONE), 1000);
    assert_int_equal(free_of(&r, KV), 1000 - 26);
    assert_int_equal(atomic_load(&cells[OTHER]->promised_bytes), 0);
    /* An engine that has its KV memory already takes none of the device's for that; only what a client asks for. */
    assert_int_equal(sched_reserve(&c, cells[KV], 0, &estimate), 0);
    assert_false(sched_shares_devices(&c));
    assert_int_equal(on_device(cells[WIDE], 1), 26);
    rig_end(&c);
    f.required_bytes = 500;
    assert_int_equal(sched_reserve(&c, cells[KV], 0, &f), 0);
    assert_int_equal(on_device(cells[WIDE], 1), 526);
    assert_int_equal(free_of(&r, WIDE), 0);
    assert_int_equal(free_of(&r, SMALL), 1000 - 126);
    rig_end(&c);
    /* A newer sample that shows it drops the promise on the devices too, once. */
    sched_first_byte(&a);
    fleet_cell_publish(cells[SMALL], &s);
    fleet_cell_publish(cells[SMALL], &s);
    sched_settle(&a);
    sched_settle(&a);
    assert_int_equal(on_device(cells[SMALL], 0), 26);
    rig_end(&a);
    rig_end(&b);
    assert_int_equal(on_device(cells[WIDE], 0), 0);
    assert_int_equal(on_device(cells[WIDE], 1), 0);
    assert_int_equal(free_of(&r, WIDE), 1000);

    /* Alone on its device it pays for nobody; other devices in its place leave promises where they were made. */
    f.required_bytes = 70;
    assert_int_equal(sched_reserve(&a, cells[ALONE], 0, &f), 0);
    assert_false(sched_shares_devices(&a));
    assert_int_equal(free_of(&r, ALONE), 1000 - 70);
    add_with_devices(&r, ALONE, ENGINE_LLAMACPP, "GPU-2");
    add_with_devices(&r, OTHER, ENGINE_LLAMACPP, "GPU-3");
    rig_refresh(&r);
    assert_ptr_equal(r.snapshot->members[ALONE].cell, cells[ALONE]);
    assert_int_equal(on_device(cells[ALONE], 0), 0);
    assert_int_equal(on_device(cells[OTHER], 0), 70);
    assert_int_equal(free_of(&r, OTHER), 1000 - 70);
    rig_end(&a);
    assert_int_equal(on_device(cells[OTHER], 0), 0);
    assert_int_equal(free_of(&r, OTHER), 1000);
    rig_close(&r);
}

static void absurd_needs_do_not_wrap(void **state)
{
    (void)state;
    struct rig r;
    struct reservation a = {0};
    struct reservation b = {0};
    struct features f = {
        .prompt_tokens = UINT64_MAX, .output_tokens = UINT64_MAX, .kv_bytes_per_token = UINT64_MAX};

    rig_open(&r, "chain");
    rig_add(&r, 0, "");
    rig_refresh(&r);
    struct cell *c = r.snapshot->members[0].cell;
    assert_int_equal(sched_reserve(&a, c, 0, &f), 0);
    f.required_bytes = UINT64_MAX;
    assert_int_equal(sched_reserve(&b, c, 0, &f), 0);
    assert_int_equal(atomic_load(&c->promised_bytes), UINT64_C(2) << 40);
    rig_end(&a);
    rig_end(&b);
    assert_int_equal(atomic_load(&c->promised_bytes), 0);
    assert_int_equal(atomic_load(&c->promised_tokens), 0);
    rig_close(&r);
}

static void evidence_of_traffic(void **state)
{
    (void)state;
    struct rig r;

    rig_open(&r, "chain");
    rig_add(&r, 0, "");
    rig_refresh(&r);
    struct cell *c = r.snapshot->members[0].cell;
    for (int i = 0; i < SCHED_REFUSED_AFTER - 1; i++)
        assert_false(sched_saw_connect_failure(c));
    /* Broken answers are counted, but only progress and probes judge them. */
    for (int i = 0; i < 9; i++)
        sched_saw_failure(c);
    assert_int_equal(atomic_load(&c->consecutive_failures), SCHED_REFUSED_AFTER - 1);
    assert_int_equal(atomic_load(&c->failures_total), SCHED_REFUSED_AFTER - 1 + 9);
    sched_saw_progress(c, r.now);
    assert_int_equal(atomic_load(&c->health), HEALTH_UP);
    for (int i = 0; i < SCHED_REFUSED_AFTER - 1; i++)
        assert_false(sched_saw_connect_failure(c));
    assert_true(sched_saw_connect_failure(c));
    assert_false(sched_saw_connect_failure(c));
    assert_int_equal(atomic_load(&c->health), HEALTH_DOWN);
    /* A late byte of an old stream does not bring it back; one green probe does. */
    sched_saw_progress(c, r.now + 1);
    assert_int_equal(atomic_load(&c->health), HEALTH_DOWN);
    assert_int_equal(fleet_probe(r.fleet, 0, 1, true, r.now), HEALTH_UP);
    assert_int_equal(atomic_load(&c->consecutive_failures), 0);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counters_return_to_zero_and_stay_within_the_limit),
        cmocka_unit_test(readers_never_see_half_a_sample),
        cmocka_unit_test(queued_300_at_limit_96_never_exceed_it),
        cmocka_unit_test(promises_settle_when_two_newer_samples_show_them),
        cmocka_unit_test(endpoints_share_what_is_free_on_their_devices),
        cmocka_unit_test(absurd_needs_do_not_wrap),
        cmocka_unit_test(evidence_of_traffic),
    };
    return cmocka_run_group_tests_name("ledger", tests, NULL, NULL);
}
