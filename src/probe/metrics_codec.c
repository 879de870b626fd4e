/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/metrics_codec.h"

#include "base/bug.h"
#include "base/num.h"

enum { LABEL_MAX = 128 };

int engine_metrics_text(const struct prom_line *line, const char *name, char *out, size_t max)
{
    return wire_prom_label_text(line->labels, slice_str(name), out, max);
}

static bool label_is(const struct prom_line *line, const char *name, struct slice value)
{
    char text[LABEL_MAX];
    int n = engine_metrics_text(line, name, text, sizeof(text));

    return n >= 0 && slice_eq(slice_of(text, (size_t)n), value);
}

bool engine_metrics_label(const struct prom_line *line, const char *name, double *out)
{
    char text[LABEL_MAX];
    int n = engine_metrics_text(line, name, text, sizeof(text));

    return n > 0 && num_f64(slice_of(text, (size_t)n), out) == 0;
}

static bool sane(double v)
{
    return v >= 0 && v <= 1e18; /* a NaN is neither */
}

static void join(struct engine_metrics *m, enum engine_number what, uint8_t rank, double v)
{
    bool first = m->rank[what] == 0 || rank < m->rank[what];

    if (!first && rank > m->rank[what])
        return;
    if (first) {
        m->v[what] = 0;
        m->count[what] = 0;
    }
    m->rank[what] = rank;
    m->known |= 1U << what;
    m->v[what] += v;
    m->count[what]++;
}

void engine_metrics_add(struct engine_metrics *m, enum engine_number what, double v)
{
    if (sane(v))
        join(m, what, UINT8_MAX, v);
}

static bool counts(const struct prom_line *line, const char *const *zero_labels)
{
    char text[LABEL_MAX];

    for (const char *const *l = zero_labels; l && *l; l++) {
        int n = engine_metrics_text(line, *l, text, sizeof(text));
        if (n > 0 && !(n == 1 && text[0] == '0'))
            return false;
    }
    return true;
}

static void read_line(const struct engine_metrics_shape *shape,
                      const struct prom_line *line,
                      struct engine_metrics *m)
{
    if (shape->on_line)
        shape->on_line(m, line);
    if (!sane(line->value))
        return;
    if (slice_eq(line->name, SLICE("process_start_time_seconds")))
        m->start_s = MAX(m->start_s, line->value);
    for (uint8_t i = 0; shape->series[i].name; i++) {
        const struct engine_series *s = &shape->series[i];
        if (!slice_eq(line->name, slice_str(s->name)) || !counts(line, shape->zero_labels))
            continue;
        if (s->label && !label_is(line, s->label, slice_str(s->value)))
            continue;
        join(m, s->what, (uint8_t)(i + 1), line->value);
    }
}

void engine_metrics_read(struct slice text,
                         const struct engine_metrics_shape *shape,
                         struct engine_metrics *out)
{
    struct prom_line line;

    *out = (struct engine_metrics){.newest_lora = -1};
    while (wire_prom_next(&text, &line, &out->bad)) {
        out->lines++;
        read_line(shape, &line, out);
    }
    for (uint8_t i = 0; shape->series[i].name; i++) {
        const struct engine_series *s = &shape->series[i];
        if (s->join == JOIN_MEAN && out->rank[s->what] == i + 1)
            out->v[s->what] /= out->count[s->what];
    }
    if (!engine_metrics_has(out, NUMBER_KV_CAPACITY) && engine_metrics_has(out, NUMBER_KV_BLOCKS) &&
        engine_metrics_has(out, NUMBER_KV_BLOCK_TOKENS))
        engine_metrics_add(out, NUMBER_KV_CAPACITY,
                           out->v[NUMBER_KV_BLOCKS] * out->v[NUMBER_KV_BLOCK_TOKENS]);
}

static uint32_t whole(double v)
{
    return v >= UINT32_MAX ? UINT32_MAX : (uint32_t)(v + 0.5);
}

static void set(struct sample *s, enum sample_field f)
{
    s->known |= 1U << f;
}

static void read_kv(const struct engine_metrics *m, struct sample *out)
{
    if (!engine_metrics_has(m, NUMBER_KV_CAPACITY) || m->v[NUMBER_KV_CAPACITY] < 1)
        return;
    double capacity = m->v[NUMBER_KV_CAPACITY];
    out->kv_capacity_tokens = (uint64_t)(capacity + 0.5);
    set(out, SAMPLE_KV_CAPACITY);
    double used = m->v[NUMBER_KV_USED];
    if (!engine_metrics_has(m, NUMBER_KV_USED)) {
        if (!engine_metrics_has(m, NUMBER_KV_RATIO))
            return;
        used = MIN(m->v[NUMBER_KV_RATIO], 1.0) * capacity;
    }
    out->kv_used_tokens = (uint64_t)(MIN(used, capacity) + 0.5);
    set(out, SAMPLE_KV_USED);
}

static void read_device(const struct engine_metrics *m, struct sample *out)
{
    double total = m->v[NUMBER_MEMORY_TOTAL];
    double left = engine_metrics_has(m, NUMBER_MEMORY_FREE) ? m->v[NUMBER_MEMORY_FREE]
                                                            : total - m->v[NUMBER_MEMORY_USED];

    if (engine_metrics_has(m, NUMBER_GPU_RATIO)) {
        out->gpu_util_bp = (uint32_t)(MIN(m->v[NUMBER_GPU_RATIO], 1.0) * 10000 + 0.5);
        set(out, SAMPLE_GPU_UTIL);
    }
    if (!engine_metrics_has(m, NUMBER_MEMORY_TOTAL) || total < 1 || total > 1e18)
        return;
    out->memory_total_bytes = (uint64_t)total;
    set(out, SAMPLE_MEMORY_TOTAL);
    if (!engine_metrics_has(m, NUMBER_MEMORY_FREE) && !engine_metrics_has(m, NUMBER_MEMORY_USED))
        return;
    out->memory_free_bytes = (uint64_t)MIN(left > 0 ? left : 0, total);
    set(out, SAMPLE_MEMORY_FREE);
}

/* How much a counter rose; < 0: unknown. */
static double
rise(const struct engine_metrics *now, const struct engine_metrics *before, enum engine_number n)
{
    if (!before || !engine_metrics_has(now, n) || !engine_metrics_has(before, n) ||
        now->v[n] < before->v[n])
        return -1;
    return now->v[n] - before->v[n];
}

void engine_metrics_sample(const struct engine_metrics *now,
                           const struct engine_metrics *before,
                           uint64_t elapsed_ns,
                           struct sample *out,
                           double *prefix_ratio)
{
    *out = (struct sample){0};
    if (engine_metrics_has(now, NUMBER_RUNNING)) {
        out->running = whole(now->v[NUMBER_RUNNING]);
        set(out, SAMPLE_RUNNING);
    }
    if (engine_metrics_has(now, NUMBER_WAITING)) {
        out->waiting = whole(now->v[NUMBER_WAITING]);
        set(out, SAMPLE_WAITING);
    }
    read_kv(now, out);
    read_device(now, out);
    double tokens = rise(now, before, NUMBER_TOKENS_TOTAL);
    if (engine_metrics_has(now, NUMBER_TOKENS_PER_S)) {
        out->tokens_per_s = whole(now->v[NUMBER_TOKENS_PER_S]);
        set(out, SAMPLE_TOKENS_PER_S);
    } else if (tokens >= 0 && elapsed_ns > 0) {
        out->tokens_per_s = whole(tokens * 1e9 / (double)elapsed_ns);
        set(out, SAMPLE_TOKENS_PER_S);
    }
    double looked = rise(now, before, NUMBER_PREFIX_LOOKED);
    double hits = rise(now, before, NUMBER_PREFIX_HITS);
    *prefix_ratio = -1;
    if (engine_metrics_has(now, NUMBER_PREFIX_RATIO))
        *prefix_ratio = MIN(now->v[NUMBER_PREFIX_RATIO], 1.0);
    else if (looked > 0 && hits >= 0)
        *prefix_ratio = MIN(hits / looked, 1.0);
}
