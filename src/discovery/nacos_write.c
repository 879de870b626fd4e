/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Writing current_requests back into Nacos, where that is switched on: a registration with the whole metadata map as
 * it was listed, the only write that every version takes. Whoever writes the same instance at the same time loses, so it
 * is off by default.
 */
#include "base/num.h"
#include "discovery/nacos_priv.h"
#include "discovery/source_priv.h"
#include "loop/alloc.h"
#include "loop/log.h"
#include "registry/registry.h"
#include "report/nacos_codec.h"

enum { ROUND_MAX = 64, FORM_MAX = 1 << 18 };

static const char key[] = "current_requests";

/* One registration under way. */
struct write {
    struct list node;
    struct nacos_service *service;
    struct fetch *fetch;
};

static void put_metadata(const struct instance *i, struct slice value, struct buf *json)
{
    buf_put_str(json, "{");
    for (uint32_t k = 0; k < i->n_metadata; k++) {
        if (slice_eq(i->metadata[k].key, SLICE("current_requests")))
            continue;
        buf_put_json(json, i->metadata[k].key);
        buf_put_char(json, ':');
        buf_put_json(json, i->metadata[k].value);
        buf_put_char(json, ',');
    }
    buf_put_json(json, slice_str(key));
    buf_put_char(json, ':');
    buf_put_json(json, value);
    buf_put_char(json, '}');
}

static void put_number(struct buf *form, const char *name, struct buf *text)
{
    report_nacos_put_pair(form, name, buf_slice(text));
    buf_clear(text);
}

static int
write_form(struct nacos_service *s, const struct held *h, uint32_t requests, struct buf *form)
{
    const struct instance *i = &h->kept->instance;
    struct slice cluster = slice_from(h->key, slice_find(h->key, '#') + 1);
    struct buf text;
    struct buf json;

    buf_init(&text, loop_mem(), 64);
    buf_init(&json, loop_mem(), FORM_MAX);
    report_nacos_put_pair(form, "serviceName", s->grouped);
    report_nacos_put_pair(form, "groupName", s->group);
    report_nacos_put_pair(form, "ip", i->host);
    buf_put_u64(&text, i->port);
    put_number(form, "port", &text);
    report_nacos_put_pair(form, "clusterName", cluster.n ? cluster : SLICE("DEFAULT"));
    if (nacos_namespace(s->nacos).n)
        report_nacos_put_pair(form, "namespaceId", nacos_namespace(s->nacos));
    buf_put_f64(&text, (double)i->weight / WEIGHT_ONE, 3);
    put_number(form, "weight", &text);
    report_nacos_put_pair(form, "enabled", i->enabled ? SLICE("true") : SLICE("false"));
    report_nacos_put_pair(form, "healthy", i->healthy ? SLICE("true") : SLICE("false"));
    report_nacos_put_pair(form, "ephemeral", SLICE("true"));
    buf_put_u64(&text, requests);
    put_metadata(i, buf_slice(&text), &json);
    report_nacos_put_pair(form, "metadata", buf_slice(&json));
    nacos_sign(s->nacos, s->grouped, form);
    int rc = form->err ? form->err : json.err;
    buf_fini(&text);
    buf_fini(&json);
    return rc;
}

static bool as_listed(const struct instance *i, uint32_t requests)
{
    uint64_t listed;

    for (uint32_t k = 0; k < i->n_metadata; k++)
        if (slice_eq(i->metadata[k].key, slice_str(key)))
            return num_u64(i->metadata[k].value, &listed) == 0 && listed == requests;
    return false;
}

static void end_write(struct write *w)
{
    list_del(&w->node);
    mem_free(loop_mem(), w);
}

static void on_written(void *ctx, const struct fetch_result *r)
{
    struct write *w = ctx;

    if (r->error || r->status != 200)
        log_debug("discovery", "source=%s: current_requests could not be written: %s",
                  w->service->nacos->source->o.name, r->error ? r->message : "refused");
    end_write(w);
}

/* One instance. @return was it sent? */
static bool write_one(struct nacos_service *s, const struct held *h)
{
    struct nacos *n = s->nacos;
    uint32_t requests = n->env->requests(n->env->ctx, h->host, h->port);
    struct buf form;

    if (requests == REGISTRY_REQUESTS_UNKNOWN || h->leaving_ns || !h->kept ||
        h->kept->instance.probation || as_listed(&h->kept->instance, requests))
        return false;
    struct write *w = mem_zalloc(loop_mem(), sizeof(*w));
    if (!w)
        return false;
    w->service = s;
    list_add(&s->writes, &w->node);
    buf_init(&form, loop_mem(), FORM_MAX);
    int rc = write_form(s, h, requests, &form);
    if (rc == 0)
        rc = nacos_call(n, "POST",
                        n->servers[n->server].v3 ? "/v3/client/ns/instance" : "/v1/ns/instance",
                        buf_slice(&form), on_written, w, &w->fetch);
    buf_fini(&form);
    if (rc)
        end_write(w);
    return rc == 0;
}

/* The next places of the table, so that a long list has its turn whole before anybody is written again. */
static void on_write(struct loop_timer *t)
{
    struct nacos_service *s = container_of(t, struct nacos_service, write);
    struct nacos *n = s->nacos;
    const struct map *held = &s->list.held;
    uint32_t sent = 0;

    loop_timer_set(n->env->loop, t, loop_now(n->env->loop) + n->conf->report_ns);
    if (!list_empty(&s->writes) || !n->source->stats.up || nacos_needs_login(n))
        return;
    for (uint32_t i = 0; i < held->cap && sent < ROUND_MAX; i++) {
        const struct map_entry *e = &held->entries[(s->write_at + i) % held->cap];
        if (e->key.p && write_one(s, e->value))
            sent++;
        if (sent == ROUND_MAX)
            s->write_at = (s->write_at + i + 1) % held->cap;
    }
}

void nacos_write_init(struct nacos_service *s)
{
    struct nacos *n = s->nacos;

    s->write.on_timer = on_write;
    list_init(&s->writes);
    if (n->conf->report_ns && n->env->requests)
        loop_timer_set(n->env->loop, &s->write, loop_now(n->env->loop) + n->conf->report_ns);
}

void nacos_write_fini(struct nacos_service *s)
{
    loop_timer_cancel(&s->write);
    while (!list_empty(&s->writes)) {
        struct write *w = container_of(s->writes.next, struct write, node);
        fetch_cancel(w->fetch);
        end_write(w);
    }
}
