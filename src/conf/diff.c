/* SPDX-License-Identifier: Apache-2.0 */
/* Two values are equal when they print alike: printing is exact, and it is the one walk that knows every type. */
#include "base/bug.h"
#include "conf/conf.h"
#include "conf/option.h"
#include "conf/print.h"
#include "conf/raw.h"

struct diff {
    struct buf from, to;
    struct conf_change *out;
    int n;
};

enum { PRINT_MAX = 64 << 20 };

static void compare(struct diff *d,
                    const char *part,
                    const char *key,
                    const struct conf_option *o,
                    const void *from,
                    const void *to)
{
    buf_clear(&d->from);
    buf_clear(&d->to);
    conf_value_print(o, from, &d->from);
    conf_value_print(o, to, &d->to);
    if (d->from.err || d->to.err) {
        d->n = WEIR_E_NOMEM;
        return;
    }
    if (slice_eq(buf_slice(&d->from), buf_slice(&d->to)))
        return;
    BUG_ON(d->n == CONF_CHANGES_MAX); /* a test counts the rows of the table */
    d->out[d->n++] = (struct conf_change){.part = part, .key = key, .live = o->flags & CONF_LIVE};
}

int conf_diff(const struct conf *from,
              const struct conf *to,
              struct conf_change out[CONF_CHANGES_MAX])
{
    struct diff d = {.out = out};

    buf_init(&d.from, from->arena.mem, PRINT_MAX);
    buf_init(&d.to, from->arena.mem, PRINT_MAX);
    for (uint32_t i = 0; i < conf_root.n_options && d.n >= 0; i++) {
        const struct conf_option *o = &conf_root.options[i];
        const char *a = (const char *)from->raw + o->offset;
        const char *b = (const char *)to->raw + o->offset;
        if (o->type == CONF_T_LATER)
            continue;
        if (o->type != CONF_T_SECTION) {
            compare(&d, o->key, NULL, o, a, b);
            continue;
        }
        for (uint32_t j = 0; j < o->child->n_options && d.n >= 0; j++) {
            const struct conf_option *inner = &o->child->options[j];
            /* Absent values print nothing at all, which differs from any that is present. */
            if (inner->type != CONF_T_LATER)
                compare(&d, o->key, inner->key, inner, a + inner->offset, b + inner->offset);
        }
    }
    buf_fini(&d.from);
    buf_fini(&d.to);
    return d.n;
}

bool conf_source_same(const struct conf *a, const struct conf *b, uint32_t i)
{
    const struct conf_section *s = conf_option_find(&conf_root, SLICE("discovery"))->child;
    struct buf text[2];

    if (i >= a->n_sources || i >= b->n_sources)
        return false;
    const struct raw_source *one = (const struct raw_source *)a->raw->discovery.items + i;
    const struct raw_source *other = (const struct raw_source *)b->raw->discovery.items + i;
    buf_init(&text[0], a->arena.mem, PRINT_MAX);
    buf_init(&text[1], a->arena.mem, PRINT_MAX);
    conf_section_print(s, one, &text[0]);
    conf_section_print(s, other, &text[1]);
    bool same = !text[0].err && !text[1].err && slice_eq(buf_slice(&text[0]), buf_slice(&text[1]));
    buf_fini(&text[0]);
    buf_fini(&text[1]);
    return same;
}
