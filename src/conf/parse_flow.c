/* SPDX-License-Identifier: Apache-2.0 */
/* Options whose value is a small list or map of single values. */
#include "conf/parse_flow.h"
#include "base/num.h"

void conf_parse_words(struct build *b,
                      const struct conf_option *o,
                      uint32_t node,
                      uint32_t *out,
                      const struct conf_path *path)
{
    const struct conf_node *nodes = b->in->nodes;
    uint32_t n = 0;

    if (!conf_want_kind(b, node, CONF_NODE_SEQ, o->max, path))
        return;
    *out = 0;
    for (uint32_t i = node + 1; i < nodes[node].end; i = nodes[i].end, n++) {
        struct conf_path here = {.up = path, .index = n};
        struct conf_place at = conf_place_value(b, i);
        struct conf_why why = {.n = 0};
        uint32_t word = 0;

        if (!conf_want_scalar(b, i, &here))
            continue;
        int rc = conf_word_parse(o, nodes[i].text, &word, &why);
        if (rc)
            conf_fail_why(b, &at, &here, rc, &why);
        else
            *out |= UINT32_C(1) << word;
    }
}

void conf_parse_texts(struct build *b,
                      const struct conf_option *o,
                      uint32_t node,
                      struct raw_texts *out,
                      const struct conf_path *path)
{
    const struct conf_node *nodes = b->in->nodes;
    uint32_t n = 0;

    if (!conf_want_kind(b, node, CONF_NODE_SEQ, o->max, path))
        return;
    out->items = conf_array(b, conf_children(b, node), sizeof(*out->items));
    out->n = 0;
    if (!out->items)
        return;
    for (uint32_t i = node + 1; i < nodes[node].end; i = nodes[i].end, n++) {
        struct conf_path here = {.up = path, .index = n};
        struct conf_place at = conf_place_value(b, i);
        struct conf_why why = {.n = 0};

        if (!conf_want_scalar(b, i, &here))
            continue;
        if (nodes[i].text.n == 0) {
            CONF_FAIL(b, &at, &here, SLICE("must not be empty"));
            continue;
        }
        bool twice = false;
        for (uint32_t j = 0; j < out->n && !twice; j++)
            twice = slice_eq(out->items[j], nodes[i].text);
        if (twice) {
            CONF_FAIL(b, &at, &here, SLICE("is listed twice"));
            continue;
        }
        int rc =
            conf_text_parse(nodes[i].text, ENDPOINT_TEXT_MAX, b->arena, &out->items[out->n], &why);
        if (rc)
            conf_fail_why(b, &at, &here, rc, &why);
        else
            out->n++;
    }
}

void conf_parse_hash_on(struct build *b,
                        const struct conf_option *o,
                        uint32_t node,
                        struct raw_hash_on *out,
                        const struct conf_path *path)
{
    const struct conf_node *nodes = b->in->nodes;
    uint32_t n = 0;

    if (!conf_want_kind(b, node, CONF_NODE_SEQ, o->max, path))
        return;
    out->n = 0;
    for (uint32_t i = node + 1; i < nodes[node].end; i = nodes[i].end, n++) {
        struct conf_path here = {.up = path, .index = n};
        struct conf_place at = conf_place_value(b, i);
        struct conf_why why = {.n = 0};

        if (!conf_want_scalar(b, i, &here))
            continue;
        int rc = conf_hash_on_parse(nodes[i].text, b->arena, &out->items[out->n], &why);
        if (rc)
            conf_fail_why(b, &at, &here, rc, &why);
        else
            out->n++;
    }
}

/* One entry of a small map whose keys are the user's: duplicates are sought one by one. */
static bool
fresh_key(struct build *b, uint32_t node, uint32_t i, bool nocase, const struct conf_path *here)
{
    const struct conf_node *nodes = b->in->nodes;

    for (uint32_t j = node + 1; j < i; j = nodes[j].end)
        if (nocase ? slice_eq_nocase(nodes[j].key, nodes[i].key)
                   : slice_eq(nodes[j].key, nodes[i].key)) {
            conf_fail_twice(b, i, j, here);
            return false;
        }
    return true;
}

void conf_parse_labels(struct build *b,
                       const struct conf_option *o,
                       uint32_t node,
                       struct raw_labels *out,
                       const struct conf_path *path)
{
    const struct conf_node *nodes = b->in->nodes;

    if (!conf_want_kind(b, node, CONF_NODE_MAP, o->max, path))
        return;
    out->items = conf_array(b, conf_children(b, node), sizeof(*out->items));
    out->n = 0;
    if (!out->items)
        return;
    for (uint32_t i = node + 1; i < nodes[node].end; i = nodes[i].end) {
        struct conf_path here = {.up = path, .key = nodes[i].key};
        struct conf_place at = conf_place_value(b, i);
        struct conf_why why = {.n = 0};
        struct kv *label = &out->items[out->n];

        if (!fresh_key(b, node, i, false, &here) || !conf_parse_name(b, i, path, &label->key) ||
            !conf_want_scalar(b, i, &here))
            continue;
        int rc = conf_text_parse(nodes[i].text, ENDPOINT_TEXT_MAX, b->arena, &label->value, &why);
        if (rc)
            conf_fail_why(b, &at, &here, rc, &why);
        else
            out->n++;
    }
}

void conf_parse_gpu_weights(struct build *b,
                            const struct conf_option *o,
                            uint32_t node,
                            struct raw_gpu_weights *out,
                            const struct conf_path *path)
{
    static const struct conf_option weight = {.type = CONF_T_WEIGHT, .min = 0, .max = WEIGHT_MAX};
    const struct conf_node *nodes = b->in->nodes;

    if (!conf_want_kind(b, node, CONF_NODE_MAP, o->max, path))
        return;
    out->n = 0;
    for (uint32_t i = node + 1; i < nodes[node].end; i = nodes[i].end) {
        struct conf_path here = {.up = path, .key = nodes[i].key};
        struct conf_place at = conf_place_value(b, i);
        struct conf_why why = {.n = 0};
        struct gpu_weight *w = &out->items[out->n];

        if (!fresh_key(b, node, i, true, &here) || !conf_parse_name(b, i, path, &w->gpu_type) ||
            !conf_want_scalar(b, i, &here))
            continue;
        int rc = conf_scalar_parse(&weight, nodes[i].text, b->arena, &w->weight, &why);
        if (rc)
            conf_fail_why(b, &at, &here, rc, &why);
        else
            out->n++;
    }
}

void conf_parse_curve(struct build *b,
                      const struct conf_option *o,
                      uint32_t node,
                      struct raw_curve *out,
                      const struct conf_path *path)
{
    static const struct conf_option factor = {
        .type = CONF_T_FACTOR, .min = Q16_ONE / 32, .max = 100 * (uint64_t)Q16_ONE};
    const struct conf_node *nodes = b->in->nodes;

    if (!conf_want_kind(b, node, CONF_NODE_MAP, o->max, path))
        return;
    out->n = 0;
    for (uint32_t i = node + 1; i < nodes[node].end; i = nodes[i].end) {
        struct conf_path here = {.up = path, .key = nodes[i].key};
        struct conf_place key_at = conf_place_key(b, i);
        struct conf_place at = conf_place_value(b, i);
        struct conf_why why = {.n = 0};
        struct curve_point *p = &out->items[out->n];
        struct slice key = nodes[i].key;
        uint64_t bp = 0;

        if (key.n && key.p[key.n - 1] == '%')
            key.n--;
        if (num_scaled(key, 100, &bp) || bp > 10000) {
            CONF_FAIL(b, &key_at, &here,
                      SLICE("the utilization must be a percentage from 0 to 100"));
            continue;
        }
        if (out->n && bp <= out->items[out->n - 1].util_bp) {
            CONF_FAIL(b, &key_at, &here,
                      SLICE("utilizations must rise from one point to the next"));
            continue;
        }
        if (!conf_want_scalar(b, i, &here))
            continue;
        int rc = conf_scalar_parse(&factor, nodes[i].text, b->arena, &p->q16, &why);
        if (rc) {
            conf_fail_why(b, &at, &here, rc, &why);
            continue;
        }
        p->util_bp = (uint32_t)bp;
        out->n++;
    }
}
