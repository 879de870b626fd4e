/* SPDX-License-Identifier: Apache-2.0 */
/* Prometheus text: what is read is named, and what is written back reads the same. */
#include "fuzz.h"

#include "heap_mem.h"
#include "wire/prom.h"

static void check_line(const struct prom_line *line, const struct mem *mem)
{
    struct buf text;
    struct buf value;
    struct buf again;
    struct prom_line read;
    uint32_t bad = 0;

    buf_init(&text, mem, SIZE_MAX / 2);
    buf_init(&value, mem, SIZE_MAX / 2);
    buf_init(&again, mem, SIZE_MAX / 2);
    FUZZ_CHECK(line->name.n > 0);
    if (wire_prom_label(line->labels, SLICE("model_name"), &value)) {
        struct prom_label label = {.name = "model_name", .value = buf_slice(&value)};
        wire_prom_sample(&text, "x", &label, 1, line->value);
        FUZZ_CHECK(text.err == 0);
        struct slice rest = buf_slice(&text);
        FUZZ_CHECK(wire_prom_next(&rest, &read, &bad) && bad == 0);
        FUZZ_CHECK(wire_prom_label(read.labels, SLICE("model_name"), &again));
        FUZZ_CHECK(slice_eq(buf_slice(&again), buf_slice(&value)));
        FUZZ_CHECK((read.value != read.value) == (line->value != line->value));
    }
    buf_fini(&text);
    buf_fini(&value);
    buf_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice rest = slice_of((const char *)data, size);
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct prom_line line;
    uint32_t bad = 0;
    size_t lines = 0;

    while (wire_prom_next(&rest, &line, &bad)) {
        check_line(&line, &mem);
        lines++;
    }
    FUZZ_CHECK(lines + bad <= size);
    FUZZ_CHECK(heap.live == 0);
    return 0;
}
