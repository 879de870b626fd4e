/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <stdio.h>
#include <string.h>

#include "base/bug.h"
#include "base/num.h"
#include "heap_mem.h"
#include "registry/store.h"

#define S(n) ((uint64_t)(n)*NS_PER_S)

/* A store, and what its sink and watchers were told, one word a line. */
struct world {
    struct test_heap heap;
    struct mem mem;
    struct store store;
    char said[16384];
    size_t n;
    int refuse; /* what the sink answers to upserts */
};

static void note(struct world *w, const char *what, struct slice key, const char *more)
{
    int n =
        snprintf(w->said + w->n, sizeof(w->said) - w->n, "%s %.*s%s\n", what, SLICE_ARG(key), more);

    assert_true(n > 0 && (size_t)n < sizeof(w->said) - w->n);
    w->n += (size_t)n;
}

static int on_upsert(void *ctx, uint16_t source, const struct instance *i)
{
    struct world *w = ctx;
    char more[512];
    size_t n = 0;

    assert_int_equal(source, 3);
    if (w->refuse)
        return w->refuse;
    n += (size_t)snprintf(more, sizeof(more), " w=%u%s%s%s", i->weight,
                          i->enabled ? "" : " disabled", i->healthy ? "" : " sick",
                          i->probation ? " probation" : "");
    for (uint32_t k = 0; k < i->n_metadata && n < sizeof(more); k++)
        n += (size_t)snprintf(more + n, sizeof(more) - n, " %.*s=%.*s",
                              SLICE_ARG(i->metadata[k].key), SLICE_ARG(i->metadata[k].value));
    note(w, "upsert", i->key, more);
    return 0;
}

static void on_remove(void *ctx, uint16_t source, struct slice key)
{
    (void)source;
    note(ctx, "remove", key, "");
}

static int on_sample(void *ctx, uint16_t source, struct slice key, const struct sample *s)
{
    char more[64];

    (void)source;
    (void)snprintf(more, sizeof(more), " %llu.%llu", (unsigned long long)s->epoch,
                   (unsigned long long)s->seq);
    note(ctx, "sample", key, more);
    return 0;
}

static void open_world(struct world *w, uint32_t max)
{
    memset(w, 0, sizeof(*w));
    w->mem = test_heap_mem(&w->heap);
    struct store_options o = {
        .mem = &w->mem,
        .sink = {.ctx = w, .upsert = on_upsert, .remove = on_remove, .sample = on_sample},
        .source = 3,
        .records_max = max};
    store_init(&w->store, &o);
}

static void close_world(struct world *w)
{
    store_fini(&w->store);
    assert_int_equal(w->heap.live, 0);
}

/* What was said since the last call. */
static void expect(struct world *w, const char *want)
{
    w->said[w->n] = '\0';
    assert_string_equal(w->said, want);
    w->n = 0;
    w->said[0] = '\0';
}

static struct instance
endpoint(const char *id, const char *host, uint16_t port, const struct slice *service)
{
    return (struct instance){.id = slice_str(id),
                             .host = slice_str(host),
                             .port = port,
                             .services = service,
                             .n_services = service ? 1 : 0,
                             .weight = WEIGHT_ONE,
                             .enabled = true,
                             .healthy = true};
}

static struct record *put(struct world *w, struct instance *i, uint64_t now)
{
    struct native_put p = {.instance = i, .ttl_ns = S(15)};
    struct record *r;

    assert_int_equal(store_put(&w->store, &p, now, &r, NULL), 0);
    return r;
}

static struct nacos_write nacos(const char *host, uint16_t port)
{
    return (struct nacos_write){.ns = SLICE("public"),
                                .grouped = SLICE("DEFAULT_GROUP@@llm"),
                                .host = slice_str(host),
                                .port = port};
}

static const char N[] = "nacos/public/DEFAULT_GROUP@@llm/10.0.0.5:8000";

static void native_put_replaces_whole_and_keeps_its_epoch(void **state)
{
    (void)state;
    struct world w;
    struct kv a[] = {{SLICE("a"), SLICE("1")}};
    struct kv b[] = {{SLICE("b"), SLICE("2")}};

    open_world(&w, 10);
    struct instance i = endpoint("w1", "h", 80, NULL);
    i.metadata = a;
    i.n_metadata = 1;
    struct record *r = put(&w, &i, S(1));
    uint64_t epoch = r->instance.epoch;
    i.metadata = b;
    r = put(&w, &i, S(2));
    assert_int_equal(r->instance.epoch, epoch);
    assert_int_equal(w.store.n, 1);
    store_remove(&w.store, r, REASON_DEREGISTERED);
    i.n_metadata = 0;
    r = put(&w, &i, S(3));
    assert_int_not_equal(r->instance.epoch, epoch);
    expect(&w, "upsert native/w1 w=1000 a=1\nupsert native/w1 w=1000 b=2\nremove native/w1\nupsert "
               "native/w1 w=1000\n");
    close_world(&w);
}

static void an_older_epoch_is_refused(void **state)
{
    (void)state;
    struct world w;
    struct record *r;

    open_world(&w, 10);
    struct instance i = endpoint("w1", "h", 80, NULL);
    struct native_put p = {.instance = &i, .ttl_ns = S(15), .has_epoch = true};
    i.epoch = 10;
    assert_int_equal(store_put(&w.store, &p, 0, &r, NULL), 0);
    i.epoch = 9;
    struct record *same;
    assert_int_equal(store_put(&w.store, &p, 0, &same, NULL), WEIR_E_STALE);
    assert_ptr_equal(store_native(&w.store, SLICE("w1")), r);
    struct sample load = {.epoch = 9, .seq = 5, .known = 1};
    assert_int_equal(store_load(&w.store, r, &load, 0), WEIR_E_STALE);
    load.epoch = 10;
    load.seq = 0;
    assert_int_equal(store_load(&w.store, r, &load, 0), 0);
    assert_int_equal(store_load(&w.store, r, &load, 0), WEIR_E_STALE);
    load.epoch = 11;
    assert_int_equal(store_load(&w.store, r, &load, 0), 0);
    i.epoch = 10;
    assert_int_equal(store_put(&w.store, &p, 0, &same, NULL), WEIR_E_STALE);
    expect(&w, "upsert native/w1 w=1000\nsample native/w1 10.0\nsample native/w1 11.0\n");
    close_world(&w);
}

static void native_leases_end_and_renewals_and_loads_keep_them(void **state)
{
    (void)state;
    struct world w;
    struct sample load = {.epoch = 1, .seq = 1, .known = 1};

    open_world(&w, 10);
    assert_true(store_next_due(&w.store) == UINT64_MAX);
    struct instance i = endpoint("w1", "h", 80, NULL);
    struct record *r = put(&w, &i, S(0));
    assert_int_equal(store_next_due(&w.store), S(15));
    assert_int_equal(store_renew(&w.store, r, S(10)), 0);
    store_expire(&w.store, S(15));
    assert_int_equal(store_next_due(&w.store), S(25));
    assert_int_equal(store_load(&w.store, r, &load, S(20)), 0);
    store_expire(&w.store, S(35) - 1);
    assert_int_equal(w.store.n, 1);
    store_expire(&w.store, S(35));
    assert_int_equal(w.store.n, 0);
    expect(&w, "upsert native/w1 w=1000\nsample native/w1 1.1\nremove native/w1\n");
    close_world(&w);
}

static void nacos_turns_sick_after_15_s_and_goes_after_30(void **state)
{
    (void)state;
    struct world w;
    struct record *r;
    struct nacos_write reg = nacos("10.0.0.5", 8000);

    open_world(&w, 10);
    assert_int_equal(store_nacos_register(&w.store, &reg, S(0), &r), 0);
    assert_string_equal(r->instance.key.p, N);
    store_expire(&w.store, S(15) - 1);
    assert_true(r->instance.healthy);
    store_expire(&w.store, S(15));
    assert_false(r->instance.healthy);
    assert_int_equal(store_nacos_beat(&w.store, r, &reg, S(29)), 0);
    assert_true(r->instance.healthy);
    store_expire(&w.store, S(44));
    store_expire(&w.store, S(59) - 1);
    assert_int_equal(w.store.n, 1);
    store_expire(&w.store, S(59));
    assert_int_equal(w.store.n, 0);
    assert_null(store_service(&w.store, SLICE("public"), SLICE("DEFAULT_GROUP@@llm")));
    expect(&w, "upsert nacos/public/DEFAULT_GROUP@@llm/10.0.0.5:8000 w=1000\n"
               "upsert nacos/public/DEFAULT_GROUP@@llm/10.0.0.5:8000 w=1000 sick\n"
               "upsert nacos/public/DEFAULT_GROUP@@llm/10.0.0.5:8000 w=1000\n"
               "upsert nacos/public/DEFAULT_GROUP@@llm/10.0.0.5:8000 w=1000 sick\n"
               "remove nacos/public/DEFAULT_GROUP@@llm/10.0.0.5:8000\n");
    close_world(&w);
}

static void preserved_keys_set_the_beat_rules(void **state)
{
    (void)state;
    struct world w;
    struct record *r;
    struct nacos_write reg = nacos("10.0.0.5", 8000);
    struct kv rules[] = {{SLICE("preserved.heart.beat.interval"), SLICE("1000")},
                         {SLICE("preserved.heart.beat.timeout"), SLICE("3000")},
                         {SLICE("preserved.ip.delete.timeout"), SLICE("6000")}};
    struct kv bad[] = {{SLICE("preserved.heart.beat.timeout"), SLICE("500")}};

    open_world(&w, 10);
    reg.metadata = rules;
    reg.n_metadata = 3;
    assert_int_equal(store_nacos_register(&w.store, &reg, S(0), &r), 0);
    assert_int_equal(r->interval_ms, 1000);
    assert_int_equal(store_next_due(&w.store), S(3));
    reg.metadata = bad;
    reg.n_metadata = 1;
    assert_int_equal(store_nacos_register(&w.store, &reg, S(1), &r), WEIR_E_RANGE);
    assert_int_equal(r->timeout_ms, 3000);
    assert_int_equal(store_next_due(&w.store), S(3));
    store_expire(&w.store, S(6));
    assert_int_equal(w.store.n, 0);
    assert_int_equal(store_nacos_register(&w.store, &reg, S(7), &r), WEIR_E_RANGE);
    assert_int_equal(w.store.n, 0);
    close_world(&w);
}

static void an_operators_drain_outlives_beats_and_registrations(void **state)
{
    (void)state;
    struct world w;
    struct record *r;
    struct nacos_write reg = nacos("10.0.0.5", 8000);
    struct nacos_write drain = nacos("10.0.0.5", 8000);

    open_world(&w, 10);
    reg.has_weight = true;
    reg.weight = 2000;
    drain.has_weight = drain.has_enabled = true;
    assert_int_equal(store_nacos_register(&w.store, &reg, 0, &r), 0);
    assert_int_equal(store_edit(&w.store, r, &drain), 0);
    reg.weight = 1000;
    assert_int_equal(store_nacos_beat(&w.store, r, &reg, 1), 0);
    reg.has_enabled = reg.enabled = true;
    assert_int_equal(store_nacos_register(&w.store, &reg, 2, &r), 0);
    assert_int_equal(r->instance.weight, 0);
    assert_false(r->instance.enabled);
    drain.weight = 500;
    drain.enabled = true;
    assert_int_equal(store_edit(&w.store, r, &drain), 0);
    assert_int_equal(r->instance.weight, 500);
    /* Nothing of it is kept when the instance left. */
    store_remove(&w.store, r, REASON_DEREGISTERED);
    assert_int_equal(store_nacos_register(&w.store, &reg, 3, &r), 0);
    assert_int_equal(r->instance.weight, 1000);
    assert_true(r->instance.enabled);
    close_world(&w);
}

static void a_beat_alone_never_changes_the_weight(void **state)
{
    (void)state;
    struct world w;
    struct record *r;
    struct nacos_write reg = nacos("10.0.0.5", 8000);

    open_world(&w, 10);
    reg.has_weight = true;
    reg.weight = 5000;
    assert_int_equal(store_nacos_register(&w.store, &reg, 0, &r), 0);
    reg.weight = 1000;
    assert_int_equal(store_nacos_beat(&w.store, r, &reg, 1), 0);
    assert_int_equal(r->instance.weight, 5000);
    close_world(&w);
}

static void one_thousand_rounds_of_two_writers_lose_no_key(void **state)
{
    (void)state;
    struct world w;
    struct record *r;
    struct nacos_write app = nacos("10.0.0.5", 8000);
    struct nacos_write sidecar = nacos("10.0.0.5", 8000);
    struct kv fixed[] = {{SLICE("model_id"), SLICE("m1")}, {SLICE("gpu_type"), SLICE("A100")}};
    char text[16];
    struct kv moving[] = {{SLICE("gpu_util"), {NULL, 0}}, {SLICE("remaining_memory"), {NULL, 0}}};

    open_world(&w, 10);
    app.metadata = fixed;
    sidecar.metadata = moving;
    app.n_metadata = sidecar.n_metadata = 2;
    assert_int_equal(store_nacos_register(&w.store, &app, 0, &r), 0);
    for (unsigned round = 1; round <= 1000; round++) {
        (void)snprintf(text, sizeof(text), "%u", round);
        moving[0].value = moving[1].value = slice_str(text);
        assert_int_equal(store_nacos_beat(&w.store, r, &app, round), 0);
        /* By turns with each of the calls a sidecar may use. */
        if (round % 3 == 0)
            assert_int_equal(store_nacos_beat(&w.store, r, &sidecar, round), 0);
        else if (round % 3 == 1)
            assert_int_equal(store_edit(&w.store, r, &sidecar), 0);
        else
            assert_int_equal(store_nacos_register(&w.store, &sidecar, round, &r), 0);
        assert_int_equal(r->instance.n_metadata, 4);
        assert_true(slice_eq(meta_get(r->instance.metadata, 4, SLICE("model_id")), SLICE("m1")));
        assert_true(slice_eq(meta_get(r->instance.metadata, 4, SLICE("gpu_type")), SLICE("A100")));
        assert_true(
            slice_eq(meta_get(r->instance.metadata, 4, SLICE("gpu_util")), slice_str(text)));
        assert_true(slice_eq(meta_get(r->instance.metadata, 4, SLICE("remaining_memory")),
                             slice_str(text)));
        w.n = 0;
    }
    close_world(&w);
}

static void a_live_lease_vouches_and_a_persistent_instance_does_not(void **state)
{
    (void)state;
    struct world w;
    struct record *r;
    struct nacos_write a = nacos("10.0.0.5", 8000);
    struct nacos_write b = nacos("10.0.0.6", 8000);

    open_world(&w, 10);
    struct instance i = endpoint("w1", "h", 80, NULL);
    assert_true(put(&w, &i, S(1))->instance.vouched);
    assert_int_equal(store_nacos_register(&w.store, &a, 0, &r), 0);
    assert_true(r->instance.vouched);
    store_remove(&w.store, r, REASON_DEREGISTERED);
    b.has_ephemeral = true;
    b.ephemeral = false;
    assert_int_equal(store_nacos_register(&w.store, &b, 0, &r), 0);
    assert_false(r->instance.vouched); /* nobody has to renew it, so it may have died long ago */
    close_world(&w);
}

static void a_service_is_of_one_type(void **state)
{
    (void)state;
    struct world w;
    struct record *r;
    struct nacos_write a = nacos("10.0.0.5", 8000);
    struct nacos_write b = nacos("10.0.0.6", 8000);

    open_world(&w, 10);
    assert_int_equal(store_nacos_register(&w.store, &a, 0, &r), 0);
    b.has_ephemeral = true;
    assert_int_equal(store_nacos_register(&w.store, &b, 0, &r), WEIR_E_UNSUPPORTED);
    store_remove(&w.store, r, REASON_DEREGISTERED);
    assert_int_equal(store_nacos_register(&w.store, &b, 0, &r), 0);
    assert_int_equal(store_nacos_register(&w.store, &a, 0, &r), WEIR_E_UNSUPPORTED);
    store_expire(&w.store, S(100000));
    assert_int_equal(w.store.n, 1); /* persistent ones stay */
    close_world(&w);
}

static void both_apis_see_each_other(void **state)
{
    (void)state;
    struct world w;
    struct record *r;
    struct slice service = SLICE("llm");
    struct nacos_write reg = nacos("10.0.0.5", 8000);
    struct nacos_write edit = nacos("10.0.0.6", 9000);

    open_world(&w, 10);
    struct instance i = endpoint("w1", "10.0.0.6", 9000, &service);
    struct record *native = put(&w, &i, 0);
    assert_int_equal(store_nacos_register(&w.store, &reg, 0, &r), 0);
    assert_ptr_equal(store_find(&w.store, SLICE("10.0.0.5:8000")), r);
    assert_null(store_find(&w.store, SLICE("10.0.0.6:9000")));
    assert_ptr_equal(store_find_nacos(&w.store, SLICE("public"), SLICE("DEFAULT_GROUP@@llm"),
                                      SLICE("10.0.0.6:9000")),
                     native);
    assert_null(store_find_nacos(&w.store, SLICE("other"), SLICE("DEFAULT_GROUP@@llm"),
                                 SLICE("10.0.0.6:9000")));
    edit.has_weight = true;
    edit.weight = 0;
    assert_int_equal(store_edit(&w.store, native, &edit), 0);
    assert_int_equal(native->instance.weight, 0);
    /* The same address by Nacos too: both live, the Nacos one is found first, and each leaves alone. */
    struct record *second;
    assert_int_equal(store_nacos_register(&w.store, &edit, 0, &second), 0);
    assert_ptr_not_equal(second, native);
    assert_ptr_equal(store_find(&w.store, SLICE("10.0.0.6:9000")), second);
    store_remove(&w.store, native, REASON_DEREGISTERED);
    assert_ptr_equal(store_find(&w.store, SLICE("10.0.0.6:9000")), second);
    store_remove(&w.store, second, REASON_DEREGISTERED);
    assert_null(store_find(&w.store, SLICE("10.0.0.6:9000")));
    close_world(&w);
}

static void what_the_sink_refuses_changes_nothing(void **state)
{
    (void)state;
    struct world w;
    struct record *r;
    struct record *none;
    struct nacos_write reg = nacos("10.0.0.5", 8000);
    struct kv a[] = {{SLICE("a"), SLICE("1")}};

    open_world(&w, 10);
    struct instance i = endpoint("w1", "h", 80, NULL);
    r = put(&w, &i, 0);
    assert_int_equal(store_nacos_register(&w.store, &reg, 0, &r), 0);
    w.refuse = WEIR_E_INVALID;
    struct native_put p = {.instance = &i, .ttl_ns = S(1)};
    assert_int_equal(store_put(&w.store, &p, 1, &none, NULL), WEIR_E_INVALID);
    assert_int_equal(store_native(&w.store, SLICE("w1"))->ttl_ns, S(15));
    reg.metadata = a;
    reg.n_metadata = 1;
    reg.cluster = SLICE("C2");
    assert_int_equal(store_nacos_register(&w.store, &reg, 1, &none), WEIR_E_INVALID);
    assert_string_equal(r->cluster, "DEFAULT");
    assert_int_equal(store_edit(&w.store, r, &reg), WEIR_E_INVALID);
    assert_int_equal(r->instance.n_metadata, 0);
    reg.port = 8001;
    assert_int_equal(store_nacos_register(&w.store, &reg, 1, &none), WEIR_E_INVALID);
    assert_int_equal(w.store.n, 2);
    w.refuse = 0;
    reg.port = 8000;
    assert_int_equal(store_nacos_register(&w.store, &reg, 1, &none), 0);
    assert_string_equal(none->cluster, "C2");
    close_world(&w);
}

static void the_limit_holds_and_replacing_is_still_possible(void **state)
{
    (void)state;
    struct world w;
    struct record *r;
    struct nacos_write reg = nacos("10.0.0.5", 8000);

    open_world(&w, 1);
    struct instance i = endpoint("w1", "h", 80, NULL);
    put(&w, &i, 0);
    put(&w, &i, 0);
    assert_int_equal(store_nacos_register(&w.store, &reg, 0, &r), WEIR_E_FULL);
    struct instance other = endpoint("w2", "h", 80, NULL);
    struct native_put p = {.instance = &other, .ttl_ns = S(15)};
    assert_int_equal(store_put(&w.store, &p, 0, &r, NULL), WEIR_E_FULL);
    close_world(&w);
}

static void restored_records_are_in_probation_until_they_prove_life(void **state)
{
    (void)state;
    struct world w;
    struct nacos_write reg = nacos("10.0.0.5", 8000);
    struct kv effect[] = {{SLICE("a"), SLICE("2")}};
    struct kv told[] = {{SLICE("a"), SLICE("1")}, {SLICE("gone"), SLICE("x")}};
    struct kv beat[] = {{SLICE("a"), SLICE("1")}, {SLICE("gone"), SLICE("x")}};

    open_world(&w, 10);
    struct instance i = endpoint("10.0.0.5:8000", "10.0.0.5", 8000, NULL);
    i.metadata = effect;
    i.n_metadata = 1;
    i.weight = 0;
    i.epoch = 41;
    struct saved_record saved = {.kind = RECORD_NACOS,
                                 .instance = &i,
                                 .ns = SLICE("public"),
                                 .grouped = SLICE("DEFAULT_GROUP@@llm"),
                                 .cluster = SLICE("DEFAULT"),
                                 .ephemeral = true,
                                 .client_weight = 1000,
                                 .client_enabled = true,
                                 .weight_held = true,
                                 .told = told,
                                 .n_told = 2};
    assert_int_equal(store_restore(&w.store, &saved, S(100)), 0);
    assert_int_equal(store_restore(&w.store, &saved, S(100)), WEIR_E_EXISTS);
    assert_int_equal(store_next_due(&w.store), S(115));
    struct record *r = store_find(&w.store, SLICE("10.0.0.5:8000"));
    assert_int_equal(r->instance.epoch, 41);
    assert_true(r->instance.vouched && r->instance.probation); /* in force once it proves life */
    assert_int_equal(w.store.next_epoch, 42);
    reg.metadata = beat;
    reg.n_metadata = 2;
    assert_int_equal(store_nacos_beat(&w.store, r, &reg, S(101)), 0);
    expect(&w, "upsert nacos/public/DEFAULT_GROUP@@llm/10.0.0.5:8000 w=0 probation a=2\n"
               "upsert nacos/public/DEFAULT_GROUP@@llm/10.0.0.5:8000 w=0 a=2\n");
    close_world(&w);
}

/* Every allocation of a registration fails once: nothing leaks, nothing of it is left, and the next try works. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct slice service = SLICE("llm");
    struct kv a[] = {{SLICE("a"), SLICE("1")}};
    int rc = WEIR_E_NOMEM;
    int rc2 = WEIR_E_NOMEM;

    for (long at = 1; rc || rc2; at++) {
        struct world w;
        struct record *r;
        open_world(&w, 10);
        struct instance first = endpoint("w0", "h", 80, &service);
        put(&w, &first, 0);
        struct instance i = endpoint("w1", "h", 80, &service);
        i.metadata = a;
        i.n_metadata = 1;
        struct native_put p = {.instance = &i, .ttl_ns = S(15)};
        w.heap.fail_at = at;
        rc = store_put(&w.store, &p, 0, &r, NULL);
        w.heap.fail_at = 0;
        assert_true(rc == 0 || rc == WEIR_E_NOMEM);
        assert_int_equal(w.store.n, rc ? 1 : 2);
        assert_int_equal(store_native(&w.store, SLICE("w1")) != NULL, rc == 0);
        struct nacos_write reg = nacos("h", 80);
        reg.metadata = a;
        reg.n_metadata = 1;
        w.heap.fail_at = at;
        rc2 = store_nacos_register(&w.store, &reg, 0, &r);
        w.heap.fail_at = 0;
        assert_true(rc2 == 0 || rc2 == WEIR_E_NOMEM);
        assert_int_equal(w.store.n, 1 + (rc == 0) + (rc2 == 0));
        assert_int_equal(store_nacos_register(&w.store, &reg, 0, &r), 0);
        assert_int_equal(store_put(&w.store, &p, 0, &r, NULL), 0);
        assert_int_equal(w.store.n, 3);
        close_world(&w);
        assert_true(at < 200);
    }
}

static void the_longest_ids_have_keys_of_their_own(void **state)
{
    (void)state;
    struct world w;
    char a[ENDPOINT_TEXT_MAX + 1];
    char b[ENDPOINT_TEXT_MAX + 1];

    open_world(&w, 10);
    memset(a, 'x', ENDPOINT_TEXT_MAX);
    a[ENDPOINT_TEXT_MAX] = '\0';
    memcpy(b, a, sizeof(b));
    b[ENDPOINT_TEXT_MAX - 1] = 'y';
    struct instance i = endpoint(a, "h", 80, NULL);
    struct instance j = endpoint(b, "h", 80, NULL);
    struct record *first = put(&w, &i, 0);
    struct record *second = put(&w, &j, 0);
    assert_int_equal(first->instance.key.n, ENDPOINT_TEXT_MAX);
    assert_int_equal(second->instance.key.n, ENDPOINT_TEXT_MAX);
    assert_false(slice_eq(first->instance.key, second->instance.key));
    assert_ptr_equal(store_native(&w.store, slice_str(b)), second);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(native_put_replaces_whole_and_keeps_its_epoch),
        cmocka_unit_test(an_older_epoch_is_refused),
        cmocka_unit_test(native_leases_end_and_renewals_and_loads_keep_them),
        cmocka_unit_test(nacos_turns_sick_after_15_s_and_goes_after_30),
        cmocka_unit_test(preserved_keys_set_the_beat_rules),
        cmocka_unit_test(an_operators_drain_outlives_beats_and_registrations),
        cmocka_unit_test(a_beat_alone_never_changes_the_weight),
        cmocka_unit_test(one_thousand_rounds_of_two_writers_lose_no_key),
        cmocka_unit_test(a_live_lease_vouches_and_a_persistent_instance_does_not),
        cmocka_unit_test(a_service_is_of_one_type),
        cmocka_unit_test(both_apis_see_each_other),
        cmocka_unit_test(what_the_sink_refuses_changes_nothing),
        cmocka_unit_test(the_limit_holds_and_replacing_is_still_possible),
        cmocka_unit_test(the_longest_ids_have_keys_of_their_own),
        cmocka_unit_test(restored_records_are_in_probation_until_they_prove_life),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
