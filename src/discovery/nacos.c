/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Endpoints from a Nacos server: one list per service. Lists are polled over HTTP, which servers of 1.4, 2.x and 3.x
 * answer, or pushed over gRPC (2.0 and later). An answer that is word for word the last one costs a hash.
 *
 * A list that reached its protection threshold shows everybody healthy, so nobody in it is vouched for: our own checks decide.
 */
#include "base/bug.h"
#include "confio/confio.h"
#include "discovery/nacos_priv.h"
#include "loop/alloc.h"
#include "loop/log.h"
#include "registry/nacos_codec.h"

enum { CONF_BYTES_MAX = 1 << 20, CLUSTERS_MAX = 8192 };

struct slice nacos_namespace(const struct nacos *n)
{
    return slice_eq(n->conf->ns, SLICE("public")) ? (struct slice){NULL, 0} : n->conf->ns;
}

/* --- lists --- */

/* @return how many the fleet did not take. */
static uint32_t tell(struct nacos_service *s, const struct nacos_answer *answer)
{
    struct source *source = s->nacos->source;
    uint32_t refused = 0;

    source_list_begin(&s->list);
    for (struct nacos_listed *l = answer->first; l; l = l->next) {
        l->instance.services = &s->shown;
        l->instance.n_services = 1;
        int rc = source_list_put(&s->list, &l->instance);
        if (rc && !s->strange)
            log_warn("discovery", "source=%s: %.*s of %.*s is left out: %s", source->o.name,
                     SLICE_ARG(l->instance.key), SLICE_ARG(s->grouped), err_text(rc));
        refused += rc != 0;
    }
    if (answer->bad && !s->strange)
        log_warn("discovery", "source=%s: %u instances of %.*s cannot be read and are left out",
                 source->o.name, answer->bad, SLICE_ARG(s->grouped));
    s->strange = refused || answer->bad;
    source_list_end(&s->list);
    return refused;
}

static bool take_same(struct nacos_service *s, uint64_t hash)
{
    if (!s->known || s->hash != hash)
        return false;
    source_list_same(&s->list);
    return true;
}

void nacos_take_answer(struct nacos_service *s,
                       struct slice body,
                       const struct nacos_answer *answer)
{
    uint64_t hash = nacos_list_hash(body);

    if (take_same(s, hash))
        return;
    /* Whom the fleet refused it may take later: then the same list is read again. */
    s->known = tell(s, answer) == 0;
    s->hash = hash;
}

int nacos_take_list(struct nacos_service *s, struct slice body)
{
    struct nacos_answer answer;
    struct arena a;

    if (take_same(s, nacos_list_hash(body)))
        return 0;
    arena_init(&a, loop_mem(), NACOS_LIST_BYTES_MAX);
    int rc = nacos_list_read(&a, body, &answer);
    if (rc == 0 && !answer.has_hosts)
        rc = WEIR_E_INVALID;
    if (rc == 0)
        nacos_take_answer(s, body, &answer);
    arena_fini(&a);
    return rc;
}

/* --- life --- */

static int name_service(struct nacos *n, struct slice text, struct nacos_service *s)
{
    struct slice group = n->conf->group.n ? n->conf->group : SLICE("DEFAULT_GROUP");
    int rc = nacos_grouped(&n->arena, text, group, &s->grouped);

    if (rc)
        return rc;
    s->nacos = n;
    s->group = nacos_group_of(s->grouped);
    s->name = nacos_name_of(s->grouped);
    s->shown = slice_eq(s->group, SLICE("DEFAULT_GROUP")) ? s->name : s->grouped;
    source_list_init(&s->list, n->source, s->grouped);
    nacos_http_init(s);
    nacos_write_init(s);
    return 0;
}

static int read_secrets(struct nacos *n)
{
    struct conf_errors *errors = mem_zalloc(loop_mem(), sizeof(*errors));

    if (!errors)
        return WEIR_E_NOMEM;
    int rc = confio_secret(loop_mem(), &n->conf->password, &n->password, errors);
    if (rc == 0)
        rc = confio_secret(loop_mem(), &n->conf->secret_key, &n->secret_key, errors);
    if (rc && errors->n)
        log_error("discovery", "source=%s: %s", n->source->o.name, errors->list[0].text);
    mem_free(loop_mem(), errors);
    return rc;
}

static int read_conf(struct nacos *n)
{
    const struct conf_source *c = n->conf;

    n->services = arena_array(&n->arena, c->n_services, sizeof(*n->services));
    n->servers = arena_array(&n->arena, c->n_servers, sizeof(*n->servers));
    if (!n->services || !n->servers)
        return WEIR_E_NOMEM;
    for (uint32_t i = 0; i < c->n_servers; i++) {
        struct slice url = c->servers[i];
        while (slice_ends(url, SLICE("/")))
            url.n--;
        n->servers[i].url = url;
    }
    for (uint32_t i = 0; i < c->n_clusters; i++) {
        buf_put_str(&n->clusters, i ? "," : "");
        buf_put_slice(&n->clusters, c->clusters[i]);
    }
    if (n->clusters.err)
        return n->clusters.err;
    for (uint32_t i = 0; i < c->n_services; i++) {
        int rc = name_service(n, c->services[i], &n->services[i]);
        if (rc) {
            log_error("discovery", "source=%s: \"%.*s\" is no name of a service", n->source->o.name,
                      SLICE_ARG(c->services[i]));
            return rc;
        }
    }
    return read_secrets(n);
}

static void nacos_close(void *adapter)
{
    struct nacos *n = adapter;

    nacos_push_stop(n);
    for (uint32_t i = 0; n->services && i < n->conf->n_services; i++) {
        if (!n->services[i].nacos)
            break;
        nacos_http_fini(&n->services[i]);
        nacos_write_fini(&n->services[i]);
    }
    if (n->login)
        fetch_cancel(n->login);
    confio_secret_free(loop_mem(), n->password);
    confio_secret_free(loop_mem(), n->secret_key);
    mem_free(loop_mem(), n->token);
    buf_fini(&n->clusters);
    arena_fini(&n->arena);
    mem_free(loop_mem(), n);
}

static int nacos_open(const struct discovery_env *env,
                      const struct conf_source *conf,
                      struct source *source,
                      void **out)
{
    struct nacos *n = mem_zalloc(loop_mem(), sizeof(*n));

    if (!n)
        return WEIR_E_NOMEM;
    n->env = env;
    n->conf = conf;
    n->source = source;
    arena_init(&n->arena, loop_mem(), CONF_BYTES_MAX);
    buf_init(&n->clusters, loop_mem(), CLUSTERS_MAX);
    int rc = read_conf(n);
    if (rc) {
        for (uint32_t i = 0; n->services && i < conf->n_services; i++)
            if (n->services[i].nacos)
                source_list_fini(&n->services[i].list);
        nacos_close(n);
        return rc;
    }
    *out = n;
    return 0;
}

/* Services are asked one after the other all through the interval, so that no burst keeps the loop from other work. */
static void nacos_begin(void *adapter)
{
    struct nacos *n = adapter;
    uint64_t now = loop_now(n->env->loop);

    /* Signed requests are HTTP's. */
    n->polls = n->conf->protocol != CONF_NACOS_GRPC || n->secret_key;
    int rc = n->conf->protocol != CONF_NACOS_HTTP && !n->secret_key ? nacos_push_start(n) : 0;
    if (rc)
        source_failed(n->source, "%s", err_text(rc));
    for (uint32_t i = 0; n->polls && i < n->conf->n_services; i++)
        nacos_poll_at(&n->services[i], now + n->conf->interval_ns * i / n->conf->n_services);
}

const struct adapter_kind discovery_nacos = {nacos_open, nacos_begin, nacos_close};
