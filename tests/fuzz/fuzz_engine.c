/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of inference servers: one text given to every reader. What is read is bounded and sane, nothing is kept. */
#include "fuzz.h"

#include "heap_mem.h"
#include "probe/adapters_codec.h"

static void check_models(const struct engine_models *m)
{
    FUZZ_CHECK(m->n <= ENDPOINT_MODELS_MAX);
    FUZZ_CHECK(memchr(m->owner, 0, sizeof(m->owner)) != NULL);
    for (uint32_t i = 0; i < m->n; i++) {
        FUZZ_CHECK(m->list[i].id.n > 0 && m->list[i].id.n <= ENDPOINT_TEXT_MAX);
        for (uint32_t k = 0; k < i; k++)
            FUZZ_CHECK(!slice_eq(m->list[i].id, m->list[k].id) ||
                       !slice_eq(m->list[i].version, m->list[k].version));
    }
}

static void check_numbers(const struct engine_metrics *m)
{
    struct sample s;
    double ratio;

    for (int i = 0; i < NUMBER_COUNT; i++)
        FUZZ_CHECK(!engine_metrics_has(m, (enum engine_number)i) || m->v[i] >= 0);
    FUZZ_CHECK(m->n_loras <= ENGINE_LORAS_MAX);
    engine_metrics_sample(m, m, 1, &s, &ratio);
    FUZZ_CHECK(ratio <= 1);
    FUZZ_CHECK(!sample_has(&s, SAMPLE_KV_USED) || s.kv_used_tokens <= s.kv_capacity_tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice text = slice_of((const char *)data, size);
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    struct engine_metrics m;
    struct engine_models models;

    engine_adapter_series(text);
    for (uint32_t i = 0; i < engine_n_adapters; i++) {
        const struct engine_adapter *a = engine_adapters[i];
        struct arena arena;
        arena_init(&arena, &mem, 1 << 20);
        if (a->models(text, &arena, &models) != 0)
            FUZZ_CHECK(models.n == 0);
        check_models(&models);
        arena_fini(&arena);
        if (a->metrics) {
            engine_metrics_read(text, a->metrics, &m);
            check_numbers(&m);
        }
        if (a->slots && a->slots(text, &m))
            check_numbers(&m);
        m = (struct engine_metrics){.newest_lora = -1};
        if (a->memory && a->memory(text, &m)) {
            FUZZ_CHECK(m.v[NUMBER_MEMORY_FREE] <= m.v[NUMBER_MEMORY_TOTAL]);
            check_numbers(&m);
        }
        if (a->healthy)
            (void)a->healthy(text);
        if (a->is_it)
            (void)a->is_it(text);
        FUZZ_CHECK(engine_fault_by(a->faults, 200, text) == ENGINE_FAULT_NONE);
        FUZZ_CHECK(engine_fault_by(a->faults, 429, text) == ENGINE_FAULT_BUSY);
    }
    FUZZ_CHECK(heap.live == 0);
    return 0;
}
