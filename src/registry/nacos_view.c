/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/nacos_view.h"

#include <stdlib.h>

#include "base/bug.h"
#include "base/num.h"
#include "loop/alloc.h"
#include "registry/native_json.h"

/* --- metadata as shown --- */

enum { DERIVED_MAX = 16, CLUSTERS_SHOWN = 64 };

/** Metadata under way: registered keys, then those derived from typed fields. */
struct shown {
    struct arena *a;
    struct kv *kv;
    uint32_t n;
    struct buf text; /**< scratch */
    int rc;
};

static struct kv *at_key(struct shown *s, struct slice key)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (slice_eq(s->kv[i].key, key))
            return &s->kv[i];
    return NULL;
}

/** Take the scratch text as the value of a key, over what is there only when `live`. */
static void show(struct shown *s, struct slice key, bool live)
{
    struct kv *e = at_key(s, key);
    struct slice value;

    if (!s->rc)
        s->rc = s->text.err;
    if (!s->rc)
        s->rc = arena_slice(s->a, buf_slice(&s->text), &value);
    buf_clear(&s->text);
    if (s->rc || (e && !live))
        return;
    if (!e)
        e = &s->kv[s->n++];
    *e = (struct kv){key, value};
}

static void show_u64(struct shown *s, struct slice key, uint64_t v, bool live)
{
    buf_put_u64(&s->text, v);
    show(s, key, live);
}

static void show_text(struct shown *s, struct slice key, struct slice v)
{
    if (!v.n)
        return;
    buf_put_slice(&s->text, v);
    show(s, key, false);
}

static void show_identity(struct shown *s, const struct instance *i)
{
    if (i->n_devices)
        show_text(s, SLICE("gpu_type"), i->devices[0].type);
    for (uint32_t m = 0; m < i->n_models; m++) {
        buf_put_str(&s->text, m ? "," : "");
        buf_put_slice(&s->text, i->models[m].id);
    }
    if (i->n_models) {
        show(s, SLICE("model_id"), false);
        show_text(s, SLICE("model_version"), i->models[0].version);
    }
    if (i->max_concurrency)
        show_u64(s, SLICE("max_concurrency"), i->max_concurrency, false);
    if (i->max_model_len)
        show_u64(s, SLICE("max_model_len"), i->max_model_len, false);
    const char *engine = native_engine_word(i->engine);
    if (engine)
        show_text(s, SLICE("engine"), slice_str(engine));
}

static void show_load(struct shown *s, const struct sample *l)
{
    if (sample_has(l, SAMPLE_MEMORY_FREE)) {
        buf_put_f64(&s->text, (double)l->memory_free_bytes / (double)GIB, 3);
        show(s, SLICE("remaining_memory"), true);
    }
    if (sample_has(l, SAMPLE_GPU_UTIL)) {
        buf_put_f64(&s->text, (double)l->gpu_util_bp / 100, 2);
        show(s, SLICE("gpu_util"), true);
    }
    if (sample_has(l, SAMPLE_RUNNING))
        show_u64(s, SLICE("current_requests"), l->running, true);
    if (sample_has(l, SAMPLE_WAITING))
        show_u64(s, SLICE("queue_length"), l->waiting, true);
    if (sample_has(l, SAMPLE_STATE)) {
        buf_put_str(&s->text, native_state_word(l->state));
        show(s, SLICE("health_status"), true);
    }
}

static int show_metadata(const struct registry *registry,
                         struct arena *a,
                         const struct record *r,
                         struct nacos_host_view *out)
{
    const struct instance *i = &r->instance;
    struct shown s = {.a = a};
    uint32_t live;

    s.kv = arena_array(a, i->n_metadata + DERIVED_MAX, sizeof(*s.kv));
    if (!s.kv)
        return WEIR_E_NOMEM;
    if (i->n_metadata)
        memcpy(s.kv, i->metadata, i->n_metadata * sizeof(*s.kv));
    s.n = i->n_metadata;
    buf_init(&s.text, loop_mem(), REGISTRY_BODY_MAX);
    show_identity(&s, i);
    if (r->has_load)
        show_load(&s, &r->load);
    if (registry_requests(registry, r, &live))
        show_u64(&s, SLICE("current_requests"), live, true);
    buf_fini(&s.text);
    out->metadata = s.kv;
    out->n_metadata = s.n;
    return s.rc;
}

static struct slice cluster_of(const struct record *r)
{
    if (r->kind == RECORD_NACOS)
        return slice_str(r->cluster);
    return nacos_cluster_ok(r->instance.cluster) ? r->instance.cluster : SLICE(NACOS_CLUSTER);
}

int nacos_view(const struct registry *registry,
               struct arena *a,
               const struct record *r,
               struct slice grouped,
               struct nacos_host_view *out)
{
    *out = (struct nacos_host_view){.grouped = grouped,
                                    .host = r->instance.host,
                                    .cluster = cluster_of(r),
                                    .port = r->instance.port,
                                    .weight = r->instance.weight,
                                    .healthy = r->instance.healthy,
                                    .enabled = r->instance.enabled && !r->instance.draining,
                                    .ephemeral = r->ephemeral,
                                    .interval_ms = r->interval_ms,
                                    .timeout_ms = r->timeout_ms,
                                    .delete_ms = r->delete_ms};
    return show_metadata(registry, a, r, out);
}

/* --- list --- */

static bool in_clusters(const struct record *r, struct slice clusters)
{
    struct slice piece;
    bool any = false;

    while (clusters.p && slice_cut(&clusters, ',', &piece)) {
        piece = slice_trim(piece);
        if (slice_eq(piece, cluster_of(r)) && piece.n)
            return true;
        any |= piece.n > 0;
    }
    return !any;
}

/** A native endpoint whose address has a Nacos instance in the same service is that instance: it is shown once. */
static bool shadowed(const struct service *service, const struct record *r)
{
    if (r->kind != RECORD_NATIVE)
        return false;
    weir_list_foreach (pos, &r->same_address) {
        const struct record *other = container_of(pos, struct record, same_address);
        if (other->kind == RECORD_NACOS && other->links[0].service == service)
            return true;
    }
    return false;
}

static bool listed(const struct service *service, const struct record *r, struct slice clusters)
{
    return r->instance.enabled && !r->instance.draining && in_clusters(r, clusters) &&
           !shadowed(service, r);
}

/** Too few are healthy: better all of them than the few. */
static bool protect(const struct service *service, struct slice clusters)
{
    uint32_t total = 0;
    uint32_t healthy = 0;

    weir_list_foreach (pos, &service->links) {
        const struct record *r = container_of(pos, struct service_link, node)->record;
        if (!listed(service, r, clusters))
            continue;
        total++;
        healthy += r->instance.healthy;
    }
    return total > 0 && (double)healthy / total <= service->protect_threshold;
}

static int write_hosts(const struct registry *registry,
                       struct arena *a,
                       const struct service *service,
                       const struct nacos_list_view *v,
                       bool healthy_only,
                       struct buf *out)
{
    bool first = true;

    weir_list_foreach (pos, &service->links) {
        const struct record *r = container_of(pos, struct service_link, node)->record;
        struct nacos_host_view host;
        struct arena one;
        if (!listed(service, r, v->clusters) ||
            (healthy_only && !v->protected_ && !r->instance.healthy))
            continue;
        /* An arena each: the list may be long. */
        arena_init(&one, a->mem, a->max);
        int rc = nacos_view(registry, &one, r, service->grouped, &host);
        if (!rc) {
            host.healthy |= v->protected_;
            nacos_write_host(out, &host, first);
        }
        arena_fini(&one);
        if (rc)
            return rc;
        first = false;
    }
    return 0;
}

int nacos_write_service(const struct registry *registry,
                        struct arena *a,
                        const struct service *service,
                        struct nacos_list_view *v,
                        bool healthy_only,
                        bool bare,
                        struct buf *out)
{
    v->protected_ = service && protect(service, v->clusters);
    if (bare)
        buf_put_char(out, '[');
    else
        nacos_write_list_begin(out, v);
    int rc = service ? write_hosts(registry, a, service, v, healthy_only, out) : 0;
    if (bare)
        buf_put_char(out, ']');
    else
        nacos_write_list_end(out, v);
    return rc;
}

/* --- services --- */

void nacos_write_service_info(struct buf *out, const struct service *service)
{
    buf_put_str(out, "{\"namespaceId\":");
    buf_put_json(out, service->ns);
    buf_put_str(out, ",\"groupName\":");
    buf_put_json(out, nacos_group_of(service->grouped));
    buf_put_str(out, ",\"name\":");
    buf_put_json(out, nacos_name_of(service->grouped));
    buf_put_str(out, ",\"protectThreshold\":");
    buf_put_f64(out, service->protect_threshold, 9);
    if (service->protect_threshold == 0 || service->protect_threshold == 1)
        buf_put_str(out, ".0");
    buf_put_str(out, ",\"metadata\":{},\"selector\":{\"type\":\"none\"},\"clusters\":[");
    /* Clusters are attributes of instances here: the first that occur are named, each once. */
    struct slice named[CLUSTERS_SHOWN];
    uint32_t n = 0;
    weir_list_foreach (pos, &service->links) {
        struct slice cluster = cluster_of(container_of(pos, struct service_link, node)->record);
        uint32_t i = 0;
        while (i < n && !slice_eq(named[i], cluster))
            i++;
        if (i < n || n == CLUSTERS_SHOWN)
            continue;
        buf_put_str(out, n ? ",{\"name\":" : "{\"name\":");
        buf_put_json(out, cluster);
        buf_put_str(out, ",\"metadata\":{},\"healthChecker\":{\"type\":\"NONE\"}}");
        named[n++] = cluster;
    }
    buf_put_str(out, "]}");
}

static int by_name(const void *a, const void *b)
{
    return slice_cmp(*(const struct slice *)a, *(const struct slice *)b);
}

int nacos_find_services(const struct store *store,
                        struct arena *a,
                        struct slice ns,
                        struct slice group,
                        uint64_t page,
                        uint64_t size,
                        struct nacos_names *out)
{
    struct slice *names = arena_array(a, store->by_service.n, sizeof(*names));
    uint32_t n = 0;

    if (!names)
        return WEIR_E_NOMEM;
    weir_list_foreach (pos, &store->services) {
        const struct service *v = container_of(pos, struct service, node);
        if (slice_eq(v->ns, ns) && slice_eq(nacos_group_of(v->grouped), group))
            names[n++] = nacos_name_of(v->grouped);
    }
    qsort(names, n, sizeof(*names), by_name);
    uint64_t from = MIN((page - 1) * size, (uint64_t)n);
    *out =
        (struct nacos_names){.count = n, .list = names + from, .n = (uint32_t)MIN(n - from, size)};
    return 0;
}

void nacos_write_services(const struct nacos_names *names, struct buf *out)
{
    buf_put_str(out, "{\"count\":");
    buf_put_u64(out, names->count);
    buf_put_str(out, ",\"doms\":[");
    for (uint32_t i = 0; i < names->n; i++) {
        buf_put_str(out, i ? "," : "");
        buf_put_json(out, names->list[i]);
    }
    buf_put_str(out, "]}");
}
