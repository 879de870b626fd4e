/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/serve/hooks.h"

#include <jansson.h>

#include "apps/serve/describe.h"
#include "apps/serve/explain.h"
#include "loop/alloc.h"
#include "loop/log.h"
#include "wire/url.h"

static struct control *control_of(void *ctx)
{
    struct serve *s = ctx;

    return &s->control;
}

static const struct member *find(const struct control *c, struct slice id)
{
    for (uint32_t i = 0; i < c->snapshot->n_members; i++) {
        const struct endpoint *e = c->snapshot->members[i].endpoint;
        if (slice_eq(e->id, id) || slice_eq(e->authority, id))
            return &c->snapshot->members[i];
    }
    return NULL;
}

static int not_found(struct slice id, struct buf *out)
{
    buf_put_str(out, "no endpoint ");
    buf_put_slice(out, id);
    return WEIR_E_NOTFOUND;
}

static int refuse(struct buf *out, const char *message)
{
    buf_put_str(out, message);
    return WEIR_E_INVALID;
}

static int hook_metrics(void *ctx, struct buf *out)
{
    struct control *c = control_of(ctx);
    struct proxy_stats stats;
    int rc = proxy_stats_read(c->proxy, loop_mem(), &stats);

    if (rc)
        return rc;
    struct metrics_input in = {.snapshot = c->snapshot,
                               .stats = &stats,
                               .sources = c->sources,
                               .n_sources = c->n_sources,
                               .panic_percent = c->conf->health.panic_percent,
                               .now_ns = loop_clock(),
                               .reloads_ok = c->reloads_ok,
                               .reloads_failed = c->reloads_failed};
    metrics_render(&in, out);
    serve_tls_metrics(&((const struct serve *)ctx)->referred.tls, out);
    proxy_stats_fini(&stats, loop_mem());
    return out->err;
}

static void describe(struct control *c, const struct member *m, struct buf *out)
{
    describe_endpoint(m, c->sources[m->endpoint->source].name, control_why(c, m->endpoint),
                      loop_clock(), out);
}

static int hook_endpoints(void *ctx, struct buf *out)
{
    struct control *c = control_of(ctx);

    buf_put_str(out, "{\"endpoints\":[");
    for (uint32_t i = 0; i < c->snapshot->n_members; i++) {
        if (i)
            buf_put_char(out, ',');
        describe(c, &c->snapshot->members[i], out);
    }
    return buf_put_str(out, "]}");
}

static int hook_endpoint(void *ctx, struct slice id, struct buf *out)
{
    struct control *c = control_of(ctx);
    const struct member *m = find(c, id);

    if (!m)
        return not_found(id, out);
    describe(c, m, out);
    return out->err;
}

static int hook_set_drain(void *ctx, struct slice id, bool drain, struct buf *out)
{
    struct control *c = control_of(ctx);
    const struct member *m = find(c, id);

    if (!m)
        return not_found(id, out);
    int rc = fleet_set_drain(c->fleet, m->endpoint->id, drain);
    if (rc)
        return rc;
    log_info("admin", "endpoint %.*s %s", SLICE_ARG(m->endpoint->id),
             drain ? "drains" : "is back from draining");
    buf_put_str(out, "{\"id\":");
    buf_put_json(out, m->endpoint->id);
    buf_put_str(out, drain ? ",\"draining\":true}" : ",\"draining\":false}");
    control_publish(c);
    return out->err;
}

static int hook_config(void *ctx, struct buf *out)
{
    struct control *c = control_of(ctx);

    return conf_print(c->conf, CONF_JSON, out);
}

static int hook_validate(void *ctx, struct slice text, struct buf *out)
{
    struct serve *s = ctx;

    /* No body is a configuration too: one that leaves everything at its default. */
    return serve_validate(s, text.n ? text : SLICE(""), out);
}

static int hook_apply(void *ctx, struct slice text, struct buf *out)
{
    struct serve *s = ctx;

    /* Nobody means to throw everything away by sending nothing. */
    return text.n ? serve_reload(s, text, out) : refuse(out, "send a configuration, as YAML");
}

static int hook_workers(void *ctx, struct buf *out)
{
    struct control *c = control_of(ctx);

    buf_put_str(out, "{\"workers\":[");
    for (uint32_t i = 0; i < c->snapshot->n_members; i++) {
        if (i)
            buf_put_char(out, ',');
        describe_worker(&c->snapshot->members[i], out);
    }
    buf_put_str(out, "],\"total\":");
    buf_put_u64(out, c->snapshot->n_members);
    return buf_put_char(out, '}');
}

static int hook_worker(void *ctx, struct slice id, struct buf *out)
{
    struct control *c = control_of(ctx);
    const struct member *m = find(c, id);

    if (!m)
        return not_found(id, out);
    describe_worker(m, out);
    return out->err;
}

static struct slice text_of(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);

    return json_is_string(v) ? slice_of(json_string_value(v), json_string_length(v))
                             : (struct slice){NULL, 0};
}

static int add_worker(struct control *c, const json_t *root, struct buf *out)
{
    static const char *const accepted[] = {"url",  "model_id", "priority",
                                           "cost", "labels",   "api_key"};
    struct kv labels[ENDPOINT_KV_MAX];
    struct slice text = text_of(root, "url");
    struct slice model_id = text_of(root, "model_id");
    struct model_ref model = {.id = model_id};
    struct slice service = SLICE("workers");
    struct url url;
    const char *key;
    const json_t *value;
    uint32_t n_labels = 0;

    if (!json_is_object(root))
        return refuse(
            out, "send one JSON object: {\"url\": \"http://host:port\", \"model_id\": \"...\"}");
    json_object_foreach((json_t *)(uintptr_t)root, key, value)
    {
        bool known = false;
        for (size_t i = 0; i < ARRAY_LEN(accepted); i++)
            known = known || strcmp(key, accepted[i]) == 0;
        if (!known) {
            buf_put_str(out, "unknown key ");
            buf_put_json(out, slice_str(key));
            return WEIR_E_INVALID;
        }
    }
    if (json_object_get(root, "api_key"))
        return refuse(out, "api_key: keys of endpoints come in a later version");
    if (!text.p || wire_url_parse(text, &url) != 0)
        return refuse(out, "url: an absolute http URL is needed, such as http://host:8000");
    if (json_object_get(root, "model_id") && !model_id.p)
        return refuse(out, "model_id: a string is needed");
    if (model_id.n > ENDPOINT_TEXT_MAX)
        return refuse(out, "model_id: too long");
    json_object_foreach(json_object_get(root, "labels"), key, value)
    {
        if (!json_is_string(value) || n_labels == ARRAY_LEN(labels))
            return refuse(out, "labels: at most 256 strings");
        labels[n_labels++] = (struct kv){
            slice_str(key), slice_of(json_string_value(value), json_string_length(value))};
    }
    struct instance i = {.key = url.authority,
                         .services = &service,
                         .n_services = 1,
                         .host = url.host,
                         .tls = url.tls,
                         .port = url.port,
                         .models = &model,
                         .n_models = model_id.n ? 1 : 0,
                         .weight = WEIGHT_ONE,
                         .enabled = true,
                         .healthy = true,
                         .labels = labels,
                         .n_labels = n_labels};
    int rc = c->sink.upsert(c->sink.ctx, c->source_workers, &i);
    if (rc)
        return rc;
    control_publish(c);
    buf_put_str(out, "{\"status\":\"accepted\",\"worker_id\":");
    buf_put_json(out, url.authority);
    return buf_put_char(out, '}');
}

static int hook_worker_add(void *ctx, struct slice json, struct buf *out)
{
    json_error_t error;
    json_t *root = json_loadb(json.p, json.n, JSON_REJECT_DUPLICATES, &error);
    int rc;

    if (root) {
        rc = add_worker(control_of(ctx), root, out);
    } else {
        buf_put_str(out, "not JSON: ");
        buf_put_str(out, error.text);
        rc = WEIR_E_INVALID;
    }
    json_decref(root);
    return rc;
}

static int hook_decisions(void *ctx, uint32_t limit, bool lines, struct buf *out)
{
    struct control *c = control_of(ctx);

    return proxy_decisions(c->proxy, limit, lines, out);
}

static int hook_explain(void *ctx, struct slice json, struct buf *out)
{
    struct control *c = control_of(ctx);

    return explain_question(c->proxy, json, out);
}

static int hook_worker_remove(void *ctx, struct slice id, struct buf *out)
{
    struct control *c = control_of(ctx);
    const struct member *m = find(c, id);

    if (!m)
        return not_found(id, out);
    if (m->endpoint->source != c->source_workers)
        return refuse(
            out, "this endpoint comes from the config or a registry: drain it, or remove it there");
    c->sink.remove(c->sink.ctx, c->source_workers, m->endpoint->authority);
    buf_put_str(out, "{\"status\":\"removed\"}");
    control_publish(c);
    return out->err;
}

struct admin_hooks hooks_for(struct serve *s)
{
    return (struct admin_hooks){.ctx = s,
                                .metrics = hook_metrics,
                                .endpoints = hook_endpoints,
                                .endpoint = hook_endpoint,
                                .set_drain = hook_set_drain,
                                .config = hook_config,
                                .config_validate = hook_validate,
                                .config_apply = hook_apply,
                                .workers = hook_workers,
                                .worker = hook_worker,
                                .worker_add = hook_worker_add,
                                .worker_remove = hook_worker_remove,
                                .decisions = hook_decisions,
                                .explain = hook_explain};
}
