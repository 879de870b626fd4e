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
