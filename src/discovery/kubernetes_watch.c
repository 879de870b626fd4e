/* SPDX-License-Identifier: Apache-2.0 */
#include "discovery/kubernetes_watch.h"

#include "base/bug.h"
#include "base/num.h"
#include "confio/confio.h"
#include "loop/alloc.h"
#include "loop/log.h"

enum {
    PATH_BYTES_MAX = 8192,
    LIST_BYTES_MAX = 256 << 20, /* an answer, read */
    STREAM_BYTES_MAX = 8 << 20, /* an object has at most 1.5 MiB */
    STREAM_KEPT = 64 << 10,
    OBJECT_BYTES_MAX = 4 << 20,
    OBJECTS_MAX = 100000,
    LIST_PIECE = 500,
    WATCH_S = 290,
};

static const uint64_t LIST_TIMEOUT_NS = 30 * NS_PER_S;
static const uint64_t WATCH_TIMEOUT_NS = (WATCH_S + 30) * NS_PER_S;
static const uint64_t GAP_NS = 100 * NS_PER_MS; /* between two questions, whatever ends the first */
static const uint64_t LIVED_NS =
    1 * NS_PER_S; /* a watch that ends before, without a word, is none */
static const uint64_t FRESH_NS = 60 * NS_PER_S; /* tokens and certificates are read anew */
static const uint64_t REFUSED_NS = 300 * NS_PER_S;

static const char *const names[] = {[KUBE_SLICES] = "endpointslices", [KUBE_PODS] = "pods"};
/* Of pods only the metadata is wanted; servers do without the rest since 1.15. */
static const char *const accepts[] = {
    [KUBE_SLICES] = "application/json",
    [KUBE_PODS] =
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"};
static const char *const watch_accepts[] = {
    [KUBE_SLICES] = "application/json",
    [KUBE_PODS] = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"};

/* --- the client --- */

static void use_access(struct kube_client *c)
{
    c->conf.servers = c->access.servers;
    c->conf.n_servers = c->access.n_servers;
    c->remote.tls = c->access.tls;
    c->read_ns = loop_now(c->remote.env->loop);
}

int kube_client_init(struct kube_client *c,
                     const struct discovery_env *env,
                     const struct conf_source *conf,
                     struct source *source)
{
    *c = (struct kube_client){.given = conf, .conf = *conf};
    remote_init(&c->remote, env, &c->conf, source);
    int rc = kube_access_read(&c->remote, conf, &c->access);
    if (rc == 0)
        use_access(c);
    return rc;
}

/* What cannot be read now is as it was. */
static void read_anew(struct kube_client *c)
{
    struct kube_access now;

    c->read_ns = loop_now(c->remote.env->loop);
    if (kube_access_read(&c->remote, c->given, &now))
        return;
    c->n_tokens += !slice_eq(slice_str(now.token), slice_str(c->access.token));
    struct kube_access old = c->access;
    c->access = now;
    use_access(c);
    kube_access_fini(&old);
}

/* --- objects --- */

static void free_held(struct kube_held *h)
{
    arena_fini(&h->arena);
    mem_free(loop_mem(), h);
}

static int put(struct kube_watch *w, const struct kube_object *o)
{
    struct kube_held *old = map_get(&w->objects, o->name);
    struct kube_held *h;

    if (old && !old->gone && kube_same(&old->o, o)) {
        old->round = w->round;
        return 0;
    }
    if (!old && w->objects.n >= OBJECTS_MAX) {
        if (!w->full)
            log_warn("discovery", "source=%s: more than %d %s: the others are left out",
                     w->o.client->remote.source->o.name, OBJECTS_MAX, names[w->o.kind]);
        w->full = true;
        return 0;
    }
    h = mem_zalloc(loop_mem(), sizeof(*h));
    if (!h)
        return WEIR_E_NOMEM;
    arena_init(&h->arena, loop_mem(), OBJECT_BYTES_MAX);
    list_init(&h->node);
    int rc = kube_copy(&h->arena, o, &h->o);
    if (rc == 0)
        rc = map_put(&w->objects, h->o.name, h);
    if (rc) {
        free_held(h);
        return rc;
    }
    h->round = w->round;
    h->news = w->listed ? ++w->o.client->n_news : w->list_news;
    w->o.changed(w, old ? &old->o : NULL, &h->o);
    if (old) {
        w->n_gone -= old->gone;
        free_held(old);
    }
    return 0;
}

static void drop(struct kube_watch *w, struct kube_held *h)
{
    if (h->gone)
        return;
    if (w->o.keep_gone) {
        h->gone = true;
        w->n_gone++;
        w->o.changed(w, &h->o, NULL);
        return;
    }
    (void)map_del(&w->objects, h->o.name);
    w->o.changed(w, &h->o, NULL);
    free_held(h);
}

void kube_watch_forget(struct kube_watch *w, struct kube_held *h)
{
    BUG_ON(!h->gone);
    w->n_gone--;
    (void)map_del(&w->objects, h->o.name);
    free_held(h);
}

/* Who was not in the list. A map must not change while it is walked. */
static void sweep(struct kube_watch *w)
{
    struct list going;

    list_init(&going);
    map_foreach(e, &w->objects)
    {
        struct kube_held *h = e->value;
        if (h->round != w->round && !h->gone)
            list_add(&going, &h->node);
    }
    while (!list_empty(&going)) {
        struct kube_held *h = container_of(going.next, struct kube_held, node);
        list_del(&h->node);
        drop(w, h);
    }
}

static int keep_version(struct kube_watch *w, struct slice version)
{
    if (!version.n || version.n >= sizeof(w->version))
        return WEIR_E_INVALID;
    memcpy(w->version, version.p, version.n);
    w->version[version.n] = '\0';
    return 0;
}

/* --- asking --- */

static void ask(struct remote_call *call)
{
    struct kube_watch *w = container_of(call, struct kube_watch, call);
    struct kube_client *c = w->o.client;
    struct buf path;

    uint64_t now = loop_now(c->remote.env->loop);
    if (now - c->read_ns >= FRESH_NS)
        read_anew(c);
    w->token = c->n_tokens;
    const struct kube_query q = {.kind = w->o.kind,
                                 .ns = c->access.ns,
                                 .selector = w->o.selector,
                                 .watch = w->listed,
                                 .version = slice_str(w->version),
                                 .more = slice_str(w->more),
                                 .limit = LIST_PIECE,
                                 .timeout_s = WATCH_S};
    w->asked_ns = now;
    w->heard_any = false;
    buf_clear(&w->stream);
    w->frame = (struct kube_frame){0};
    if (!w->listed && !w->more) {
        w->round++;
        w->list_news = ++c->n_news;
    }
    buf_init(&path, loop_mem(), PATH_BYTES_MAX);
    (void)kube_write_path(&path, &q);
    buf_put_char(&path, '\0');
    const struct remote_request request = {
        .method = "GET",
        .path = buf_slice(&path).p,
        .bearer = c->access.token,
        .accept = w->listed ? watch_accepts[w->o.kind] : accepts[w->o.kind],
        .timeout_ns = w->listed ? WATCH_TIMEOUT_NS : LIST_TIMEOUT_NS,
        .streams = w->listed,
    };
    if (path.err)
        remote_failed(call, "cannot ask for %s: %s", names[w->o.kind], err_text(path.err));
    else
        remote_ask(call, &request);
    buf_fini(&path);
}

/* The next question is a list from its beginning. What is known stays until it is whole. */
static void begin_anew(struct kube_watch *w)
{
    mem_free(loop_mem(), w->more);
    w->more = NULL;
    w->listed = false;
    loop_timer_cancel(&w->read);
    if (w->call.fetch)
        fetch_cancel(w->call.fetch);
    w->call.fetch = NULL;
}

static void again(struct kube_watch *w)
{
    uint64_t now = loop_now(w->o.client->remote.env->loop);
    uint64_t next = w->asked_ns + GAP_NS;

    remote_again(&w->call, next > now ? next - now : 0);
}

/* --- lists --- */

static int read_list(struct kube_watch *w, struct arena *a, struct slice body)
{
    struct kube_list list;

    int rc = kube_read_list(a, w->o.kind, w->o.client->given->port, body, &list);
    for (uint32_t i = 0; rc == 0 && i < list.n; i++)
        rc = put(w, &list.objects[i]);
    mem_free(loop_mem(), w->more);
    w->more = NULL;
    if (rc == 0 && list.more.n) {
        w->more = mem_strdup(loop_mem(), list.more);
        return w->more ? 0 : WEIR_E_NOMEM;
    }
    return rc ? rc : keep_version(w, list.version);
}

static void on_list(struct kube_watch *w, const struct fetch_result *r)
{
    struct arena a;

    arena_init(&a, loop_mem(), LIST_BYTES_MAX);
    int rc = read_list(w, &a, r->body);
    arena_fini(&a);
    if (rc) {
        begin_anew(w);
        remote_failed(&w->call, "%s: %s", names[w->o.kind],
                      rc == WEIR_E_INVALID ? "the answer is no list of Kubernetes" : err_text(rc));
        return;
    }
    remote_worked(&w->call, 0);
    if (w->more)
        return;
    sweep(w);
    w->listed = w->listed_once = true;
    w->o.heard(w);
}

/* --- the watch --- */

static int apply(struct kube_watch *w, const struct kube_event *event)
{
    int rc = keep_version(w, event->object.version);

    if (rc == 0 && event->type == KUBE_PUT)
        rc = put(w, &event->object);
    if (rc == 0 && event->type == KUBE_GONE) {
        struct kube_held *h = map_get(&w->objects, event->object.name);
        if (h)
            drop(w, h);
    }
    return rc;
}

/* @return whether the watch goes on. */
static bool on_event(struct kube_watch *w, struct slice text)
{
    struct kube_event event;
    struct arena a;
    bool on = false;

    arena_init(&a, loop_mem(), LIST_BYTES_MAX);
    const struct kube_held *before = map_get(&w->objects, kube_event_name(text));
    int rc = kube_read_event(&a, w->o.kind, w->o.client->given->port, text,
                             before ? &before->o : NULL, w->o.client->remote.seed, &event);
    bool error = rc == 0 && event.type == KUBE_ERROR;
    if (rc == 0 && !error)
        rc = apply(w, &event);
    if (rc) {
        begin_anew(w);
        remote_failed(&w->call, "watch of %s: %s", names[w->o.kind],
                      rc == WEIR_E_INVALID ? "not the words of Kubernetes" : err_text(rc));
    } else if (error && event.code == 410) {
        log_info("discovery", "source=%s: the watch of %s is too far behind; listing again",
                 w->o.client->remote.source->o.name, names[w->o.kind]);
        begin_anew(w);
        again(w);
    } else if (error) {
        begin_anew(w);
        remote_failed(&w->call, "watch of %s: %u %.*s", names[w->o.kind], event.code,
                      SLICE_ARG(event.why));
    } else {
        w->heard_any = true;
        on = true;
    }
    arena_fini(&a);
    return on;
}

/* All that has come. @return whether the watch goes on. */
static bool drain(struct kube_watch *w)
{
    bool on = true;
    bool any = false;

    while (on) {
        struct slice s = buf_slice(&w->stream);
        ssize_t n = kube_frame(&w->frame, s);
        if (n == 0)
            break;
        any = true;
        if (n > 0) {
            on = on_event(w, slice_of(s.p, (size_t)n));
            buf_consume(&w->stream, (size_t)n);
        } else {
            begin_anew(w);
            remote_failed(&w->call, "watch of %s: not the words of Kubernetes", names[w->o.kind]);
            on = false;
        }
    }
    buf_slim(&w->stream, STREAM_KEPT);
    if (on && any)
        w->o.heard(w);
    return on;
}

static void on_read(struct loop_timer *t)
{
    (void)drain(container_of(t, struct kube_watch, read));
}

static int on_data(void *call, struct slice piece)
{
    struct kube_watch *w = container_of(call, struct kube_watch, call);

    if (!loop_timer_active(&w->read))
        loop_timer_set(w->o.client->remote.env->loop, &w->read, 0);
    return buf_put_slice(&w->stream, piece);
}

/* Servers end each watch after some minutes, and proxies sooner: that is no failure. The next one takes it up. */
static void on_watch_end(struct kube_watch *w, const struct fetch_result *r)
{
    uint64_t lived = loop_now(w->o.client->remote.env->loop) - w->asked_ns;
    int overflow = w->stream.err;

    loop_timer_cancel(&w->read);
    if (!drain(w))
        return;
    if (!overflow && (w->heard_any || lived >= LIVED_NS)) {
        again(w);
        return;
    }
    begin_anew(w);
    if (overflow)
        remote_failed(&w->call, "watch of %s: an event is too large", names[w->o.kind]);
    else
        remote_failed(&w->call, "watch of %s: %s", names[w->o.kind],
                      r->error ? r->message : "ends without a word");
}

/* --- both --- */

static void on_refusal(struct kube_watch *w, const struct fetch_result *r)
{
    struct arena a;

    begin_anew(w);
    if (!r->error && r->status == 401) {
        read_anew(w->o.client);
        if (w->token != w->o.client->n_tokens) {
            again(w);
            return;
        }
    }
    arena_init(&a, loop_mem(), LIST_BYTES_MAX);
    struct slice why = r->error ? (struct slice){NULL, 0} : kube_read_status(&a, r->body);
    if (!r->error && w->o.refused(w, r->status, why))
        remote_again(&w->call, REFUSED_NS);
    else if (why.n)
        remote_failed(&w->call, "%s: HTTP %u %.*s", names[w->o.kind], r->status, SLICE_ARG(why));
    else
        remote_refused(&w->call, names[w->o.kind], r);
    arena_fini(&a);
}

static void answered(struct remote_call *call, const struct fetch_result *r)
{
    struct kube_watch *w = container_of(call, struct kube_watch, call);

    if (w->listed && r->status == 200) {
        on_watch_end(w, r);
    } else if (!r->error && r->status == 410 && (w->listed || w->more)) {
        /* A place in history, or in a list, that is forgotten. */
        begin_anew(w);
        again(w);
    } else if (r->error || r->status != 200) {
        on_refusal(w, r);
    } else {
        on_list(w, r);
    }
}

/* --- life --- */

void kube_watch_init(struct kube_watch *w, const struct kube_watch_options *o)
{
    *w = (struct kube_watch){.o = *o};
    w->call = (struct remote_call){
        .remote = &o->client->remote, .ask = ask, .answered = answered, .on_data = on_data};
    w->read.on_timer = on_read;
    map_init(&w->objects, loop_mem());
    buf_init(&w->stream, loop_mem(), STREAM_BYTES_MAX);
}

void kube_watch_begin(struct kube_watch *w)
{
    remote_begin(&w->call);
}

void kube_watch_end(struct kube_watch *w)
{
    if (!w->objects.mem)
        return;
    remote_end(&w->call);
    loop_timer_cancel(&w->read);
    mem_free(loop_mem(), w->more);
    buf_fini(&w->stream);
    map_foreach(e, &w->objects) free_held(e->value);
    map_fini(&w->objects);
}
