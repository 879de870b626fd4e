/* SPDX-License-Identifier: Apache-2.0 */
#include "model/snapshot_t.h"

const struct snapshot_model *model_find(const struct snapshot *s, struct slice id)
{
    uint32_t from = 0;
    uint32_t to = s->n_models;

    while (from < to) {
        uint32_t mid = from + (to - from) / 2;
        int order = slice_cmp(s->models[mid].id, id);
        if (order == 0)
            return &s->models[mid];
        if (order < 0)
            from = mid + 1;
        else
            to = mid;
    }
    return NULL;
}

bool model_labelled(const struct endpoint *e, const struct kv *labels, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        bool found = false;
        for (uint32_t i = 0; i < e->n_labels && !found; i++)
            found = slice_eq(e->labels[i].key, labels[k].key) &&
                    slice_eq(e->labels[i].value, labels[k].value);
        if (!found)
            return false;
    }
    return true;
}

bool model_preallocates(enum engine_kind k)
{
    return k == ENGINE_VLLM || k == ENGINE_SGLANG || k == ENGINE_WEIR_WORKER || k == ENGINE_TRTLLM;
}
