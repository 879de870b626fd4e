/* SPDX-License-Identifier: Apache-2.0 */
/* Which route takes a request. The path is compared first; what else a route asks for is looked at only where it fits. */
#include "base/num.h"
#include "proxy/exchange.h"
#include "wire/url.h"

static const struct slice any = {"*", 1};

static bool listed(const struct slice *list, uint32_t n, struct slice v)
{
    for (uint32_t i = 0; i < n; i++)
        if (slice_eq(list[i], v))
            return true;
    return n == 0;
}

/* The host of a request: without port and, of an IPv6 address, brackets. Absolute targets name it too, and count. */
static struct slice host_of(const struct http1_head *h)
{
    static const struct slice scheme = SLICE("http://");
    struct slice host = wire_http1_value(h, SLICE("Host"));

    if (h->target.n > scheme.n && slice_eq_nocase(slice_of(h->target.p, scheme.n), scheme)) {
        host = slice_from(h->target, scheme.n);
        host.n = MIN(slice_find(host, '/'), slice_find(host, '?'));
    }
    if (host.n && host.p[0] == '[') {
        size_t end = slice_find(host, ']');
        return end < host.n ? slice_of(host.p + 1, end - 1) : host;
    }
    host.n = slice_find(host, ':');
    return host;
}

static bool host_ok(const struct route_match *m, struct slice host)
{
    for (uint32_t i = 0; i < m->n_hosts; i++) {
        struct slice want = m->hosts[i];
        if (want.p[0] == '*') {
            want = slice_from(want, 1);
            if (host.n > want.n && slice_eq_nocase(slice_from(host, host.n - want.n), want))
                return true;
        } else if (slice_eq_nocase(host, want)) {
            return true;
        }
    }
    return m->n_hosts == 0;
}

static bool headers_ok(const struct route_match *m, const struct http1_head *h)
{
    for (uint32_t k = 0; k < m->n_headers; k++) {
        bool found = false;
        for (unsigned i = 0; i < h->n_fields && !found; i++)
            found = slice_eq_nocase(h->fields[i].name, m->headers[k].key) &&
                    (slice_eq(m->headers[k].value, any) ||
                     slice_eq(m->headers[k].value, h->fields[i].value));
        if (!found)
            return false;
    }
    return true;
}

bool route_query_find(struct slice target, struct slice name, struct slice *raw)
{
    size_t at = slice_find(target, '?');
    struct slice rest = at < target.n ? slice_from(target, at + 1) : (struct slice){NULL, 0};
    struct slice key;

    while (wire_query_next(&rest, &key, raw))
        if (wire_url_means(key, true, name))
            return true;
    return false;
}

/* Of a name that stands twice any value may be meant, so one that fits is enough. */
static bool query_ok(const struct route_match *m, struct slice target)
{
    size_t at = slice_find(target, '?');
    struct slice query = at < target.n ? slice_from(target, at + 1) : (struct slice){NULL, 0};

    for (uint32_t k = 0; k < m->n_query; k++) {
        struct slice rest = query;
        struct slice name;
        struct slice value;
        bool found = false;
        while (!found && wire_query_next(&rest, &name, &value))
            found = wire_url_means(name, true, m->query[k].key) &&
                    (slice_eq(m->query[k].value, any) ||
                     wire_url_means(value, true, m->query[k].value));
        if (!found)
            return false;
    }
    return true;
}

static bool content_type_ok(const struct route_match *m, const struct http1_head *h)
{
    struct slice got = wire_http1_value(h, SLICE("Content-Type"));

    got.n = slice_find(got, ';');
    got = slice_trim(got);
    for (uint32_t i = 0; i < m->n_content_types; i++) {
        struct slice want = m->content_types[i];
        if (slice_ends(want, SLICE("/*")) && got.n >= want.n)
            want.n--;
        struct slice part = want.n < m->content_types[i].n ? slice_of(got.p, want.n) : got;
        if (slice_eq_nocase(part, want))
            return true;
    }
    return m->n_content_types == 0;
}

static bool fits(const struct route_match *m, const struct http1_head *h)
{
    return listed(m->methods, m->n_methods, h->method) &&
           (m->n_hosts == 0 || host_ok(m, host_of(h))) && headers_ok(m, h) &&
           query_ok(m, h->target) && content_type_ok(m, h);
}

const struct route *
route_match(const struct routing *r, struct slice path, const struct http1_head *h)
{
    static const struct slice prefix = SLICE("**");

    for (uint32_t i = 0; i < r->n_routes; i++) {
        const struct route *route = &r->routes[i];
        struct slice want = route->path;
        bool same = slice_ends(want, prefix)
                        ? slice_starts(path, slice_of(want.p, want.n - prefix.n))
                        : slice_eq(path, want);
        if (same && (!route->more || fits(route->more, h)))
            return route;
    }
    return NULL;
}
