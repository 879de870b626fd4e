/* SPDX-License-Identifier: Apache-2.0 */
/* Two styles of one walk along the table. Leaves are written alike, since YAML reads JSON's scalars and flow lists. */
#include "conf/print.h"

#include "base/bug.h"
#include "conf/conf.h"
#include "conf/raw.h"
#include "conf/scalar.h"

static void curve_print(const struct raw_curve *c, struct buf *out)
{
    char text[CONF_NUMBER_TEXT];

    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t whole = c->items[i].util_bp / 100;
        uint32_t cents = c->items[i].util_bp % 100;
        buf_put_str(out, i ? ", \"" : "\"");
        buf_put_u64(out, whole);
        if (cents) {
            buf_put_char(out, '.');
            buf_put_char(out, (char)('0' + cents / 10));
            buf_put_char(out, (char)('0' + cents % 10));
        }
        buf_put_str(out, "\": ");
        buf_put_slice(out, conf_number_text(CONF_T_FACTOR, c->items[i].q16, text));
    }
}

static void pair_print(struct buf *out, uint32_t i, struct slice key)
{
    if (i)
        buf_put_str(out, ", ");
    buf_put_json(out, key);
    buf_put_str(out, ": ");
}

/* @return was it one of the flow types? */
static bool flow_print(const struct conf_option *o, const void *at, struct buf *out)
{
    char text[CONF_NUMBER_TEXT];

    if (o->type == CONF_T_WORDS) {
        const char *comma = "";
        buf_put_char(out, '[');
        for (uint32_t i = 0; o->words[i]; i++)
            if (*(const uint32_t *)at & (UINT32_C(1) << i)) {
                buf_put_str(out, comma);
                buf_put_json(out, slice_str(o->words[i]));
                comma = ", ";
            }
        buf_put_char(out, ']');
    } else if (o->type == CONF_T_TEXTS) {
        const struct raw_texts *t = at;
        buf_put_char(out, '[');
        for (uint32_t i = 0; i < t->n; i++) {
            buf_put_str(out, i ? ", " : "");
            buf_put_json(out, t->items[i]);
        }
        buf_put_char(out, ']');
    } else if (o->type == CONF_T_HASH_ON) {
        const struct raw_hash_on *h = at;
        buf_put_char(out, '[');
        for (uint32_t i = 0; i < h->n; i++) {
            buf_put_str(out, i ? ", " : "");
            conf_hash_on_print(&h->items[i], out);
        }
        buf_put_char(out, ']');
    } else if (o->type == CONF_T_LABELS) {
        const struct raw_labels *l = at;
        buf_put_char(out, '{');
        for (uint32_t i = 0; i < l->n; i++) {
            pair_print(out, i, l->items[i].key);
            buf_put_json(out, l->items[i].value);
        }
        buf_put_char(out, '}');
    } else if (o->type == CONF_T_GPU_WEIGHTS) {
        const struct raw_gpu_weights *w = at;
        buf_put_char(out, '{');
        for (uint32_t i = 0; i < w->n; i++) {
            pair_print(out, i, w->items[i].gpu_type);
            buf_put_slice(out, conf_number_text(CONF_T_WEIGHT, w->items[i].weight, text));
        }
        buf_put_char(out, '}');
    } else if (o->type == CONF_T_CURVE) {
        buf_put_char(out, '{');
        curve_print(at, out);
        buf_put_char(out, '}');
    } else {
        return false;
    }
    return true;
}

static bool is_list(const struct conf_option *o)
{
    return o->type == CONF_T_LIST || o->type == CONF_T_MAP;
}

static bool absent(const struct conf_option *o, const void *at)
{
    /* A section that cannot be without some key, and has it not, was not written. */
    if (o->type == CONF_T_SECTION)
        for (uint32_t i = 0; i < o->child->n_options; i++) {
            const struct conf_option *inner = &o->child->options[i];
            if ((inner->flags & CONF_REQUIRED) &&
                conf_scalar_absent(inner, (const char *)at + inner->offset))
                return true;
        }
    return o->type == CONF_T_LATER || conf_scalar_absent(o, at);
}

static const void *item_at(const struct conf_option *o, const struct raw_list *list, uint32_t i)
{
    return (const char *)list->items + (size_t)i * o->child->size;
}

void conf_section_print(const struct conf_section *s, const void *base, struct buf *out)
{
    const char *comma = "";

    buf_put_char(out, '{');
    for (uint32_t i = 0; i < s->n_options; i++) {
        const struct conf_option *o = &s->options[i];
        const void *at = (const char *)base + o->offset;
        if (absent(o, at) || !conf_option_counts(s, o, base))
            continue;
        buf_put_str(out, comma);
        buf_put_json(out, slice_str(o->key));
        buf_put_str(out, ": ");
        conf_value_print(o, at, out);
        comma = ", ";
    }
    buf_put_char(out, '}');
}

void conf_value_print(const struct conf_option *o, const void *at, struct buf *out)
{
    if (o->type == CONF_T_SECTION) {
        conf_section_print(o->child, at, out);
    } else if (is_list(o)) {
        const struct raw_list *list = at;
        bool named = o->type == CONF_T_MAP;
        buf_put_char(out, named ? '{' : '[');
        for (uint32_t i = 0; i < list->n; i++) {
            const struct raw_item *item = item_at(o, list, i);
            if (named)
                pair_print(out, i, item->name);
            else if (i)
                buf_put_str(out, ", ");
            conf_section_print(o->child, item, out);
        }
        buf_put_char(out, named ? '}' : ']');
    } else if (!flow_print(o, at, out)) {
        conf_scalar_print(o, at, out);
    }
}

static void indent(struct buf *out, uint32_t depth)
{
    for (uint32_t i = 0; i < depth; i++)
        buf_put_str(out, "  ");
}

/* @param open the line has its indentation and "- " already, so the first key goes there. */
static void section_yaml(
    const struct conf_section *s, const void *base, uint32_t depth, bool open, struct buf *out);

static void
list_yaml(const struct conf_option *o, const struct raw_list *list, uint32_t depth, struct buf *out)
{
    bool named = o->type == CONF_T_MAP;

    if (list->n == 0) {
        buf_put_str(out, named ? " {}\n" : " []\n");
        return;
    }
    buf_put_char(out, '\n');
    for (uint32_t i = 0; i < list->n; i++) {
        const struct raw_item *item = item_at(o, list, i);
        indent(out, depth);
        if (named) {
            buf_put_json(out, item->name);
            buf_put_str(out, ":\n");
            section_yaml(o->child, item, depth + 1, false, out);
        } else {
            buf_put_str(out, "- ");
            section_yaml(o->child, item, depth + 1, true, out);
        }
    }
}

static void section_yaml(
    const struct conf_section *s, const void *base, uint32_t depth, bool open, struct buf *out)
{
    for (uint32_t i = 0; i < s->n_options; i++) {
        const struct conf_option *o = &s->options[i];
        const void *at = (const char *)base + o->offset;
        if (absent(o, at) || !conf_option_counts(s, o, base))
            continue;
        if (!open)
            indent(out, depth);
        open = false;
        buf_put_str(out, o->key);
        buf_put_char(out, ':');
        if (o->type == CONF_T_SECTION) {
            buf_put_char(out, '\n');
            section_yaml(o->child, at, depth + 1, false, out);
        } else if (is_list(o)) {
            list_yaml(o, at, depth + 1, out);
        } else {
            buf_put_char(out, ' ');
            conf_value_print(o, at, out);
            buf_put_char(out, '\n');
        }
    }
}

int conf_print(const struct conf *c, enum conf_style style, struct buf *out)
{
    if (style == CONF_YAML)
        section_yaml(&conf_root, c->raw, 0, false, out);
    else
        conf_section_print(&conf_root, c->raw, out);
    return out->err;
}
