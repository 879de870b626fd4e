/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Endpoints from Consul: for each service one blocking query of its health, which the server answers when something
 * changed. The index is opaque: backwards means that the server began anew, and so do we. Endpoints with a critical check
 * stay in the list as unhealthy; those under maintenance are not enabled.
 */
#include "base/num.h"
#include "confio/confio.h"
#include "discovery/consul_read.h"
#include "discovery/remote.h"
#include "loop/alloc.h"
#include "loop/log.h"
#include "wire/url.h"

enum { WAIT_S = 55, PATH_MAX_BYTES = 4096, ANSWER_BYTES_MAX = 64 << 20 };

/* The server adds up to a sixteenth of the wait. */
static const uint64_t TIMEOUT_NS = (WAIT_S + WAIT_S / 16 + 6) * NS_PER_S;
static const uint64_t GAP_NS =
    100 * NS_PER_MS;                      /* between two questions, whatever the server says */
static const uint64_t POLL_NS = NS_PER_S; /* a server without an index */

struct consul;

/* One service. */
struct health {
    struct remote_call call;
    struct consul *consul;
    struct source_list list;
    uint64_t index; /* 0: answer at once */
    uint64_t asked_ns;
    uint32_t n_bad;            /* when it was logged last */
    struct consul_seen *known; /* of the last answer */
    uint32_t n_known;
    struct arena arena; /* of known */
};

struct consul {
    struct remote remote;
    char *token; /* NULL: none */
    struct health *services;
};

static void ask(struct remote_call *c)
{
    struct health *h = container_of(c, struct health, call);
    const struct conf_source *conf = c->remote->conf;
    struct buf path;

    buf_init(&path, loop_mem(), PATH_MAX_BYTES);
    buf_put_str(&path, "/v1/health/service/");
    wire_url_encode(h->list.name, "", &path);
    buf_put_str(&path, "?index=");
    buf_put_u64(&path, h->index);
    buf_put_str(&path, "&wait=");
    buf_put_u64(&path, WAIT_S);
    buf_put_char(&path, 's');
    if (conf->datacenter.n) {
        buf_put_str(&path, "&dc=");
        wire_url_encode(conf->datacenter, "", &path);
    }
    if (conf->tag.n) {
        buf_put_str(&path, "&tag=");
        wire_url_encode(conf->tag, "", &path);
    }
    buf_put_char(&path, '\0');
    h->asked_ns = loop_now(c->remote->env->loop);
    const struct remote_request q = {.method = "GET",
                                     .path = buf_slice(&path).p,
                                     .bearer = h->consul->token,
                                     .timeout_ns = TIMEOUT_NS};
    if (path.err)
        remote_failed(c, "the name of the service is too long");
    else
        remote_ask(c, &q);
    buf_fini(&path);
}

/* Without memory for it the next answer is read whole. */
static void remember(struct health *h, const struct consul_answer *answer)
{
    struct arena a;
    uint32_t n = 0;

    arena_init(&a, loop_mem(), ANSWER_BYTES_MAX);
    struct consul_seen *known = arena_array(&a, answer->n, sizeof(*known));
    for (uint32_t i = 0; known && i < answer->n; i++) {
        const struct consul_entry *e = &answer->entries[i];
        known[n].text = e->text;
        n += e->instance.key.n && arena_slice(&a, e->instance.key, &known[n].key) == 0;
    }
    arena_fini(&h->arena);
    h->arena = a;
    h->known = known;
    h->n_known = n;
}

static void tell(struct health *h, const struct consul_answer *answer, bool partial)
{
    source_list_begin(&h->list);
    source_list_partial(&h->list, partial);
    for (uint32_t i = 0; i < answer->n; i++) {
        struct consul_entry *e = &answer->entries[i];
        int rc = 0;
        if (e->same)
            source_list_keep(&h->list, e->instance.key);
        else
            rc = source_list_put(&h->list, &e->instance);
        if (!rc)
            continue;
        log_warn("discovery", "source=%s: %.*s is left out: %s", h->list.source->o.name,
                 SLICE_ARG(e->instance.key), err_text(rc));
        e->instance.key.n = 0; /* to be tried again */
    }
    remember(h, answer);
    source_list_end(&h->list);
    if (answer->n_bad != h->n_bad)
        log_warn("discovery", "source=%s: %u instances of %.*s have no address, port or id",
                 h->list.source->o.name, answer->n_bad, SLICE_ARG(h->list.name));
    h->n_bad = answer->n_bad;
}

/* When to ask again, by the index that came with the answer. */
static void follow(struct health *h, struct slice index)
{
    uint64_t now = loop_now(h->call.remote->env->loop);
    uint64_t next = h->asked_ns + GAP_NS;
    uint64_t n = 0;

    if (num_u64(index, &n) || n == 0) {
        h->index = 0;
        next = h->asked_ns + POLL_NS;
    } else {
        h->index = n < h->index ? 0 : n;
    }
    remote_worked(&h->call, next > now ? next - now : 0);
}

/* Where the token lacks rights the answer is no error, but has fewer entries, or none. */
static bool filtered(const struct fetch_result *r)
{
    return slice_eq_nocase(fetch_header(r, "X-Consul-Results-Filtered-By-ACLs"), SLICE("true"));
}

/* The token was not good enough: it may have been replaced on disk. */
static void read_token_again(struct consul *c)
{
    confio_secret_free(loop_mem(), c->token);
    (void)!remote_secret(&c->remote, &c->remote.conf->token, &c->token);
}

static void refused(struct health *h, const struct fetch_result *r)
{
    h->index = 0;
    if (!r->error && r->status == 403)
        read_token_again(h->consul);
    remote_refused(&h->call, "health", r);
}

static void answered(struct remote_call *c, const struct fetch_result *r)
{
    struct health *h = container_of(c, struct health, call);
    struct consul_answer answer;
    struct arena a;

    if (r->error || r->status != 200) {
        refused(h, r);
        return;
    }
    arena_init(&a, loop_mem(), ANSWER_BYTES_MAX);
    int rc = consul_read(&a, r->body, h->known, h->n_known, c->remote->seed, &answer);
    bool partial = rc == 0 && filtered(r);
    if (rc || (partial && answer.n == 0)) {
        h->index = 0;
        if (!rc)
            read_token_again(h->consul);
        remote_failed(c, "health of %.*s: %s", SLICE_ARG(h->list.name),
                      rc == WEIR_E_INVALID ? "the answer is no JSON list"
                      : rc                 ? err_text(rc)
                                           : "the token may not read it");
    } else {
        bool narrowed = partial && !h->list.partial;
        tell(h, &answer, partial);
        follow(h, fetch_header(r, "X-Consul-Index"));
        if (narrowed) {
            /* What a better token may see is no change that the server would wait for. */
            read_token_again(h->consul);
            h->index = 0;
        }
    }
    arena_fini(&a);
}

static void consul_close(void *adapter)
{
    struct consul *c = adapter;

    for (uint32_t i = 0; c->services && i < c->remote.conf->n_services; i++) {
        remote_end(&c->services[i].call);
        arena_fini(&c->services[i].arena);
    }
    confio_secret_free(loop_mem(), c->token);
    mem_free(loop_mem(), c->services);
    mem_free(loop_mem(), c);
}

static int consul_open(const struct discovery_env *env,
                       const struct conf_source *conf,
                       struct source *source,
                       void **out)
{
    struct consul *c = mem_zalloc(loop_mem(), sizeof(*c));

    if (!c)
        return WEIR_E_NOMEM;
    remote_init(&c->remote, env, conf, source);
    c->services = mem_zalloc(loop_mem(), conf->n_services * sizeof(*c->services));
    int rc = c->services ? remote_secret(&c->remote, &conf->token, &c->token) : WEIR_E_NOMEM;
    if (rc) {
        consul_close(c);
        return rc;
    }
    for (uint32_t i = 0; i < conf->n_services; i++) {
        struct health *h = &c->services[i];
        h->consul = c;
        h->call = (struct remote_call){.remote = &c->remote, .ask = ask, .answered = answered};
        arena_init(&h->arena, loop_mem(), ANSWER_BYTES_MAX);
        source_list_init(&h->list, source, conf->services[i]);
    }
    *out = c;
    return 0;
}

static void consul_begin(void *adapter)
{
    struct consul *c = adapter;

    for (uint32_t i = 0; i < c->remote.conf->n_services; i++)
        remote_begin(&c->services[i].call);
}

const struct adapter_kind discovery_consul = {consul_open, consul_begin, consul_close};
