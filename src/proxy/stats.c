/* SPDX-License-Identifier: Apache-2.0 */
#include "base/num.h"
#include "model/endpoint_t.h"
#include "proxy/lane.h"

const char *const proxy_outcome_names[OUTCOME_COUNT] = {
#define OUTCOME_NAME(name, text) text,
    PROXY_OUTCOMES(OUTCOME_NAME)
#undef OUTCOME_NAME
};
const char *const proxy_retry_names[RETRY_COUNT] = {
#define RETRY_NAME(name, text) text,
    PROXY_RETRIES(RETRY_NAME)
#undef RETRY_NAME
};
const char *const proxy_operation_names[OPERATION_COUNT] = {
#define OPERATION_NAME(name, text) text,
    PROXY_OPERATIONS(OPERATION_NAME)
#undef OPERATION_NAME
};

const double proxy_token_bounds[PROXY_TOKEN_BOUNDS] = {
    1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864};
const double proxy_bounds[PROXY_BOUNDS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                           0.25,  0.5,    1,     2.5,  5,     10,   20,
                                           30,    60,     120,   300,  600,   1200};
const double proxy_decision_bounds[PROXY_BOUNDS] = {
    0.0000005, 0.000001, 0.0000015, 0.000002, 0.000003, 0.000005, 0.000007,
    0.00001,   0.000015, 0.00002,   0.00003,  0.00005,  0.00007,  0.0001,
    0.00015,   0.0002,   0.0005,    0.001,    0.005,    0.01};

void stats_hist_add(struct stat_hist *h, const double *bounds, uint64_t ns)
{
    double s = (double)ns / 1e9;
    unsigned at = 0;

    while (at < PROXY_BOUNDS && s > bounds[at])
        at++;
    stat_add(&h->counts[at], 1);
    stat_add(&h->sum_ns, ns);
}

static enum proxy_operation operation_of(uint32_t task)
{
    switch (task) {
    case TASK_CHAT:
        return OPERATION_CHAT;
    case TASK_COMPLETION:
        return OPERATION_COMPLETION;
    case TASK_EMBEDDING:
        return OPERATION_EMBEDDING;
    default:
        return OPERATION_OTHER;
    }
}

static void tokens_add(struct stat_tokens *h, uint64_t tokens)
{
    unsigned at = 0;

    while (at < PROXY_TOKEN_BOUNDS && (double)tokens > proxy_token_bounds[at])
        at++;
    stat_add(&h->counts[at], 1);
    stat_add(&h->sum, tokens);
}

void stats_usage_add(struct stat_series *s, uint32_t task, const struct usage *u)
{
    enum proxy_operation op = operation_of(task);

    if (usage_has(u, USAGE_PROMPT))
        tokens_add(&s->tokens[op][TOKENS_INPUT], u->prompt_tokens);
    if (usage_has(u, USAGE_COMPLETION))
        tokens_add(&s->tokens[op][TOKENS_OUTPUT], u->completion_tokens);
    if (usage_has(u, USAGE_CACHED))
        stat_add(&s->cached_tokens, u->cached_tokens);
    if (usage_has(u, USAGE_CACHED) && usage_has(u, USAGE_PROMPT))
        stat_add(&s->cached_of, u->prompt_tokens);
    if (!u->known && op != OPERATION_OTHER)
        stat_add(&s->usage_unknown, 1);
}

struct stat_series *stats_series(struct lane_stats *s, uint32_t index)
{
    uint32_t block = index / SERIES_BLOCK;

    BUG_ON(block >= SERIES_BLOCKS);
    struct stat_series *b = atomic_load_explicit(&s->blocks[block], memory_order_relaxed);
    if (!b) {
        b = mem_array(loop_mem(), SERIES_BLOCK, sizeof(*b));
        if (!b)
            return NULL;
        atomic_store_explicit(&s->blocks[block], b, memory_order_release);
    }
    return &b[index % SERIES_BLOCK];
}

void stats_fini(struct lane_stats *s)
{
    for (unsigned i = 0; i < SERIES_BLOCKS; i++)
        mem_free(loop_mem(), atomic_load_explicit(&s->blocks[i], memory_order_relaxed));
}

static void add_hist(struct proxy_hist *to, const struct stat_hist *h)
{
    for (unsigned i = 0; i <= PROXY_BOUNDS; i++)
        to->counts[i] += stat_get(&h->counts[i]);
    to->sum_ns += stat_get(&h->sum_ns);
}

static void add_lane(struct proxy_stats *out, const struct lane_stats *s)
{
    for (unsigned i = 0; i < REJECT_COUNT; i++)
        out->rejections[i] += stat_get(&s->rejections[i]);
    for (unsigned i = 0; i < RETRY_COUNT; i++)
        out->retries[i] += stat_get(&s->retries[i]);
    out->spilled += stat_get(&s->spilled);
    add_hist(&out->duration, &s->duration);
    add_hist(&out->first_byte, &s->first_byte);
    add_hist(&out->queue, &s->queue);
    add_hist(&out->decision, &s->decision);
    out->connections += stat_get(&s->connections);
    out->access_log_lost += stat_get(&s->log_lost);
    out->connections_refused += stat_get(&s->refused);
    out->active += stat_get(&s->active);
    out->sockets += stat_get(&s->sockets);
    out->buffered_bytes += stat_get(&s->buffered);
    out->upstream_connections += stat_get(&s->upstreams);
}

static void add_series(struct proxy_series *to, const struct lane_stats *s, uint32_t index)
{
    const struct stat_series *b =
        atomic_load_explicit(&s->blocks[index / SERIES_BLOCK], memory_order_acquire);

    if (!b)
        return;
    b += index % SERIES_BLOCK;
    for (unsigned i = 0; i < OUTCOME_COUNT; i++)
        to->requests[i] += stat_get(&b->requests[i]);
    add_hist(&to->compute, &b->compute);
    to->picks += stat_get(&b->picks);
    to->fit_sum += stat_get(&b->fit_sum);
    to->offered_sum += stat_get(&b->offered_sum);
    to->cached_tokens += stat_get(&b->cached_tokens);
    to->cached_of += stat_get(&b->cached_of);
    to->usage_unknown += stat_get(&b->usage_unknown);
    for (unsigned o = 0; o < OPERATION_COUNT; o++)
        for (unsigned k = 0; k < TOKENS_KINDS; k++) {
            for (unsigned i = 0; i <= PROXY_TOKEN_BOUNDS; i++)
                to->tokens[o][k].counts[i] += stat_get(&b->tokens[o][k].counts[i]);
            to->tokens[o][k].sum += stat_get(&b->tokens[o][k].sum);
        }
}

/* What the series are of. Under pools_lock. */
static void describe(const struct proxy *p, struct proxy_series *series)
{
    series[0] = (struct proxy_series){.model = SLICE("other"), .route = SLICE("none")};
    for (uint32_t i = 0; i < p->n_tracks; i++) {
        struct proxy_series *s = &series[p->tracks[i]->series];
        s->model = SLICE("other");
        s->route = p->tracks[i]->path;
    }
    for (uint32_t i = 0; i < p->n_pools; i++) {
        const struct pool *pool = p->pool_list[i];
        struct proxy_series *s = &series[pool->series];
        s->model = pool->model;
        s->route = pool->track->path;
        s->waiting += atomic_load_explicit(&pool->waiting, memory_order_relaxed);
        s->members += atomic_load_explicit(&pool->members, memory_order_relaxed);
    }
}

static int read_tenants(struct proxy *p, const struct mem *mem, struct proxy_stats *out)
{
    uint32_t n = p->n_accounts;

    out->tenants = mem_array(mem, MAX(n, 1u), sizeof(*out->tenants));
    if (!out->tenants)
        return WEIR_E_NOMEM;
    out->n_tenants = n;
    for (uint32_t i = 0; i < n; i++) {
        const struct tenant_account *a = p->accounts[i];
        out->tenants[i] = (struct proxy_tenant){
            .name = a->name,
            .inflight = atomic_load_explicit(&a->inflight, memory_order_relaxed),
            .requests = atomic_load_explicit(&a->requests, memory_order_relaxed),
            .refused = atomic_load_explicit(&a->refused, memory_order_relaxed),
            .input_tokens = atomic_load_explicit(&a->input, memory_order_relaxed),
            .output_tokens = atomic_load_explicit(&a->output, memory_order_relaxed),
            .queued_ns = atomic_load_explicit(&a->queued_ns, memory_order_relaxed),
        };
    }
    return 0;
}

int proxy_stats_read(struct proxy *p, const struct mem *mem, struct proxy_stats *out)
{
    *out = (struct proxy_stats){0};
    pthread_mutex_lock(&p->pools_lock);
    uint32_t n = p->n_series;
    out->series = mem_array(mem, n, sizeof(*out->series));
    if (out->series)
        describe(p, out->series);
    pthread_mutex_unlock(&p->pools_lock);
    if (!out->series)
        return WEIR_E_NOMEM;
    out->n_series = n;
    for (unsigned l = 0; l < p->n_lanes; l++) {
        add_lane(out, &p->lanes[l].stats);
        for (uint32_t i = 0; i < n; i++)
            add_series(&out->series[i], &p->lanes[l].stats, i);
    }
    int rc = read_tenants(p, mem, out);
    if (rc)
        proxy_stats_fini(out, mem);
    return rc;
}

void proxy_stats_fini(struct proxy_stats *s, const struct mem *mem)
{
    mem_free(mem, s->series);
    mem_free(mem, s->tenants);
    *s = (struct proxy_stats){0};
}
