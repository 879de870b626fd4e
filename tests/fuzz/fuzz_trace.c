/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of all formats: what is read is in order and within its arrays; a refusal names a line; nothing leaks. */
#include "fuzz.h"

#include "apps/sim/trace_codec.h"
#include "heap_mem.h"

static void check(const struct sim_trace *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        const struct sim_request *r = &t->requests[i];
        FUZZ_CHECK(r->prompt_tokens > 0);
        FUZZ_CHECK(r->first_block + r->n_blocks <= t->n_blocks);
        FUZZ_CHECK(i == 0 ? r->at_ns == 0 : r->at_ns >= t->requests[i - 1].at_ns);
        FUZZ_CHECK(t->slot_ns == 0 ? r->at_ns == 0 : r->at_ns % t->slot_ns == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct slice text = {(const char *)data, size};
    struct sim_trace t;
    enum sim_format format;
    uint64_t line;

    sim_trace_init(&t, &mem);
    if (sim_format_of(text, &format) == 0) {
        int rc = sim_trace_read(&t, format, 1, text, &line);
        FUZZ_CHECK(rc == 0 || (rc == WEIR_E_PROTO && line > 0));
        if (rc == 0) {
            check(&t);
            sim_trace_cut(&t, 0, UINT64_MAX, 100);
            FUZZ_CHECK(sim_trace_repeat(&t, 2) == 0);
        }
    }
    sim_trace_fini(&t);
    FUZZ_CHECK(heap.live == 0);
    return 0;
}
