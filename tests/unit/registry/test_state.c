/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <string.h>

#include "base/bug.h"
#include "base/num.h"
#include "heap_mem.h"
#include "loop/log.h"
#include "registry/state.h"

static struct test_heap heap;
static struct mem mem;

static void open_store(struct store *s, uint32_t max)
{
    struct store_options o = {.mem = &mem, .records_max = max};

    store_init(s, &o);
}

static void fill(struct store *s)
{
    struct slice services[] = {SLICE("llm"), SLICE("G@@chat")};
    struct model_ref models[] = {{.id = SLICE("m/1"), .version = SLICE("v"), .max_model_len = 10}};
    struct kv meta[] = {{SLICE("k"), SLICE("\"quoted\"\n")}};
    struct instance i = {.id = SLICE("w 1"),
                         .host = SLICE("fd00::1"),
                         .port = 80,
                         .tls = true,
                         .services = services,
                         .n_services = 2,
                         .models = models,
                         .n_models = 1,
                         .weight = 1500,
                         .enabled = true,
                         .healthy = true,
                         .metadata = meta,
                         .n_metadata = 1,
                         .epoch = 99};
    struct native_put p = {.instance = &i, .ttl_ns = 7 * NS_PER_S, .has_epoch = true};
    struct record *r;
    assert_int_equal(store_put(s, &p, 0, &r, NULL), 0);

    struct nacos_write w = {.ns = SLICE("dev"),
                            .grouped = SLICE("G@@llm"),
                            .host = SLICE("10.0.0.5"),
                            .port = 8000,
                            .cluster = SLICE("C1"),
                            .has_weight = true,
                            .weight = 3000,
                            .metadata = meta,
                            .n_metadata = 1};
    struct nacos_write edit = {.has_weight = true, .weight = 0};
    assert_int_equal(store_nacos_register(s, &w, 0, &r), 0);
    assert_int_equal(store_edit(s, r, &edit), 0);
    struct service *service;
    assert_int_equal(store_service_put(s, SLICE("public"), SLICE("G@@kept"), 0.5, &service), 0);
}

static void what_is_written_is_read_back_the_same(void **state)
{
    (void)state;
    struct store a;
    struct store b;
    struct buf first;
    struct buf second;
    uint64_t generation;
    uint32_t bad;

    mem = test_heap_mem(&heap);
    open_store(&a, 10);
    open_store(&b, 10);
    buf_init(&first, &mem, 1 << 20);
    buf_init(&second, &mem, 1 << 20);
    fill(&a);
    state_write(&first, &a, 12);
    assert_int_equal(first.err, 0);
    assert_int_equal(state_read(&b, buf_slice(&first), 100, &generation, &bad), 0);
    assert_int_equal(generation, 12);
    assert_int_equal(bad, 0);
    assert_int_equal(b.n, 2);
    assert_true(store_native(&b, SLICE("w 1"))->instance.probation);
    assert_int_equal(store_native(&b, SLICE("w 1"))->ttl_ns, 7 * NS_PER_S);
    struct record *r = store_find(&b, SLICE("10.0.0.5:8000"));
    assert_true(r->weight_held && r->client_weight == 3000 && r->instance.weight == 0);
    state_write(&second, &b, 12);
    assert_true(slice_eq(buf_slice(&first), buf_slice(&second)));
    buf_fini(&first);
    buf_fini(&second);
    store_fini(&a);
    store_fini(&b);
    assert_int_equal(heap.live, 0);
}

static void foreign_and_cut_texts_are_refused_whole(void **state)
{
    (void)state;
    struct store a;
    struct store b;
    struct buf text;
    uint64_t generation;
    uint32_t bad;

    mem = test_heap_mem(&heap);
    open_store(&a, 10);
    open_store(&b, 10);
    buf_init(&text, &mem, 1 << 20);
    fill(&a);
    state_write(&text, &a, 1);
    /* The last byte is the line end after the closing brace: every shorter text is cut. */
    for (size_t n = 0; n + 1 < buf_len(&text); n++) {
        assert_int_equal(state_read(&b, slice_of(buf_slice(&text).p, n), 0, &generation, &bad),
                         WEIR_E_INVALID);
        assert_int_equal(b.n, 0);
    }
    static const char *const foreign[] = {
        "[]",
        "{}",
        "null",
        "{\"format\":\"other\",\"version\":1,\"endpoints\":[]}",
        "{\"format\":\"weir-registry\",\"version\":2,\"endpoints\":[]}",
        "{\"format\":\"weir-registry\",\"version\":1,\"endpoints\":{}}"};
    for (size_t i = 0; i < ARRAY_LEN(foreign); i++)
        assert_int_equal(state_read(&b, slice_str(foreign[i]), 0, &generation, &bad),
                         WEIR_E_INVALID);
    buf_fini(&text);
    store_fini(&a);
    store_fini(&b);
    assert_int_equal(heap.live, 0);
}

static void bad_entries_are_counted_and_the_others_come_back(void **state)
{
    (void)state;
    struct store s;
    uint64_t generation;
    uint32_t bad;

    log_set_level(LOG_ERROR);
    mem = test_heap_mem(&heap);
    open_store(&s, 10);
    assert_int_equal(
        state_read(&s,
                   SLICE("{\"format\":\"weir-registry\",\"version\":1,\"generation\":3,"
                         "\"services\":[{}],\"endpoints\":["
                         "{\"endpoint\":{\"id\":\"a\",\"url\":\"http://h:1\"},\"healthy\":true},"
                         "{\"endpoint\":{\"id\":\"a\",\"url\":\"http://h:1\"},\"healthy\":true},"
                         "{\"endpoint\":{\"id\":\"b\"}},7,"
                         "{\"endpoint\":{\"id\":\"c\",\"url\":\"http://"
                         "h:1\"},\"nacos\":{\"namespace\":\"x\"}}]}"),
                   0, &generation, &bad),
        0);
    assert_int_equal(bad, 5);
    assert_int_equal(s.n, 1);
    store_fini(&s);
    assert_int_equal(heap.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_back_the_same),
        cmocka_unit_test(foreign_and_cut_texts_are_refused_whole),
        cmocka_unit_test(bad_entries_are_counted_and_the_others_come_back),
    };
    return cmocka_run_group_tests_name("state", tests, NULL, NULL);
}
