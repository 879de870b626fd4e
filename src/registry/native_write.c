/* SPDX-License-Identifier: Apache-2.0 */
/** @file Writing the JSON of the native API. What is unknown is left out, never written as 0. */
#include "base/bug.h"
#include "base/num.h"
#include "model/instance.h"
#include "registry/native_json.h"
#include "registry/native_words.h"

const struct native_word native_tasks[] = {
    {"chat", TASK_CHAT},           {"completion", TASK_COMPLETION},
    {"embedding", TASK_EMBEDDING}, {"rerank", TASK_RERANK},
    {"audio", TASK_AUDIO},         {"image", TASK_IMAGE},
    {"other", TASK_OTHER},         {NULL, 0},
};

const struct native_word native_engines[] = {
    {"vllm", ENGINE_VLLM},
    {"sglang", ENGINE_SGLANG},
    {"tgi", ENGINE_TGI},
    {"tei", ENGINE_TEI},
    {"llamacpp", ENGINE_LLAMACPP},
    {"triton", ENGINE_TRITON},
    {"ollama", ENGINE_OLLAMA},
    {"weir-worker", ENGINE_WEIR_WORKER},
    {"trtllm", ENGINE_TRTLLM},
    {"fastchat", ENGINE_FASTCHAT},
    {"tfserving", ENGINE_TFSERVING},
    {"sdwebui", ENGINE_SDWEBUI},
    {"oip", ENGINE_OIP},
    {"generic", ENGINE_GENERIC},
    {"llama.cpp", ENGINE_LLAMACPP},
    {NULL, 0},
};

const struct native_word native_roles[] = {
    {"unified", ROLE_UNIFIED},       {"prefill", ROLE_PREFILL},           {"decode", ROLE_DECODE},
    {"group_head", ROLE_GROUP_HEAD}, {"group_member", ROLE_GROUP_MEMBER}, {NULL, 0},
};

const struct native_word native_states[] = {
    {"healthy", REPORTED_HEALTHY},   {"busy", REPORTED_BUSY},
    {"loading", REPORTED_LOADING},   {"unhealthy", REPORTED_UNHEALTHY},
    {"draining", REPORTED_DRAINING}, {NULL, 0},
};

const char *native_word_of(const struct native_word *words, int value)
{
    for (; words->name; words++)
        if (words->value == value)
            return words->name;
    return NULL;
}

const char *native_engine_word(enum engine_kind kind)
{
    return native_word_of(native_engines, (int)kind);
}

const char *native_state_word(enum reported_state state)
{
    return native_word_of(native_states, (int)state);
}

static void put_text(struct buf *out, const char *name, struct slice v)
{
    if (!v.p)
        return;
    buf_put_str(out, name);
    buf_put_json(out, v);
}

static void put_word(struct buf *out, const char *name, const char *word)
{
    if (word)
        put_text(out, name, slice_str(word));
}

static void put_u64(struct buf *out, const char *name, uint64_t v)
{
    buf_put_str(out, name);
    buf_put_u64(out, v);
}

static void put_known(struct buf *out, const char *name, uint64_t v)
{
    if (v)
        put_u64(out, name, v);
}

static void put_bool(struct buf *out, const char *name, bool v)
{
    buf_put_str(out, name);
    buf_put_str(out, v ? "true" : "false");
}

static void put_models(struct buf *out, const struct instance *i)
{
    buf_put_str(out, ",\"models\":[");
    for (uint32_t m = 0; m < i->n_models; m++) {
        const struct model_ref *ref = &i->models[m];
        put_text(out, m ? ",{\"id\":" : "{\"id\":", ref->id);
        put_text(out, ",\"version\":", ref->version);
        put_text(out, ",\"lora_base\":", ref->lora_base);
        put_known(out, ",\"max_model_len\":", ref->max_model_len);
        buf_put_char(out, '}');
    }
    buf_put_char(out, ']');
}

static void put_tasks(struct buf *out, uint32_t tasks)
{
    bool first = true;

    buf_put_str(out, ",\"tasks\":[");
    for (const struct native_word *w = native_tasks; w->name; w++) {
        if (!(tasks & (uint32_t)w->value))
            continue;
        put_text(out, first ? "" : ",", slice_str(w->name));
        first = false;
    }
    buf_put_char(out, ']');
}

static void put_devices(struct buf *out, const struct instance *i)
{
    buf_put_str(out, ",\"devices\":[");
    for (uint32_t d = 0; d < i->n_devices; d++) {
        const struct device *dev = &i->devices[d];
        size_t before;
        buf_put_str(out, d ? ",{" : "{");
        before = buf_len(out);
        put_text(out, "\"uuid\":", dev->uuid);
        put_text(out, buf_len(out) > before ? ",\"type\":" : "\"type\":", dev->type);
        put_known(out,
                  buf_len(out) > before ? ",\"memory_total_bytes\":" : "\"memory_total_bytes\":",
                  dev->memory_total_bytes);
        buf_put_char(out, '}');
    }
    buf_put_char(out, ']');
}

/* The id comes first when there is one; "services" is there in any case. */
static void put_instance(struct buf *out, const struct instance *i)
{
    put_text(out, "\"id\":", i->id);
    buf_put_str(out, i->id.p ? ",\"services\":[" : "\"services\":[");
    for (uint32_t s = 0; s < i->n_services; s++)
        put_text(out, s ? "," : "", i->services[s]);
    buf_put_str(out, i->tls ? "],\"url\":\"https://" : "],\"url\":\"http://");
    store_address(out, i->host, i->port);
    buf_put_char(out, '"');
    put_models(out, i);
    put_tasks(out, i->tasks);
    put_devices(out, i);
    buf_put_str(out, ",\"weight\":");
    buf_put_f64(out, (double)i->weight / WEIGHT_ONE, 3);
    put_bool(out, ",\"enabled\":", i->enabled);
    put_bool(out, ",\"draining\":", i->draining);
    put_word(out, ",\"engine\":", native_engine_word(i->engine));
    put_word(out, ",\"role\":", native_word_of(native_roles, (int)i->role));
    put_text(out, ",\"region\":", i->region);
    put_text(out, ",\"zone\":", i->zone);
    put_text(out, ",\"cluster\":", i->cluster);
    buf_put_str(out, ",\"labels\":");
    model_write_kv(out, i->labels, i->n_labels);
    buf_put_str(out, ",\"metadata\":");
    model_write_kv(out, i->metadata, i->n_metadata);
    put_u64(out, ",\"max_concurrency\":", i->max_concurrency);
    put_known(out, ",\"max_model_len\":", i->max_model_len);
    put_u64(out, ",\"epoch\":", i->epoch);
}

void native_write_instance(struct buf *out, const struct instance *i)
{
    buf_put_char(out, '{');
    put_instance(out, i);
    buf_put_char(out, '}');
}

static void put_doc(struct buf *out, const struct record *r)
{
    put_instance(out, &r->instance);
    if (r->kind == RECORD_NATIVE)
        put_u64(out, ",\"ttl_ms\":", r->ttl_ns / NS_PER_MS);
}

void native_write_doc(struct buf *out, const struct record *r)
{
    buf_put_char(out, '{');
    put_doc(out, r);
    buf_put_char(out, '}');
}

static void put_percent(struct buf *out, const char *name, uint32_t bp)
{
    buf_put_str(out, name);
    buf_put_f64(out, (double)bp / 100, 2);
}

void native_write_load(struct buf *out, const struct sample *l)
{
    put_u64(out, "\"epoch\":", l->epoch);
    put_u64(out, ",\"seq\":", l->seq);
    put_u64(out, ",\"interval_ms\":", l->fresh_for_ns / 3 / NS_PER_MS);
    if (sample_has(l, SAMPLE_GPU_UTIL))
        put_percent(out, ",\"gpu_util_percent\":", l->gpu_util_bp);
    if (sample_has(l, SAMPLE_MEMBW_UTIL))
        put_percent(out, ",\"membw_util_percent\":", l->membw_util_bp);
    if (sample_has(l, SAMPLE_SM_ACTIVE))
        put_percent(out, ",\"sm_active_percent\":", l->sm_active_bp);
    if (sample_has(l, SAMPLE_MEMORY_FREE))
        put_u64(out, ",\"memory_free_bytes\":", l->memory_free_bytes);
    if (sample_has(l, SAMPLE_MEMORY_TOTAL))
        put_u64(out, ",\"memory_total_bytes\":", l->memory_total_bytes);
    if (sample_has(l, SAMPLE_KV_CAPACITY))
        put_u64(out, ",\"kv_capacity_tokens\":", l->kv_capacity_tokens);
    if (sample_has(l, SAMPLE_KV_USED))
        put_u64(out, ",\"kv_used_tokens\":", l->kv_used_tokens);
    if (sample_has(l, SAMPLE_RUNNING))
        put_u64(out, ",\"running\":", l->running);
    if (sample_has(l, SAMPLE_WAITING))
        put_u64(out, ",\"waiting\":", l->waiting);
    if (sample_has(l, SAMPLE_BATCH))
        put_u64(out, ",\"batch\":", l->batch);
    if (sample_has(l, SAMPLE_TOKENS_PER_S))
        put_u64(out, ",\"tokens_per_s\":", l->tokens_per_s);
    if (sample_has(l, SAMPLE_STATE))
        put_word(out, ",\"state\":", native_state_word(l->state));
}

static void put_nacos(struct buf *out, const struct record *r)
{
    const struct service *service = r->links[0].service;

    put_text(out, ",\"nacos\":{\"namespace\":", service->ns);
    put_text(out, ",\"service\":", service->grouped);
    put_text(out, ",\"cluster\":", slice_str(r->cluster));
    put_bool(out, ",\"ephemeral\":", r->ephemeral);
    buf_put_char(out, '}');
}

void native_write_view(struct buf *out, const struct record *r, const struct native_view *v)
{
    buf_put_char(out, '{');
    put_doc(out, r);
    put_word(out, ",\"kind\":", r->kind == RECORD_NATIVE ? "native" : "nacos");
    put_bool(out, ",\"healthy\":", r->instance.healthy);
    put_bool(out, ",\"probation\":", r->instance.probation);
    if (r->kind == RECORD_NATIVE || r->ephemeral) {
        uint64_t end =
            r->alive_ns + (r->kind == RECORD_NATIVE ? r->ttl_ns : r->delete_ms * NS_PER_MS);
        put_u64(out, ",\"expires_in_ms\":", end > v->now_ns ? (end - v->now_ns) / NS_PER_MS : 0);
    }
    if (v->has_requests)
        put_u64(out, ",\"current_requests\":", v->requests);
    if (r->has_load) {
        buf_put_str(out, ",\"load\":{");
        native_write_load(out, &r->load);
        put_u64(out, ",\"age_ms\":", (v->now_ns - r->load.received_ns) / NS_PER_MS);
        buf_put_char(out, '}');
    }
    if (r->kind == RECORD_NACOS)
        put_nacos(out, r);
    buf_put_char(out, '}');
}

void native_write_error(struct buf *out, const char *code, const char *field, const char *message)
{
    buf_put_str(out, "{\"error\":{\"code\":");
    buf_put_json(out, slice_str(code));
    buf_put_str(out, ",\"message\":");
    buf_put_json(out, slice_str(message));
    buf_put_str(out, ",\"field\":");
    if (field && *field)
        buf_put_json(out, slice_str(field));
    else
        buf_put_str(out, "null");
    buf_put_str(out, "}}");
}

bool native_has_model(const struct record *r, struct slice model)
{
    const struct instance *i = &r->instance;
    struct slice rest = meta_get(i->metadata, i->n_metadata, SLICE("model_id"));
    struct slice piece;

    for (uint32_t m = 0; m < i->n_models; m++)
        if (slice_eq(i->models[m].id, model))
            return true;
    while (rest.p && slice_cut(&rest, ',', &piece))
        if (slice_eq(slice_trim(piece), model))
            return true;
    return false;
}
