/* SPDX-License-Identifier: Apache-2.0 */
/** @file Reading load reports. */
#include "base/bug.h"
#include "base/num.h"
#include "registry/native_read.h"
#include "registry/native_words.h"

static int read_load_epoch(struct reader *r, const char *field, const json_t *v)
{
    r->has_epoch = true;
    return read_u64(r, field, v, 0, INT64_MAX, &r->load->epoch);
}
static int read_load_seq(struct reader *r, const char *field, const json_t *v)
{
    r->has_seq = true;
    return read_u64(r, field, v, 0, INT64_MAX, &r->load->seq);
}
static int read_interval(struct reader *r, const char *field, const json_t *v)
{
    return read_u64(r, field, v, 10, 3600000, &r->interval_ms);
}

static int read_percent(
    struct reader *r, const char *field, const json_t *v, enum sample_field bit, uint32_t *out)
{
    r->load->known |= 1u << bit;
    return read_decimal(r, field, v, 100, 100, out);
}
static int read_count(
    struct reader *r, const char *field, const json_t *v, enum sample_field bit, uint32_t *out)
{
    r->load->known |= 1u << bit;
    return read_u32(r, field, v, 0, UINT32_MAX, out);
}
static int
read_big(struct reader *r, const char *field, const json_t *v, enum sample_field bit, uint64_t *out)
{
    r->load->known |= 1u << bit;
    return read_u64(r, field, v, 0, INT64_MAX, out);
}

static int read_gpu_util(struct reader *r, const char *field, const json_t *v)
{
    return read_percent(r, field, v, SAMPLE_GPU_UTIL, &r->load->gpu_util_bp);
}
static int read_membw(struct reader *r, const char *field, const json_t *v)
{
    return read_percent(r, field, v, SAMPLE_MEMBW_UTIL, &r->load->membw_util_bp);
}
static int read_sm(struct reader *r, const char *field, const json_t *v)
{
    return read_percent(r, field, v, SAMPLE_SM_ACTIVE, &r->load->sm_active_bp);
}
static int read_free(struct reader *r, const char *field, const json_t *v)
{
    return read_big(r, field, v, SAMPLE_MEMORY_FREE, &r->load->memory_free_bytes);
}
static int read_total(struct reader *r, const char *field, const json_t *v)
{
    return read_big(r, field, v, SAMPLE_MEMORY_TOTAL, &r->load->memory_total_bytes);
}
static int read_kv_capacity(struct reader *r, const char *field, const json_t *v)
{
    return read_big(r, field, v, SAMPLE_KV_CAPACITY, &r->load->kv_capacity_tokens);
}
static int read_kv_used(struct reader *r, const char *field, const json_t *v)
{
    return read_big(r, field, v, SAMPLE_KV_USED, &r->load->kv_used_tokens);
}
static int read_running(struct reader *r, const char *field, const json_t *v)
{
    return read_count(r, field, v, SAMPLE_RUNNING, &r->load->running);
}
static int read_waiting(struct reader *r, const char *field, const json_t *v)
{
    return read_count(r, field, v, SAMPLE_WAITING, &r->load->waiting);
}
static int read_batch(struct reader *r, const char *field, const json_t *v)
{
    return read_count(r, field, v, SAMPLE_BATCH, &r->load->batch);
}
static int read_rate(struct reader *r, const char *field, const json_t *v)
{
    r->load->known |= 1u << SAMPLE_TOKENS_PER_S;
    return read_decimal(r, field, v, 4e9, 1, &r->load->tokens_per_s);
}

static int read_state(struct reader *r, const char *field, const json_t *v)
{
    int state = 0;
    int rc = read_word(r, field, v, native_states, &state);

    r->load->known |= 1u << SAMPLE_STATE;
    r->load->state = (enum reported_state)state;
    return rc;
}

static const struct field load_fields[] = {
    {"epoch", read_load_epoch},
    {"seq", read_load_seq},
    {"interval_ms", read_interval},
    {"gpu_util_percent", read_gpu_util},
    {"membw_util_percent", read_membw},
    {"sm_active_percent", read_sm},
    {"memory_free_bytes", read_free},
    {"memory_total_bytes", read_total},
    {"kv_capacity_tokens", read_kv_capacity},
    {"kv_used_tokens", read_kv_used},
    {"running", read_running},
    {"waiting", read_waiting},
    {"batch", read_batch},
    {"tokens_per_s", read_rate},
    {"state", read_state},
};

int native_read_load(const json_t *doc, struct sample *out, struct native_error *error)
{
    struct reader r = {.error = error, .load = out, .interval_ms = 500};

    *out = (struct sample){0};
    if (!json_is_object(doc))
        return read_fail(&r, "invalid_json", "", "the body must be a JSON object");
    int rc = read_object(&r, "", doc, load_fields, ARRAY_LEN(load_fields));
    if (rc)
        return rc;
    if (!r.has_epoch || !r.has_seq) {
        const char *missing = r.has_epoch ? "seq" : "epoch";
        return read_fail(&r, "missing_field", missing, "%s is missing: it orders the reports",
                         missing);
    }
    if (sample_has(out, SAMPLE_MEMORY_FREE) && sample_has(out, SAMPLE_MEMORY_TOTAL) &&
        out->memory_free_bytes > out->memory_total_bytes)
        return BAD(&r, "memory_free_bytes", "memory_free_bytes is above memory_total_bytes");
    out->fresh_for_ns = 3 * r.interval_ms * NS_PER_MS;
    return 0;
}
