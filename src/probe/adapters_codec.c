/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/adapters_codec.h"

#include "base/bug.h"

/* The order of looking for signs: those that cannot be mistaken for another first. */
const struct engine_adapter *const engine_adapters[] = {
    &engine_vllm,   &engine_weir_worker, &engine_sglang,   &engine_llamacpp, &engine_triton,
    &engine_oip,    &engine_tgi,         &engine_tei,      &engine_ollama,   &engine_sdwebui,
    &engine_trtllm, &engine_tfserving,   &engine_fastchat, &engine_generic,
};
const uint32_t engine_n_adapters = ARRAY_LEN(engine_adapters);

const struct engine_adapter *engine_adapter_of(enum engine_kind kind)
{
    for (uint32_t i = 0; i < engine_n_adapters; i++)
        if (engine_adapters[i]->kind == kind)
            return engine_adapters[i];
    return &engine_generic;
}

const struct engine_adapter *engine_adapter_owner(const char *owner)
{
    for (uint32_t i = 0; i < engine_n_adapters; i++)
        for (const char *const *o = engine_adapters[i]->owners; o && *o; o++)
            if (strcmp(*o, owner) == 0)
                return engine_adapters[i];
    return NULL;
}

const struct engine_adapter *engine_adapter_series(struct slice metrics_text)
{
    struct prom_line line;
    uint32_t bad = 0;

    while (wire_prom_next(&metrics_text, &line, &bad))
        for (uint32_t i = 0; i < engine_n_adapters; i++)
            if (engine_adapters[i]->prefix &&
                slice_starts(line.name, slice_str(engine_adapters[i]->prefix)))
                return engine_adapters[i];
    return NULL;
}
