/* SPDX-License-Identifier: Apache-2.0 */
/** @file Changes to records that are there: renewals, beats, load reports, edits, expiry. */
#include "registry/store_priv.h"

#include "base/bug.h"
#include "base/num.h"

/* --- leases --- */

uint64_t lease_due(const struct record *r, bool healthy)
{
    if (r->kind == RECORD_NATIVE)
        return r->alive_ns + r->ttl_ns;
    if (!r->ephemeral || r->kept)
        return UINT64_MAX;
    uint64_t gone = r->alive_ns + r->delete_ms * NS_PER_MS;
    uint64_t sick = r->alive_ns + r->timeout_ms * NS_PER_MS;
    return healthy && sick < gone ? sick : gone;
}

static void reschedule(struct store *s, struct record *r)
{
    r->due_ns = lease_due(r, r->instance.healthy);
    heap_update(&s->due, &r->due);
}

uint64_t store_next_due(const struct store *s)
{
    struct heap_node *top = heap_top(&s->due);

    return top ? container_of(top, struct record, due)->due_ns : UINT64_MAX;
}

static uint32_t rule(const struct kv *metadata, uint32_t n, struct slice key, uint32_t otherwise)
{
    uint64_t v;
    struct slice text = meta_get(metadata, n, key);

    /* As the reference server: what is no number counts as not given. A day is more than any lease needs. */
    if (!text.p || num_u64(text, &v) || v == 0 || v > 86400000)
        return otherwise;
    return (uint32_t)v;
}

int beat_rules(struct record *r, const struct kv *metadata, uint32_t n)
{
    uint32_t interval =
        rule(metadata, n, SLICE("preserved.heart.beat.interval"), NACOS_BEAT_INTERVAL_MS);
    uint32_t timeout =
        rule(metadata, n, SLICE("preserved.heart.beat.timeout"), NACOS_BEAT_TIMEOUT_MS);
    uint32_t gone =
        rule(metadata, n, SLICE("preserved.ip.delete.timeout"), NACOS_DELETE_TIMEOUT_MS);

    if (timeout < interval || gone < interval)
        return WEIR_E_RANGE;
    r->interval_ms = interval;
    r->timeout_ms = timeout;
    r->delete_ms = gone;
    return 0;
}

/* --- one door for every change of a record --- */

static bool differs(const struct instance *a, const struct instance *b)
{
    return a->weight != b->weight || a->enabled != b->enabled || a->healthy != b->healthy ||
           a->probation != b->probation || !slice_eq(a->cluster, b->cluster);
}

/**
 * Change r into *next with the metadata delta merged. Nothing changes unless everything does.
 * @param noted something that only has to be saved changes too.
 */
static int apply(struct store *s,
                 struct record *r,
                 struct instance *next,
                 const struct nacos_write *w,
                 enum meta_writer writer,
                 bool noted)
{
    struct meta *m = NULL;
    bool visible = false;
    int rc = 0;
    uint32_t interval = r->interval_ms;
    uint32_t timeout = r->timeout_ms;
    uint32_t gone = r->delete_ms;

    if (w)
        rc = meta_merge(s->o.mem, r->meta, w->metadata, w->n_metadata, writer, &m, &visible);
    if (rc)
        return rc;
    if (m) {
        next->metadata = m->kv;
        next->n_metadata = m->n_kv;
        if (r->kind == RECORD_NACOS)
            rc = beat_rules(r, m->kv, m->n_kv);
    }
    visible |= differs(next, &r->instance);
    if (!rc && visible)
        rc = sink_upsert(s, next);
    if (rc) {
        r->interval_ms = interval;
        r->timeout_ms = timeout;
        r->delete_ms = gone;
        mem_free(s->o.mem, m);
        return rc;
    }
    r->instance = *next;
    if (m) {
        mem_free(s->o.mem, r->meta);
        r->meta = m;
    }
    reschedule(s, r);
    if (visible)
        store_event(s, STORE_UPSERT, r, REASON_NONE);
    else if (m || noted)
        store_event(s, STORE_NOTED, r, REASON_NONE);
    return 0;
}

int store_renew(struct store *s, struct record *r, uint64_t now_ns)
{
    struct instance next = r->instance;

    next.probation = false;
    next.healthy = true;
    r->alive_ns = now_ns;
    return apply(s, r, &next, NULL, META_CLIENT, false);
}

int store_load(struct store *s, struct record *r, const struct sample *load, uint64_t now_ns)
{
    if (r->has_load_epoch &&
        (load->epoch < r->load_epoch ||
         (load->epoch == r->load_epoch && r->has_load_seq && load->seq <= r->load_seq)))
        return WEIR_E_STALE;
    int rc = store_renew(s, r, now_ns);
    if (!rc && s->o.sink.sample)
        rc = s->o.sink.sample(s->o.sink.ctx, s->o.source, r->instance.key, load);
    if (rc)
        return rc;
    r->has_load = r->has_load_epoch = r->has_load_seq = true;
    r->load_epoch = load->epoch;
    r->load_seq = load->seq;
    r->load = *load;
    return 0;
}

int store_nacos_register(struct store *s,
                         const struct nacos_write *w,
                         uint64_t now_ns,
                         struct record **out)
{
    struct buf address;
    buf_init(&address, s->o.mem, 1024);
    store_address(&address, w->host, w->port);
    int rc = address.err;
    struct record *r = rc ? NULL : store_find_nacos(s, w->ns, w->grouped, buf_slice(&address));
    buf_fini(&address);

    if (rc)
        return rc;
    if (!r || r->kind != RECORD_NACOS)
        return nacos_create(s, w, now_ns, out);
    if ((w->has_ephemeral ? w->ephemeral : true) != r->ephemeral)
        return WEIR_E_UNSUPPORTED;

    struct instance next = r->instance;
    char *old_cluster = r->cluster;
    uint32_t weight = w->has_weight ? w->weight : r->client_weight;
    bool enabled = w->has_enabled ? w->enabled : r->client_enabled;
    bool moved = w->cluster.n && !slice_eq(w->cluster, slice_str(r->cluster));
    struct slice was = r->instance.cluster;
    if (moved) {
        rc = record_set_cluster(s, r, w->cluster);
        next.cluster = r->instance.cluster;
        r->instance.cluster = was;
        if (rc) {
            r->cluster = old_cluster;
            return rc;
        }
    }
    if (!r->weight_held)
        next.weight = weight;
    if (!r->enabled_held)
        next.enabled = enabled;
    next.healthy = w->has_healthy ? w->healthy : true;
    next.probation = false;
    uint64_t was_alive = r->alive_ns;
    r->alive_ns = now_ns;
    rc = apply(s, r, &next, w, META_CLIENT,
               weight != r->client_weight || enabled != r->client_enabled || moved);
    if (rc) {
        r->alive_ns = was_alive;
        if (moved)
            mem_free(s->o.mem, r->cluster);
        r->cluster = old_cluster;
        return rc;
    }
    if (moved)
        mem_free(s->o.mem, old_cluster);
    r->client_weight = weight;
    r->client_enabled = enabled;
    *out = r;
    return 0;
}

int store_nacos_beat(struct store *s,
                     struct record *r,
                     const struct nacos_write *w,
                     uint64_t now_ns)
{
    struct instance next = r->instance;

    /* A beat proves life even when its metadata cannot be taken. */
    r->alive_ns = now_ns;
    next.healthy = true;
    next.probation = false;
    int rc = apply(s, r, &next, w, META_CLIENT, false);
    if (rc)
        reschedule(s, r);
    return rc;
}

void store_nacos_keep(struct store *s, struct record *r, bool kept, uint64_t now_ns)
{
    r->kept = kept;
    r->alive_ns = now_ns;
    reschedule(s, r);
}

int store_edit(struct store *s, struct record *r, const struct nacos_write *w)
{
    struct instance next = r->instance;

    if (w->has_weight)
        next.weight = w->weight;
    if (w->has_enabled)
        next.enabled = w->enabled;
    if (w->has_healthy && r->kind == RECORD_NACOS)
        next.healthy = w->healthy;
    bool held = (w->has_weight && !r->weight_held) || (w->has_enabled && !r->enabled_held);
    int rc = apply(s, r, &next, w, META_OPERATOR, held);
    if (rc)
        return rc;
    r->weight_held |= w->has_weight;
    r->enabled_held |= w->has_enabled;
    return 0;
}

void store_expire(struct store *s, uint64_t now_ns)
{
    for (;;) {
        struct heap_node *top = heap_top(&s->due);
        if (!top || container_of(top, struct record, due)->due_ns > now_ns)
            return;
        struct record *r = container_of(top, struct record, due);
        if (r->kind == RECORD_NATIVE || now_ns >= r->alive_ns + r->delete_ms * NS_PER_MS) {
            store_remove(s, r, REASON_EXPIRED);
            continue;
        }
        struct instance next = r->instance;
        next.healthy = false;
        if (apply(s, r, &next, NULL, META_CLIENT, false) != 0) {
            /* The sink could not take it: it learns when the instance goes. */
            r->instance.healthy = false;
            reschedule(s, r);
        }
    }
}
