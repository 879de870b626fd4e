/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <string.h>

#include "base/bug.h"
#include "heap_mem.h"
#include "wire/prom.h"

static struct test_heap heap;
static struct mem mem;

static void same(struct slice got, const char *want)
{
    if (!want) {
        assert_null(got.p);
        return;
    }
    assert_int_equal(got.n, strlen(want));
    assert_memory_equal(got.p, want, got.n);
}

static void writer_escapes_and_orders(void **state)
{
    (void)state;
    struct buf out;
    const struct prom_label labels[] = {{"model", SLICE("a\"b\\c\nd")}, {"gpu", SLICE("A100")}};
    const struct prom_label not_utf8 = {"model", SLICE("\xC3\xA9\xFF\xE2\x82")};
    const double bounds[] = {0.005, 1, 2.5};
    const uint64_t counts[] = {1, 0, 2, 4};

    buf_init(&out, &mem, 4096);
    wire_prom_family(&out, "weir_x", "gauge", "Text \\ with\nbreak \"q\".");
    wire_prom_sample(&out, "weir_x", NULL, 0, 0.25);
    wire_prom_sample(&out, "weir_x", labels, 2, -3);
    wire_prom_histogram(&out, "h", labels + 1, 1, bounds, counts, 3, 12.5);
    wire_prom_histogram(&out, "i", NULL, 0, bounds, counts, 1, 0);
    wire_prom_sample(&out, "u", &not_utf8, 1, 1);
    same(buf_slice(&out), "# HELP weir_x Text \\\\ with\\nbreak \"q\".\n"
                          "# TYPE weir_x gauge\n"
                          "weir_x 0.25\n"
                          "weir_x{model=\"a\\\"b\\\\c\\nd\",gpu=\"A100\"} -3\n"
                          "h_bucket{gpu=\"A100\",le=\"0.005\"} 1\n"
                          "h_bucket{gpu=\"A100\",le=\"1\"} 1\n"
                          "h_bucket{gpu=\"A100\",le=\"2.5\"} 3\n"
                          "h_bucket{gpu=\"A100\",le=\"+Inf\"} 7\n"
                          "h_sum{gpu=\"A100\"} 12.5\n"
                          "h_count{gpu=\"A100\"} 7\n"
                          "i_bucket{le=\"0.005\"} 1\n"
                          "i_bucket{le=\"+Inf\"} 1\n"
                          "i_sum 0\n"
                          "i_count 1\n"
                          "u{model=\"\xC3\xA9\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"} 1\n");
    buf_fini(&out);
}

static void writer_error_sticks(void **state)
{
    (void)state;
    struct buf out;

    buf_init(&out, &mem, 10);
    wire_prom_family(&out, "weir_x", "gauge", "text");
    assert_int_equal(out.err, WEIR_E_FULL);
    buf_fini(&out);
}

static void reader_takes_what_exporters_write(void **state)
{
    (void)state;
    static const char text[] = "# HELP vllm:x y\n"
                               "# TYPE vllm:x gauge\n"
                               "\n"
                               "vllm:num_requests_running{model_name=\"a}b\",engine=\"0\"} 3.0\n"
                               "plain 1\r\n"
                               "  spaced \t{ a = \"b\" , } \t 2 1700000000000 \n"
                               "neg{} -1.5e3\n"
                               "{\"my.metric\",l=\"v\"} 7\n"
                               "ex_bucket{le=\"1\"} 5 # {trace_id=\"x\"} 0.5 1.5\n"
                               "inf +Inf\n"
                               "tiny 1e-7\n"
                               "last 9";
    static const struct {
        const char *name, *labels;
        double value;
    } want[] = {
        {"vllm:num_requests_running", "model_name=\"a}b\",engine=\"0\"", 3},
        {"plain", NULL, 1},
        {"spaced", " a = \"b\" , ", 2},
        {"neg", NULL, -1500},
        {"my.metric", "l=\"v\"", 7},
        {"ex_bucket", "le=\"1\"", 5},
        {"inf", NULL, __builtin_inf()},
        {"tiny", NULL, 1e-7},
        {"last", NULL, 9},
    };
    struct slice rest = slice_str(text);
    struct prom_line line;
    uint32_t bad = 0;

    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        assert_true(wire_prom_next(&rest, &line, &bad));
        same(line.name, want[i].name);
        same(line.labels, want[i].labels);
        assert_true(line.value == want[i].value);
    }
    assert_false(wire_prom_next(&rest, &line, &bad));
    assert_int_equal(bad, 0);
    rest = SLICE("nan NaN\nminus -inf");
    assert_true(wire_prom_next(&rest, &line, &bad));
    assert_true(line.value != line.value);
    assert_true(wire_prom_next(&rest, &line, &bad));
    assert_true(line.value == -__builtin_inf());
}

static void malformed_lines_are_counted_and_skipped(void **state)
{
    (void)state;
    struct slice rest = SLICE("1abc 1\n"
                              "novalue\n"
                              "a{b=\"c\" 1\n"
                              "a{b=\"c} 1\n"
                              "a{b=c} 1\n"
                              "a{b} 1\n"
                              "a{=\"c\"} 1\n"
                              "a{b=\"c\"d=\"e\"} 1\n"
                              "a 1 2 3\n"
                              "a 1x\n"
                              "a 0x10\n"
                              "a{\"b\"} 1\n"
                              "{b=\"c\"} 1\n"
                              "a 1 x\n"
                              "good 1\n"
                              "a-b 1\n");
    struct prom_line line;
    uint32_t bad = 0;

    assert_true(wire_prom_next(&rest, &line, &bad));
    same(line.name, "good");
    assert_int_equal(bad, 14);
    assert_false(wire_prom_next(&rest, &line, &bad));
    assert_int_equal(bad, 15);
}

static void labels_are_unescaped(void **state)
{
    (void)state;
    struct buf out;
    struct slice labels =
        SLICE(" model = \"a\\\"b\\\\c\\nd\",model_name=\"x\",\"q.r\"=\"y\",e=\"\",");

    buf_init(&out, &mem, 100);
    assert_true(wire_prom_label(labels, SLICE("model"), &out));
    same(buf_slice(&out), "a\"b\\c\nd");
    buf_clear(&out);
    assert_true(wire_prom_label(labels, SLICE("model_name"), &out));
    same(buf_slice(&out), "x");
    buf_clear(&out);
    assert_true(wire_prom_label(labels, SLICE("q.r"), &out));
    same(buf_slice(&out), "y");
    buf_clear(&out);
    assert_true(wire_prom_label(labels, SLICE("e"), &out));
    same(buf_slice(&out), "");
    assert_false(wire_prom_label(labels, SLICE("mod"), &out));
    assert_false(wire_prom_label((struct slice){NULL, 0}, SLICE("a"), &out));
    assert_false(wire_prom_label(SLICE("a=\"b"), SLICE("a"), &out));
    buf_fini(&out);
    buf_init(&out, &mem, 0);
    assert_false(wire_prom_label(labels, SLICE("model"), &out));
    assert_int_equal(out.err, WEIR_E_FULL);
    buf_fini(&out);
}

static void what_is_written_reads_back(void **state)
{
    (void)state;
    struct buf out;
    struct buf value;
    const struct prom_label label = {"m", SLICE("quote\" back\\slash\nline")};
    struct prom_line line;
    uint32_t bad = 0;

    buf_init(&out, &mem, 1000);
    buf_init(&value, &mem, 1000);
    wire_prom_sample(&out, "a_b", &label, 1, 1234567.875);
    struct slice rest = buf_slice(&out);
    assert_true(wire_prom_next(&rest, &line, &bad));
    assert_true(line.value == 1234567.875);
    assert_true(wire_prom_label(line.labels, SLICE("m"), &value));
    assert_true(slice_eq(buf_slice(&value), label.value));
    buf_fini(&out);
    buf_fini(&value);
}

static int heap_is_empty(void **state)
{
    (void)state;
    return heap.live == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writer_escapes_and_orders),
        cmocka_unit_test(writer_error_sticks),
        cmocka_unit_test(reader_takes_what_exporters_write),
        cmocka_unit_test(malformed_lines_are_counted_and_skipped),
        cmocka_unit_test(labels_are_unescaped),
        cmocka_unit_test(what_is_written_reads_back),
    };

    mem = test_heap_mem(&heap);
    return cmocka_run_group_tests(tests, NULL, heap_is_empty);
}
