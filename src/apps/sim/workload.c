/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/sim/workload.h"

#include "base/bug.h"
#include "base/hash.h"
#include "base/num.h"
#include "des/draw.h"
#include "engine/engine.h"
#include "model/endpoint_t.h"
#include "model/features_t.h"

enum {
    STREAM_DRAWS = 100,
    PREFIX_BLOCKS_MAX = 4096,
    SESSION_TOKENS_MAX = 32768, /* then a new conversation begins */
};

/* --- the file --- */

typedef int (*unit_fn)(struct slice s, double *out);

static int tokens(struct slice s, double *out)
{
    return num_f64(s, out) == 0 && *out >= 0 && *out <= 1e8 ? 0 : WEIR_E_INVALID;
}

static int duration(struct slice s, double *out)
{
    uint64_t ns;

    if (num_duration(s, &ns) != 0)
        return WEIR_E_INVALID;
    *out = (double)ns;
    return 0;
}

/* "500", "exp 500", "100..900" */
static int read_draw(struct sim_yaml *y, uint32_t node, struct sim_draw *d, unit_fn unit)
{
    struct slice s = y->nodes.list[node].text;
    size_t dots = 0;

    while (dots + 1 < s.n && !(s.p[dots] == '.' && s.p[dots + 1] == '.'))
        dots++;
    if (slice_starts(s, SLICE("exp "))) {
        d->shape = SIM_EXPONENTIAL;
        if (unit(slice_trim(slice_from(s, 4)), &d->a) == 0)
            return 0;
    } else if (dots + 1 < s.n) {
        d->shape = SIM_UNIFORM;
        if (unit(slice_of(s.p, dots), &d->a) == 0 && unit(slice_from(s, dots + 2), &d->b) == 0 &&
            d->a <= d->b)
            return 0;
    } else {
        d->shape = SIM_CONSTANT;
        if (s.p && unit(s, &d->a) == 0)
            return 0;
    }
    return sim_yaml_bad(y, node, "a value, \"exp MEAN\" or \"LEAST..MOST\"");
}

static int read_tokens(struct sim_yaml *y, uint32_t node, void *to)
{
    return read_draw(y, node, to, tokens);
}

static int read_work(struct sim_yaml *y, uint32_t node, void *to)
{
    return read_draw(y, node, to, duration);
}

#define AT(name) offsetof(struct sim_stream, name)

static int read_streams(struct sim_yaml *y, uint32_t node, void *to)
{
    static const struct sim_field fields[] = {
        {"name", sim_yaml_word, AT(name), false},
        {"rate", sim_yaml_real, AT(rate), true},
        {"from", sim_yaml_duration, AT(from_ns), false},
        {"to", sim_yaml_duration, AT(to_ns), false},
        {"task", sim_yaml_tasks, AT(task), false},
        {"priority", sim_yaml_count, AT(priority), false},
        {"tenant", sim_yaml_word, AT(tenant), false},
        {"prompt", read_tokens, AT(prompt), true},
        {"output", read_tokens, AT(output), false},
        {"work", read_work, AT(work), false},
        {"limit", sim_yaml_count, AT(limit), false},
        {"images", sim_yaml_u32, AT(images), false},
        {"sessions", sim_yaml_count, AT(sessions), false},
        {"prefixes", sim_yaml_count, AT(prefixes), false},
        {"prefix_blocks", sim_yaml_count, AT(prefix_blocks), false},
    };
    struct sim_workload *w = to;

    if (y->nodes.list[node].kind != CONF_NODE_SEQ)
        return sim_yaml_bad(y, node, "a list of streams");
    sim_yaml_foreach(y, child, node)
    {
        if (w->n == SIM_STREAMS_MAX)
            return sim_yaml_bad(y, child, "within 64 streams");
        struct sim_stream *s = &w->streams[w->n++];
        *s = (struct sim_stream){.task = TASK_CHAT};
        int rc = sim_yaml_map(y, child, fields, ARRAY_LEN(fields), s);
        if (rc)
            return rc;
        if (s->priority > PRIORITY_LOWEST)
            return sim_yaml_bad(y, child, "of a priority from 1 to 9");
        if (s->prefix_blocks > PREFIX_BLOCKS_MAX)
            return sim_yaml_bad(y, child, "within 4096 prefix_blocks");
    }
    return w->n ? 0 : sim_yaml_bad(y, node, "a list with at least one stream");
}

int sim_workload_load(struct sim_workload *w,
                      const struct mem *mem,
                      const char *path,
                      struct conf_errors *errors)
{
    static const struct sim_field fields[] = {
        {"duration", sim_yaml_duration, offsetof(struct sim_workload, duration_ns), true},
        {"streams", read_streams, 0, true},
    };
    struct sim_yaml y;

    *w = (struct sim_workload){.n = 0};
    int rc = sim_yaml_open(&y, mem, path, errors);
    if (rc)
        return rc;
    rc = sim_yaml_map(&y, 0, fields, ARRAY_LEN(fields), w);
    sim_yaml_close(&y);
    return rc;
}

/* --- the draws --- */

static double draw(const struct sim_draw *d, struct prng *r)
{
    switch (d->shape) {
    case SIM_CONSTANT:
        return d->a;
    case SIM_UNIFORM:
        return d->a + (d->b - d->a) * prng_unit(r);
    case SIM_EXPONENTIAL:
        return des_exponential(r, d->a);
    }
    BUG_ON(true);
}

static uint32_t draw_tokens(const struct sim_draw *d, struct prng *r)
{
    return (uint32_t)MIN(draw(d, r) + 0.5, 1e8);
}

/* What a session said so far is the beginning of what it says next. */
struct session {
    uint64_t tokens;
    uint64_t conversation;
};

static int draw_one(const struct sim_stream *s,
                    uint64_t key,
                    uint64_t at_ns,
                    struct prng *r,
                    struct session *sessions,
                    uint64_t *names,
                    struct sim_trace *t)
{
    struct sim_request q = {
        .at_ns = at_ns,
        .task = s->task,
        .priority = (uint8_t)(s->priority ? s->priority : PRIORITY_DEFAULT),
        .limit = s->limit,
        .tenant = SIM_NO_TENANT,
        .n_images = (uint8_t)MIN(s->images, UINT32_C(255)),
        .prompt_tokens = MAX(draw_tokens(&s->prompt, r), 1),
        .output_tokens = draw_tokens(&s->output, r),
        .extra_ns = (uint64_t)draw(&s->work, r),
    };
    uint32_t n = 0;

    if (s->tenant[0]) {
        int rc = sim_trace_tenant(t, slice_str(s->tenant), &q.tenant);
        if (rc)
            return rc;
    }
    if (s->prefixes) {
        uint64_t which = prng_below(r, s->prefixes);
        for (; n < s->prefix_blocks; n++)
            names[n] = hash_pair(hash_pair(key, which), n);
        q.prompt_tokens += n * ENGINE_BLOCK_TOKENS;
    }
    if (s->sessions) {
        uint64_t which = prng_below(r, s->sessions);
        q.session = hash_pair(key + 1, which) | 1;
        if (sessions[which].tokens > SESSION_TOKENS_MAX)
            sessions[which] = (struct session){.conversation = sessions[which].conversation + 1};
        uint64_t said = hash_pair(q.session, sessions[which].conversation);
        uint64_t before = sessions[which].tokens;
        uint32_t own = q.prompt_tokens;
        sessions[which].tokens += own + q.output_tokens;
        q.prompt_tokens += (uint32_t)before;
        for (; n < PREFIX_BLOCKS_MAX && n < q.prompt_tokens / ENGINE_BLOCK_TOKENS; n++)
            names[n] = hash_pair(said, n);
    }
    return sim_trace_add(t, &q, names, n);
}

static int draw_stream(const struct sim_workload *w,
                       uint32_t index,
                       uint64_t seed,
                       uint64_t *names,
                       struct sim_trace *t)
{
    const struct sim_stream *s = &w->streams[index];
    struct prng r = des_stream(seed, STREAM_DRAWS + index);
    uint64_t to = s->to_ns ? MIN(s->to_ns, w->duration_ns) : w->duration_ns;
    double at = (double)s->from_ns;
    struct session *sessions = mem_array(t->mem, MAX(s->sessions, 1), sizeof(*sessions));
    int rc = sessions ? 0 : WEIR_E_NOMEM;

    while (rc == 0) {
        at += des_exponential(&r, 1e9 / s->rate);
        if (at >= (double)to)
            break;
        rc = draw_one(s, hash_pair(seed, index), (uint64_t)at, &r, sessions, names, t);
    }
    mem_free(t->mem, sessions);
    return rc;
}

int sim_workload_draw(const struct sim_workload *w, uint64_t seed, struct sim_trace *t)
{
    const struct mem *mem = t->mem;
    uint64_t *names = mem_array(mem, PREFIX_BLOCKS_MAX, sizeof(*names));
    int rc = names ? 0 : WEIR_E_NOMEM;

    sim_trace_fini(t);
    sim_trace_init(t, mem);
    for (uint32_t i = 0; rc == 0 && i < w->n; i++)
        rc = draw_stream(w, i, seed, names, t);
    mem_free(mem, names);
    return rc ? rc : sim_trace_finish(t);
}
