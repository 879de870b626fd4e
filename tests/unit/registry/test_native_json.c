/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <string.h>

#include "base/bug.h"
#include "base/num.h"
#include "heap_mem.h"
#include "registry/native_json.h"

static struct test_heap heap;
static struct mem mem;
static struct arena arena;
static struct native_error error;

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

static int read(const char *text, struct native_doc *doc)
{
    json_t *json = native_load_json(slice_str(text), &error);
    int rc = json ? native_read_endpoint(&arena, json, doc, &error) : WEIR_E_INVALID;

    json_decref(json);
    return rc;
}

static void a_full_document_fills_every_field(void **state)
{
    (void)state;
    struct native_doc d;

    assert_int_equal(
        read("{\"id\":\"w1\",\"services\":[\"llm\",\"chat\"],\"url\":\"https://[fd00::1]:8443\","
             "\"models\":[\"m1\",{\"id\":\"m2\",\"version\":\"v2\",\"lora_base\":\"m1\",\"max_"
             "model_len\":4096}],"
             "\"tasks\":[\"chat\",\"embedding\"],"
             "\"devices\":[{\"uuid\":\"GPU-1\",\"type\":\"A100\",\"memory_total_bytes\":"
             "85899345920}],"
             "\"weight\":2.5,\"enabled\":false,\"draining\":true,\"engine\":\"vllm\",\"role\":"
             "\"decode\","
             "\"region\":\"r\",\"zone\":\"z\",\"cluster\":\"c\",\"labels\":{\"tier\":\"gold\"},"
             "\"metadata\":{\"k\":\"v\"},\"max_concurrency\":8,\"max_model_len\":2048,\"ttl_ms\":"
             "5000,\"epoch\":7}",
             &d),
        0);
    const struct instance *i = &d.instance;
    assert_true(slice_eq(i->id, SLICE("w1")) && i->n_services == 2 &&
                slice_eq(i->services[1], SLICE("chat")));
    assert_true(i->tls && slice_eq(i->host, SLICE("fd00::1")) && i->port == 8443);
    assert_int_equal(i->n_models, 2);
    assert_true(slice_eq(i->models[0].id, SLICE("m1")) && !i->models[0].version.p &&
                i->models[0].max_model_len == 0);
    assert_true(slice_eq(i->models[1].lora_base, SLICE("m1")) &&
                i->models[1].max_model_len == 4096);
    assert_int_equal(i->tasks, TASK_CHAT | TASK_EMBEDDING);
    assert_true(i->devices[0].memory_total_bytes == 85899345920 &&
                slice_eq(i->devices[0].type, SLICE("A100")));
    assert_int_equal(i->weight, 2500);
    assert_true(!i->enabled && i->draining && i->engine == ENGINE_VLLM && i->role == ROLE_DECODE);
    assert_true(slice_eq(i->region, SLICE("r")) && slice_eq(i->zone, SLICE("z")) &&
                slice_eq(i->cluster, SLICE("c")));
    assert_true(i->n_labels == 1 && i->n_metadata == 1 && i->max_concurrency == 8 &&
                i->max_model_len == 2048);
    assert_true(d.ttl_ns == 5 * NS_PER_S && d.has_epoch && i->epoch == 7);
}

static void the_least_document_has_defaults(void **state)
{
    (void)state;
    struct native_doc d;

    assert_int_equal(read("{\"host\":\"gpu1\",\"port\":8000,\"zone\":null}", &d), 0);
    assert_true(d.instance.weight == WEIGHT_ONE && d.instance.enabled && d.instance.healthy &&
                !d.instance.tls);
    assert_true(d.ttl_ns == STORE_TTL_DEFAULT_NS && !d.has_epoch && !d.instance.zone.p &&
                !d.instance.id.p);
}

static void errors_name_the_field(void **state)
{
    (void)state;
    static const struct {
        const char *text, *code, *field, *message;
    } bad[] = {
        {"{", "invalid_json", "", NULL},
        {"[]", "invalid_json", "", "the body must be a JSON object"},
        {"{\"url\":\"http://h:1\",\"url\":\"http://h:1\"}", "invalid_json", "", NULL},
        {"{\"wieght\":1}", "unknown_field", "wieght",
         "unknown key 'wieght'; the nearest known one is 'weight'"},
        {"{\"models\":[{\"id\":\"m\",\"max_len\":1}]}", "unknown_field", "models[0].max_len", NULL},
        {"{\"load\":{}}", "invalid_field", "load", "'load' is only shown, it cannot be set here"},
        {"{}", "missing_field", "url", "url (or host and port) is missing"},
        {"{\"host\":\"h\"}", "missing_field", "port", "port is missing"},
        {"{\"url\":\"http://h:1\",\"port\":2}", "invalid_field", "port",
         "give url, or host and port, not both"},
        {"{\"url\":\"ftp://h:1\"}", "invalid_field", "url", NULL},
        {"{\"url\":\"http://h:1/v1\"}", "invalid_field", "url", NULL},
        {"{\"url\":\"http://u@h:1\"}", "invalid_field", "url", NULL},
        {"{\"host\":\"h\",\"port\":0}", "invalid_field", "port",
         "port must be a whole number from 1 to 65535"},
        {"{\"host\":\"h\",\"port\":1,\"weight\":10001}", "invalid_field", "weight",
         "weight must be a number from 0 to 10000"},
        {"{\"host\":\"h\",\"port\":1,\"weight\":\"1\"}", "invalid_field", "weight", NULL},
        {"{\"host\":\"h\",\"port\":1,\"ttl_ms\":999}", "invalid_field", "ttl_ms",
         "ttl_ms must be a whole number from 1000 to 3600000"},
        {"{\"engine\":\"vlm\"}", "invalid_field", "engine", NULL},
        {"{\"models\":[{}]}", "missing_field", "models[0].id", "models[0].id is missing"},
        {"{\"models\":[\"\"]}", "invalid_field", "models[0]", "models[0] must not be empty"},
        {"{\"metadata\":{\"k\":1}}", "invalid_field", "metadata.k", "metadata.k must be a string"},
        {"{\"id\":\"a\\u0001\"}", "invalid_field", "id", "id holds a control character at byte 1"},
        {"{\"service\":\"a\",\"services\":[\"b\"]}", "invalid_field", "services",
         "give service or services, not both"},
        {"{\"devices\":[1]}", "invalid_field", "devices[0]", "devices[0] must be an object"},
        {"{\"epoch\":-1}", "invalid_field", "epoch", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct native_doc d;
        assert_int_equal(read(bad[i].text, &d), WEIR_E_INVALID);
        assert_string_equal(error.code, bad[i].code);
        assert_string_equal(error.field, bad[i].field);
        if (bad[i].message)
            assert_string_equal(error.message, bad[i].message);
    }
}

static void lists_have_limits(void **state)
{
    (void)state;
    struct native_doc d;
    struct buf b;

    buf_init(&b, &mem, 100000);
    buf_put_str(&b, "{\"models\":[\"m\"");
    for (int i = 0; i < ENDPOINT_MODELS_MAX; i++)
        buf_put_str(&b, ",\"m\"");
    buf_put_str(&b, "]}");
    buf_put_char(&b, '\0');
    assert_int_equal(read(buf_slice(&b).p, &d), WEIR_E_INVALID);
    assert_string_equal(error.message, "models has 257 entries; at most 256 are allowed");
    buf_fini(&b);
}

static int read_load(const char *text, struct sample *s)
{
    json_t *json = native_load_json(slice_str(text), &error);
    int rc = json ? native_read_load(json, s, &error) : WEIR_E_INVALID;

    json_decref(json);
    return rc;
}

static void loads_know_what_they_were_told(void **state)
{
    (void)state;
    struct sample s;

    assert_int_equal(
        read_load(
            "{\"epoch\":1,\"seq\":2,\"interval_ms\":200,\"gpu_util_percent\":99.99,\"running\":0,"
            "\"memory_free_bytes\":5,\"memory_total_bytes\":5,\"state\":\"busy\",\"waiting\":null}",
            &s),
        0);
    assert_true(s.epoch == 1 && s.seq == 2 && s.fresh_for_ns == 600 * NS_PER_MS &&
                s.gpu_util_bp == 9999);
    assert_true(sample_has(&s, SAMPLE_RUNNING) && !sample_has(&s, SAMPLE_WAITING) &&
                !sample_has(&s, SAMPLE_BATCH));
    assert_int_equal(s.state, REPORTED_BUSY);
    assert_int_equal(read_load("{\"epoch\":1,\"seq\":2}", &s), 0);
    assert_true(s.fresh_for_ns == 1500 * NS_PER_MS && s.known == 0);
    assert_int_equal(read_load("{\"seq\":2}", &s), WEIR_E_INVALID);
    assert_string_equal(error.field, "epoch");
    assert_int_equal(read_load("{\"epoch\":2}", &s), WEIR_E_INVALID);
    assert_string_equal(error.field, "seq");
    assert_int_equal(read_load("{\"epoch\":1,\"seq\":2,\"gpu_util_percent\":101}", &s),
                     WEIR_E_INVALID);
    assert_string_equal(error.message, "gpu_util_percent must be a number from 0 to 100");
    assert_int_equal(read_load("{\"epoch\":1,\"seq\":2,\"gpu_util\":1}", &s), WEIR_E_INVALID);
    assert_string_equal(error.code, "unknown_field");
    assert_int_equal(
        read_load("{\"epoch\":1,\"seq\":2,\"memory_free_bytes\":6,\"memory_total_bytes\":5}", &s),
        WEIR_E_INVALID);
    assert_string_equal(error.field, "memory_free_bytes");
}

#define T(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_full_document_fills_every_field),
        T(the_least_document_has_defaults),
        T(errors_name_the_field),
        T(lists_have_limits),
        T(loads_know_what_they_were_told),
    };
    return cmocka_run_group_tests_name("native_json", tests, NULL, NULL);
}
