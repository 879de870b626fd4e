/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of each engine, old names and new, to exact numbers; absent is unknown; counters that fall give no rate. */
#include "ct.h"

#include "base/num.h"
#include "probe/adapters_codec.h"

#define KNOWN(f) (1u << (f))

static const uint32_t LOAD = KNOWN(SAMPLE_RUNNING) | KNOWN(SAMPLE_WAITING);
static const uint32_t KV = KNOWN(SAMPLE_KV_CAPACITY) | KNOWN(SAMPLE_KV_USED);

static struct engine_metrics read_page(const struct engine_adapter *a, const char *text)
{
    struct engine_metrics m;

    engine_metrics_read(slice_str(text), a->metrics, &m);
    return m;
}

static struct sample sample_of(const struct engine_metrics *m, double *ratio)
{
    struct sample s;

    engine_metrics_sample(m, NULL, 0, &s, ratio);
    return s;
}

static void vllm_sums_over_engines(void **state)
{
    (void)state;
    double ratio;
    struct engine_metrics m = read_page(
        &engine_vllm,
        "# TYPE vllm:num_requests_running gauge\n"
        "vllm:num_requests_running{engine=\"0\",model_name=\"llama\"} 3.0\n"
        "vllm:num_requests_running{engine=\"1\",model_name=\"llama\"} 4.0\n"
        "vllm:num_requests_waiting{engine=\"0\",model_name=\"llama\"} 1.0\n"
        "vllm:num_requests_waiting{engine=\"1\",model_name=\"llama\"} 2.0\n"
        "vllm:num_requests_waiting_by_reason{engine=\"0\",reason=\"capacity\"} 70\n"
        "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"llama\"} 0.25\n"
        "vllm:kv_cache_usage_perc{engine=\"1\",model_name=\"llama\"} 0.75\n"
        "vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"1000\"} 1.0\n"
        "vllm:cache_config_info{block_size=\"16\",engine=\"1\",num_gpu_blocks=\"1000\"} 1.0\n"
        "vllm:iteration_tokens_total_bucket{le=\"1.0\"} 5\n");
    struct sample s = sample_of(&m, &ratio);

    assert_int_equal(s.known, LOAD | KV);
    assert_int_equal(s.running, 7);
    assert_int_equal(s.waiting, 3);
    assert_int_equal(s.kv_capacity_tokens, 32000);
    assert_int_equal(s.kv_used_tokens, 16000);
    assert_true(ratio < 0);
    assert_int_equal(m.bad, 0);
}

static void vllm_old_names_and_the_youngest_adapters(void **state)
{
    (void)state;
    double ratio;
    struct engine_metrics m = read_page(
        &engine_vllm,
        "vllm:gpu_cache_usage_perc{model_name=\"a\"} 0.5\n"
        "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"100\"} 1\n"
        "vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"new,other\"} "
        "1.7000002e+09\n"
        "vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"old\"} 1.7000001e+09\n"
        "vllm:num_requests_waiting_by_reason{reason=\"capacity\"} 2\n"
        "vllm:num_requests_waiting_by_reason{reason=\"deferred\"} 1\n");
    struct sample s = sample_of(&m, &ratio);

    assert_int_equal(s.known, KNOWN(SAMPLE_WAITING) | KV);
    assert_int_equal(s.waiting, 3);
    assert_int_equal(s.kv_capacity_tokens, 1600);
    assert_int_equal(s.kv_used_tokens, 800);
    assert_memory_equal(m.loras, "new,other", 9);
    assert_int_equal(m.n_loras, 9);
}

static void counters_become_rates_and_survive_a_restart(void **state)
{
    (void)state;
    double ratio;
    struct sample s;
    struct engine_metrics a = read_page(&engine_vllm, "vllm:generation_tokens_total 1000\n"
                                                      "vllm:prefix_cache_queries_total 100\n"
                                                      "vllm:prefix_cache_hits_total 50\n");
    struct engine_metrics b = read_page(&engine_vllm, "vllm:generation_tokens_total 1600\n"
                                                      "vllm:prefix_cache_queries_total 300\n"
                                                      "vllm:prefix_cache_hits_total 200\n");

    engine_metrics_sample(&b, &a, 2 * NS_PER_S, &s, &ratio);
    assert_int_equal(s.known, KNOWN(SAMPLE_TOKENS_PER_S));
    assert_int_equal(s.tokens_per_s, 300);
    assert_true(ratio == 0.75);
    /* Backwards: the engine began anew between the two. */
    engine_metrics_sample(&a, &b, 2 * NS_PER_S, &s, &ratio);
    assert_int_equal(s.known, 0);
    assert_true(ratio < 0);
    /* No lookups in between tell nothing about hits. */
    engine_metrics_sample(&b, &b, NS_PER_S, &s, &ratio);
    assert_int_equal(s.tokens_per_s, 0);
    assert_true(ratio < 0);
}

static void the_start_of_the_process_is_the_latest_one_told(void **state)
{
    (void)state;
    struct engine_metrics none = read_page(&engine_vllm, "vllm:num_requests_running 1\n"
                                                         "process_start_time_seconds NaN\n");
    struct engine_metrics m =
        read_page(&engine_vllm, "process_start_time_seconds 1.764581611e+09\n"
                                "process_start_time_seconds{p=\"1\"} 1764581671.25\n"
                                "process_start_time_seconds{p=\"2\"} 7\n");

    assert_true(none.start_s == 0);
    assert_true(m.start_s == 1764581671.25);
    assert_int_equal(m.known, 0);
}

static void sglang_counts_each_rank_once(void **state)
{
    (void)state;
    double ratio;
    struct engine_metrics m =
        read_page(&engine_sglang, "sglang:num_running_reqs{dp_rank=\"0\",tp_rank=\"0\"} 5\n"
                                  "sglang:num_running_reqs{dp_rank=\"0\",tp_rank=\"1\"} 5\n"
                                  "sglang:num_running_reqs{dp_rank=\"1\",tp_rank=\"0\"} 2\n"
                                  "sglang:num_queue_reqs{dp_rank=\"0\",tp_rank=\"0\"} 1\n"
                                  "sglang:token_usage{dp_rank=\"0\",tp_rank=\"0\"} 0.5\n"
                                  "sglang:num_used_tokens{dp_rank=\"0\",tp_rank=\"0\"} 4000\n"
                                  "sglang:max_total_num_tokens{dp_rank=\"0\",tp_rank=\"0\"} 8000\n"
                                  "sglang:gen_throughput{dp_rank=\"0\",tp_rank=\"0\"} 86.5\n"
                                  "sglang:cache_hit_rate{dp_rank=\"0\",tp_rank=\"0\"} 0.125\n");
    struct sample s = sample_of(&m, &ratio);

    assert_int_equal(s.known, LOAD | KV | KNOWN(SAMPLE_TOKENS_PER_S));
    assert_int_equal(s.running, 7);
    assert_int_equal(s.waiting, 1);
    assert_int_equal(s.kv_capacity_tokens, 8000);
    assert_int_equal(s.kv_used_tokens, 4000);
    assert_int_equal(s.tokens_per_s, 87);
    assert_true(ratio == 0.125);
}

static void sglang_old_labels_and_pages(void **state)
{
    (void)state;
    double ratio;
    struct engine_metrics m =
        read_page(&engine_sglang, "sglang:num_running_reqs{model_name=\"q\"} 5\n"
                                  "sglang:token_usage{model_name=\"q\"} 0.5\n"
                                  "sglang:num_pages 100\n"
                                  "sglang:page_size 64\n");
    struct sample s = sample_of(&m, &ratio);

    assert_int_equal(s.known, KNOWN(SAMPLE_RUNNING) | KV);
    assert_int_equal(s.kv_capacity_tokens, 6400);
    assert_int_equal(s.kv_used_tokens, 3200);
}

static void llamacpp_metrics_and_slots(void **state)
{
    (void)state;
    double ratio;
    struct engine_metrics m = read_page(&engine_llamacpp, "llamacpp:requests_processing 2\n"
                                                          "llamacpp:requests_deferred 3\n"
                                                          "llamacpp:predicted_tokens_seconds 41\n"
                                                          "llamacpp:kv_cache_usage_ratio 0.5\n");
    struct sample s = sample_of(&m, &ratio);

    assert_int_equal(s.known, LOAD); /* a ratio of an unknown capacity is no number of tokens */
    assert_int_equal(s.running, 2);
    assert_int_equal(s.waiting, 3);

    assert_true(engine_llamacpp.slots(
        SLICE("[{\"id\":0,\"n_ctx\":8192,\"is_processing\":true,\"next_token\":{\"n_decoded\":12}},"
              "{\"id\":1,\"is_processing\":false},{\"id\":2,\"is_processing\":true}]"),
        &m));
    s = sample_of(&m, &ratio);
    assert_int_equal(s.known, KNOWN(SAMPLE_RUNNING));
    assert_int_equal(s.running, 2);
    assert_true(engine_llamacpp.slots(SLICE("[{\"state\":0},{\"state\":1}]"), &m));
    assert_int_equal(sample_of(&m, &ratio).running, 1);
    assert_false(engine_llamacpp.slots(SLICE("[{\"id\":1}]"), &m));
    assert_false(engine_llamacpp.slots(SLICE("{\"error\":{\"code\":501}}"), &m));
    assert_false(engine_llamacpp.slots(SLICE("nonsense"), &m));
}

static void tgi_tei_and_triton(void **state)
{
    (void)state;
    double ratio;
    struct engine_metrics m = read_page(&engine_tgi, "tgi_queue_size 4\ntgi_batch_current_size 12\n"
                                                     "tgi_batch_current_max_tokens 9000\n");
    struct sample s = sample_of(&m, &ratio);

    assert_int_equal(s.known, LOAD);
    assert_int_equal(s.running, 12);
    assert_int_equal(s.waiting, 4);

    m = read_page(&engine_tei, "te_queue_size 6\n");
    s = sample_of(&m, &ratio);
    assert_int_equal(s.known, KNOWN(SAMPLE_WAITING));
    assert_int_equal(s.waiting, 6);

    m = read_page(&engine_triton,
                  "nv_inference_pending_request_count{model=\"a\",version=\"1\"} 2\n"
                  "nv_inference_pending_request_count{model=\"b\",version=\"1\"} 3\n");
    s = sample_of(&m, &ratio);
    assert_int_equal(s.known, KNOWN(SAMPLE_WAITING));
    assert_int_equal(s.waiting, 5);
}

static void tensorrt_llm_in_both_servers(void **state)
{
    (void)state;
    double ratio;
    struct engine_metrics m =
        read_page(&engine_triton,
                  "nv_inference_pending_request_count{model=\"tensorrt_llm\",version=\"1\"} 9\n"
                  "nv_trt_llm_request_metrics{model=\"t\",request_type=\"waiting\"} 2\n"
                  "nv_trt_llm_request_metrics{model=\"t\",request_type=\"scheduled\"} 5\n"
                  "nv_trt_llm_request_metrics{model=\"t\",request_type=\"active\"} 7\n"
                  "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\"} 0.5\n"
                  "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"tokens_per\"} 64\n"
                  "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\"} 10\n");
    struct sample s = sample_of(&m, &ratio);

    assert_int_equal(s.known, LOAD | KV);
    assert_int_equal(s.running, 5);
    assert_int_equal(s.waiting, 2);
    assert_int_equal(s.kv_capacity_tokens, 640);
    assert_int_equal(s.kv_used_tokens, 320);

    m = read_page(&engine_generic,
                  "trtllm_num_requests_running 3\ntrtllm_num_requests_waiting 1\n");
    s = sample_of(&m, &ratio);
    assert_int_equal(s.known, LOAD);
    assert_int_equal(s.running, 3);
}

static void what_is_no_number_is_unknown(void **state)
{
    (void)state;
    double ratio;
    struct engine_metrics m = read_page(
        &engine_vllm, "<html>} 17 \x01 {{{\nvllm:num_requests_running{ NaN of\n"
                      "vllm:num_requests_running NaN\nvllm:num_requests_waiting -1\n"
                      "vllm:kv_cache_usage_perc +Inf\n"
                      "vllm:cache_config_info{block_size=\"x\",num_gpu_blocks=\"9\"} 1\n");
    struct sample s = sample_of(&m, &ratio);

    assert_int_equal(s.known, 0);
    assert_int_equal(m.bad, 2);
    m = read_page(&engine_vllm, "");
    assert_int_equal(sample_of(&m, &ratio).known, 0);
    /* Beyond the field: saturated, not wrapped. */
    m = read_page(&engine_vllm, "vllm:num_requests_running 1e15\n");
    assert_int_equal(sample_of(&m, &ratio).running, UINT32_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vllm_sums_over_engines),
        cmocka_unit_test(vllm_old_names_and_the_youngest_adapters),
        cmocka_unit_test(counters_become_rates_and_survive_a_restart),
        cmocka_unit_test(the_start_of_the_process_is_the_latest_one_told),
        cmocka_unit_test(sglang_counts_each_rank_once),
        cmocka_unit_test(sglang_old_labels_and_pages),
        cmocka_unit_test(llamacpp_metrics_and_slots),
        cmocka_unit_test(tgi_tei_and_triton),
        cmocka_unit_test(tensorrt_llm_in_both_servers),
        cmocka_unit_test(what_is_no_number_is_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
