/* SPDX-License-Identifier: Apache-2.0 */
/* Signs by which an engine is known, and what its errors mean. */
#include "ct.h"

#include "base/bug.h"
#include "probe/adapters_codec.h"

static void known_by_owner_and_series(void **state)
{
    (void)state;

    assert_ptr_equal(engine_adapter_owner("vllm"), &engine_vllm);
    assert_ptr_equal(engine_adapter_owner("sglang"), &engine_sglang);
    assert_ptr_equal(engine_adapter_owner("llamacpp"), &engine_llamacpp);
    assert_ptr_equal(engine_adapter_owner("library"), &engine_ollama);
    assert_ptr_equal(engine_adapter_owner("weir"), &engine_weir_worker);
    assert_null(engine_adapter_owner("openai"));
    assert_null(engine_adapter_owner(""));
    assert_ptr_equal(engine_adapter_series(SLICE("python_gc 1\nvllm:num_requests_running 1\n")),
                     &engine_vllm);
    assert_ptr_equal(engine_adapter_series(SLICE("sglang:x{a=\"b\"} 1\n")), &engine_sglang);
    assert_ptr_equal(engine_adapter_series(SLICE("llamacpp:n_decode_total 1\n")), &engine_llamacpp);
    assert_ptr_equal(engine_adapter_series(SLICE("tgi_queue_size 1\n")), &engine_tgi);
    assert_ptr_equal(engine_adapter_series(SLICE("te_queue_size 1\n")), &engine_tei);
    assert_ptr_equal(engine_adapter_series(SLICE("nv_inference_count 1\n")), &engine_triton);
    assert_null(engine_adapter_series(SLICE("# vllm:x\nprocess_cpu_seconds_total 1\n")));
}

static void known_by_a_page_of_its_own(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        const struct engine_adapter *is;
    } pages[] = {
        {"{\"name\":\"triton\",\"version\":\"2.40.0\",\"extensions\":[]}", &engine_triton},
        {"{\"model_id\":\"m\",\"max_total_tokens\":2048,\"router\":\"text-generation-router\"}",
         &engine_tgi},
        {"{\"model_id\":\"m\",\"model_type\":{\"embedding\":{\"pooling\":\"cls\"}},\"tokenization_"
         "workers\":8,"
         "\"max_client_batch_size\":32}",
         &engine_tei},
        {"{\"version\":\"0.5.1\"}", &engine_ollama},
        {"{\"detail\":\"Not Found\"}", NULL},
        {"not JSON", NULL},
    };

    for (size_t i = 0; i < ARRAY_LEN(pages); i++)
        for (uint32_t k = 0; k < engine_n_adapters; k++)
            if (engine_adapters[k]->is_it &&
                !(engine_adapters[k] == &engine_ollama && pages[i].is == &engine_triton))
                assert_int_equal(engine_adapters[k]->is_it(slice_str(pages[i].body)),
                                 engine_adapters[k] == pages[i].is);
}

static void what_errors_mean(void **state)
{
    (void)state;
    static const struct {
        enum engine_kind kind;
        unsigned status;
        const char *body;
        enum engine_fault means;
    } cases[] = {
        {ENGINE_VLLM, 200, "", ENGINE_FAULT_NONE},
        {ENGINE_VLLM, 400, "{\"error\":{\"message\":\"maximum context length\"}}",
         ENGINE_FAULT_CLIENT},
        {ENGINE_VLLM, 404, "The model `x` does not exist.", ENGINE_FAULT_CLIENT},
        {ENGINE_VLLM, 500, "", ENGINE_FAULT_BROKEN},
        {ENGINE_LLAMACPP, 503, "{\"error\":{\"code\":503,\"message\":\"Loading model\"}}",
         ENGINE_FAULT_LOADING},
        {ENGINE_LLAMACPP, 503, "{\"error\":{\"message\":\"no slot available\"}}",
         ENGINE_FAULT_BUSY},
        {ENGINE_LLAMACPP, 501, "", ENGINE_FAULT_CLIENT},
        {ENGINE_TGI, 429, "{\"error\":\"Model is overloaded\",\"error_type\":\"overloaded\"}",
         ENGINE_FAULT_BUSY},
        {ENGINE_TGI, 422, "", ENGINE_FAULT_CLIENT},
        {ENGINE_TGI, 424, "", ENGINE_FAULT_BROKEN},
        {ENGINE_TGI, 503, "{\"error\":\"unhealthy\",\"error_type\":\"healthcheck\"}",
         ENGINE_FAULT_BROKEN},
        {ENGINE_TEI, 429, "", ENGINE_FAULT_BUSY},
        {ENGINE_TEI, 503, "", ENGINE_FAULT_BROKEN},
        {ENGINE_TRITON, 503, "{\"error\":\"exceeds maximum queue size\"}", ENGINE_FAULT_BUSY},
        {ENGINE_OLLAMA, 503, "{\"error\":\"server busy, please try again.\"}", ENGINE_FAULT_BUSY},
        {ENGINE_UNKNOWN, 503, "", ENGINE_FAULT_BUSY},
        {ENGINE_UNKNOWN, 503, "the model is loading", ENGINE_FAULT_LOADING},
        {ENGINE_UNKNOWN, 502, "", ENGINE_FAULT_BROKEN},
        {ENGINE_GENERIC, 413, "", ENGINE_FAULT_CLIENT},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(engine_fault_of(cases[i].kind, cases[i].status, slice_str(cases[i].body)),
                         cases[i].means);
}

static void every_kind_has_an_adapter(void **state)
{
    (void)state;

    for (int kind = ENGINE_VLLM; kind <= ENGINE_GENERIC; kind++) {
        const struct engine_adapter *a = engine_adapter_of((enum engine_kind)kind);
        assert_int_equal(a->kind, kind);
        assert_non_null(a->health_paths[0]);
        assert_non_null(a->models);
        assert_true((a->sign_path != NULL) == (a->is_it != NULL));
    }
    assert_ptr_equal(engine_adapter_of(ENGINE_UNKNOWN), &engine_generic);
}

static void numbers_that_stand_in_json(void **state)
{
    (void)state;
    static const char status[] = "{\"model_names\":[\"m\"],\"speed\":1,\"queue_length\":3}";
    static const char busy[] =
        "{\"progress\":0.4,\"eta_relative\":6.2,\"state\":{\"job_count\":2}}";
    static const char idle[] = "{\"progress\":0,\"eta_relative\":0,\"state\":{\"job_count\":0}}";
    static const char memory[] =
        "{\"ram\":{\"free\":1,\"total\":2},\"cuda\":{\"system\":{\"free\":100,"
        "\"used\":200,\"total\":300},\"events\":{\"oom\":0}}}";
    struct engine_metrics m;
    struct sample s;
    double ratio;

    assert_true(engine_fastchat.slots(slice_str(status), &m));
    assert_true(m.v[NUMBER_RUNNING] == 3);
    assert_false(engine_fastchat.slots(SLICE("{\"queue_length\":\"x\"}"), &m));
    assert_true(engine_fastchat.is_it(slice_str(status)));
    assert_false(engine_fastchat.is_it(SLICE("{\"queue_length\":3}")));
    assert_true(engine_sdwebui.slots(slice_str(idle), &m));
    assert_true(m.v[NUMBER_RUNNING] == 0);
    assert_true(engine_sdwebui.slots(slice_str(busy), &m));
    assert_true(m.v[NUMBER_RUNNING] == 1);
    assert_true(engine_sdwebui.memory(slice_str(memory), &m));
    engine_metrics_sample(&m, NULL, 0, &s, &ratio);
    assert_int_equal(s.known,
                     1U << SAMPLE_RUNNING | 1U << SAMPLE_MEMORY_FREE | 1U << SAMPLE_MEMORY_TOTAL);
    assert_int_equal(s.memory_free_bytes, 100);
    assert_int_equal(s.memory_total_bytes, 300);
    assert_false(engine_sdwebui.memory(SLICE("{\"cuda\":{\"error\":\"no\"}}"), &m));
    assert_false(engine_sdwebui.memory(SLICE("\"cuda\""), &m));
    assert_false(engine_sdwebui.memory(SLICE(""), &m));
}

static void states_of_tensorflow_serving(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        enum engine_fault means;
    } cases[] = {
        {"{\"model_version_status\":[{\"version\":\"1\",\"state\":\"AVAILABLE\"}]}",
         ENGINE_FAULT_NONE},
        {"{\"model_version_status\":[{\"state\":\"END\"},{\"state\":\"AVAILABLE\"}]}",
         ENGINE_FAULT_NONE},
        {"{\"model_version_status\":[{\"state\":\"START\"}]}", ENGINE_FAULT_LOADING},
        {"{\"model_version_status\":[{\"state\":\"UNLOADING\"},{\"state\":\"LOADING\"}]}",
         ENGINE_FAULT_LOADING},
        {"{\"model_version_status\":[{\"state\":\"END\"}]}", ENGINE_FAULT_BROKEN},
        {"{\"model_version_status\":[]}", ENGINE_FAULT_BROKEN},
        {"no", ENGINE_FAULT_BROKEN},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(engine_tfserving.healthy(slice_str(cases[i].body)), cases[i].means);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_by_owner_and_series),
        cmocka_unit_test(known_by_a_page_of_its_own),
        cmocka_unit_test(what_errors_mean),
        cmocka_unit_test(every_kind_has_an_adapter),
        cmocka_unit_test(numbers_that_stand_in_json),
        cmocka_unit_test(states_of_tensorflow_serving),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
