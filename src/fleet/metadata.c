/* SPDX-License-Identifier: Apache-2.0 */
/** @file The contract's metadata keys: one table, one reader each. Values are what people type, so they may be wrong. */
#include "fleet/metadata.h"

#include "base/bug.h"
#include "base/num.h"

typedef void (*read_fn)(struct slice value, struct fleet_metadata *m);

static bool read_u32(struct slice value, uint32_t *out)
{
    uint64_t v;

    if (num_u64(value, &v) || v > UINT32_MAX)
        return false;
    *out = (uint32_t)v;
    return true;
}

static void know(struct fleet_metadata *m, enum sample_field f)
{
    m->sample.known |= UINT32_C(1) << f;
}

static void read_text(struct slice value, struct slice *out)
{
    if (value.n && value.n <= ENDPOINT_TEXT_MAX)
        *out = value;
}

static void read_gpu_type(struct slice value, struct fleet_metadata *m)
{
    read_text(value, &m->gpu_type);
}

static void read_model_id(struct slice value, struct fleet_metadata *m)
{
    if (value.n)
        m->model_ids = value;
}

static void read_model_version(struct slice value, struct fleet_metadata *m)
{
    read_text(value, &m->model_version);
}

static void read_region(struct slice value, struct fleet_metadata *m)
{
    read_text(value, &m->region);
}

static void read_zone(struct slice value, struct fleet_metadata *m)
{
    read_text(value, &m->zone);
}

static void read_cluster(struct slice value, struct fleet_metadata *m)
{
    read_text(value, &m->cluster);
}

/* What Consul calls its clusters. */
static void read_datacenter(struct slice value, struct fleet_metadata *m)
{
    if (!m->cluster.p)
        read_text(value, &m->cluster);
}

static void read_remaining_memory(struct slice value, struct fleet_metadata *m)
{
    if (num_scaled(value, UINT64_C(1) << 30, &m->sample.memory_free_bytes) == 0)
        know(m, SAMPLE_MEMORY_FREE);
}

static void read_gpu_util(struct slice value, struct fleet_metadata *m)
{
    uint64_t bp;

    if (value.n && value.p[value.n - 1] == '%')
        value = slice_trim(slice_of(value.p, value.n - 1));
    if (num_scaled(value, 100, &bp) == 0 && bp <= 10000) {
        m->sample.gpu_util_bp = (uint32_t)bp;
        know(m, SAMPLE_GPU_UTIL);
    }
}

static void read_current_requests(struct slice value, struct fleet_metadata *m)
{
    if (read_u32(value, &m->sample.running))
        know(m, SAMPLE_RUNNING);
}

static void read_queue_length(struct slice value, struct fleet_metadata *m)
{
    if (read_u32(value, &m->sample.waiting))
        know(m, SAMPLE_WAITING);
}

static void read_health_status(struct slice value, struct fleet_metadata *m)
{
    static const char *const names[] = {
        [REPORTED_HEALTHY] = "healthy",   [REPORTED_BUSY] = "busy",
        [REPORTED_LOADING] = "loading",   [REPORTED_UNHEALTHY] = "unhealthy",
        [REPORTED_DRAINING] = "draining",
    };

    for (uint32_t i = 0; i < ARRAY_LEN(names); i++)
        if (slice_eq_nocase(value, slice_str(names[i]))) {
            m->sample.state = (enum reported_state)i;
            know(m, SAMPLE_STATE);
        }
}

uint32_t fleet_task_named(struct slice name)
{
    static const struct {
        const char *name;
        uint32_t tasks;
    } names[] = {
        {"chat", TASK_CHAT},
        {"chat_completion", TASK_CHAT},
        {"chat_completions", TASK_CHAT},
        {"completion", TASK_COMPLETION},
        {"completions", TASK_COMPLETION},
        {"generate", TASK_CHAT | TASK_COMPLETION},
        {"text-generation", TASK_CHAT | TASK_COMPLETION},
        {"embedding", TASK_EMBEDDING},
        {"embeddings", TASK_EMBEDDING},
        {"embed", TASK_EMBEDDING},
        {"rerank", TASK_RERANK},
        {"score", TASK_RERANK},
        {"audio", TASK_AUDIO},
        {"transcription", TASK_AUDIO},
        {"speech", TASK_AUDIO},
        {"image", TASK_IMAGE},
        {"images", TASK_IMAGE},
    };

    for (uint32_t i = 0; i < ARRAY_LEN(names); i++)
        if (slice_eq_nocase(name, slice_str(names[i].name)))
            return names[i].tasks;
    return 0;
}

static void read_supported_tasks(struct slice value, struct fleet_metadata *m)
{
    struct slice piece;
    bool other = false;
    uint32_t tasks = 0;

    while (slice_cut(&value, ',', &piece)) {
        piece = slice_trim(piece);
        uint32_t t = fleet_task_named(piece);
        tasks |= t;
        other |= piece.n != 0 && t == 0;
    }
    /* Only words we do not know tell us nothing about the tasks we do know. */
    if (tasks != 0)
        m->tasks = tasks | (other ? (uint32_t)TASK_OTHER : 0);
}

static void read_max_concurrency(struct slice value, struct fleet_metadata *m)
{
    uint32_t v;

    if (read_u32(value, &v))
        m->max_concurrency = v;
}

static void read_max_model_len(struct slice value, struct fleet_metadata *m)
{
    uint32_t v;

    if (read_u32(value, &v))
        m->max_model_len = v;
}

enum engine_kind fleet_engine_named(struct slice name)
{
    static const struct {
        const char *name;
        enum engine_kind kind;
    } names[] = {
        {"vllm", ENGINE_VLLM},
        {"sglang", ENGINE_SGLANG},
        {"tgi", ENGINE_TGI},
        {"tei", ENGINE_TEI},
        {"llamacpp", ENGINE_LLAMACPP},
        {"llama.cpp", ENGINE_LLAMACPP},
        {"triton", ENGINE_TRITON},
        {"ollama", ENGINE_OLLAMA},
        {"weir-worker", ENGINE_WEIR_WORKER},
        {"weir", ENGINE_WEIR_WORKER},
        {"trtllm", ENGINE_TRTLLM},
        {"fastchat", ENGINE_FASTCHAT},
        {"tfserving", ENGINE_TFSERVING},
        {"sdwebui", ENGINE_SDWEBUI},
        {"oip", ENGINE_OIP},
    };

    if (name.n == 0 || slice_eq_nocase(name, SLICE("auto")) ||
        slice_eq_nocase(name, SLICE("unknown")))
        return ENGINE_UNKNOWN;
    for (uint32_t i = 0; i < ARRAY_LEN(names); i++)
        if (slice_eq_nocase(name, slice_str(names[i].name)))
            return names[i].kind;
    return ENGINE_GENERIC;
}

static void read_engine(struct slice value, struct fleet_metadata *m)
{
    m->engine = fleet_engine_named(value);
}

static void read_report_time(struct slice value, struct fleet_metadata *m)
{
    uint64_t v;

    if (num_u64(value, &v) == 0)
        m->report_time_ms = v;
}

static const struct {
    const char *key;
    read_fn read;
    bool fast;
} KEYS[] = {
    {"gpu_type", read_gpu_type, false},
    {"remaining_memory", read_remaining_memory, true},
    {"gpu_util", read_gpu_util, true},
    {"current_requests", read_current_requests, true},
    {"queue_length", read_queue_length, true},
    {"health_status", read_health_status, true},
    {"model_id", read_model_id, false},
    {"model_version", read_model_version, false},
    {"supported_tasks", read_supported_tasks, false},
    {"max_concurrency", read_max_concurrency, false},
    {"max_model_len", read_max_model_len, false},
    {"engine", read_engine, false},
    {"region", read_region, false},
    {"zone", read_zone, false},
    {"cluster", read_cluster, false},
    {"datacenter", read_datacenter, false},
    {"report_time_ms", read_report_time, true},
};

static size_t find_key(struct slice key)
{
    size_t i = 0;

    while (i < ARRAY_LEN(KEYS) && !slice_eq(key, slice_str(KEYS[i].key)))
        i++;
    return i;
}

bool fleet_metadata_fast(struct slice key)
{
    size_t i = find_key(key);

    return i < ARRAY_LEN(KEYS) && KEYS[i].fast;
}

void fleet_metadata_read(const struct kv *kv, uint32_t n, struct fleet_metadata *out)
{
    uint32_t seen = 0;

    *out = (struct fleet_metadata){0};
    for (uint32_t i = 0; i < n; i++) {
        size_t k = find_key(kv[i].key);
        if (k == ARRAY_LEN(KEYS) || (seen >> k & 1))
            continue;
        seen |= UINT32_C(1) << k;
        KEYS[k].read(slice_trim(kv[i].value), out);
    }
}
