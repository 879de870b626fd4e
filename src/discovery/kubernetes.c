/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Endpoints from Kubernetes: EndpointSlices say who is there and how, Pods what they are. Both are followed by list and
 * watch; a service whose slices or pods changed is told anew, all of it, at most every 50 ms.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/bug.h"
#include "base/num.h"
#include "discovery/kubernetes_watch.h"
#include "loop/alloc.h"
#include "loop/log.h"

enum {
    TELL_BYTES_MAX = 64 << 20,
    SELECTOR_BYTES_MAX = 6000,
    KEY_BYTES_MAX = 2 * ENDPOINT_TEXT_MAX
};

/* More than what a watch brings at once, less than anybody waits for. */
static const uint64_t TELL_NS = 50 * NS_PER_MS;
static const uint32_t PODS_TRIES = 3; /* then endpoints are told without */

struct service {
    struct source_list list;
    bool dirty;
    uint32_t n_bad; /* when it was logged last */
};

struct kubernetes {
    struct kube_client client;
    struct kube_watch slices, pods;
    struct service *services; /* one of them, of any name, when a selector chooses */
    uint32_t n_services;
    char *selector;
    bool pods_denied;
    struct loop_timer tell;
    uint64_t told_ns;
};

/* --- who has changed --- */

static void tell_soon(struct kubernetes *k)
{
    if (!loop_timer_active(&k->tell))
        loop_timer_set(k->client.remote.env->loop, &k->tell, k->told_ns + TELL_NS);
}

static bool
is_of(const struct kubernetes *k, const struct service *s, const struct kube_object *slice)
{
    return k->client.given->selector.p || slice_eq(s->list.name, slice->service);
}

static void mark(struct kubernetes *k, const struct kube_object *slice)
{
    for (uint32_t i = 0; slice && i < k->n_services; i++)
        k->services[i].dirty |= is_of(k, &k->services[i], slice);
    tell_soon(k);
}

static void
slice_changed(struct kube_watch *w, const struct kube_object *before, const struct kube_object *now)
{
    struct kubernetes *k = container_of(w, struct kubernetes, slices);

    mark(k, before);
    mark(k, now);
}

static void mark_all(struct kubernetes *k)
{
    for (uint32_t i = 0; i < k->n_services; i++)
        k->services[i].dirty = true;
    tell_soon(k);
}

static bool has_pod(const struct kube_object *slice, struct slice name)
{
    for (uint32_t i = 0; i < slice->n_endpoints; i++)
        if (slice_eq(slice->endpoints[i].pod, name))
            return true;
    return false;
}

/* A pod that is gone is listed by its slice for a moment longer: what was known of it holds. */
static void
pod_changed(struct kube_watch *w, const struct kube_object *before, const struct kube_object *now)
{
    struct kubernetes *k = container_of(w, struct kubernetes, pods);

    (void)before;
    if (!now)
        tell_soon(k); /* to forget those that no slice has */
    if (!now || !w->listed)
        return; /* at the end of a list all are told */
    map_foreach(e, &k->slices.objects)
    {
        const struct kube_held *slice = e->value;
        if (has_pod(&slice->o, now->name))
            mark(k, &slice->o);
    }
}

static void heard(struct kubernetes *k)
{
    if (k->slices.listed && k->slices.call.failures == 0)
        source_ok(k->client.remote.source);
}

static void slices_heard(struct kube_watch *w)
{
    struct kubernetes *k = container_of(w, struct kubernetes, slices);

    if (!w->heard_any) /* a list, not an event */
        mark_all(k);
    heard(k);
}

static void pods_heard(struct kube_watch *w)
{
    struct kubernetes *k = container_of(w, struct kubernetes, pods);

    k->pods_denied = false;
    if (!w->heard_any)
        mark_all(k);
    heard(k);
}

static bool slices_refused(struct kube_watch *w, unsigned status, struct slice why)
{
    (void)w;
    (void)status;
    (void)why;
    return false;
}

/* Endpoints can be used without: their labels and annotations are then unknown. */
static bool pods_refused(struct kube_watch *w, unsigned status, struct slice why)
{
    struct kubernetes *k = container_of(w, struct kubernetes, pods);

    if (status != 403)
        return false;
    if (!k->pods_denied)
        log_warn("discovery",
                 "source=%s: pods may not be read, so their annotations and labels are "
                 "unknown: %.*s",
                 k->client.remote.source->o.name, SLICE_ARG(why));
    k->pods_denied = true;
    tell_soon(k);
    return true;
}

/* --- telling --- */

/* One address of a service; slices that overlap while endpoints move from one to another may both have it. */
struct chosen {
    const struct kube_endpoint *e;
    struct slice service;
    uint64_t news;
};

static bool usable(const struct kube_endpoint *e)
{
    return e->ready && !e->terminating;
}

static int choose(const struct kubernetes *k,
                  struct arena *a,
                  struct map *map,
                  const struct kube_held *slice,
                  const struct kube_endpoint *e)
{
    char key[KEY_BYTES_MAX];
    struct slice name;
    bool v6 = slice_find(e->host, ':') < e->host.n;
    bool any = k->client.given->selector.p != NULL;

    int n = snprintf(key, sizeof(key), "%.*s%s%s%.*s%s:%u", any ? (int)slice->o.service.n : 0,
                     any && slice->o.service.p ? slice->o.service.p : "", any ? "/" : "",
                     v6 ? "[" : "", SLICE_ARG(e->host), v6 ? "]" : "", e->port);
    if (n < 0 || (size_t)n >= sizeof(key))
        return 0;
    struct chosen *c = map_get(map, slice_of(key, (size_t)n));
    if (c) {
        if (slice->news > c->news || (slice->news == c->news && usable(e) && !usable(c->e)))
            *c = (struct chosen){e, slice->o.service, slice->news};
        return 0;
    }
    c = arena_array(a, 1, sizeof(*c));
    if (!c || arena_slice(a, slice_of(key, (size_t)n), &name))
        return WEIR_E_NOMEM;
    *c = (struct chosen){e, slice->o.service, slice->news};
    return map_put(map, name, c);
}

static int put(const struct kubernetes *k,
               struct arena *a,
               struct service *s,
               struct slice key,
               const struct chosen *c)
{
    const struct kube_held *pod = c->e->pod.n ? map_get(&k->pods.objects, c->e->pod) : NULL;
    struct instance i;

    int rc = kube_instance(a, c->e, pod ? &pod->o : NULL, &i);
    if (rc)
        return rc;
    i.key = key;
    i.services = &c->service;
    i.n_services = c->service.n > 0;
    rc = source_list_put(&s->list, &i);
    if (rc)
        log_warn("discovery", "source=%s: %.*s is left out: %s", s->list.source->o.name,
                 SLICE_ARG(key), err_text(rc));
    return 0;
}

static void say_bad(struct service *s, uint32_t n)
{
    if (n != s->n_bad)
        log_warn("discovery", "source=%s: %u endpoints of %.*s have no address or port of use",
                 s->list.source->o.name, n, SLICE_ARG(s->list.name));
    s->n_bad = n;
}

static int tell(struct kubernetes *k, struct arena *a, struct map *map, struct service *s)
{
    uint32_t bad = 0;
    int rc = 0;

    map_foreach(e, &k->slices.objects)
    {
        const struct kube_held *slice = e->value;
        if (!is_of(k, s, &slice->o))
            continue;
        bad += slice->o.n_bad;
        for (uint32_t i = 0; rc == 0 && i < slice->o.n_endpoints; i++)
            rc = choose(k, a, map, slice, &slice->o.endpoints[i]);
    }
    if (rc)
        return rc;
    source_list_begin(&s->list);
    map_foreach(e, map) if (rc == 0) rc = put(k, a, s, e->key, e->value);
    if (rc)
        source_list_abandon(&s->list);
    else
        source_list_end(&s->list);
    say_bad(s, bad);
    return rc;
}

/* Pods that are gone and that no slice has any more. */
static void forget_pods(struct kubernetes *k)
{
    struct list going;

    if (k->pods.n_gone == 0)
        return;
    list_init(&going);
    map_foreach(p, &k->pods.objects)
    {
        struct kube_held *pod = p->value;
        bool used = false;
        if (!pod->gone)
            continue;
        map_foreach(e, &k->slices.objects)
        {
            const struct kube_held *slice = e->value;
            used = used || has_pod(&slice->o, pod->o.name);
        }
        if (!used)
            list_add(&going, &pod->node);
    }
    while (!list_empty(&going)) {
        struct kube_held *pod = container_of(going.next, struct kube_held, node);
        list_del(&pod->node);
        kube_watch_forget(&k->pods, pod);
    }
}

/* Slices that are as they were at some moment, not half of a list; and pods, unless they cannot be had. */
static bool complete(const struct kubernetes *k)
{
    return k->slices.listed && k->slices.call.failures == 0 &&
           (k->pods.listed_once || k->pods_denied || k->pods.call.failures >= PODS_TRIES);
}

static void on_tell(struct loop_timer *t)
{
    struct kubernetes *k = container_of(t, struct kubernetes, tell);

    if (!complete(k)) {
        /* Who completes it sets the timer; but for pods that fail nobody does. */
        if (k->slices.listed && !k->pods.listed_once)
            loop_timer_set(k->client.remote.env->loop, t,
                           loop_now(k->client.remote.env->loop) + TELL_NS);
        return;
    }
    k->told_ns = loop_now(k->client.remote.env->loop);
    for (uint32_t i = 0; i < k->n_services; i++) {
        struct service *s = &k->services[i];
        struct arena a;
        struct map map;
        if (!s->dirty)
            continue;
        s->dirty = false;
        arena_init(&a, loop_mem(), TELL_BYTES_MAX);
        map_init(&map, loop_mem());
        int rc = tell(k, &a, &map, s);
        if (rc)
            log_warn("discovery", "source=%s: %.*s: %s", s->list.source->o.name,
                     SLICE_ARG(s->list.name), err_text(rc));
        map_fini(&map);
        arena_fini(&a);
    }
    forget_pods(k);
}

/* --- life --- */

/* One selector for all services; too many of them for a URL: all slices of the namespace that have one. */
static int make_selector(struct kubernetes *k)
{
    const struct conf_source *conf = k->client.given;
    struct buf b;

    if (conf->selector.p) {
        k->selector = mem_strdup(loop_mem(), conf->selector);
        return k->selector ? 0 : WEIR_E_NOMEM;
    }
    buf_init(&b, loop_mem(), SELECTOR_BYTES_MAX);
    if (kube_write_selector(&b, conf->services, conf->n_services) == WEIR_E_FULL)
        k->selector = mem_strdup(loop_mem(), SLICE("kubernetes.io/service-name"));
    else if (!b.err)
        k->selector = mem_strdup(loop_mem(), buf_slice(&b));
    buf_fini(&b);
    return k->selector ? 0 : WEIR_E_NOMEM;
}

static void kubernetes_close(void *adapter)
{
    struct kubernetes *k = adapter;

    kube_watch_end(&k->slices);
    kube_watch_end(&k->pods);
    loop_timer_cancel(&k->tell);
    kube_access_fini(&k->client.access);
    mem_free(loop_mem(), k->selector);
    mem_free(loop_mem(), k->services);
    mem_free(loop_mem(), k);
}

static int kubernetes_open(const struct discovery_env *env,
                           const struct conf_source *conf,
                           struct source *source,
                           void **out)
{
    struct kubernetes *k = mem_zalloc(loop_mem(), sizeof(*k));

    if (!k)
        return WEIR_E_NOMEM;
    k->tell.on_timer = on_tell;
    k->n_services = conf->selector.p ? 1 : conf->n_services;
    k->services = mem_array(loop_mem(), k->n_services, sizeof(*k->services));
    int rc = k->services ? kube_client_init(&k->client, env, conf, source) : WEIR_E_NOMEM;
    if (rc == 0)
        rc = make_selector(k);
    if (rc) {
        kubernetes_close(k);
        return rc;
    }
    kube_watch_init(&k->slices, &(struct kube_watch_options){.client = &k->client,
                                                             .kind = KUBE_SLICES,
                                                             .selector = slice_str(k->selector),
                                                             .changed = slice_changed,
                                                             .heard = slices_heard,
                                                             .refused = slices_refused});
    kube_watch_init(&k->pods, &(struct kube_watch_options){.client = &k->client,
                                                           .kind = KUBE_PODS,
                                                           .keep_gone = true,
                                                           .changed = pod_changed,
                                                           .heard = pods_heard,
                                                           .refused = pods_refused});
    for (uint32_t i = 0; i < k->n_services; i++)
        source_list_init(&k->services[i].list, source,
                         conf->selector.p ? SLICE("selector") : conf->services[i]);
    *out = k;
    return 0;
}

static void kubernetes_begin(void *adapter)
{
    struct kubernetes *k = adapter;

    kube_watch_begin(&k->slices);
    kube_watch_begin(&k->pods);
}

const struct adapter_kind discovery_kubernetes = {kubernetes_open, kubernetes_begin,
                                                  kubernetes_close};
