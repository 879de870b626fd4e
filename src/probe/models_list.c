/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/models_list.h"

#include <jansson.h>

#include "base/bug.h"

static struct slice text_of(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);

    return json_is_string(v) ? slice_of(json_string_value(v), json_string_length(v))
                             : (struct slice){NULL, 0};
}

static bool known(const struct model_ref *models, uint32_t n, struct slice id)
{
    for (uint32_t i = 0; i < n; i++)
        if (slice_eq(models[i].id, id))
            return true;
    return false;
}

int probe_models_list(struct slice body, struct arena *a, struct model_ref **out, uint32_t *n)
{
    json_error_t error;
    json_t *root = json_loadb(body.p, body.n, JSON_REJECT_DUPLICATES, &error);
    const json_t *data = json_object_get(root, "data");
    size_t count = MIN(json_array_size(data), (size_t)ENDPOINT_MODELS_MAX);
    int rc = json_is_array(data) ? 0 : WEIR_E_INVALID;

    *n = 0;
    *out = NULL;
    if (rc == 0) {
        *out = arena_array(a, count, sizeof(struct model_ref));
        rc = *out ? 0 : WEIR_E_NOMEM;
    }
    for (size_t i = 0; rc == 0 && i < count; i++) {
        const json_t *item = json_array_get(data, i);
        struct slice id = text_of(item, "id");
        struct slice parent = text_of(item, "parent");
        const json_t *len = json_object_get(item, "max_model_len");
        struct model_ref *m = &(*out)[*n];
        if (id.n == 0 || id.n > ENDPOINT_TEXT_MAX || known(*out, *n, id))
            continue;
        rc = arena_slice(a, id, &m->id);
        if (rc == 0 && parent.n > 0 && parent.n <= ENDPOINT_TEXT_MAX)
            rc = arena_slice(a, parent, &m->lora_base);
        if (json_is_integer(len) && json_integer_value(len) > 0 &&
            json_integer_value(len) <= UINT32_MAX)
            m->max_model_len = (uint32_t)json_integer_value(len);
        *n += rc == 0;
    }
    json_decref(root);
    return rc;
}
