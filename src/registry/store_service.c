/* SPDX-License-Identifier: Apache-2.0 */
/** @file Lookup keys, and the services that group records. */
#include "registry/store_priv.h"

void key_add(struct key_text *k, struct slice s)
{
    if (s.n > sizeof(k->p) - k->n) {
        k->over = true;
        return;
    }
    if (s.n)
        memcpy(k->p + k->n, s.p, s.n);
    k->n += s.n;
}

struct slice key_slice(const struct key_text *k)
{
    return slice_of(k->p, k->n);
}

void service_key(struct key_text *k, struct slice ns, struct slice grouped)
{
    k->n = 0;
    k->over = false;
    key_add(k, ns);
    key_add(k, SLICE("\n"));
    key_add(k, grouped);
}

void nacos_key(struct key_text *k, struct slice ns, struct slice grouped, struct slice address)
{
    service_key(k, ns, grouped);
    key_add(k, SLICE("\n"));
    key_add(k, address);
}

struct service *store_service(const struct store *s, struct slice ns, struct slice grouped)
{
    struct key_text k;

    service_key(&k, ns, grouped);
    return k.over ? NULL : map_get(&s->by_service, key_slice(&k));
}

int service_get(struct store *s, struct slice ns, struct slice grouped, struct service **out)
{
    struct key_text k;

    service_key(&k, ns, grouped);
    if (k.over)
        return WEIR_E_INVALID;
    *out = map_get(&s->by_service, key_slice(&k));
    if (*out)
        return 0;
    struct service *v = mem_zalloc(s->o.mem, sizeof(*v));
    char *key = mem_strdup(s->o.mem, key_slice(&k));
    if (v && key) {
        v->key = slice_of(key, k.n);
        v->ns = slice_of(key, ns.n);
        v->grouped = slice_of(key + ns.n + 1, grouped.n);
        list_init(&v->links);
        if (map_put(&s->by_service, v->key, v) == 0) {
            list_add(&s->services, &v->node);
            *out = v;
            return 0;
        }
    }
    mem_free(s->o.mem, key);
    mem_free(s->o.mem, v);
    return WEIR_E_NOMEM;
}

static void service_free(struct store *s, struct service *v)
{
    map_del(&s->by_service, v->key);
    list_del(&v->node);
    mem_free(s->o.mem, (char *)(uintptr_t)v->key.p);
    mem_free(s->o.mem, v);
}

void service_release(struct store *s, struct service *v)
{
    if (list_empty(&v->links) && !v->kept)
        service_free(s, v);
}

int store_service_put(struct store *s,
                      struct slice ns,
                      struct slice grouped,
                      double protect_threshold,
                      struct service **out)
{
    int rc = service_get(s, ns, grouped, out);

    if (rc)
        return rc;
    (*out)->kept = true;
    if (protect_threshold >= 0)
        (*out)->protect_threshold = protect_threshold;
    store_event(s, STORE_NOTED, NULL, REASON_NONE);
    return 0;
}

int store_service_delete(struct store *s, struct slice ns, struct slice grouped)
{
    struct service *v = store_service(s, ns, grouped);

    if (!v)
        return WEIR_E_NOTFOUND;
    if (!list_empty(&v->links))
        return WEIR_E_EXISTS;
    service_free(s, v);
    store_event(s, STORE_NOTED, NULL, REASON_NONE);
    return 0;
}
