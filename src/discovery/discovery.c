/* SPDX-License-Identifier: Apache-2.0 */
#include "discovery/discovery.h"

#include "base/bug.h"
#include "discovery/adapter.h"
#include "loop/alloc.h"
#include "loop/log.h"

enum { CONF_BYTES_MAX = 1 << 20 };

struct discovery {
    struct discovery_env env;
    const struct adapter_kind *kind;
    void *adapter;
    struct source source;
    struct arena arena; /**< of conf */
    struct conf_source conf;
};

static const struct adapter_kind *const kinds[] = {
    [CONF_SOURCE_FILE] = &discovery_file, [CONF_SOURCE_NACOS] = &discovery_nacos,
    [CONF_SOURCE_DNS] = &discovery_dns,   [CONF_SOURCE_CONSUL] = &discovery_consul,
    [CONF_SOURCE_ETCD] = &discovery_etcd, [CONF_SOURCE_KUBERNETES] = &discovery_kubernetes,
};

static int copy_texts(struct arena *a, const struct slice **texts, uint32_t n)
{
    struct slice *to = arena_array(a, n, sizeof(*to));

    if (!to)
        return WEIR_E_NOMEM;
    for (uint32_t i = 0; i < n; i++)
        if (arena_slice(a, (*texts)[i], &to[i]))
            return WEIR_E_NOMEM;
    *texts = to;
    return 0;
}

/* A source outlives the configuration that it comes from, when the next one has it too. */
static int copy_conf(struct arena *a, const struct conf_source *from, struct conf_source *to)
{
    *to = *from;
    to->endpoints = NULL;
    to->n_endpoints = 0;
    struct slice *texts[] = {&to->name,
                             &to->path,
                             &to->ns,
                             &to->group,
                             &to->selector,
                             &to->port,
                             &to->kubeconfig,
                             &to->datacenter,
                             &to->tag,
                             &to->prefix,
                             &to->username,
                             &to->access_key,
                             &to->password.name,
                             &to->token.name,
                             &to->secret_key.name,
                             &to->ca,
                             &to->cert,
                             &to->key,
                             &to->state_file};
    for (unsigned i = 0; i < ARRAY_LEN(texts); i++)
        if (arena_slice(a, *texts[i], texts[i]))
            return WEIR_E_NOMEM;
    return copy_texts(a, &to->servers, to->n_servers) ||
                   copy_texts(a, &to->services, to->n_services) ||
                   copy_texts(a, &to->clusters, to->n_clusters)
               ? WEIR_E_NOMEM
               : 0;
}

static void free_it(struct discovery *d)
{
    source_fini(&d->source);
    arena_fini(&d->arena);
    mem_free(loop_mem(), d);
}

int discovery_start(const struct discovery_env *env,
                    const struct conf_source *conf,
                    uint16_t index,
                    struct discovery *before,
                    struct discovery **out)
{
    const struct adapter_kind *kind = conf->type < ARRAY_LEN(kinds) ? kinds[conf->type] : NULL;
    struct discovery *d = kind ? mem_zalloc(loop_mem(), sizeof(*d)) : NULL;

    if (!d)
        return kind ? WEIR_E_NOMEM : WEIR_E_UNSUPPORTED;
    d->env = *env;
    arena_init(&d->arena, loop_mem(), CONF_BYTES_MAX);
    int rc = copy_conf(&d->arena, conf, &d->conf);
    if (rc) {
        arena_fini(&d->arena);
        mem_free(loop_mem(), d);
        return rc;
    }
    struct source_options o = {.loop = env->loop,
                               .sink = env->sink,
                               .index = index,
                               .name = d->conf.name.p,
                               .state_file = d->conf.state_file.p,
                               .whole = conf->report_ns != 0,
                               .grace_ns = conf->grace_ns,
                               .hold_percent = conf->hold_percent,
                               .passing = env->passing,
                               .ctx = env->ctx};
    source_init(&d->source, &o);
    rc = kind->open(&d->env, &d->conf, &d->source, &d->adapter);
    if (rc) {
        free_it(d);
        return rc;
    }
    d->kind = kind;
    if (before)
        source_adopt(&d->source, &before->source);
    discovery_free(before);
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
    arena_fini(&d->arena);
    mem_free(loop_mem(), d);
}

const struct source_stats *discovery_stats(const struct discovery *d)
{
    return &d->source.stats;
}
