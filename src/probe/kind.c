/* SPDX-License-Identifier: Apache-2.0 */
/** @file The names of the kinds of engines, as people write them. */
#include "base/bug.h"
#include "probe/adapters_codec.h"
#include "probe/engine.h"

const char *engine_kind_name(enum engine_kind kind)
{
    return kind == ENGINE_UNKNOWN ? "auto" : engine_adapter_of(kind)->name;
}

int engine_kind_named(struct slice name, enum engine_kind *out)
{
    static const struct {
        struct slice name;
        enum engine_kind kind;
    } more[] = {{SLICE("auto"), ENGINE_UNKNOWN},       {SLICE("unknown"), ENGINE_UNKNOWN},
                {SLICE("llama.cpp"), ENGINE_LLAMACPP}, {SLICE("openai"), ENGINE_GENERIC},
                {SLICE("http"), ENGINE_GENERIC},       {SLICE("weir-worker"), ENGINE_WEIR_WORKER}};

    for (uint32_t i = 0; i < engine_n_adapters; i++)
        if (slice_eq_nocase(name, slice_str(engine_adapters[i]->name))) {
            *out = engine_adapters[i]->kind;
            return 0;
        }
    for (size_t i = 0; i < ARRAY_LEN(more); i++)
        if (slice_eq_nocase(name, more[i].name)) {
            *out = more[i].kind;
            return 0;
        }
    return WEIR_E_NOTFOUND;
}
