/* SPDX-License-Identifier: Apache-2.0 */
#include "discovery/discovery.h"

#include "base/bug.h"
#include "discovery/adapter.h"
#include "loop/alloc.h"
#include "loop/log.h"

struct discovery {
    const struct adapter_kind *kind;
    void *adapter;
    struct source source;
};

static const struct adapter_kind *const kinds[] = {
    [CONF_SOURCE_FILE] = &discovery_file,
};

int discovery_start(const struct discovery_env *env,
                    const struct conf_source *conf,
                    uint16_t index,
                    struct discovery **out)
{
    const struct adapter_kind *kind = conf->type < ARRAY_LEN(kinds) ? kinds[conf->type] : NULL;
    struct discovery *d;

    if (!kind) {
        log_error("discovery", "source=%.*s: this type is not there yet", SLICE_ARG(conf->name));
        return WEIR_E_UNSUPPORTED;
    }
    d = mem_zalloc(loop_mem(), sizeof(*d));
    if (!d)
        return WEIR_E_NOMEM;
    struct source_options o = {.loop = env->loop,
                               .sink = env->sink,
                               .index = index,
                               .name = conf->name.p,
                               .state_file = conf->state_file.p,
                               .grace_ns = conf->grace_ns,
                               .hold_percent = conf->hold_percent,
                               .passing = env->passing,
                               .ctx = env->ctx};
    source_init(&d->source, &o);
    int rc = kind->open(env, conf, &d->source, &d->adapter);
    if (rc) {
        source_fini(&d->source);
        mem_free(loop_mem(), d);
        return rc;
    }
    d->kind = kind;
    source_start(&d->source);
    kind->begin(d->adapter);
    *out = d;
    return 0;
}

void discovery_free(struct discovery *d)
{
    if (!d)
        return;
    /* Lists live in the adapter: saved and ended first. */
    source_fini(&d->source);
    d->kind->close(d->adapter);
    mem_free(loop_mem(), d);
}

const struct source_stats *discovery_stats(const struct discovery *d)
{
    return &d->source.stats;
}
