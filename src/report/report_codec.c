/* SPDX-License-Identifier: Apache-2.0 */
#include "report/report_codec.h"

#include "base/bug.h"
#include "report/metadata_codec.h"
#include "wire/url.h"

/* Opens a member: the comma is there unless the object has just begun. */
static void key(struct buf *out, const char *name)
{
    struct slice so_far = buf_slice(out);

    if (so_far.n > 0 && so_far.p[so_far.n - 1] != '{')
        buf_put_char(out, ',');
    buf_put_char(out, '"');
    buf_put_str(out, name);
    buf_put_str(out, "\":");
}

static void put_text(struct buf *out, const char *name, struct slice value)
{
    if (!value.p)
        return;
    key(out, name);
    buf_put_json(out, value);
}

static void put_count(struct buf *out, const char *name, uint64_t value)
{
    key(out, name);
    buf_put_u64(out, value);
}

/* 0 stands for unknown in identities. */
static void put_known(struct buf *out, const char *name, uint64_t value)
{
    if (value)
        put_count(out, name, value);
}

static void put_pairs(struct buf *out, const char *name, const struct kv *pairs, uint32_t n)
{
    if (n == 0)
        return;
    key(out, name);
    buf_put_char(out, '{');
    for (uint32_t i = 0; i < n; i++) {
        if (i)
            buf_put_char(out, ',');
        buf_put_json(out, pairs[i].key);
        buf_put_char(out, ':');
        buf_put_json(out, pairs[i].value);
    }
    buf_put_char(out, '}');
}

const char *report_engine_name(enum engine_kind kind)
{
    switch (kind) {
    case ENGINE_VLLM:
        return "vllm";
    case ENGINE_SGLANG:
        return "sglang";
    case ENGINE_TGI:
        return "tgi";
    case ENGINE_TEI:
        return "tei";
    case ENGINE_LLAMACPP:
        return "llamacpp";
    case ENGINE_TRITON:
        return "triton";
    case ENGINE_OLLAMA:
        return "ollama";
    case ENGINE_WEIR_WORKER:
        return "weir-worker";
    case ENGINE_TRTLLM:
        return "trtllm";
    case ENGINE_FASTCHAT:
        return "fastchat";
    case ENGINE_TFSERVING:
        return "tfserving";
    case ENGINE_SDWEBUI:
        return "sdwebui";
    case ENGINE_OIP:
        return "oip";
    case ENGINE_GENERIC:
        return "generic";
    case ENGINE_UNKNOWN:
        break;
    }
    return NULL;
}

static void put_tasks(struct buf *out, uint32_t tasks)
{
    static const struct {
        uint32_t bit;
        const char *name;
    } names[] = {
        {TASK_CHAT, "chat"},     {TASK_COMPLETION, "completion"}, {TASK_EMBEDDING, "embedding"},
        {TASK_RERANK, "rerank"}, {TASK_AUDIO, "audio"},           {TASK_IMAGE, "image"},
        {TASK_OTHER, "other"},
    };
    bool first = true;

    if (tasks == 0)
        return;
    key(out, "tasks");
    buf_put_char(out, '[');
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (!(tasks & names[i].bit))
            continue;
        if (!first)
            buf_put_char(out, ',');
        first = false;
        buf_put_json(out, slice_str(names[i].name));
    }
    buf_put_char(out, ']');
}

static void put_models(struct buf *out, const struct instance *in)
{
    if (in->n_models == 0)
        return;
    key(out, "models");
    buf_put_char(out, '[');
    for (uint32_t i = 0; i < in->n_models; i++) {
        const struct model_ref *m = &in->models[i];
        buf_put_str(out, i ? ",{" : "{");
        put_text(out, "id", m->id);
        put_text(out, "version", m->version);
        put_text(out, "lora_base", m->lora_base);
        put_known(out, "max_model_len", m->max_model_len);
        buf_put_char(out, '}');
    }
    buf_put_char(out, ']');
}

static void put_devices(struct buf *out, const struct instance *in)
{
    if (in->n_devices == 0)
        return;
    key(out, "devices");
    buf_put_char(out, '[');
    for (uint32_t i = 0; i < in->n_devices; i++) {
        const struct device *d = &in->devices[i];
        buf_put_str(out, i ? ",{" : "{");
        put_text(out, "uuid", d->uuid);
        put_text(out, "type", d->type);
        put_known(out, "memory_total_bytes", d->memory_total_bytes);
        buf_put_char(out, '}');
    }
    buf_put_char(out, ']');
}

static void put_endpoint_url(struct buf *out, const struct instance *in)
{
    bool v6 = slice_find(in->host, ':') < in->host.n;

    key(out, "url");
    buf_put_str(out, in->tls ? "\"https://" : "\"http://");
    buf_put_str(out, v6 ? "[" : "");
    buf_put_slice(out, in->host);
    buf_put_str(out, v6 ? "]:" : ":");
    buf_put_u64(out, in->port);
    buf_put_char(out, '"');
}

static void put_pair(void *ctx, struct slice name, struct slice value)
{
    struct buf *out = ctx;
    struct slice so_far = buf_slice(out);

    if (so_far.p[so_far.n - 1] != '{')
        buf_put_char(out, ',');
    buf_put_json(out, name);
    buf_put_char(out, ':');
    buf_put_json(out, value);
}

static void put_metadata(struct buf *out, const struct instance *in, const struct sample *s)
{
    if (in->n_metadata == 0 && !s)
        return;
    key(out, "metadata");
    buf_put_char(out, '{');
    if (s)
        report_put_sample(s, put_pair, out);
    for (uint32_t i = 0; i < in->n_metadata; i++)
        if (!s || !report_sample_key(in->metadata[i].key))
            put_pair(out, in->metadata[i].key, in->metadata[i].value);
    buf_put_char(out, '}');
}

int report_write_instance(struct buf *out,
                          const struct instance *in,
                          const struct sample *s,
                          uint64_t ttl_ms)
{
    const char *engine = report_engine_name(in->engine);

    buf_put_char(out, '{');
    put_text(out, "id", in->id);
    if (in->n_services > 0)
        put_text(out, "service", in->services[0]);
    put_endpoint_url(out, in);
    put_models(out, in);
    put_tasks(out, in->tasks);
    put_devices(out, in);
    key(out, "weight");
    buf_put_f64(out, (double)in->weight / WEIGHT_ONE, 3);
    if (engine)
        put_text(out, "engine", slice_str(engine));
    put_known(out, "max_concurrency", in->max_concurrency);
    put_text(out, "region", in->region);
    put_text(out, "zone", in->zone);
    put_text(out, "cluster", in->cluster);
    put_count(out, "ttl_ms", ttl_ms);
    put_count(out, "epoch", in->epoch);
    put_metadata(out, in, s);
    put_pairs(out, "labels", in->labels, in->n_labels);
    buf_put_char(out, '}');
    return out->err;
}

int report_write_sample(struct buf *out, const struct sample *s, uint64_t interval_ms)
{
    const struct {
        enum sample_field field;
        const char *name;
        uint32_t basis_points;
    } shares[] = {
        {SAMPLE_GPU_UTIL, "gpu_util_percent", s->gpu_util_bp},
        {SAMPLE_MEMBW_UTIL, "membw_util_percent", s->membw_util_bp},
        {SAMPLE_SM_ACTIVE, "sm_active_percent", s->sm_active_bp},
    };
    const struct {
        enum sample_field field;
        const char *name;
        uint64_t value;
    } counts[] = {
        {SAMPLE_MEMORY_FREE, "memory_free_bytes", s->memory_free_bytes},
        {SAMPLE_MEMORY_TOTAL, "memory_total_bytes", s->memory_total_bytes},
        {SAMPLE_KV_CAPACITY, "kv_capacity_tokens", s->kv_capacity_tokens},
        {SAMPLE_KV_USED, "kv_used_tokens", s->kv_used_tokens},
        {SAMPLE_RUNNING, "running", s->running},
        {SAMPLE_WAITING, "waiting", s->waiting},
        {SAMPLE_BATCH, "batch", s->batch},
        {SAMPLE_TOKENS_PER_S, "tokens_per_s", s->tokens_per_s},
    };

    buf_put_char(out, '{');
    put_count(out, "epoch", s->epoch);
    put_count(out, "seq", s->seq);
    put_count(out, "interval_ms", interval_ms);
    for (size_t i = 0; i < ARRAY_LEN(shares); i++) {
        if (!sample_has(s, shares[i].field))
            continue;
        key(out, shares[i].name);
        buf_put_f64(out, (double)shares[i].basis_points / 100.0, 2);
    }
    for (size_t i = 0; i < ARRAY_LEN(counts); i++)
        if (sample_has(s, counts[i].field))
            put_count(out, counts[i].name, counts[i].value);
    if (sample_has(s, SAMPLE_STATE))
        put_text(out, "state", slice_str(report_state_name(s->state)));
    buf_put_char(out, '}');
    return out->err;
}

int report_write_url(struct buf *out, struct slice base, struct slice id, const char *suffix)
{
    if (slice_ends(base, SLICE("/")))
        base.n--;
    buf_put_slice(out, base);
    buf_put_str(out, "/v1/endpoints/");
    wire_url_encode(id, ":", out);
    buf_put_str(out, suffix);
    return out->err;
}

int report_split_url(
    struct slice text, const char *scheme, bool *tls, struct slice *authority, struct slice *rest)
{
    struct slice s = slice_str(scheme);

    if (!slice_starts(text, s))
        return WEIR_E_INVALID;
    text = slice_from(text, s.n);
    *tls = slice_starts(text, SLICE("+https"));
    text = slice_from(text, *tls ? 6 : 0);
    if (!slice_starts(text, SLICE("://")))
        return WEIR_E_INVALID;
    text = slice_from(text, 3);
    size_t end = MIN(slice_find(text, '/'), slice_find(text, '?'));
    *authority = slice_of(text.p, end);
    *rest = slice_from(text, end);
    return 0;
}
