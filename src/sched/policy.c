/* SPDX-License-Identifier: Apache-2.0 */
/** @file The built-in policies by name: which filters, scores and pick each is made of. */
#include "base/bug.h"
#include "base/hash.h"
#include "sched/plugin.h"

struct recipe {
    const char *name;
    const char *score;
    const char *pick;
    const char *tie; /* a second score that orders equals, at TIE_WEIGHT; NULL = none */
};

/* A request more counts as a 64th of a token, say: it only tells equals apart. */
enum { TIE_WEIGHT = 1024 };

static const struct recipe RECIPES[] = {
    {"queued_work", "queued_work", "sticky", NULL},
    {"chain", "dynamic_load", "lowest", NULL},
    {"least_request", "load", "lowest", NULL},
    {"round_robin", "load", "round_robin", NULL},
    {"weighted_round_robin", "load", "weighted_round_robin", NULL},
    {"random", "load", "random", NULL},
    {"power_of_two", "load", "power_of_two", NULL},
    {"consistent_hash", "load", "consistent_hash", NULL},
    {"maglev", "load", "maglev", NULL},
    {"prefix_cache", "uncached", "bounded", "load"},
    {"response_time", "response_time", "lowest", NULL},
    {"peak_ewma", "peak_ewma", "lowest", NULL},
    {"prequal", "load", "prequal", NULL},
    {"cache_aware", "load", "cache_aware", NULL},
    {"prefix_hash", "load", "prefix_hash", NULL},
    {"llm_d", "load", "affinity", NULL},
    {"dynamo", "token_load", "lowest", NULL},
    {"vllm", "reported", "lowest", NULL},
};

/* What the SGLang and vLLM routers call the same thing. */
static const struct {
    const char *name, *means;
} SYNONYMS[] = {
    {"least_load", "least_request"},
    {"consistent_hashing", "consistent_hash"},
};

/* Every policy routes by model and need: they differ in how they choose among what fits. */
static const char *const FILTERS[] = {"usable", "model",       "context",     "memory_total",
                                      "memory", "concurrency", "memory_known"};

static const struct curve_point CURVE[] = {
    {.util_bp = 3000, .q16 = 2 * Q16_ONE},
    {.util_bp = 4000, .q16 = Q16_ONE},
    {.util_bp = 7000, .q16 = Q16_ONE},
    {.util_bp = 8000, .q16 = Q16_ONE / 2},
};

static uint8_t filter_index(const char *name)
{
    for (uint32_t i = 0; i < sched_n_filters; i++)
        if (strcmp(sched_filters[i].name, name) == 0)
            return (uint8_t)i;
    __builtin_trap();
}

static uint8_t score_index(const char *name)
{
    for (uint32_t i = 0; i < sched_n_scores; i++)
        if (strcmp(sched_scores[i].name, name) == 0)
            return (uint8_t)i;
    __builtin_trap();
}

static uint8_t pick_index(const char *name)
{
    for (uint32_t i = 0; i < sched_n_pickers; i++)
        if (strcmp(sched_pickers[i].name, name) == 0)
            return (uint8_t)i;
    __builtin_trap();
}

const char *sched_policy_name(uint32_t i)
{
    return i < ARRAY_LEN(RECIPES) ? RECIPES[i].name : NULL;
}

int sched_policy_named(struct slice name, struct policy *out)
{
    for (size_t i = 0; i < ARRAY_LEN(SYNONYMS); i++)
        if (slice_eq(name, slice_str(SYNONYMS[i].name)))
            name = slice_str(SYNONYMS[i].means);
    for (size_t i = 0; i < ARRAY_LEN(RECIPES); i++) {
        const struct recipe *r = &RECIPES[i];
        if (!slice_eq(name, slice_str(r->name)))
            continue;
        *out = (struct policy){
            .name = slice_str(r->name),
            .n_filters = ARRAY_LEN(FILTERS),
            .scores = {{.plugin = score_index(r->score), .q16 = Q16_ONE}},
            .n_scores = 1,
            .pick = pick_index(r->pick),
            .n_curve = ARRAY_LEN(CURVE),
            .bound_q16 = Q16_ONE + Q16_ONE / 4,
        };
        if (r->tie)
            out->scores[out->n_scores++] =
                (struct policy_score){.plugin = score_index(r->tie), .q16 = TIE_WEIGHT};
        for (size_t k = 0; k < ARRAY_LEN(FILTERS); k++)
            out->filters[k] = filter_index(FILTERS[k]);
        memcpy(out->curve, CURVE, sizeof(CURVE));
        sched_policy_seal(out);
        return 0;
    }
    return WEIR_E_NOTFOUND;
}

bool sched_policy_stays(const struct policy *p)
{
    for (uint32_t i = 0; i < p->n_filters; i++)
        if (sched_filters[p->filters[i]].keep == sched_filter_locality)
            return true;
    return false;
}

void sched_policy_stay(struct policy *p, const struct place *place)
{
    uint32_t at = 0;

    p->place = *place;
    if (sched_policy_stays(p) || p->n_filters == POLICY_STEPS_MAX)
        return;
    /* Behind the last one that can leave nobody: what follows only prefers. */
    for (uint32_t i = 0; i < p->n_filters; i++)
        if (sched_filters[p->filters[i]].keep != sched_filter_memory_known)
            at = i + 1;
    memmove(&p->filters[at + 1], &p->filters[at], p->n_filters - at);
    p->filters[at] = filter_index("locality");
    p->n_filters++;
}

void sched_policy_seal(struct policy *p)
{
    /* By names, so that the hash means the same to a build with other plugin numbers. */
    uint64_t h = hash_slice(p->name, 0);

    for (uint32_t i = 0; i < p->n_curve; i++) {
        uint32_t run = i ? p->curve[i].util_bp - p->curve[i - 1].util_bp : 0;
        p->curve[i].inverse = run > 1 && run <= 10000 ? UINT64_MAX / run + 1 : 0;
    }

    for (uint32_t i = 0; i < p->n_filters; i++)
        h = hash_pair(h, hash_slice(slice_str(sched_filters[p->filters[i]].name), 1));
    for (uint32_t i = 0; i < p->n_scores; i++)
        h = hash_pair(
            hash_pair(h, hash_slice(slice_str(sched_scores[p->scores[i].plugin].name), 2)),
            p->scores[i].q16);
    h = hash_pair(h, hash_slice(slice_str(sched_pickers[p->pick].name), 3));
    for (uint32_t i = 0; i < p->n_curve; i++)
        h = hash_pair(hash_pair(h, p->curve[i].util_bp), p->curve[i].q16);
    for (uint32_t i = 0; i < p->n_gpu_weights; i++)
        h = hash_pair(hash_pair(h, hash_slice(p->gpu_weights[i].gpu_type, 4)),
                      p->gpu_weights[i].weight);
    h = hash_pair(hash_pair(h, p->panic_percent), p->slow_start_ns);
    /* Nothing where nothing is said: older records keep their hash. */
    if (sched_placed(&p->place))
        h = hash_pair(
            hash_pair(hash_pair(h, hash_slice(p->place.region, 5)), hash_slice(p->place.zone, 6)),
            hash_slice(p->place.cluster, 7));
    p->hash = hash_pair(h, p->bound_q16);
}

bool sched_policy_reads_body(const struct policy *p)
{
    for (uint32_t i = 0; i < p->n_filters; i++)
        if (sched_filters[p->filters[i]].reads_body)
            return true;
    for (uint32_t i = 0; i < p->n_scores; i++)
        if (sched_scores[p->scores[i].plugin].reads_body)
            return true;
    return sched_policy_reads_work(p);
}

bool sched_policy_reads_work(const struct policy *p)
{
    bool reads = sched_pickers[p->pick].reads_work;

    for (uint32_t i = 0; i < p->n_scores; i++)
        reads = reads || sched_scores[p->scores[i].plugin].reads_work;
    return reads;
}

bool sched_policy_reads_peaks(const struct policy *p)
{
    bool reads = sched_pickers[p->pick].reads_peak;

    for (uint32_t i = 0; i < p->n_scores; i++)
        reads = reads || sched_scores[p->scores[i].plugin].reads_peak;
    return reads;
}
