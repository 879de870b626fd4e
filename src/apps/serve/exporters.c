/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/serve/exporters.h"

#include "base/bug.h"
#include "base/hash.h"
#include "base/map.h"
#include "gpu/exporter.h"
#include "gpu/sample_codec.h"
#include "loop/alloc.h"
#include "loop/log.h"
#include "wire/url.h"

enum { URL_MAX = 2048, MISSES = 3, INTERVALS = 3, FIRST_MEMBERS = 8 };

/* One page that is asked for, and who may have devices on it. */
struct page {
    struct exporters *owner;
    char *url;
    struct slice host; /* of the URL */
    struct gpu_exporter *exporter;
    bool seen, fixed, up, said, puzzled;
    unsigned misses;
    struct one {
        uint32_t index; /* in the snapshot */
        bool fed;       /* by this page, since then */
    } * members;
    uint32_t n, cap;
};

struct exporters {
    struct exporters_options o;
    const struct snapshot *snapshot;
    struct map pages; /* URL to page */
    struct gpu_reading chosen[GPU_DEVICES_MAX];
};

static const struct member *member_at(const struct page *p, uint32_t i)
{
    return &p->owner->snapshot->members[p->members[i].index];
}

/* --- whose devices --- */

static struct slice value_of(const struct endpoint *e, const char *key)
{
    for (uint32_t i = 0; i < e->n_labels; i++)
        if (slice_eq(e->labels[i].key, slice_str(key)))
            return e->labels[i].value;
    for (uint32_t i = 0; i < e->n_metadata; i++)
        if (slice_eq(e->metadata[i].key, slice_str(key)))
            return e->metadata[i].value;
    return (struct slice){NULL, 0};
}

static bool at_host(const struct page *p, const struct endpoint *e)
{
    return !p->fixed || slice_eq_nocase(p->host, e->host) ||
           slice_eq_nocase(p->host, value_of(e, "node"));
}

/* By UUID, all of them. @return how many; 0: not here. */
static uint32_t
registered(struct page *p, const struct endpoint *e, const struct gpu_exported *rows, uint32_t n)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < e->n_devices && found == i && i < GPU_DEVICES_MAX; i++)
        for (uint32_t k = 0; k < n; k++)
            if (slice_eq(e->devices[i].uuid, slice_str(rows[k].reading.uuid))) {
                p->owner->chosen[found++] = rows[k].reading;
                break;
            }
    return found == e->n_devices ? found : 0;
}

/* Has it a word of its own on which devices are its? */
static bool tells(const struct endpoint *e, bool found_out)
{
    return (e->n_devices && e->devices[0].uuid.n && !found_out) || value_of(e, "gpus").n;
}

/* @param mine how many of this host's endpoints have no word of their own. @return how many; 0: not known. */
static uint32_t devices_of(struct page *p,
                           const struct endpoint *e,
                           const struct gpu_exported *rows,
                           uint32_t n,
                           uint32_t mine)
{
    struct gpu_reading *out = p->owner->chosen;
    struct slice select = value_of(e, "gpus");

    if (e->n_devices && e->devices[0].uuid.n && !e->devices_probed)
        return registered(p, e, rows, n);
    if (select.n) {
        /* An index means nothing on the page of another host. */
        bool uuids = select.p[0] == 'G' || select.p[0] == 'M';
        int rc = at_host(p, e) || uuids ? gpu_exported_choose(rows, n, select, out) : 0;
        return rc > 0 ? (uint32_t)rc : 0;
    }
    uint32_t found =
        gpu_exported_of_pod(rows, n, value_of(e, "namespace"), value_of(e, "pod"), out);
    if (found || !at_host(p, e))
        return found;
    int all = gpu_exported_choose(rows, n, SLICE("all"), out);
    return all == 1 || (all > 1 && mine == 1) ? (uint32_t)all : 0;
}

static void tell(struct page *p, const struct member *m, uint32_t n)
{
    const struct exporters_options *o = &p->owner->o;
    const struct gpu_reading *r = p->owner->chosen;
    struct device devices[GPU_DEVICES_MAX];
    struct sample s = {.fresh_for_ns = INTERVALS * o->conf->interval_ns};

    (void)gpu_sample(&s, r, n);
    for (uint32_t i = 0; i < n; i++)
        devices[i] = (struct device){.uuid = slice_str(r[i].uuid),
                                     .type = gpu_type_of(slice_str(r[i].name)),
                                     .memory_total_bytes =
                                         r[i].known & GPU_MEMORY ? r[i].memory_total_bytes : 0};
    if (m->endpoint->n_devices == 0 || m->endpoint->devices_probed)
        o->on_devices(o->ctx, m, devices, n);
    o->on_sample(o->ctx, m, &s);
}

static void forget(struct page *p)
{
    const struct exporters_options *o = &p->owner->o;
    const struct sample none = {0};

    for (uint32_t i = 0; i < p->n; i++)
        if (p->members[i].fed)
            o->on_sample(o->ctx, member_at(p, i), &none);
}

static void on_page(void *ctx, const struct gpu_exported *rows, uint32_t n, const char *why)
{
    struct page *p = ctx;
    uint32_t mine = 0;
    uint32_t unknown = 0;

    if (why) {
        if (p->up || !p->said)
            log_warn("gpu", "exporter %s tells nothing: %s", p->url, why);
        p->said = true;
        p->up = false;
        if (++p->misses == MISSES)
            forget(p);
        return;
    }
    if (!p->up)
        log_info("gpu", "exporter %s tells of %u devices", p->url, n);
    p->up = true;
    p->misses = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        const struct endpoint *e = member_at(p, i)->endpoint;
        mine += at_host(p, e) && !tells(e, e->devices_probed);
    }
    for (uint32_t i = 0; i < p->n; i++) {
        const struct member *m = member_at(p, i);
        uint32_t found = devices_of(p, m->endpoint, rows, n, mine);
        p->members[i].fed = p->members[i].fed || found;
        if (found)
            tell(p, m, found);
        else
            unknown += at_host(p, m->endpoint);
    }
    if (unknown && !p->puzzled)
        log_warn("gpu",
                 "exporter %s: of %u endpoints it is not known which devices are theirs; label or "
                 "metadata gpus: \"0,1\" says it",
                 p->url, unknown);
    p->puzzled = unknown > 0;
}

/* --- which pages --- */

static void drop(struct exporters *x, struct page *p)
{
    map_del(&x->pages, slice_str(p->url));
    gpu_exporter_free(p->exporter);
    mem_free(loop_mem(), p->url);
    mem_free(loop_mem(), p->members);
    mem_free(loop_mem(), p);
}

static int start(struct exporters *x, struct page *p)
{
    const struct conf_gpu_exporters *c = x->o.conf;
    const struct gpu_exporter_options o = {
        .loop = x->o.loop,
        .fetcher = x->o.fetcher,
        .url = p->url,
        .tls = x->o.tls,
        .interval_ns = c->interval_ns,
        .timeout_ns = c->timeout_ns,
        .shift_ns = c->interval_ns / 2048 * (hash_slice(slice_str(p->url), 0) % 1024),
        .on_page = on_page,
        .ctx = p,
    };

    return gpu_exporter_new(&o, &p->exporter);
}

static struct page *page_of(struct exporters *x, struct slice url, bool fixed)
{
    struct page *p = map_get(&x->pages, url);
    struct url parts;

    if (p)
        return p;
    p = mem_zalloc(loop_mem(), sizeof(*p));
    if (!p)
        return NULL;
    p->owner = x;
    p->fixed = fixed;
    p->url = mem_strdup(loop_mem(), url);
    if (p->url && wire_url_parse(slice_str(p->url), &parts) == 0)
        p->host = parts.host;
    if (!p->url || map_put(&x->pages, slice_str(p->url), p) != 0) {
        mem_free(loop_mem(), p->url);
        mem_free(loop_mem(), p);
        return NULL;
    }
    if (start(x, p) != 0) {
        drop(x, p);
        return NULL;
    }
    return p;
}

static int add_member(struct page *p, uint32_t index)
{
    if (p->n == p->cap) {
        uint32_t cap = p->cap ? 2 * p->cap : FIRST_MEMBERS;
        struct one *more = mem_resize(loop_mem(), p->members, cap, sizeof(*more));
        if (!more)
            return WEIR_E_NOMEM;
        p->members = more;
        p->cap = cap;
    }
    p->members[p->n++] = (struct one){.index = index};
    return 0;
}

/* @return false when the endpoint has nothing to stand for the placeholder. */
static bool expand(struct slice url, const struct endpoint *e, struct buf *out, bool *fixed)
{
    size_t at = slice_find(url, '{');
    bool node = slice_starts(slice_from(url, at), SLICE("{node}"));
    struct slice value = node ? value_of(e, "node") : e->host;

    *fixed = at == url.n;
    buf_clear(out);
    buf_put_slice(out, slice_of(url.p, at));
    if (!*fixed) {
        bool literal6 = slice_find(value, ':') < value.n;
        for (size_t i = 0; i < value.n; i++)
            if (value.p[i] <= ' ' || value.p[i] == '/' || value.p[i] == '@' || value.p[i] == '{' ||
                value.p[i] == '%' || value.p[i] == '?' || value.p[i] == '#')
                return false;
        if (value.n == 0)
            return false;
        buf_put_str(out, literal6 ? "[" : "");
        buf_put_slice(out, value);
        buf_put_str(out, literal6 ? "]" : "");
        buf_put_slice(out, slice_from(url, at + SLICE("{host}").n));
    }
    return out->err == 0;
}

int exporters_sync(struct exporters *x, const struct snapshot *s)
{
    const struct conf_gpu_exporters *c = x->o.conf;
    struct buf url;
    int rc = 0;

    x->snapshot = s;
    map_foreach(at, &x->pages)
    {
        struct page *p = at->value;
        p->seen = false;
        p->n = 0;
    }
    buf_init(&url, loop_mem(), URL_MAX);
    for (uint32_t i = 0; i < s->n_members && c->n_urls; i++)
        for (uint32_t k = 0; k < c->n_urls; k++) {
            bool fixed;
            if (!expand(c->urls[k], s->members[i].endpoint, &url, &fixed))
                continue;
            struct page *p = page_of(x, buf_slice(&url), fixed);
            if (!p || add_member(p, i) != 0)
                rc = WEIR_E_NOMEM;
            if (p)
                p->seen = true;
        }
    buf_fini(&url);
    for (bool again = true; again;) {
        struct page *gone = NULL;
        map_foreach(at, &x->pages) if (!((struct page *)at->value)->seen) gone = at->value;
        again = gone != NULL;
        if (gone)
            drop(x, gone);
    }
    return rc;
}

static void drop_all(struct exporters *x)
{
    for (;;) {
        struct page *any = NULL;
        map_foreach(at, &x->pages) any = at->value;
        if (!any)
            return;
        drop(x, any);
    }
}

static bool same(const struct conf_gpu_exporters *a, const struct conf_gpu_exporters *b)
{
    bool same = a->n_urls == b->n_urls && a->interval_ns == b->interval_ns &&
                a->timeout_ns == b->timeout_ns;

    for (uint32_t i = 0; same && i < a->n_urls; i++)
        same = slice_eq(a->urls[i], b->urls[i]);
    return same;
}

int exporters_reconfigure(struct exporters *x,
                          const struct conf_gpu_exporters *conf,
                          const struct snapshot *s)
{
    bool changed = !same(x->o.conf, conf);

    x->o.conf = conf;
    if (!changed)
        return 0;
    /* What they said goes stale on its own, or is said again at once. */
    drop_all(x);
    return exporters_sync(x, s);
}

int exporters_new(const struct exporters_options *o, struct exporters **out)
{
    struct exporters *x = mem_zalloc(loop_mem(), sizeof(*x));

    if (!x)
        return WEIR_E_NOMEM;
    x->o = *o;
    map_init(&x->pages, loop_mem());
    *out = x;
    return 0;
}

void exporters_free(struct exporters *x)
{
    if (!x)
        return;
    drop_all(x);
    map_fini(&x->pages);
    mem_free(loop_mem(), x);
}
