/* SPDX-License-Identifier: Apache-2.0 */
/* Values from the command line: found along the same table, checked by the same rows. */
#include "base/bug.h"
#include "conf/parse.h"

static void default_items(struct build *b, struct raw_list *list, const char *key, uint32_t n)
{
    const struct conf_section *child = conf_option_find(&conf_root, slice_str(key))->child;

    list->items = arena_array(b->arena, n, child->size);
    if (!list->items) {
        b->nomem = true;
        return;
    }
    list->n = n;
    for (uint32_t i = 0; i < n; i++)
        conf_defaults(b, child, (char *)list->items + i * child->size);
}

/* Where a request for a model goes, in OpenAI's words (the default of the option) and in those of other engines. */
static void default_routes(struct build *b)
{
    static const struct slice others[] = {
        SLICE("/v2/models/**"),  SLICE("/worker_**"),        SLICE("/count_token"),
        SLICE("/model_details"), SLICE("/sdapi/v1/txt2img"), SLICE("/sdapi/v1/img2img"),
    };

    default_items(b, &b->raw->routes, "routes", 1 + ARRAY_LEN(others));
    struct raw_route *routes = b->raw->routes.items;
    for (uint32_t i = 1; i < b->raw->routes.n; i++)
        routes[i].path = others[i - 1];
}

void conf_parse_absent(struct build *b)
{
    if (b->raw->listeners.n == 0)
        default_items(b, &b->raw->listeners, "listeners", 1);
    if (b->raw->routes.n == 0)
        default_routes(b);
}

static void
fail_why(struct build *b, const struct conf_override *v, int rc, const struct conf_why *why)
{
    struct conf_place at = {.file = slice_str(v->origin), .flag = true};

    if (rc == WEIR_E_NOMEM)
        b->nomem = true;
    else
        conf_fail_parts(b, &at, NULL, why->parts, why->n);
}

/* Half of an address from the flag, the other half from what was there. */
static int set_part(struct build *b,
                    const struct conf_option *o,
                    const struct conf_override *v,
                    struct conf_address *at,
                    struct conf_why *why)
{
    static const struct conf_option port_option = {.type = CONF_T_COUNT, .max = UINT16_MAX};
    struct conf_address value = *at;
    uint32_t port = 0;
    int rc;

    if (o->zero && slice_eq(v->text, slice_str(o->zero))) {
        *at = (struct conf_address){.off = true};
        return 0;
    }
    if (value.off || value.kind != CONF_ADDRESS_TCP) {
        rc = conf_scalar_parse(o, slice_str(o->fallback), b->arena, &value, why);
        if (rc)
            return rc;
    }
    if (v->part == CONF_PART_PORT) {
        rc = conf_scalar_parse(&port_option, v->text, b->arena, &port, why);
        if (rc == 0)
            value.port = (uint16_t)port;
    } else {
        struct conf_address host = {.off = false};
        char text[ENDPOINT_TEXT_MAX];
        bool v6 = slice_find(v->text, ':') < v->text.n && v->text.p[0] != '[';
        size_t n = 0;

        if (v->text.n > sizeof(text) - 4)
            return conf_scalar_parse(o, v->text, b->arena, &host, why);
        if (v6)
            text[n++] = '[';
        if (v->text.n)
            memcpy(text + n, v->text.p, v->text.n);
        n += v->text.n;
        if (v6)
            text[n++] = ']';
        text[n++] = ':';
        text[n++] = '0';
        struct conf_why unused = {.n = 0};
        rc = conf_scalar_parse(o, slice_of(text, n), b->arena, &host, &unused);
        if (rc == WEIR_E_INVALID) {
            conf_why_put(why, SLICE("\""));
            conf_why_put(why, v->text);
            conf_why_put(why, SLICE("\" is not a literal address or localhost"));
        }
        value.host = host.host;
    }
    if (rc == 0)
        *at = value;
    return rc;
}

static void set_in(struct build *b,
                   const struct conf_section *s,
                   void *base,
                   struct slice path,
                   const struct conf_override *v)
{
    struct slice key;
    struct conf_why why = {.n = 0};

    bool some = slice_cut(&path, '.', &key);
    const struct conf_option *o = some ? conf_option_find(s, key) : NULL;
    BUG_ON(!o); /* flags are rows of a table of ours */
    void *at = (char *)base + o->offset;
    if (o->type == CONF_T_SECTION) {
        set_in(b, o->child, at, path, v);
        return;
    }
    if (o->type == CONF_T_LIST) {
        struct raw_list *list = at;
        uint32_t n = slice_eq(key, SLICE("listeners")) ? MIN(list->n, 1) : list->n;
        uint32_t before = b->errors->total;
        /* The first failure would only be repeated by the others. */
        for (uint32_t i = 0; i < n && b->errors->total == before; i++)
            set_in(b, o->child, (char *)list->items + (size_t)i * o->child->size, path, v);
        return;
    }
    BUG_ON(path.p); /* a path ends at a value */
    int rc = v->part == CONF_PART_WHOLE ? conf_scalar_parse(o, v->text, b->arena, at, &why)
                                        : set_part(b, o, v, at, &why);
    if (rc)
        fail_why(b, v, rc, &why);
}

/* All of them make one source behind those of the file, so the file's description of an endpoint wins. */
static void add_endpoints(struct build *b, uint32_t n)
{
    const struct conf_section *source_section =
        conf_option_find(&conf_root, SLICE("discovery"))->child;
    const struct conf_option *list = conf_option_find(source_section, SLICE("endpoints"));
    struct raw_list *discovery = &b->raw->discovery;
    struct raw_source *sources = arena_array(b->arena, discovery->n + 1, sizeof(*sources));
    struct raw_endpoint *endpoints = arena_array(b->arena, n, sizeof(*endpoints));
    uint32_t at = 0;

    if (!sources || !endpoints) {
        b->nomem = true;
        return;
    }
    if (discovery->n)
        memcpy(sources, discovery->items, discovery->n * sizeof(*sources));
    for (uint32_t i = 0; i < b->in->n_overrides; i++) {
        const struct conf_override *v = &b->in->overrides[i];
        if (strcmp(v->path, "+discovery") != 0)
            continue;
        struct conf_why why = {.n = 0};
        if (at == list->max) {
            struct conf_place place = {.file = slice_str(v->origin), .flag = true};
            CONF_FAIL(b, &place, NULL, SLICE("too many endpoints; the most is "),
                      conf_number_text(CONF_T_COUNT, list->max, why.number));
            break;
        }
        conf_defaults(b, list->child, &endpoints[at]);
        endpoints[at].origin = v->origin;
        int rc = conf_scalar_parse(conf_option_find(list->child, SLICE("url")), v->text, b->arena,
                                   &endpoints[at].url, &why);
        if (rc)
            fail_why(b, v, rc, &why);
        else
            at++;
    }
    conf_defaults(b, source_section, &sources[discovery->n]);
    sources[discovery->n].source.type = CONF_SOURCE_STATIC;
    sources[discovery->n].endpoints = (struct raw_list){.items = endpoints, .n = at};
    *discovery = (struct raw_list){.items = sources, .n = discovery->n + 1};
}

void conf_parse_overrides(struct build *b)
{
    uint32_t n_endpoints = 0;

    for (uint32_t i = 0; i < b->in->n_overrides && !b->nomem; i++) {
        const struct conf_override *v = &b->in->overrides[i];
        if (strcmp(v->path, "+discovery") == 0)
            n_endpoints++;
        else
            set_in(b, &conf_root, b->raw, slice_str(v->path), v);
    }
    if (n_endpoints && !b->nomem)
        add_endpoints(b, n_endpoints);
}
