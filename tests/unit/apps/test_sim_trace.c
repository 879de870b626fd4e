/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of all formats, from text. */
#include "ct.h"

#include <stdbool.h>
#include <string.h>

#include "apps/sim/trace_codec.h"
#include "apps/sim/workload.h"
#include "base/bug.h"
#include "base/num.h"
#include "heap_mem.h"
#include "model/endpoint_t.h"

struct rig {
    struct test_heap heap;
    struct mem mem;
    struct sim_trace t;
};

static int rig_start(void **state)
{
    static struct rig rig;

    rig.heap = (struct test_heap){0};
    rig.mem = test_heap_mem(&rig.heap);
    sim_trace_init(&rig.t, &rig.mem);
    *state = &rig;
    return 0;
}

static int rig_end(void **state)
{
    struct rig *rig = *state;

    sim_trace_fini(&rig->t);
    return rig->heap.live == 0 ? 0 : 1;
}

static int parse(struct rig *rig, const char *text, enum sim_format *format, uint64_t *line)
{
    int rc = sim_format_of(slice_str(text), format);

    return rc ? rc : sim_trace_read(&rig->t, *format, 42, slice_str(text), line);
}

static void mooncake_lines_become_requests_with_prefix_chains(void **state)
{
    struct rig *rig = *state;
    enum sim_format format;
    uint64_t line;
    char block[PREFIX_BLOCK_BYTES];

    assert_int_equal(parse(rig,
                           "{\"timestamp\": 3000, \"input_length\": 600, \"output_length\": 5, "
                           "\"hash_ids\": [0, 7]}\n"
                           "{\"timestamp\": 9000, \"input_length\": 1100, \"output_length\": 6, "
                           "\"hash_ids\": [0, 8, 9]}\r\n",
                           &format, &line),
                     0);
    assert_int_equal(format, SIM_MOONCAKE);
    assert_int_equal(rig->t.n, 2);
    const struct sim_request *r = rig->t.requests;
    assert_int_equal(r[0].at_ns, 0);
    assert_int_equal(r[1].at_ns, 6 * NS_PER_S);
    assert_int_equal(rig->t.slot_ns, 6 * NS_PER_S);
    assert_int_equal(r[0].prompt_tokens, 600);
    assert_int_equal(r[1].output_tokens, 6);
    assert_int_equal(r[0].n_blocks, 2);
    assert_int_equal(r[1].n_blocks, 3);
    const uint64_t *a = rig->t.blocks + r[0].first_block;
    const uint64_t *b = rig->t.blocks + r[1].first_block;
    /* As a gateway names the text that the ids stand for. */
    sim_block_text(0, block);
    assert_true(a[0] == model_prefix_next(42, block));
    sim_block_text(7, block);
    assert_true(a[1] == model_prefix_next(a[0], block));
    assert_true(a[0] == b[0]);
    assert_true(a[1] != b[1]);
}

static void azure_times_are_read_to_a_tenth_of_a_microsecond(void **state)
{
    struct rig *rig = *state;
    enum sim_format format;
    uint64_t line;

    assert_int_equal(parse(rig,
                           "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                           "2023-12-31 23:59:59.9999999,4808,10\r\n"
                           "2024-01-01 00:00:00.0000000,3180,8\r\n"
                           "2024-02-29 12:00:00,1,1\r\n"
                           "2024-03-01 12:00:00+00:00,1,1\r\n",
                           &format, &line),
                     0);
    assert_int_equal(format, SIM_AZURE);
    assert_int_equal(rig->t.n, 4);
    assert_int_equal(rig->t.requests[1].at_ns, 100);
    /* 59 days and a half after midnight of the first of January, and one more day: 2024 is a leap year. */
    assert_int_equal(rig->t.requests[2].at_ns, 100 + (59 * 86400 + 43200) * NS_PER_S);
    assert_int_equal(rig->t.requests[3].at_ns, 100 + (60 * 86400 + 43200) * NS_PER_S);
    assert_int_equal(rig->t.requests[0].prompt_tokens, 4808);
    assert_int_equal(rig->t.requests[0].n_blocks, 0);
}

static void burstgpt_columns_go_by_name_and_failures_are_left_out(void **state)
{
    struct rig *rig = *state;
    enum sim_format format;
    uint64_t line;

    assert_int_equal(parse(rig,
                           "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response "
                           "tokens,Total tokens,Log Type\n"
                           "45.5,7,1,ChatGPT,472,18,490,Conversation log\n"
                           "46,7,1,ChatGPT,100,0,100,Conversation log\n"
                           "5,8,1,GPT-4,10,20,30,API log\n",
                           &format, &line),
                     0);
    assert_int_equal(format, SIM_BURSTGPT);
    assert_int_equal(rig->t.n, 2);
    /* Sorted, from 0. */
    assert_int_equal(rig->t.requests[0].prompt_tokens, 10);
    assert_int_equal(rig->t.requests[1].at_ns, 40500 * NS_PER_MS);
    assert_true(rig->t.requests[0].session != rig->t.requests[1].session);
    assert_true(rig->t.requests[0].session != 0);
}

static void decisions_are_replayed_once_a_request_from_its_arrival(void **state)
{
    struct rig *rig = *state;
    enum sim_format format;
    uint64_t line;

    assert_int_equal(
        parse(
            rig,
            "{\"format\":1,\"time_ms\":2000,\"features\":{\"prompt_tokens\":90,\"output_tokens\":"
            "150,\"task\":1,"
            "\"session\":\"00000000000000ff\",\"blocks\":[\"0a\",\"0b\"]},\"rows\":[{\"task\":9}],"
            "\"outcome\":{\"outcome\":\"ok\",\"queue_ms\":500,\"total_ms\":900}}\n"
            "{\"format\":1,\"time_ms\":1500,\"features\":{\"prompt_tokens\":90},\"outcome\":{"
            "\"outcome\":\"decided_again\"}}\n"
            "{\"format\":1,\"time_ms\":1000,\"features\":{\"prompt_tokens\":30,\"task\":4},"
            "\"outcome\":{\"outcome\":\"ok\",\"prompt_tokens\":33,\"completion_tokens\":0}}\n"
            "{\"format\":1,\"time_ms\":3000,\"features\":{\"prompt_tokens\":30,\"output_tokens\":"
            "9000},\"outcome\":null}\n",
            &format, &line),
        0);
    assert_int_equal(format, SIM_DECISIONS);
    assert_int_equal(rig->t.n, 3);
    const struct sim_request *r = rig->t.requests;
    assert_int_equal(r[0].task, TASK_EMBEDDING);
    assert_int_equal(r[0].output_tokens, 0);
    assert_int_equal(r[0].prompt_tokens, 33);
    assert_int_equal(r[1].at_ns, 500 * NS_PER_MS);
    assert_int_equal(r[1].prompt_tokens, 90);
    assert_int_equal(r[1].limit, 150);
    assert_int_equal(r[1].output_tokens, 150);
    assert_int_equal(r[1].session, 255);
    assert_int_equal(r[1].task, TASK_CHAT);
    assert_int_equal(r[1].n_blocks, 2);
    assert_int_equal(rig->t.blocks[r[1].first_block + 1], 11);
    assert_int_equal(r[2].output_tokens, 200);
    assert_int_equal(rig->t.guessed, 2);
}

static void what_is_no_trace_is_refused_with_its_line(void **state)
{
    struct rig *rig = *state;
    static const struct {
        const char *text;
        uint64_t line;
    } bad[] = {
        {"{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1}\n\n{\"timestamp\": 0}\n",
         3},
        {"{\"timestamp\": -1, \"input_length\": 1, \"output_length\": 1}\n", 1},
        {"{\"timestamp\": 0, \"input_length\": 0, \"output_length\": 1}\n", 1},
        {"{\"timestamp\": 0, \"input_length\": 1e9, \"output_length\": 1}\n", 1},
        {"{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [-1]}\n", 1},
        {"{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1} x\n", 1},
        {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,1,1\n2023-13-16 "
         "18:17:03,1,1\n",
         3},
        {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,1\n", 2},
        {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,one,1\n", 2},
    };
    enum sim_format format;
    uint64_t line;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(parse(rig, bad[i].text, &format, &line), WEIR_E_PROTO);
        assert_int_equal(line, bad[i].line);
    }
    assert_int_equal(parse(rig, "a,b,c\n", &format, &line), WEIR_E_UNSUPPORTED);
    assert_int_equal(parse(rig, "", &format, &line), WEIR_E_UNSUPPORTED);
    assert_int_equal(parse(rig, "[1]\n", &format, &line), WEIR_E_UNSUPPORTED);
}

static void parts_and_repeats_keep_time_in_order(void **state)
{
    struct rig *rig = *state;

    for (uint64_t i = 0; i < 10; i++)
        assert_int_equal(
            sim_trace_add(&rig->t, &(struct sim_request){.at_ns = (9 - i) * 10, .prompt_tokens = 1},
                          NULL, 0),
            0);
    assert_int_equal(sim_trace_finish(&rig->t), 0);
    assert_int_equal(rig->t.slot_ns, 10);
    sim_trace_cut(&rig->t, 20, 80, 4);
    assert_int_equal(rig->t.n, 4);
    assert_int_equal(rig->t.requests[0].at_ns, 0);
    assert_int_equal(rig->t.requests[3].at_ns, 30);
    assert_int_equal(sim_trace_repeat(&rig->t, 3), 0);
    assert_int_equal(rig->t.n, 12);
    for (uint32_t i = 0; i < 12; i++)
        assert_int_equal(rig->t.requests[i].at_ns, i * 10);
}

static void a_drawn_stream_has_its_rate_and_its_sizes(void **state)
{
    struct rig *rig = *state;
    struct sim_workload w = {
        .duration_ns = 1000 * NS_PER_S,
        .n = 2,
        .streams = {{.rate = 10,
                     .task = TASK_CHAT,
                     .prompt = {SIM_UNIFORM, 100, 300},
                     .output = {SIM_EXPONENTIAL, 50, 0},
                     .tenant = "a",
                     .prefixes = 3,
                     .prefix_blocks = 2},
                    {.rate = 5,
                     .from_ns = 500 * NS_PER_S,
                     .task = TASK_CHAT,
                     .prompt = {SIM_CONSTANT, 7, 0},
                     .tenant = "b",
                     .sessions = 4,
                     .output = {SIM_CONSTANT, 600, 0}}},
    };
    uint64_t n[2] = {0};
    double prompts = 0;
    double outputs = 0;
    static uint64_t seen[64];
    size_t n_seen = 0;

    assert_int_equal(sim_workload_draw(&w, 5, &rig->t), 0);
    for (uint32_t i = 0; i < rig->t.n; i++) {
        const struct sim_request *r = &rig->t.requests[i];
        n[r->tenant]++;
        if (strcmp(rig->t.tenants[r->tenant], "b") == 0) {
            assert_true(r->at_ns + 1 * NS_PER_S >= 500 * NS_PER_S);
            assert_int_not_equal(r->session, 0);
            continue;
        }
        prompts += r->prompt_tokens - 1024;
        outputs += r->output_tokens;
        assert_int_equal(r->n_blocks, 2);
        size_t k = 0;
        while (k < n_seen && seen[k] != rig->t.blocks[r->first_block])
            k++;
        if (k == n_seen)
            seen[n_seen++] = rig->t.blocks[r->first_block];
    }
    assert_int_equal(n_seen, 3);
    assert_true(n[0] > 9700 && n[0] < 10300);
    assert_true(n[1] > 2400 && n[1] < 2600);
    double mean = prompts / (double)n[0];
    assert_true(mean > 197 && mean < 203);
    mean = outputs / (double)n[0];
    assert_true(mean > 48 && mean < 52);
    /* The same seed draws the same, another something else. */
    uint32_t count = rig->t.n;
    uint64_t at = rig->t.requests[count - 1].at_ns;
    assert_int_equal(sim_workload_draw(&w, 5, &rig->t), 0);
    assert_int_equal(rig->t.n, count);
    assert_int_equal(rig->t.requests[count - 1].at_ns, at);
    assert_int_equal(sim_workload_draw(&w, 6, &rig->t), 0);
    assert_int_not_equal(rig->t.requests[rig->t.n - 1].at_ns, at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, rig_start, rig_end)
        T(mooncake_lines_become_requests_with_prefix_chains),
        T(azure_times_are_read_to_a_tenth_of_a_microsecond),
        T(burstgpt_columns_go_by_name_and_failures_are_left_out),
        T(decisions_are_replayed_once_a_request_from_its_arrival),
        T(what_is_no_trace_is_refused_with_its_line),
        T(parts_and_repeats_keep_time_in_order),
        T(a_drawn_stream_has_its_rate_and_its_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
