/* SPDX-License-Identifier: Apache-2.0 */
/* What Consul and etcd answer, as instances. */
#include "ct.h"

#include "base/base64.h"
#include "base/bug.h"
#include "base/hash.h"
#include "discovery/consul_read.h"
#include "discovery/etcd_read.h"
#include "heap_mem.h"

static struct test_heap heap;
static struct mem mem;
static struct arena arena;

static int setup(void **state)
{
    (void)state;
    mem = test_heap_mem(&heap);
    arena_init(&arena, &mem, 1 << 22);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_fini(&arena);
    return (int)heap.live;
}

static const char *value(const struct kv *kv, uint32_t n, const char *key)
{
    for (uint32_t i = 0; i < n; i++)
        if (slice_eq(kv[i].key, slice_str(key)))
            return kv[i].value.p;
    return NULL;
}

static void consul_entries_become_instances(void **state)
{
    (void)state;
    struct consul_answer a;

    assert_int_equal(
        consul_read(
            &arena,
            SLICE("[{\"Node\":{\"Node\":\"n1\",\"Address\":\"10.0.0.1\",\"Datacenter\":\"dc1\","
                  "\"Locality\":{\"Region\":\"eu\",\"Zone\":\"a\"}},"
                  "\"Service\":{\"ID\":\"a\",\"Service\":\"llm\",\"Tags\":[\"gpu\",\"tier=gold\"],"
                  "\"Address\":\"fd00::1\","
                  "\"Port\":8000,\"Meta\":{\"model_id\":\"m\",\"node\":\"mine\",\"scheme\":"
                  "\"https\"},"
                  "\"Weights\":{\"Passing\":10,\"Warning\":2}},"
                  "\"Checks\":[{\"CheckID\":\"serfHealth\",\"Status\":\"passing\"},{\"CheckID\":"
                  "\"c\",\"Status\":\"warning\"}]},"
                  "{\"Node\":{\"Node\":\"n2\",\"Address\":\"10.0.0.2\"},\"Service\":{\"ID\":\"b\","
                  "\"Locality\":{\"Region\":\"us\"},"
                  "\"Service\":\"llm\",\"Tags\":null,"
                  "\"Address\":\"\",\"Port\":9000,\"Meta\":null,\"Weights\":{\"Passing\":"
                  "2000000000}},"
                  "\"Checks\":[{\"CheckID\":\"_service_maintenance:b\",\"Status\":\"critical\"}]},"
                  "{\"Node\":{},\"Service\":{\"ID\":\"c\",\"Port\":1}},"
                  "{\"Node\":{\"Address\":\"h\"},\"Service\":{\"ID\":\"d\",\"Port\":0}}, 7]"),
            NULL, 0, 0, &a),
        0);
    assert_int_equal(a.n, 2);
    assert_int_equal(a.n_bad, 3);
    const struct instance *i = &a.entries[0].instance;
    assert_string_equal(i->key.p, "n1/a");
    assert_string_equal(i->host.p, "fd00::1");
    assert_int_equal(i->port, 8000);
    assert_true(i->tls && i->healthy && i->enabled);
    assert_int_equal(i->weight, 2000);
    assert_string_equal(i->services[0].p, "llm");
    assert_string_equal(value(i->metadata, i->n_metadata, "model_id"), "m");
    assert_string_equal(value(i->metadata, i->n_metadata, "tags"), "gpu,tier=gold");
    assert_string_equal(value(i->metadata, i->n_metadata, "node"), "mine");
    assert_string_equal(value(i->metadata, i->n_metadata, "datacenter"), "dc1");
    assert_string_equal(i->region.p, "eu");
    assert_string_equal(i->zone.p, "a");
    assert_string_equal(value(i->labels, i->n_labels, "gpu"), "true");
    assert_string_equal(value(i->labels, i->n_labels, "tier"), "gold");
    i = &a.entries[1].instance;
    assert_string_equal(i->host.p, "10.0.0.2");
    assert_string_equal(i->region.p, "us");
    assert_null(i->zone.p);
    assert_false(i->healthy || i->enabled || i->tls);
    assert_int_equal(i->weight, WEIGHT_MAX);
    assert_int_equal(i->n_labels, 0);
}

#define ENTRY(id, port)                                                                            \
    "{\"Node\":{\"Node\":\"n,]\",\"Address\":\"h\"},\"Service\":{\"ID\":\"" id "\",\"Port\":" port \
    "}}"

static void consul_entries_that_are_as_they_were_are_not_read_again(void **state)
{
    (void)state;
    struct consul_answer first, next;

    assert_int_equal(consul_read(&arena,
                                 SLICE("[" ENTRY("a", "1") "," ENTRY("b", "2") " , " ENTRY(
                                     "c", "3") "," ENTRY("d", "4") "]\n"),
                                 NULL, 0, 7, &first),
                     0);
    assert_int_equal(first.n, 4);
    struct consul_seen seen[4];
    for (uint32_t i = 0; i < first.n; i++)
        seen[i] = (struct consul_seen){first.entries[i].text, first.entries[i].instance.key};
    /* b has gone, c is another, x is new. */
    assert_int_equal(consul_read(&arena,
                                 SLICE(" [ " ENTRY("a", "1") "," ENTRY("x", "9") "," ENTRY(
                                     "c", "8") "," ENTRY("d", "4") " ] "),
                                 seen, first.n, 7, &next),
                     0);
    static const struct {
        const char *key;
        bool same;
        uint16_t port;
    } want[] = {{"n,]/a", true, 0}, {"n,]/x", false, 9}, {"n,]/c", false, 8}, {"n,]/d", true, 0}};
    assert_int_equal(next.n, ARRAY_LEN(want));
    for (uint32_t i = 0; i < next.n; i++) {
        assert_string_equal(next.entries[i].instance.key.p, want[i].key);
        assert_int_equal(next.entries[i].same, want[i].same);
        assert_int_equal(next.entries[i].instance.port, want[i].port);
    }
}

/* An element that was seen may be the beginning of another. */
static void json_elements_are_recognised_whole(void **state)
{
    struct json_list l;
    struct json_element e, one;

    (void)state;
    assert_true(json_list_open(SLICE(" [1 ,12, 1]x"), 7, &l));
    assert_int_equal(json_list_next(&l, NULL, &one), 1);
    assert_true(slice_eq(one.text, SLICE("1")));
    one.seen = (struct json_seen){hash_slice(SLICE("1"), 7), 1};
    assert_int_equal(json_list_next(&l, &one.seen, &e), 1);
    assert_true(slice_eq(e.text, SLICE("12")));
    assert_false(json_seen_same(e.seen, one.seen));
    assert_int_equal(json_list_next(&l, &one.seen, &e), 1);
    assert_true(slice_eq(e.text, SLICE("1")));
    assert_true(json_seen_same(e.seen, one.seen));
    assert_int_equal(json_list_next(&l, &one.seen, &e), 0);
    assert_false(json_list_alone(&l));
    /* Who does not know the seed cannot look for two of one hash. */
    assert_true(json_list_open(SLICE("[1]"), 8, &l));
    assert_int_equal(json_list_next(&l, NULL, &e), 1);
    assert_false(json_seen_same(e.seen, one.seen));
}

static void json_is_walked_into_by_keys(void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"{\"a\":{\"b\":7}}", "7}}"},
        {" { \"x\" : [1,{\"a\":2}] , \"a\" : { \"}\\\"\":null,\"b\" : \"t\"", "\"t\""},
        {"{\"a\":[]}", NULL},
        {"{\"a\":{\"c\":1}}", NULL},
        {"{\"a\":{\"c\":,\"b\":1", "1"},
        {"{\"a\":{\"b\":", NULL},
        {"{\"a\":{\"b\"", NULL},
        {"{\"a\":{\"b", NULL},
        {"{\"a\":{\"", NULL},
        {"{\"a\" {\"b\":1", NULL},
        {"{", NULL},
        {"", NULL},
    };
    static const struct slice path[] = {{"a", 1}, {"b", 1}};
    struct slice out;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(json_find(slice_str(cases[i].text), path, 2, &out), cases[i].want != NULL);
        if (cases[i].want)
            assert_true(slice_eq(out, slice_str(cases[i].want)));
    }
}

static void what_is_no_list_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",    "{}",  "null", "[",       "[{\"Node\"", "<html>",
                                      "[]x", "[,]", "[{}",  "[{} {}]", "[}]",        "[x]"};
    struct consul_answer a;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(consul_read(&arena, slice_str(bad[i]), NULL, 0, 0, &a), WEIR_E_INVALID);
    assert_int_equal(consul_read(&arena, SLICE("[]"), NULL, 0, 0, &a), 0);
    assert_int_equal(a.n, 0);
}

static void etcd_ranges_are_decoded(void **state)
{
    (void)state;
    struct etcd_answer a;

    assert_int_equal(
        etcd_read_range(
            &arena,
            SLICE("{\"header\":{\"revision\":\"18446744073709551615\"},\"kvs\":[{\"key\":\"L3cvYQ=="
                  "\","
                  "\"create_revision\":\"7\",\"mod_revision\":\"9\",\"lease\":\"-12\",\"value\":"
                  "\"e30=\"},"
                  "{\"key\":\"L3cvYg==\",\"create_revision\":8,\"lease\":\"3\"}],\"count\":\"2\"}"),
            &a),
        0);
    assert_true(a.revision == UINT64_MAX);
    assert_int_equal(a.n, 2);
    assert_string_equal(a.kvs[0].key.p, "/w/a");
    assert_string_equal(a.kvs[0].value.p, "{}");
    assert_int_equal(a.kvs[0].created, 7);
    assert_true(a.kvs[1].leased);
    assert_int_equal(a.kvs[1].created, 8);
    assert_int_equal(etcd_read_range(&arena, SLICE("{\"header\":{\"revision\":\"4\"}}"), &a), 0);
    assert_int_equal(a.n, 0);
    static const char *const bad[] = {"",
                                      "[]",
                                      "{}",
                                      "{\"header\":{}}",
                                      "{\"header\":{\"revision\":\"4\"},\"kvs\":{}}",
                                      "{\"header\":{\"revision\":\"4\"},\"kvs\":[{\"key\":\"?\"}]}",
                                      "{\"header\":{\"revision\":\"4\"},\"kvs\":[3]}"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(etcd_read_range(&arena, slice_str(bad[i]), &a), WEIR_E_INVALID);
}

static void etcd_watches_tell_events_and_their_end(void **state)
{
    (void)state;
    struct etcd_answer a;

    assert_int_equal(
        etcd_read_watch(
            &arena, SLICE("{\"result\":{\"header\":{\"revision\":\"4\"},\"created\":true}}"), &a),
        0);
    assert_int_equal(a.n, 0);
    assert_false(a.canceled);
    assert_int_equal(
        etcd_read_watch(
            &arena,
            SLICE("{\"result\":{\"header\":{\"revision\":\"5\"},\"events\":[{\"kv\":{\"key\":\"YQ=="
                  "\",\"value\":\"MQ==\"}},"
                  "{\"type\":\"DELETE\",\"kv\":{\"key\":\"Yg==\",\"mod_revision\":\"5\"}}]}}"),
            &a),
        0);
    assert_int_equal(a.n, 2);
    assert_false(a.kvs[0].deleted);
    assert_string_equal(a.kvs[0].value.p, "1");
    assert_true(a.kvs[1].deleted);
    assert_null(a.kvs[1].value.p);
    assert_int_equal(
        etcd_read_watch(&arena,
                        SLICE("{\"result\":{\"header\":{\"revision\":\"9\"},\"canceled\":true,"
                              "\"compact_revision\":\"7\",\"cancel_reason\":\"compacted\"}}"),
                        &a),
        0);
    assert_true(a.canceled && a.compacted);
    assert_string_equal(a.why.p, "compacted");
    assert_int_equal(
        etcd_read_watch(
            &arena, SLICE("{\"error\":{\"grpc_code\":14,\"http_code\":503,\"message\":\"gone\"}}"),
            &a),
        0);
    assert_true(a.canceled && !a.compacted);
    assert_string_equal(a.why.p, "gone");
    assert_int_equal(etcd_read_watch(&arena, SLICE("{}"), &a), WEIR_E_INVALID);
}

static void etcd_documents_are_endpoints(void **state)
{
    (void)state;
    struct instance i;
    char why[640];
    struct etcd_kv kv = {
        .key = SLICE("/w/a"),
        .value = SLICE("{\"url\":\"http://10.0.0.1:8000\",\"weight\":2,\"ttl_ms\":5000}"),
        .leased = true,
        .created = 44};

    assert_int_equal(etcd_read_endpoint(&arena, &kv, SLICE("/w/"), &i, why), 0);
    assert_string_equal(i.key.p, "a");
    assert_int_equal(i.port, 8000);
    assert_int_equal(i.weight, 2000);
    assert_int_equal(i.epoch, 44);
    assert_true(i.vouched && i.healthy);
    kv.value = SLICE("{\"url\":\"http://10.0.0.1:8000\",\"epoch\":6}");
    kv.leased = false;
    assert_int_equal(etcd_read_endpoint(&arena, &kv, SLICE("/w/"), &i, why), 0);
    assert_int_equal(i.epoch, 6);
    assert_false(i.vouched);
    kv.value = SLICE("{\"url\":\"http://10.0.0.1:8000\",\"wieght\":6}");
    assert_int_equal(etcd_read_endpoint(&arena, &kv, SLICE("/w/"), &i, why), WEIR_E_INVALID);
    assert_non_null(strstr(why, "wieght"));
    kv.value = SLICE("{\"url\":\"http://10.0.0.1:8000\"}");
    assert_int_equal(etcd_read_endpoint(&arena, &kv, SLICE("/w/a"), &i, why), WEIR_E_INVALID);
    assert_int_equal(etcd_read_endpoint(&arena, &kv, SLICE("/x/"), &i, why), WEIR_E_INVALID);
}

static void the_end_of_a_range_is_the_next_prefix(void **state)
{
    (void)state;
    static const struct {
        struct slice prefix;
        const char *want;
    } cases[] = {
        {{"/w/", 3}, "\"key\":\"L3cv\",\"range_end\":\"L3cw\""},
        {{"a\xff\xff", 3}, "\"key\":\"Yf//\",\"range_end\":\"Yg==\""},
        {{"\xff", 1}, "\"key\":\"/w==\",\"range_end\":\"AA==\""},
    };
    struct buf b;

    buf_init(&b, &mem, 256);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        buf_clear(&b);
        assert_int_equal(etcd_write_keys(&b, cases[i].prefix), 0);
        assert_true(slice_eq(buf_slice(&b), slice_str(cases[i].want)));
    }
    assert_int_equal(etcd_write_keys(&b, SLICE("")), WEIR_E_INVALID);
    buf_clear(&b);
    assert_int_equal(etcd_write_login(&b, SLICE("a\"b"), SLICE("p")), 0);
    assert_true(slice_eq(buf_slice(&b), SLICE("{\"name\":\"a\\\"b\",\"password\":\"p\"}")));
    buf_fini(&b);
    struct slice token;
    assert_int_equal(etcd_read_token(&arena, SLICE("{\"header\":{},\"token\":\"t.1\"}"), &token),
                     0);
    assert_string_equal(token.p, "t.1");
    assert_int_equal(etcd_read_token(&arena, SLICE("{\"token\":\"\"}"), &token), WEIR_E_INVALID);
}

static void without_memory_nothing_leaks(void **state)
{
    (void)state;
    static const char list[] = "[{\"Node\":{\"Node\":\"n\",\"Address\":\"h\"},\"Service\":{\"ID\":"
                               "\"a\",\"Service\":\"s\",\"Port\":1}}]";
    struct consul_answer a;
    int rc = WEIR_E_NOMEM;

    for (long at = 1; rc == WEIR_E_NOMEM; at++) {
        arena_fini(&arena);
        heap.fail_at = at;
        rc = consul_read(&arena, slice_str(list), NULL, 0, 0, &a);
    }
    heap.fail_at = 0;
    assert_int_equal(rc, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(consul_entries_become_instances, setup, teardown),
        cmocka_unit_test_setup_teardown(consul_entries_that_are_as_they_were_are_not_read_again,
                                        setup, teardown),
        cmocka_unit_test(json_elements_are_recognised_whole),
        cmocka_unit_test(json_is_walked_into_by_keys),
        cmocka_unit_test_setup_teardown(what_is_no_list_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(etcd_ranges_are_decoded, setup, teardown),
        cmocka_unit_test_setup_teardown(etcd_watches_tell_events_and_their_end, setup, teardown),
        cmocka_unit_test_setup_teardown(etcd_documents_are_endpoints, setup, teardown),
        cmocka_unit_test_setup_teardown(the_end_of_a_range_is_the_next_prefix, setup, teardown),
        cmocka_unit_test_setup_teardown(without_memory_nothing_leaks, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
