/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Records: registering, finding, removing, restoring. Making one: record.c; edits and leases: store_lease.c.
 *
 * Order of every registration: build the new record aside, hook it in (all that can run out of memory), ask the sink,
 * and only then let go of the old one. A refusal takes the same steps back.
 */
#include "registry/store_priv.h"

#include "base/bug.h"

static bool due_before(const struct heap_node *a, const struct heap_node *b)
{
    return container_of(a, struct record, due)->due_ns <
           container_of(b, struct record, due)->due_ns;
}

void store_init(struct store *s, const struct store_options *o)
{
    *s = (struct store){.o = *o, .next_epoch = 1};
    map_init(&s->native, o->mem);
    map_init(&s->nacos, o->mem);
    map_init(&s->addresses, o->mem);
    map_init(&s->by_service, o->mem);
    list_init(&s->records);
    list_init(&s->services);
    heap_init(&s->due, o->mem, due_before);
}

/* --- looking up --- */

struct record *store_native(const struct store *s, struct slice id)
{
    return map_get(&s->native, id);
}

struct record *store_find(const struct store *s, struct slice id)
{
    struct record *r = store_native(s, id);

    if (r)
        return r;
    struct record *first = map_get(&s->addresses, id);
    if (!first || first->kind == RECORD_NACOS)
        return first;
    weir_list_foreach (pos, &first->same_address) {
        r = container_of(pos, struct record, same_address);
        if (r->kind == RECORD_NACOS)
            return r;
    }
    return NULL;
}

struct record *
store_find_nacos(const struct store *s, struct slice ns, struct slice grouped, struct slice address)
{
    struct key_text k;

    nacos_key(&k, ns, grouped, address);
    struct record *r = k.over ? NULL : map_get(&s->nacos, key_slice(&k));
    if (r)
        return r;
    struct service *service = store_service(s, ns, grouped);
    struct record *first = service ? map_get(&s->addresses, address) : NULL;
    if (!first)
        return NULL;
    struct list *pos = &first->same_address;
    do {
        r = container_of(pos, struct record, same_address);
        for (uint32_t i = 0; r->kind == RECORD_NATIVE && i < r->n_links; i++)
            if (r->links[i].service == service)
                return r;
        pos = pos->next;
    } while (pos != &first->same_address);
    return NULL;
}

/* --- hooking it in --- */

static void address_add(struct record *r, struct record *ring)
{
    list_add(&ring->same_address, &r->same_address);
}

static void address_del(struct store *s, struct record *r)
{
    bool named = map_get(&s->addresses, r->address) == r;
    struct list *other = r->same_address.next;
    bool alone = list_empty(&r->same_address);

    list_del(&r->same_address);
    if (!named)
        return;
    map_del(&s->addresses, r->address);
    if (!alone) {
        struct record *heir = container_of(other, struct record, same_address);
        /* A place was just freed, so this does not allocate. */
        BUG_ON(map_put(&s->addresses, heir->address, heir) != 0);
    }
}

static void links_del(struct store *s, struct record *r)
{
    while (r->n_links > 0) {
        struct service_link *l = &r->links[--r->n_links];
        list_del(&l->node);
        if (r->kind == RECORD_NACOS)
            l->service->n_nacos--;
        service_release(s, l->service);
    }
}

static int link_add(struct store *s, struct record *r, struct slice ns, struct slice grouped)
{
    struct service_link *l = &r->links[r->n_links];
    int rc = service_get(s, ns, grouped, &l->service);

    if (rc)
        return rc;
    for (uint32_t i = 0; i < r->n_links; i++)
        if (r->links[i].service == l->service)
            return 0; /* named twice */
    l->record = r;
    list_add(&l->service->links, &l->node);
    r->n_links++;
    if (r->kind == RECORD_NACOS && l->service->n_nacos++ == 0)
        l->service->ephemeral = r->ephemeral;
    return 0;
}

/** A native endpoint's services, as Nacos clients see them. */
static int links_native(struct store *s, struct record *r)
{
    struct key_text k;

    r->links = arena_array(&r->text, r->instance.n_services, sizeof(*r->links));
    if (!r->links)
        return WEIR_E_NOMEM;
    for (uint32_t i = 0; i < r->instance.n_services; i++) {
        struct slice name = r->instance.services[i];
        const char *at = memmem(name.p, name.n, "@@", 2);
        k.n = 0;
        k.over = false;
        if (!at)
            key_add(&k, SLICE(NACOS_GROUP "@@"));
        key_add(&k, name);
        int rc = k.over ? WEIR_E_INVALID : link_add(s, r, SLICE(NACOS_PUBLIC), key_slice(&k));
        if (rc)
            return rc;
    }
    return 0;
}

static void unhook(struct store *s, struct record *r)
{
    address_del(s, r);
    links_del(s, r);
    if (r->due.at)
        heap_remove(&s->due, &r->due);
    if (!list_empty(&r->node)) {
        list_del(&r->node);
        s->n--;
    }
}

/** Everything but the map of its kind, which comes last because it takes the old record's place. */
static int hook(struct store *s, struct record *r)
{
    struct record *ring = map_get(&s->addresses, r->address);
    int rc = 0;

    if (ring)
        address_add(r, ring);
    else
        rc = map_put(&s->addresses, r->address, r);
    if (!rc)
        rc = heap_push(&s->due, &r->due);
    if (rc)
        return rc;
    list_add(&s->records, &r->node);
    s->n++;
    return 0;
}

/** Put r into its map in place of old (or NULL), ask the sink, and free old; or take all back. */
static int settle(struct store *s, struct map *map, struct record *r, struct record *old)
{
    if (old)
        map_del(map, old->map_key);
    int rc = map_put(map, r->map_key, r);
    if (!rc)
        rc = sink_upsert(s, &r->instance);
    if (rc) {
        if (map_get(map, r->map_key) == r)
            map_del(map, r->map_key);
        /* Its place was freed above, so this does not allocate. */
        if (old)
            BUG_ON(map_put(map, old->map_key, old) != 0);
        return rc;
    }
    if (old) {
        unhook(s, old);
        record_free(s, old);
    }
    store_event(s, STORE_UPSERT, r, REASON_NONE);
    return 0;
}

static void discard(struct store *s, struct record *r)
{
    unhook(s, r);
    record_free(s, r);
}

/* --- native --- */

static int name_native(struct record *r)
{
    if (!r->instance.id.p)
        r->instance.id = r->address;
    struct slice parts[] = {SLICE("native/"), r->instance.id};
    r->map_key = r->instance.id;
    return record_join_key(r, parts, ARRAY_LEN(parts));
}

static void inherit_load(struct record *r, const struct record *old)
{
    r->has_load = old->has_load;
    r->load = old->load;
    r->has_load_epoch = old->has_load_epoch;
    r->has_load_seq = old->has_load_seq;
    r->load_epoch = old->load_epoch;
    r->load_seq = old->load_seq;
}

static int set_epoch(struct store *s, struct record *r, const struct record *old, bool given)
{
    r->epoch_given = given || (old && old->epoch_given);
    if (!given) {
        r->instance.epoch = old ? old->instance.epoch : s->next_epoch++;
        return 0;
    }
    if (old && ((old->epoch_given && r->instance.epoch < old->instance.epoch) ||
                (old->has_load_epoch && r->instance.epoch < old->load_epoch)))
        return WEIR_E_STALE;
    if (!r->has_load_epoch || r->instance.epoch > r->load_epoch) {
        r->has_load_epoch = true;
        r->has_load_seq = false;
        r->has_load = false;
        r->load_epoch = r->instance.epoch;
    }
    return 0;
}

int store_put(struct store *s,
              const struct native_put *put,
              uint64_t now_ns,
              struct record **out,
              bool *created)
{
    struct record *r;
    struct record *old = put->instance->id.p ? store_native(s, put->instance->id) : NULL;
    int rc;

    if (created)
        *created = old == NULL;
    if (!old && s->n >= s->o.records_max)
        return WEIR_E_FULL;
    rc = record_new(s, RECORD_NATIVE, put->instance, &r);
    if (rc)
        return rc;
    r->instance.probation = false;
    r->instance.vouched = true;
    r->ttl_ns = put->ttl_ns;
    r->alive_ns = now_ns;
    r->due_ns = now_ns + put->ttl_ns;
    if (old)
        inherit_load(r, old);
    rc = set_epoch(s, r, old, put->has_epoch);
    if (!rc)
        rc = name_native(r);
    if (!rc)
        rc = links_native(s, r);
    if (!rc)
        rc = hook(s, r);
    if (!rc)
        rc = settle(s, &s->native, r, old);
    if (rc) {
        discard(s, r);
        return rc;
    }
    *out = r;
    return 0;
}

void store_remove(struct store *s, struct record *r, enum store_reason reason)
{
    store_event(s, STORE_REMOVE, r, reason);
    if (s->o.sink.remove)
        s->o.sink.remove(s->o.sink.ctx, s->o.source, r->instance.key);
    map_del(r->kind == RECORD_NATIVE ? &s->native : &s->nacos, r->map_key);
    discard(s, r);
}

/* --- Nacos --- */

static int name_nacos(struct record *r, struct slice ns, struct slice grouped)
{
    struct slice key[] = {ns, SLICE("\n"), grouped, SLICE("\n"), r->address};
    struct slice told[] = {SLICE("nacos/"), ns, SLICE("/"), grouped, SLICE("/"), r->address};
    int rc = record_join(&r->text, key, ARRAY_LEN(key), &r->map_key);

    r->instance.id = r->address;
    return rc ? rc : record_join_key(r, told, ARRAY_LEN(told));
}

/** "llm" for DEFAULT_GROUP, else the grouped name. */
static struct slice plain_service(struct slice grouped)
{
    return slice_starts(grouped, SLICE(NACOS_GROUP "@@"))
               ? slice_from(grouped, sizeof(NACOS_GROUP "@@") - 1)
               : grouped;
}

int record_set_cluster(struct store *s, struct record *r, struct slice cluster)
{
    r->cluster = mem_strdup(s->o.mem, cluster);
    if (!r->cluster)
        return WEIR_E_NOMEM;
    r->instance.cluster = record_cluster(r->cluster);
    return 0;
}

/** A Nacos record outside of every table. */
static int nacos_new(struct store *s,
                     struct slice ns,
                     struct slice grouped,
                     struct slice cluster,
                     bool ephemeral,
                     const struct instance *in,
                     struct record **out)
{
    struct record *r;
    struct service *service = store_service(s, ns, grouped);

    if (service && service->n_nacos > 0 && service->ephemeral != ephemeral)
        return WEIR_E_UNSUPPORTED;
    if (s->n >= s->o.records_max)
        return WEIR_E_FULL;
    int rc = record_new(s, RECORD_NACOS, in, &r);
    if (rc)
        return rc;
    r->ephemeral = ephemeral;
    rc = record_set_cluster(s, r, cluster.n ? cluster : SLICE(NACOS_CLUSTER));
    if (!rc)
        rc = name_nacos(r, ns, grouped);
    if (!rc)
        rc = beat_rules(r, r->instance.metadata, r->instance.n_metadata);
    if (!rc && !(r->links = arena_array(&r->text, 1, sizeof(*r->links))))
        rc = WEIR_E_NOMEM;
    if (!rc)
        rc = link_add(s, r, ns, grouped);
    if (rc) {
        discard(s, r);
        return rc;
    }
    *out = r;
    return 0;
}

int nacos_create(struct store *s, const struct nacos_write *w, uint64_t now_ns, struct record **out)
{
    struct slice service = plain_service(w->grouped);
    struct instance in = {.services = &service,
                          .n_services = 1,
                          .host = w->host,
                          .port = w->port,
                          .weight = w->has_weight ? w->weight : WEIGHT_ONE,
                          .enabled = w->has_enabled ? w->enabled : true,
                          .healthy = w->has_healthy ? w->healthy : true,
                          .vouched = w->has_ephemeral ? w->ephemeral : true,
                          .metadata = w->metadata,
                          .n_metadata = w->n_metadata,
                          .epoch = s->next_epoch};
    struct record *r;
    int rc = nacos_new(s, w->ns, w->grouped, w->cluster, w->has_ephemeral ? w->ephemeral : true,
                       &in, &r);

    if (rc)
        return rc;
    r->alive_ns = now_ns;
    r->due_ns = lease_due(r, r->instance.healthy);
    rc = hook(s, r);
    if (!rc)
        rc = settle(s, &s->nacos, r, NULL);
    if (rc) {
        discard(s, r);
        return rc;
    }
    s->next_epoch++;
    *out = r;
    return 0;
}

/* --- saved state --- */

/** Bring in what clients last said, so that their next beat is judged as before the restart. */
static int restore_told(struct store *s, struct record *r, const struct saved_record *saved)
{
    struct meta *told;
    struct meta *both;
    bool visible;
    uint32_t n = 0;
    int rc = meta_merge(s->o.mem, NULL, saved->told, saved->n_told, META_CLIENT, &told, &visible);

    if (rc || !told)
        return rc;
    const struct instance *in = saved->instance;
    struct kv *delta = mem_array(s->o.mem, (size_t)told->n_kv + in->n_metadata, sizeof(*delta));
    if (!delta) {
        mem_free(s->o.mem, told);
        return WEIR_E_NOMEM;
    }
    for (uint32_t i = 0; i < told->n_kv; i++)
        if (!meta_get(in->metadata, in->n_metadata, told->kv[i].key).p)
            delta[n++] = (struct kv){told->kv[i].key, SLICE("")};
    for (uint32_t i = 0; i < in->n_metadata; i++)
        delta[n++] = in->metadata[i];
    rc = meta_merge(s->o.mem, told, delta, n, META_OPERATOR, &both, &visible);
    if (!rc) {
        mem_free(s->o.mem, r->meta);
        r->meta = both ? both : told;
        r->instance.metadata = r->meta->kv;
        r->instance.n_metadata = r->meta->n_kv;
    }
    if (rc || both)
        mem_free(s->o.mem, told);
    mem_free(s->o.mem, delta);
    return rc;
}

static int restore_new(struct store *s, const struct saved_record *saved, struct record **out)
{
    if (saved->kind == RECORD_NATIVE) {
        if (s->n >= s->o.records_max)
            return WEIR_E_FULL;
        int rc = record_new(s, RECORD_NATIVE, saved->instance, out);
        if (rc)
            return rc;
        rc = name_native(*out);
        if (!rc && store_native(s, (*out)->instance.id))
            rc = WEIR_E_EXISTS;
        if (!rc)
            rc = links_native(s, *out);
        if (rc)
            discard(s, *out);
        return rc;
    }
    struct buf address;
    buf_init(&address, s->o.mem, KEY_MAX);
    store_address(&address, saved->instance->host, saved->instance->port);
    struct key_text k;
    nacos_key(&k, saved->ns, saved->grouped, buf_slice(&address));
    int rc = address.err ? address.err : k.over ? WEIR_E_INVALID : 0;
    buf_fini(&address);
    if (rc)
        return rc;
    if (map_get(&s->nacos, key_slice(&k)))
        return WEIR_E_EXISTS;
    struct slice service = plain_service(saved->grouped);
    struct instance in = *saved->instance;
    in.services = &service;
    in.n_services = 1;
    rc = nacos_new(s, saved->ns, saved->grouped, saved->cluster, saved->ephemeral, &in, out);
    if (!rc) {
        rc = restore_told(s, *out, saved);
        if (rc)
            discard(s, *out);
    }
    return rc;
}

int store_restore(struct store *s, const struct saved_record *saved, uint64_t now_ns)
{
    struct record *r;
    int rc = restore_new(s, saved, &r);

    if (rc)
        return rc;
    r->instance.probation = true;
    r->instance.vouched = saved->kind == RECORD_NATIVE || saved->ephemeral;
    r->client_weight = saved->client_weight;
    r->client_enabled = saved->client_enabled;
    r->weight_held = saved->weight_held;
    r->enabled_held = saved->enabled_held;
    r->epoch_given = saved->epoch_given;
    if (r->epoch_given) {
        r->has_load_epoch = true;
        r->load_epoch = r->instance.epoch;
    } else if (r->instance.epoch >= s->next_epoch) {
        s->next_epoch = r->instance.epoch + 1;
    }
    r->ttl_ns = saved->ttl_ns;
    r->alive_ns = now_ns;
    r->due_ns = lease_due(r, r->instance.healthy);
    rc = hook(s, r);
    if (!rc)
        rc = settle(s, r->kind == RECORD_NATIVE ? &s->native : &s->nacos, r, NULL);
    if (rc)
        discard(s, r);
    return rc;
}

void store_fini(struct store *s)
{
    weir_list_foreach_safe (pos, &s->records)
        record_free(s, container_of(pos, struct record, node));
    weir_list_foreach_safe (pos, &s->services) {
        struct service *v = container_of(pos, struct service, node);
        mem_free(s->o.mem, (char *)(uintptr_t)v->key.p);
        mem_free(s->o.mem, v);
    }
    map_fini(&s->native);
    map_fini(&s->nacos);
    map_fini(&s->addresses);
    map_fini(&s->by_service);
    heap_fini(&s->due);
}
