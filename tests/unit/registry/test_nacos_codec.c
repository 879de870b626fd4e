/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <string.h>

#include "base/bug.h"
#include "heap_mem.h"
#include "registry/nacos_codec.h"

static struct test_heap heap;
static struct mem mem;
static struct arena arena;

static int begin(void **state)
{
    (void)state;
    heap = (struct test_heap){0};
    mem = test_heap_mem(&heap);
    arena_init(&arena, &mem, 1 << 20);
    return 0;
}

static int end(void **state)
{
    (void)state;
    arena_fini(&arena);
    return heap.live == 0 ? 0 : -1;
}

#define assert_slice(got, want)                                                                    \
    do {                                                                                           \
        struct slice got_ = (got);                                                                 \
        char text_[4096];                                                                          \
        assert_true(got_.n < sizeof(text_));                                                       \
        memcpy(text_, got_.n ? got_.p : "", got_.n);                                               \
        text_[got_.n] = '\0';                                                                      \
        assert_string_equal(text_, want);                                                          \
    } while (0)

static void parameters_are_decoded_trimmed_and_the_first_counts(void **state)
{
    (void)state;
    struct nacos_params p;

    assert_int_equal(nacos_params_parse(&p, &arena,
                                        SLICE("serviceName=G%40%40llm&ip=+10.0.0.1+&e=&x=1"),
                                        SLICE("x=2&metadata=%7B%22a%22%3A1%7D")),
                     0);
    assert_slice(nacos_param(&p, "serviceName"), "G@@llm");
    assert_slice(nacos_param(&p, "ip"), "10.0.0.1");
    assert_slice(nacos_param(&p, "x"), "1");
    assert_slice(nacos_param(&p, "metadata"), "{\"a\":1}");
    assert_null(nacos_param(&p, "e").p);
    assert_null(nacos_param(&p, "missing").p);
    assert_int_equal(nacos_params_parse(&p, &arena, SLICE("a=%zz"), SLICE("")), WEIR_E_INVALID);
}

static void more_parameters_than_allowed_are_refused(void **state)
{
    (void)state;
    struct nacos_params p;
    char text[4 * NACOS_PARAMS_MAX + 8] = "";

    for (int i = 0; i < NACOS_PARAMS_MAX; i++)
        memcpy(text + 4 * i, "a=1&", 4);
    assert_int_equal(
        nacos_params_parse(&p, &arena, slice_of(text, 4 * NACOS_PARAMS_MAX), SLICE("")), 0);
    memcpy(text + 4 * NACOS_PARAMS_MAX, "b=1", 3);
    assert_int_equal(
        nacos_params_parse(&p, &arena, slice_of(text, 4 * NACOS_PARAMS_MAX + 3), SLICE("")),
        WEIR_E_FULL);
}

static void values_have_their_ranges(void **state)
{
    (void)state;
    uint32_t w;
    uint16_t port;
    struct slice host;

    assert_true(nacos_bool(SLICE("True")) && nacos_bool(SLICE("Y")) && nacos_bool(SLICE("on")));
    assert_false(nacos_bool(SLICE("1")) || nacos_bool(SLICE("no")) || nacos_bool(SLICE("")));
    assert_int_equal(nacos_weight(SLICE("2.5"), &w), 0);
    assert_int_equal(w, 2500);
    assert_int_equal(nacos_weight(SLICE("10000"), &w), 0);
    assert_int_equal(w, WEIGHT_MAX);
    assert_int_equal(nacos_weight(SLICE("0.00001"), &w), 0);
    assert_int_equal(w, 1);
    assert_int_equal(nacos_weight(SLICE("0"), &w), 0);
    assert_int_equal(w, 0);
    assert_int_equal(nacos_weight(SLICE("10001"), &w), WEIR_E_RANGE);
    assert_int_equal(nacos_weight(SLICE("-1"), &w), WEIR_E_RANGE);
    assert_int_equal(nacos_weight(SLICE("nan"), &w), WEIR_E_INVALID);
    assert_int_equal(nacos_port(SLICE("65535"), &port), 0);
    assert_int_equal(nacos_port(SLICE("0"), &port), WEIR_E_RANGE);
    assert_int_equal(nacos_port(SLICE("65536"), &port), WEIR_E_RANGE);
    assert_int_equal(nacos_port(SLICE("80x"), &port), WEIR_E_INVALID);
    static const char *const good[] = {"10.0.0.1", "worker-1.svc",   "fd00::1",
                                       "::1",      "::ffff:1.2.3.4", "gpu_1"};
    static const char *const bad[] = {"a b",  "a/b",        "user@h", "fe80::1%eth0", "h:80",
                                      "g::1", "[10.0.0.1]", "",       "a\r\n"};
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_int_equal(nacos_host(slice_str(good[i]), &host), 0);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(nacos_host(slice_str(bad[i]), &host), WEIR_E_INVALID);
    assert_int_equal(nacos_host(SLICE("[fd00::1]"), &host), 0);
    assert_slice(host, "fd00::1");
    assert_true(nacos_cluster_ok(SLICE("DEFAULT")) && nacos_cluster_ok(SLICE("a-1")));
    assert_false(nacos_cluster_ok(SLICE("a_1")) || nacos_cluster_ok(SLICE("")));
}

static void names_are_grouped_once(void **state)
{
    (void)state;
    struct slice out;

    assert_int_equal(nacos_grouped(&arena, SLICE("llm"), (struct slice){NULL, 0}, &out), 0);
    assert_slice(out, "DEFAULT_GROUP@@llm");
    assert_int_equal(nacos_grouped(&arena, SLICE("llm"), SLICE("G"), &out), 0);
    assert_slice(out, "G@@llm");
    assert_int_equal(nacos_grouped(&arena, SLICE("A@@llm"), SLICE("G"), &out), 0);
    assert_slice(out, "A@@llm");
    assert_slice(nacos_group_of(out), "A");
    assert_slice(nacos_name_of(out), "llm");
    assert_int_equal(nacos_grouped(&arena, SLICE("@@llm"), SLICE("G"), &out), WEIR_E_INVALID);
    assert_int_equal(nacos_grouped(&arena, SLICE("G@@"), SLICE("G"), &out), WEIR_E_INVALID);
    assert_int_equal(nacos_grouped(&arena, SLICE("a\nb"), SLICE("G"), &out), WEIR_E_INVALID);
}

static void metadata_is_json_or_pairs(void **state)
{
    (void)state;
    struct nacos_map m;
    const char *error;

    assert_int_equal(
        nacos_metadata(&arena, SLICE("{\"a\":\"1\",\"b\":2.50,\"c\":true,\"d\":null}"), &m, &error),
        0);
    assert_int_equal(m.n, 4);
    assert_slice(m.kv[0].key, "a");
    assert_slice(m.kv[0].value, "1");
    assert_slice(m.kv[1].value, "2.50");
    assert_slice(m.kv[2].value, "true");
    assert_slice(m.kv[3].value, "");
    assert_int_equal(nacos_metadata(&arena, SLICE("a=1, b = x=y"), &m, &error), 0);
    assert_int_equal(m.n, 2);
    assert_slice(m.kv[1].key, "b");
    assert_slice(m.kv[1].value, "x=y");
    assert_int_equal(nacos_metadata(&arena, SLICE("{}"), &m, &error), 0);
    assert_int_equal(m.n, 0);
    static const struct {
        const char *text, *error;
    } bad[] = {
        {"{\"a\":{}}", "metadata must be a JSON object of strings"},
        {"[\"a\"]", "metadata must be a JSON object of strings"},
        {"\"a\"", "metadata must be a JSON object of strings"},
        {"{\"a\":\"1\"", "metadata is not valid JSON"},
        {"{\"\":\"1\"}", "a metadata key is empty"},
        {"abc", "metadata is neither a JSON object nor k=v,k2=v2"},
        {"=1", "a metadata key is empty"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(nacos_metadata(&arena, slice_str(bad[i].text), &m, &error),
                         WEIR_E_INVALID);
        assert_string_equal(error, bad[i].error);
    }
}

static void beats_are_read_and_unknown_keys_skipped(void **state)
{
    (void)state;
    struct nacos_beat b;
    const char *error;

    assert_int_equal(
        nacos_beat_parse(
            &arena,
            SLICE(
                "{\"serviceName\":\"G@@llm\",\"ip\":\"10.0.0.5\",\"port\":8000,\"cluster\":\"C1\","
                "\"weight\":1.5,\"ephemeral\":true,\"metadata\":{\"k\":\"v\"},\"scheduled\":true,"
                "\"deep\":{\"metadata\":{\"no\":\"1\"},\"l\":[1,{\"ip\":\"x\"}]},\"period\":5000}"),
            &b, &error),
        0);
    assert_slice(b.service, "G@@llm");
    assert_slice(b.ip, "10.0.0.5");
    assert_slice(b.port, "8000");
    assert_slice(b.cluster, "C1");
    assert_slice(b.weight, "1.5");
    assert_true(b.has_metadata);
    assert_int_equal(b.metadata.n, 1);
    assert_slice(b.metadata.kv[0].key, "k");

    assert_int_equal(nacos_beat_parse(&arena,
                                      SLICE("{\"ip\":null,\"cluster\":\"\",\"metadata\":null}"), &b,
                                      &error),
                     0);
    assert_null(b.ip.p);
    assert_null(b.cluster.p);
    assert_false(b.has_metadata);

    assert_int_equal(nacos_beat_parse(&arena, SLICE("[]"), &b, &error), WEIR_E_INVALID);
    assert_string_equal(error, "beat must be a JSON object");
    assert_int_equal(nacos_beat_parse(&arena, SLICE("{\"ip\":"), &b, &error), WEIR_E_INVALID);
    assert_string_equal(error, "beat is not valid JSON");
    assert_int_equal(nacos_beat_parse(&arena, SLICE("{\"metadata\":{\"a\":[]}}"), &b, &error),
                     WEIR_E_INVALID);
    assert_string_equal(error, "metadata must be a JSON object of strings");
}

static void batch_targets_are_read_and_nonsense_means_all(void **state)
{
    (void)state;
    const struct nacos_target *t;
    uint32_t n;

    assert_int_equal(
        nacos_targets(
            &arena,
            SLICE("[{\"ip\":\"1.1.1.1\",\"port\":\"80\",\"clusterName\":\"C\",\"ephemeral\":true},"
                  "{\"ip\":\"2.2.2.2\",\"port\":81}]"),
            &t, &n),
        0);
    assert_int_equal(n, 2);
    assert_slice(t[0].ip, "1.1.1.1");
    assert_slice(t[0].port, "80");
    assert_slice(t[0].cluster, "C");
    assert_slice(t[1].port, "81");
    static const char *const all[] = {"[]", "nonsense", "{}", "[1]", "[{\"ip\":"};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        assert_int_equal(nacos_targets(&arena, slice_str(all[i]), &t, &n), 0);
        assert_int_equal(n, 0);
    }
}

static struct nacos_host_view host_view(void)
{
    static const struct kv metadata[] = {{SLICE("gpu"), SLICE("L4")}};

    return (struct nacos_host_view){.grouped = SLICE("DEFAULT_GROUP@@llm"),
                                    .host = SLICE("10.0.0.5"),
                                    .cluster = SLICE("DEFAULT"),
                                    .port = 8000,
                                    .weight = 1000,
                                    .healthy = true,
                                    .enabled = true,
                                    .ephemeral = true,
                                    .metadata = metadata,
                                    .n_metadata = 1,
                                    .interval_ms = 5000,
                                    .timeout_ms = 15000,
                                    .delete_ms = 30000};
}

static void answers_have_the_exact_shapes(void **state)
{
    (void)state;
    struct buf b;
    struct nacos_host_view h = host_view();
    struct nacos_list_view v = {.grouped = SLICE("DEFAULT_GROUP@@llm"),
                                .clusters = SLICE("DEFAULT"),
                                .now_ms = 1764570000000,
                                .cache_ms = 10000};

    buf_init(&b, &mem, 100000);
    nacos_write_list_begin(&b, &v);
    nacos_write_host(&b, &h, true);
    nacos_write_list_end(&b, &v);
    assert_slice(
        buf_slice(&b),
        "{\"name\":\"DEFAULT_GROUP@@llm\",\"groupName\":\"DEFAULT_GROUP\",\"clusters\":\"DEFAULT\","
        "\"cacheMillis\":10000,\"hosts\":[{\"instanceId\":\"10.0.0.5#8000#DEFAULT#DEFAULT_GROUP@@"
        "llm\","
        "\"ip\":\"10.0.0.5\",\"port\":8000,\"weight\":1.0,\"healthy\":true,\"enabled\":true,"
        "\"ephemeral\":true,\"clusterName\":\"DEFAULT\",\"serviceName\":\"DEFAULT_GROUP@@llm\","
        "\"metadata\":{\"gpu\":\"L4\"},\"instanceHeartBeatInterval\":5000,"
        "\"instanceHeartBeatTimeOut\":15000,\"ipDeleteTimeout\":30000,"
        "\"instanceIdGenerator\":\"simple\"}],\"lastRefTime\":1764570000000,\"checksum\":\"\","
        "\"allIPs\":false,\"reachProtectionThreshold\":false,\"valid\":true}");
    buf_clear(&b);
    nacos_write_detail(&b, &h, false);
    assert_slice(buf_slice(&b),
                 "{\"service\":\"DEFAULT_GROUP@@llm\",\"ip\":\"10.0.0.5\",\"port\":8000,"
                 "\"clusterName\":\"DEFAULT\",\"weight\":1.0,\"healthy\":true,"
                 "\"instanceId\":\"10.0.0.5#8000#DEFAULT#DEFAULT_GROUP@@llm\","
                 "\"metadata\":{\"gpu\":\"L4\"}}");
    buf_clear(&b);
    nacos_write_beat(&b, 5000, 10200);
    assert_slice(buf_slice(&b),
                 "{\"clientBeatInterval\":5000,\"code\":10200,\"lightBeatEnabled\":true}");
    buf_clear(&b);
    nacos_write_weight(&b, 2500);
    buf_put_char(&b, ' ');
    nacos_write_weight(&b, 0);
    buf_put_char(&b, ' ');
    nacos_write_weight(&b, 1);
    assert_slice(buf_slice(&b), "2.5 0.0 0.001");
    buf_clear(&b);
    h.grouped = SLICE("G@@a\"b");
    nacos_write_detail(&b, &h, false);
    assert_non_null(memmem(buf_slice(&b).p, buf_len(&b), "#DEFAULT#G@@a\\\"b\",\"metadata\"", 28));
    buf_fini(&b);
}

#define T(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(parameters_are_decoded_trimmed_and_the_first_counts),
        T(more_parameters_than_allowed_are_refused),
        T(values_have_their_ranges),
        T(names_are_grouped_once),
        T(metadata_is_json_or_pairs),
        T(beats_are_read_and_unknown_keys_skipped),
        T(batch_targets_are_read_and_nonsense_means_all),
        T(answers_have_the_exact_shapes),
    };
    return cmocka_run_group_tests_name("nacos_codec", tests, NULL, NULL);
}
