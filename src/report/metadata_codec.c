/* SPDX-License-Identifier: Apache-2.0 */
#include "report/metadata_codec.h"

#include "base/bug.h"
#include "base/num.h"
#include "report/report_codec.h"

static void *in_room(void *ctx, void *p, size_t n)
{
    struct report_number *t = ctx;

    return n == 0 ? NULL : (p == NULL || p == t->room) && n <= sizeof(t->room) ? t->room : NULL;
}

struct slice report_number(struct report_number *t, double v, unsigned decimals)
{
    const struct mem mem = {in_room, t};

    buf_init(&t->b, &mem, sizeof(t->room));
    buf_put_f64(&t->b, v, decimals);
    BUG_ON(t->b.err);
    return buf_slice(&t->b);
}

const char *report_state_name(enum reported_state state)
{
    switch (state) {
    case REPORTED_HEALTHY:
        return "healthy";
    case REPORTED_BUSY:
        return "busy";
    case REPORTED_LOADING:
        return "loading";
    case REPORTED_UNHEALTHY:
        return "unhealthy";
    case REPORTED_DRAINING:
        return "draining";
    }
    BUG_ON(1);
    return NULL;
}

enum { KEY_HEALTH, KEY_MEMORY, KEY_GPU, KEY_RUNNING, KEY_WAITING };
static const char *const sample_keys[] = {[KEY_HEALTH] = "health_status",
                                          [KEY_MEMORY] = "remaining_memory",
                                          [KEY_GPU] = "gpu_util",
                                          [KEY_RUNNING] = "current_requests",
                                          [KEY_WAITING] = "queue_length"};

bool report_sample_key(struct slice key)
{
    for (size_t i = 0; i < ARRAY_LEN(sample_keys); i++)
        if (slice_eq(key, slice_str(sample_keys[i])))
            return true;
    return false;
}

struct sink {
    report_put_fn put;
    void *ctx;
};

static void put_count(const struct sink *to, const char *key, double v, unsigned decimals)
{
    struct report_number t;

    to->put(to->ctx, slice_str(key), report_number(&t, v, decimals));
}

void report_put_sample(const struct sample *s, report_put_fn put, void *ctx)
{
    const struct sink to = {put, ctx};
    uint32_t percent = s->gpu_util_bp / 100; /* whole ones: less to push */

    if (sample_has(s, SAMPLE_STATE))
        put(ctx, slice_str(sample_keys[KEY_HEALTH]), slice_str(report_state_name(s->state)));
    if (sample_has(s, SAMPLE_MEMORY_FREE))
        put_count(&to, sample_keys[KEY_MEMORY], (double)s->memory_free_bytes / (double)GIB, 2);
    if (sample_has(s, SAMPLE_GPU_UTIL))
        put_count(&to, sample_keys[KEY_GPU], percent, 0);
    if (sample_has(s, SAMPLE_RUNNING))
        put_count(&to, sample_keys[KEY_RUNNING], s->running, 0);
    if (sample_has(s, SAMPLE_WAITING))
        put_count(&to, sample_keys[KEY_WAITING], s->waiting, 0);
}

static void put_text(const struct sink *to, const char *key, struct slice value)
{
    if (value.n)
        to->put(to->ctx, slice_str(key), value);
}

static void put_models(const struct sink *to, const struct instance *in, struct buf *list)
{
    uint32_t len = 0;

    for (uint32_t i = 0; i < in->n_models; i++) {
        if (i)
            buf_put_char(list, ',');
        buf_put_slice(list, in->models[i].id);
        if (in->models[i].max_model_len && (len == 0 || in->models[i].max_model_len < len))
            len = in->models[i].max_model_len;
    }
    put_text(to, "model_id", buf_slice(list));
    if (in->n_models)
        put_text(to, "model_version", in->models[0].version);
    if (len)
        put_count(to, "max_model_len", len, 0);
}

int report_put_identity(const struct instance *in,
                        const struct mem *mem,
                        report_put_fn put,
                        void *ctx)
{
    const struct sink to = {put, ctx};
    struct buf list;

    buf_init(&list, mem, (size_t)ENDPOINT_MODELS_MAX * (ENDPOINT_TEXT_MAX + 1));
    put_models(&to, in, &list);
    if (in->n_devices)
        put_text(&to, "gpu_type", in->devices[0].type);
    put_text(&to, "engine", slice_str(report_engine_name(in->engine)));
    if (in->max_concurrency)
        put_count(&to, "max_concurrency", in->max_concurrency, 0);
    for (uint32_t i = 0; i < in->n_metadata; i++)
        if (in->metadata[i].value.n && !report_sample_key(in->metadata[i].key))
            put(ctx, in->metadata[i].key, in->metadata[i].value);
    int rc = list.err;
    buf_fini(&list);
    return rc;
}
