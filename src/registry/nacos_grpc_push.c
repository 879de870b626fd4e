/* SPDX-License-Identifier: Apache-2.0 */
/** @file Who wants to know of which service, and telling them. Changes that come together are told together. */
#include "base/bug.h"
#include "base/num.h"
#include "loop/alloc.h"
#include "registry/nacos_grpc.h"
#include "registry/nacos_view.h"
#include "registry/store_priv.h"

static const uint64_t TOGETHER_NS = 10 * NS_PER_MS;

enum { CACHE_MS = 10000 };

int nacos_push_service(struct registry *r,
                       struct slice ns,
                       struct slice grouped,
                       struct slice clusters,
                       bool healthy_only,
                       struct buf *out)
{
    /* Clients take what is not newer than what they have for old. */
    uint64_t now_ms = loop_wall_clock() / NS_PER_MS;
    r->told_ms = now_ms > r->told_ms ? now_ms : r->told_ms + 1;
    struct nacos_list_view v = {.grouped = grouped,
                                .clusters = clusters.p ? clusters : SLICE(""),
                                .now_ms = r->told_ms,
                                .cache_ms = CACHE_MS,
                                .plain = true};
    struct arena a;

    arena_init(&a, loop_mem(), REGISTRY_CALL_MAX);
    int rc = nacos_write_service(r, &a, store_service(&r->store, ns, grouped), &v, healthy_only,
                                 false, out);
    arena_fini(&a);
    return rc ? rc : out->err;
}

/* --- telling --- */

static void tell(struct nacos_grpc *g, const struct nacos_topic *t, struct slice clusters)
{
    struct slice grouped = slice_str(t->key);
    struct slice ns;
    struct buf body;

    (void)slice_cut(&grouped, '\n', &ns);
    buf_init(&body, loop_mem(), NACOS_REPLY_MAX);
    buf_put_str(&body, "{\"requestId\":\"");
    buf_put_u64(&body, ++g->next_push);
    buf_put_str(&body, "\",\"module\":\"naming\",\"headers\":{},\"namespace\":");
    buf_put_json(&body, ns);
    buf_put_str(&body, ",\"serviceName\":");
    buf_put_json(&body, nacos_name_of(grouped));
    buf_put_str(&body, ",\"groupName\":");
    buf_put_json(&body, nacos_group_of(grouped));
    buf_put_str(&body, ",\"serviceInfo\":");
    int rc = nacos_push_service(g->registry, ns, grouped, clusters, false, &body);
    buf_put_char(&body, '}');
    weir_list_foreach (at, &t->subscribers) {
        const struct nacos_subscription *s =
            container_of(at, const struct nacos_subscription, topic_node);
        if (rc == 0 && body.err == 0 && slice_eq(slice_str(s->clusters), clusters))
            nacos_grpc_tell(s->client, "NotifySubscriberRequest", buf_slice(&body));
    }
    buf_fini(&body);
}

/* Those with the same clusters are told the same text: once for each kind. */
static void tell_all(struct nacos_grpc *g, const struct nacos_topic *t)
{
    weir_list_foreach (at, &t->subscribers) {
        const struct nacos_subscription *s =
            container_of(at, const struct nacos_subscription, topic_node);
        bool told = false;
        for (struct list *b = t->subscribers.next; b != at && !told; b = b->next)
            told = slice_eq(
                slice_str(container_of(b, struct nacos_subscription, topic_node)->clusters),
                slice_str(s->clusters));
        if (!told)
            tell(g, t, slice_str(s->clusters));
    }
}

static void on_push(struct loop_timer *timer)
{
    struct nacos_grpc *g = container_of(timer, struct nacos_grpc, push);

    while (!list_empty(&g->changed)) {
        struct nacos_topic *t = container_of(g->changed.next, struct nacos_topic, node);
        list_del(&t->node);
        list_init(&t->node);
        t->dirty = false;
        tell_all(g, t);
    }
}

void nacos_push_changed(struct nacos_grpc *g, const struct record *record)
{
    for (uint32_t i = 0; i < record->n_links; i++) {
        struct nacos_topic *t = map_get(&g->topics, record->links[i].service->key);
        if (!t || t->dirty)
            continue;
        t->dirty = true;
        list_add(&g->changed, &t->node);
        if (!loop_timer_active(&g->push))
            loop_timer_set(g->registry->loop, &g->push, loop_now(g->registry->loop) + TOGETHER_NS);
    }
}

/* --- subscriptions --- */

static struct nacos_topic *topic_get(struct nacos_grpc *g, struct slice key)
{
    struct nacos_topic *t = map_get(&g->topics, key);

    if (t)
        return t;
    t = mem_zalloc(loop_mem(), sizeof(*t));
    char *text = mem_strdup(loop_mem(), key);
    if (t && text) {
        t->key = text;
        list_init(&t->node);
        list_init(&t->subscribers);
        if (map_put(&g->topics, slice_str(text), t) == 0)
            return t;
    }
    mem_free(loop_mem(), text);
    mem_free(loop_mem(), t);
    return NULL;
}

static void topic_release(struct nacos_grpc *g, struct nacos_topic *t)
{
    if (!list_empty(&t->subscribers))
        return;
    if (t->dirty)
        list_del(&t->node);
    (void)map_del(&g->topics, slice_str(t->key));
    mem_free(loop_mem(), t->key);
    mem_free(loop_mem(), t);
}

static void end_subscription(struct nacos_subscription *s)
{
    list_del(&s->node);
    list_del(&s->topic_node);
    s->client->n_wants--;
    topic_release(s->client->server, s->topic);
    mem_free(loop_mem(), s->clusters);
    mem_free(loop_mem(), s);
}

static struct nacos_subscription *
find(const struct nacos_client *c, struct slice key, struct slice clusters)
{
    weir_list_foreach (at, &c->wants) {
        struct nacos_subscription *s = container_of(at, struct nacos_subscription, node);
        if (slice_eq(slice_str(s->topic->key), key) && slice_eq(slice_str(s->clusters), clusters))
            return s;
    }
    return NULL;
}

int nacos_push_subscribe(struct nacos_client *c,
                         struct slice ns,
                         struct slice grouped,
                         struct slice clusters)
{
    struct key_text key;

    service_key(&key, ns, grouped);
    if (key.over)
        return WEIR_E_INVALID;
    if (find(c, key_slice(&key), clusters))
        return 0;
    if (c->n_wants >= NACOS_SUBSCRIPTIONS_MAX)
        return WEIR_E_FULL;
    struct nacos_topic *t = topic_get(c->server, key_slice(&key));
    struct nacos_subscription *s = t ? mem_zalloc(loop_mem(), sizeof(*s)) : NULL;
    char *text = s ? mem_strdup(loop_mem(), clusters) : NULL;
    if (!text) {
        mem_free(loop_mem(), s);
        if (t)
            topic_release(c->server, t);
        return WEIR_E_NOMEM;
    }
    s->client = c;
    s->topic = t;
    s->clusters = text;
    list_add(&c->wants, &s->node);
    list_add(&t->subscribers, &s->topic_node);
    c->n_wants++;
    return 0;
}

void nacos_push_unsubscribe(struct nacos_client *c,
                            struct slice ns,
                            struct slice grouped,
                            struct slice clusters)
{
    struct key_text key;

    service_key(&key, ns, grouped);
    struct nacos_subscription *s = key.over ? NULL : find(c, key_slice(&key), clusters);
    if (s)
        end_subscription(s);
}

void nacos_push_forget(struct nacos_client *c)
{
    while (!list_empty(&c->wants))
        end_subscription(container_of(c->wants.next, struct nacos_subscription, node));
}

void nacos_push_init(struct nacos_grpc *g)
{
    map_init(&g->topics, loop_mem());
    list_init(&g->changed);
    g->push.on_timer = on_push;
}

void nacos_push_fini(struct nacos_grpc *g)
{
    loop_timer_cancel(&g->push);
    map_fini(&g->topics);
}
