/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include "apps/sim/record_read.h"
#include "base/bug.h"
#include "base/hash.h"
#include "base/prng.h"
#include "fleet_rig.h"

enum { PICKS = 1000, HOSTS = 12 };

static struct sched_record *record_for(struct rig *r, uint32_t cap)
{
    struct sched_record *record;

    RIG_MUST(sched_record_new(&r->mem, cap, &record));
    r->scratch.record = record;
    return record;
}

static json_t *as_json(struct rig *r, const struct sched_record *record)
{
    struct buf b;

    buf_init(&b, &r->mem, 1 << 20);
    buf_put_char(&b, '{');
    assert_int_equal(sched_record_put(&b, record), 0);
    buf_put_char(&b, '}');
    json_error_t error;
    json_t *o = json_loadb(buf_slice(&b).p, buf_len(&b), JSON_REJECT_DUPLICATES, &error);
    if (!o)
        fail_msg("%s: %.*s", error.text, (int)buf_len(&b), buf_slice(&b).p);
    buf_fini(&b);
    return o;
}

static uint64_t below(struct prng *p, uint64_t n)
{
    return prng_below(p, n);
}

static void any_host(struct rig *r, struct prng *p, uint32_t n)
{
    static const char *const metadata[] = {
        "",
        "remaining_memory=7 current_requests=3",
        "remaining_memory=3 gpu_util=85 engine=llamacpp",
        "remaining_memory=20 gpu_util=33 max_concurrency=2",
        "gpu_util=50 current_requests=1",
        "engine=vllm",
        "health_status=loading",
        "remaining_memory=16 gpu_type=A100",
    };
    struct rig_host h;

    rig_host(&h, n, metadata[below(p, ARRAY_LEN(metadata))]);
    h.i.weight = (uint32_t)(1 + below(p, 4)) * WEIGHT_ONE / 2;
    h.i.draining = below(p, 12) == 0;
    h.i.tasks = below(p, 3) ? 0 : TASK_CHAT;
    h.i.zone = below(p, 3) ? SLICE("a") : SLICE("b");
    h.model.version = below(p, 3) ? slice_of(NULL, 0) : SLICE("v2");
    h.model.max_model_len = below(p, 2) ? 0 : (uint32_t)(500 + below(p, 4000));
    h.model.loading = below(p, 8) == 0;
    rig_put(r, &h);
}

static void any_sample(struct rig *r, struct prng *p, uint32_t n)
{
    char text[16];
    struct sample s = {.known = (uint32_t)below(p, 1u << (SAMPLE_STATE + 1)),
                       .fresh_for_ns = NS_PER_S,
                       .gpu_util_bp = (uint32_t)below(p, 10001),
                       .memory_free_bytes = below(p, 24) * GIB,
                       .memory_total_bytes = UINT64_C(24) * GIB,
                       .kv_capacity_tokens = 10000,
                       .kv_used_tokens = below(p, 10001),
                       .running = (uint32_t)below(p, 6),
                       .waiting = (uint32_t)below(p, 3),
                       .state = (enum reported_state)below(p, 2)};
    int len = snprintf(text, sizeof(text), "10.0.0.%u", n);

    RIG_MUST(fleet_sample(r->fleet, 0, slice_of(text, (size_t)len), &s, r->now));
}

static void any_request(struct rig *r, struct prng *p)
{
    r->f = (struct features){.model = RIG_MODEL,
                             .priority = PRIORITY_DEFAULT,
                             .task = below(p, 3)   ? TASK_CHAT
                                     : below(p, 2) ? TASK_EMBEDDING
                                                   : 0,
                             .prompt_tokens = below(p, 4000),
                             .output_tokens = below(p, 2) ? below(p, 4000) : 0,
                             .kv_bytes_per_token = below(p, 2) ? 131072 : 0,
                             .session = prng_next(p),
                             .has_session = below(p, 2) != 0};
    r->f.prefix_key = below(p, 3) ? prng_next(p) : 0;
    r->f.prompt_bytes = below(p, 2) ? 4 * r->f.prompt_tokens : 0;
    r->f.n_prompts = below(p, 4) ? 0 : (uint32_t)below(p, 5);
    if (below(p, 3) == 0)
        r->f.required_bytes = below(p, 10) ? below(p, 30) * GIB : UINT64_MAX;
    if (below(p, 6) == 0)
        r->f.version = below(p, 2) ? SLICE("v2") : SLICE("nobody-has-this");
}

/* Written, read back and decided again from nothing else, every pick of every policy comes out the same. */
static void every_pick_of_every_policy_replays(void **state)
{
    (void)state;
    const char *name;

    for (uint32_t i = 0; (name = sched_policy_name(i)) != NULL; i++) {
        struct rig r;
        struct prng p = {42 + i};
        struct reservation held[HOSTS * 2] = {{0}};
        unsigned chosen = 0;
        unsigned nobody = 0;

        rig_open(&r, name);
        r.policy.gpu_weights[0] = (struct gpu_weight){SLICE("A100"), 3000};
        r.policy.n_gpu_weights = 1;
        if (i % 3)
            sched_policy_stay(&r.policy, i % 3 == 1 ? &(struct place){.zone = SLICE("a")}
                                                    : &(struct place){.zone = SLICE("b")});
        sched_policy_seal(&r.policy);
        for (uint32_t h = 0; h < HOSTS; h++)
            any_host(&r, &p, h);
        rig_refresh(&r);
        struct sched_record *record = record_for(&r, SCHED_RECORD_ROWS);
        for (int k = 0; k < PICKS; k++) {
            if (below(&p, 20) == 0) {
                any_host(&r, &p, (uint32_t)below(&p, HOSTS));
                rig_refresh(&r);
            }
            any_sample(&r, &p, (uint32_t)below(&p, HOSTS));
            any_request(&r, &p);
            r.now += below(&p, NS_PER_S / 4);
            r.seed = prng_next(&p);
            struct reservation *res = &held[below(&p, ARRAY_LEN(held))];
            rig_end(res);
            struct sched_exclude tried = {0};
            if (below(&p, 8) == 0) {
                tried.n = 1;
                tried.tried[0].slot = (uint32_t)below(&p, HOSTS);
                tried.tried[0].generation = 1;
            }
            int rc = sched_pool_admit(r.pool, &r.f, &tried, r.now, r.seed, &r.scratch, res,
                                      &r.chosen, &r.d);
            assert_true(record->captured);
            assert_true(sched_record_whole(record));
            chosen += rc == 0;
            nobody += rc != 0;

            struct explain_row why[HOSTS];
            struct decision again;
            json_t *o = as_json(&r, record);
            struct read_record back;
            assert_int_equal(record_read(o, &r.mem, &back), 0);
            assert_null(back.wrong);
            assert_true(record_same(&back.logged, &r.d));
            assert_int_equal(sched_replay(back.record, &r.mem, &again, why), 0);
            if (!record_same(&again, &r.d))
                fail_msg("%s, pick %d: row %u, replayed %u", name, k, r.d.row, again.row);
            for (uint32_t n = 0; n < record->n; n++) {
                assert_int_equal(why[n].dropped_by, record->why[n].dropped_by);
                assert_int_equal(why[n].terms[0], record->why[n].terms[0]);
                assert_int_equal(why[n].chosen, record->why[n].chosen);
            }
            sched_record_free(back.record);
            json_decref(o);
        }
        /* Both kinds must have been there for this to mean something. */
        assert_true(chosen > PICKS / 4);
        assert_true(nobody > PICKS / 50);
        for (size_t n = 0; n < ARRAY_LEN(held); n++)
            rig_end(&held[n]);
        sched_record_free(record);
        rig_close(&r);
    }
}

/* Names of the first 64 blocks, how many there were, and how many of them each endpoint is believed to hold. */
static void blocks_are_kept_within_a_bound(void **state)
{
    (void)state;
    enum { BLOCKS = 100 };
    struct rig r;
    struct reservation res = {0};
    uint64_t blocks[BLOCKS];

    for (uint32_t i = 0; i < BLOCKS; i++)
        blocks[i] = hash_pair(i, 9);
    rig_open(&r, "queued_work");
    rig_add(&r, 0, "");
    rig_add(&r, 1, "");
    rig_refresh(&r);
    struct sched_record *record = record_for(&r, SCHED_RECORD_ROWS);
    r.f.blocks = blocks;
    r.f.n_blocks = BLOCKS;
    r.f.prompt_tokens = BLOCKS * 512;
    for (int k = 0; k < 2; k++) {
        assert_int_equal(rig_admit(&r, &res), 0);
        uint32_t slot = r.chosen.endpoint->slot;
        rig_end(&res);
        json_t *o = as_json(&r, record);
        struct read_record back;
        assert_int_equal(record_read(o, &r.mem, &back), 0);
        assert_null(back.wrong);
        assert_int_equal(back.record->features.n_blocks, BLOCKS);
        assert_int_equal(back.record->n_blocks, SCHED_RECORD_BLOCKS);
        assert_memory_equal(back.record->blocks, blocks, sizeof(back.record->blocks));
        for (uint32_t i = 0; i < 2; i++)
            assert_int_equal(back.record->rows[i].hit_blocks,
                             k && record->rows[i].slot == slot ? BLOCKS : 0);
        sched_record_free(back.record);
        json_decref(o);
    }
    sched_record_free(record);
    rig_close(&r);
}

static struct slice explained(struct rig *r, const struct sched_record *record, struct buf *b)
{
    buf_init(b, &r->mem, 1 << 20);
    buf_put_char(b, '{');
    assert_int_equal(sched_record_explain(b, record), 0);
    buf_put_char(b, '}');
    return buf_slice(b);
}

static void explain(struct rig *r, struct sched_record *record)
{
    sched_pool_explain(r->pool, &r->f, r->now, r->seed, &r->scratch, &r->d, record->why);
}

/* The rule and the words for the endpoint in this row. */
static void
assert_dropped(struct rig *r, struct sched_record *record, uint32_t row, const char *rule)
{
    struct buf b;

    explain(r, record);
    struct slice text = explained(r, record, &b);
    json_t *o = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES, NULL);
    const json_t *e = json_array_get(json_object_get(o, "endpoints"), row);
    const char *why = NULL;
    for (uint32_t i = 0; i < sched_n_filters; i++)
        if (strcmp(sched_filters[i].name, rule) == 0)
            why = sched_filters[i].why;
    assert_non_null(why);
    assert_string_equal(json_string_value(json_object_get(e, "verdict")), "dropped");
    assert_string_equal(json_string_value(json_object_get(e, "rule")), rule);
    assert_string_equal(json_string_value(json_object_get(e, "why")), why);
    json_decref(o);
    buf_fini(&b);
}

static void every_filter_is_named_with_its_words(void **state)
{
    (void)state;
    struct rig r;
    struct rig_host h;
    struct device small = {.memory_total_bytes = UINT64_C(4) * GIB};
    struct reservation held = {0};
    unsigned seen = 0;

    rig_open(&r, "chain");
    rig_host(&h, 0, "remaining_memory=3");
    h.i.devices = &small;
    h.i.n_devices = 1;
    h.model.version = SLICE("v1");
    h.model.max_model_len = 100;
    rig_put(&r, &h);
    rig_host(&h, 1, "remaining_memory=20 max_concurrency=1");
    h.model.version = SLICE("v2");
    rig_put(&r, &h);
    rig_host(&h, 2, "");
    h.i.draining = true;
    rig_put(&r, &h);
    rig_add(&r, 3, "zone=a");
    rig_refresh(&r);
    struct sched_record *record = record_for(&r, 4);

    assert_dropped(&r, record, 2, "usable");
    seen++;
    r.f.version = SLICE("v2");
    assert_dropped(&r, record, 0, "model");
    seen++;
    r.f.version = slice_of(NULL, 0);
    r.f.prompt_tokens = 101;
    assert_dropped(&r, record, 0, "context");
    seen++;
    r.f.prompt_tokens = 0;
    r.f.required_bytes = UINT64_C(5) * GIB;
    assert_dropped(&r, record, 0, "memory_total");
    seen++;
    assert_dropped(&r, record, 3, "memory_known");
    seen++;
    r.f.required_bytes = UINT64_C(4) * GIB;
    assert_dropped(&r, record, 0, "memory");
    seen++;
    RIG_MUST(rig_admit(&r, &held));
    assert_int_equal(r.chosen.endpoint->slot, 1);
    r.f.required_bytes = 0;
    assert_dropped(&r, record, 1, "concurrency");
    seen++;
    struct place place = {.zone = SLICE("a")};
    sched_policy_stay(&r.policy, &place);
    RIG_MUST(sched_pool_reconfigure(r.pool, &r.policy, &r.queue));
    assert_dropped(&r, record, 0, "locality");
    seen++;
    /* Whoever adds a filter adds its case here. */
    assert_int_equal(seen, sched_n_filters);
    rig_end(&held);
    sched_record_free(record);
    rig_close(&r);
}

static void usable_says_which_of_its_reasons(void **state)
{
    (void)state;
    struct rig r;
    struct rig_host h;
    struct buf b;
    static const char *const want[] = {
        "disabled, weight 0, draining, or unhealthy in its registry",
        "reports that it is loading",
        "down: checks or connections fail",
        "not checked yet",
    };

    rig_open(&r, "chain");
    rig_host(&h, 0, "");
    h.i.weight = 0;
    rig_put(&r, &h);
    rig_add(&r, 1, "health_status=loading");
    rig_add(&r, 2, "");
    rig_host(&h, 3, "");
    h.i.vouched = false;
    rig_put(&r, &h);
    rig_refresh(&r);
    atomic_store(&r.snapshot->members[2].cell->health, HEALTH_DOWN);
    cell_changed(r.snapshot->members[2].cell);
    struct sched_record *record = record_for(&r, 4);
    explain(&r, record);
    assert_int_equal(r.d.rejection, REJECT_NO_ENDPOINT);
    struct slice text = explained(&r, record, &b);
    json_t *o = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES, NULL);
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        const json_t *e = json_array_get(json_object_get(o, "endpoints"), i);
        assert_string_equal(json_string_value(json_object_get(e, "detail")), want[i]);
    }
    json_decref(o);
    buf_fini(&b);
    sched_record_free(record);
    rig_close(&r);
}

static void terms_of_chain_as_by_hand(void **state)
{
    (void)state;
    struct rig r;
    struct rig_host h;
    struct buf b;

    rig_open(&r, "chain");
    rig_host(&h, 0, "gpu_util=80 current_requests=2");
    h.i.weight = 2 * WEIGHT_ONE;
    rig_put(&r, &h);
    rig_add(&r, 1, "gpu_util=35 current_requests=3");
    rig_refresh(&r);
    struct sched_record *record = record_for(&r, 4);
    explain(&r, record);
    struct slice text = explained(&r, record, &b);
    json_t *o = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES, NULL);
    const struct {
        double cost, load, weight, dynamic;
    } want[] = {
        {2, 2, 2, 1},   /* 2 / (2 x 0.5) */
        {2, 3, 1, 1.5}, /* 3 / (1 x 1.5), an equal cost */
    };
    /* Equal costs take turns by share: the richer one, with 1.5 against 1, is served first. */
    assert_int_equal(r.d.row, 1);
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        const json_t *e = json_array_get(json_object_get(o, "endpoints"), i);
        assert_string_equal(json_string_value(json_object_get(e, "verdict")),
                            i == 1 ? "chosen" : "kept");
        assert_true(json_number_value(json_object_get(e, "cost")) == want[i].cost);
        assert_true(json_number_value(json_object_get(json_object_get(e, "terms"),
                                                      "dynamic_load")) == want[i].cost);
        assert_true(json_number_value(json_object_get(e, "load")) == want[i].load);
        assert_true(json_number_value(json_object_get(e, "weight")) == want[i].weight);
        assert_true(json_number_value(json_object_get(e, "dynamic_weight")) == want[i].dynamic);
    }
    json_decref(o);
    buf_fini(&b);
    sched_record_free(record);
    rig_close(&r);
}

static void a_large_pool_is_cut_says_so_and_is_not_replayed(void **state)
{
    (void)state;
    struct rig r;
    struct reservation res = {0};
    struct decision d;

    rig_open(&r, "chain");
    for (uint32_t i = 0; i < 9; i++)
        rig_add(&r, i, i == 8 ? "current_requests=0" : "current_requests=5");
    rig_refresh(&r);
    struct sched_record *record = record_for(&r, 4);
    RIG_MUST(rig_admit(&r, &res));
    assert_false(sched_record_whole(record));
    assert_int_equal(sched_replay(record, &r.mem, &d, NULL), WEIR_E_UNSUPPORTED);
    json_t *o = as_json(&r, record);
    assert_true(json_is_true(json_object_get(o, "truncated")));
    assert_int_equal(json_array_size(json_object_get(o, "rows")), 4);
    assert_int_equal(json_integer_value(json_object_get(o, "members")), 9);
    /* The chosen one is among those kept. */
    const json_t *decision = json_object_get(o, "decision");
    assert_string_equal(json_string_value(json_object_get(decision, "endpoint")), "10.0.0.8:8000");
    json_decref(o);
    rig_end(&res);
    sched_record_free(record);
    rig_close(&r);
}

static void a_version_nobody_has_and_tenants_are_not_written(void **state)
{
    (void)state;
    struct rig r;
    struct buf b;

    rig_open(&r, "chain");
    rig_add(&r, 0, "");
    rig_refresh(&r);
    struct sched_record *record = record_for(&r, 4);
    r.f.version = SLICE("marker-version");
    r.f.tenant = SLICE("marker-tenant");
    explain(&r, record);
    struct slice text = explained(&r, record, &b);
    assert_null(memmem(text.p, text.n, "marker", 6));
    buf_fini(&b);
    json_t *o = as_json(&r, record);
    assert_true(json_is_null(json_object_get(json_object_get(o, "features"), "version")));
    json_decref(o);
    sched_record_free(record);
    rig_close(&r);
}

static void brief_stays_within_its_bound_with_the_choice_first(void **state)
{
    (void)state;
    struct rig r;
    struct buf b;

    rig_open(&r, "chain");
    for (uint32_t i = 0; i < 60; i++)
        rig_add(&r, i, i == 31 ? "" : "current_requests=5");
    rig_refresh(&r);
    struct sched_record *record = record_for(&r, 64);
    explain(&r, record);
    for (size_t max = 512; max <= 8192; max *= 2) {
        buf_init(&b, &r.mem, 1 << 20);
        assert_int_equal(sched_record_brief(&b, record, max), 0);
        assert_true(buf_len(&b) <= max);
        json_t *o = json_loadb(buf_slice(&b).p, buf_len(&b), JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(o);
        const json_t *list = json_object_get(o, "endpoints");
        assert_string_equal(json_string_value(json_object_get(o, "chosen")), "10.0.0.31:8000");
        assert_string_equal(json_string_value(json_object_get(json_array_get(list, 0), "endpoint")),
                            "10.0.0.31:8000");
        assert_int_equal(
            json_array_size(list) + (size_t)json_integer_value(json_object_get(o, "left_out")), 60);
        json_decref(o);
        buf_fini(&b);
    }
    sched_record_free(record);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pick_of_every_policy_replays),
        cmocka_unit_test(blocks_are_kept_within_a_bound),
        cmocka_unit_test(every_filter_is_named_with_its_words),
        cmocka_unit_test(usable_says_which_of_its_reasons),
        cmocka_unit_test(terms_of_chain_as_by_hand),
        cmocka_unit_test(a_large_pool_is_cut_says_so_and_is_not_replayed),
        cmocka_unit_test(a_version_nobody_has_and_tenants_are_not_written),
        cmocka_unit_test(brief_stays_within_its_bound_with_the_choice_first),
    };
    return cmocka_run_group_tests_name("record", tests, NULL, NULL);
}
