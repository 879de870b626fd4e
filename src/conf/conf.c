/* SPDX-License-Identifier: Apache-2.0 */
#include "conf/conf.h"

#include "conf/parse.h"

/* Far above what 1 MiB of text can ask for, so that only a bug meets it. */
enum { CONF_MEMORY_MAX = 256 << 20 };

int conf_build(const struct mem *mem,
               const struct conf_input *in,
               struct conf_errors *errors,
               struct conf **out)
{
    struct build b = {.mem = mem, .in = in, .errors = errors};
    uint32_t before = errors->total;

    *out = NULL;
    struct conf *c = mem_zalloc(mem, sizeof(*c));
    if (!c)
        return WEIR_E_NOMEM;
    arena_init(&c->arena, mem, CONF_MEMORY_MAX);
    b.arena = &c->arena;
    b.raw = arena_array(&c->arena, 1, sizeof(*b.raw));
    b.nomem = !b.raw;
    if (!b.nomem)
        conf_parse(&b);
    if (!b.nomem)
        conf_parse_absent(&b);
    if (!b.nomem)
        conf_parse_overrides(&b);
    if (!b.nomem)
        conf_compile(&b, c);
    if (b.nomem || errors->total > before) {
        conf_free(c);
        return b.nomem ? WEIR_E_NOMEM : WEIR_E_INVALID;
    }
    *out = c;
    return 0;
}

void conf_free(struct conf *c)
{
    if (!c)
        return;
    const struct mem *mem = c->arena.mem;
    arena_fini(&c->arena);
    mem_free(mem, c);
}
