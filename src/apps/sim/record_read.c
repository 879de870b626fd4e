/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/sim/record_read.h"

#include <stdio.h>
#include <string.h>

#include "base/bug.h"

/* Of all the rows of a pool together. */
#define CREDIT_MOST (INT64_C(1) << 61)

static const json_t *get(struct read_record *r, const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);

    if (!v && !r->wrong)
        r->wrong = key;
    return v;
}

static struct slice text(const json_t *v)
{
    return slice_of(json_string_value(v), json_string_length(v));
}

/* Absent is 0. */
static uint64_t number(const json_t *o, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(o, key));
}

static uint64_t hex_of(struct read_record *r, const json_t *v, const char *key)
{
    struct slice s = text(v);
    uint64_t out = 0;

    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            r->wrong = key;
        out = out << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    if (s.n != 16 && !r->wrong)
        r->wrong = key;
    return out;
}

static uint64_t hex(struct read_record *r, const json_t *o, const char *key)
{
    return hex_of(r, get(r, o, key), key);
}

static uint8_t filter(struct read_record *r, struct slice name)
{
    for (uint32_t i = 0; i < sched_n_filters; i++)
        if (slice_eq(slice_str(sched_filters[i].name), name))
            return (uint8_t)i;
    r->wrong = "filters";
    return 0;
}

static uint8_t score(struct read_record *r, struct slice name)
{
    for (uint32_t i = 0; i < sched_n_scores; i++)
        if (slice_eq(slice_str(sched_scores[i].name), name))
            return (uint8_t)i;
    r->wrong = "scores";
    return 0;
}

static uint8_t pick(struct read_record *r, struct slice name)
{
    for (uint32_t i = 0; i < sched_n_pickers; i++)
        if (slice_eq(slice_str(sched_pickers[i].name), name))
            return (uint8_t)i;
    r->wrong = "pick";
    return 0;
}

static void policy(struct read_record *r, const json_t *o)
{
    struct policy *p = &r->policy;
    const json_t *list = get(r, o, "filters");

    *p = (struct policy){.name = text(get(r, o, "name")),
                         .bound_q16 = (uint32_t)number(o, "bound_q16"),
                         .panic_percent = (uint32_t)number(o, "panic_percent"),
                         .slow_start_ns = number(o, "slow_start_ns"),
                         .place = {.region = text(json_object_get(o, "region")),
                                   .zone = text(json_object_get(o, "zone")),
                                   .cluster = text(json_object_get(o, "cluster"))}};
    p->n_filters = (uint32_t)json_array_size(list);
    for (uint32_t i = 0; i < p->n_filters && i < POLICY_STEPS_MAX; i++)
        p->filters[i] = filter(r, text(json_array_get(list, i)));
    list = get(r, o, "scores");
    p->n_scores = (uint32_t)json_array_size(list);
    for (uint32_t i = 0; i < p->n_scores && i < POLICY_STEPS_MAX; i++) {
        const json_t *s = json_array_get(list, i);
        p->scores[i].plugin = score(r, text(json_object_get(s, "name")));
        p->scores[i].q16 = (uint32_t)number(s, "weight_q16");
    }
    p->pick = pick(r, text(get(r, o, "pick")));
    list = get(r, o, "curve");
    p->n_curve = (uint32_t)json_array_size(list);
    for (uint32_t i = 0; i < p->n_curve && i < POLICY_CURVE_MAX; i++) {
        const json_t *point = json_array_get(list, i);
        p->curve[i].util_bp = (uint32_t)json_integer_value(json_array_get(point, 0));
        p->curve[i].q16 = (uint32_t)json_integer_value(json_array_get(point, 1));
    }
    list = get(r, o, "gpu_weights");
    p->n_gpu_weights = (uint32_t)json_array_size(list);
    for (uint32_t i = 0; i < p->n_gpu_weights && i < POLICY_GPU_WEIGHTS_MAX; i++) {
        const json_t *pair = json_array_get(list, i);
        p->gpu_weights[i].gpu_type = text(json_array_get(pair, 0));
        p->gpu_weights[i].weight = (uint32_t)json_integer_value(json_array_get(pair, 1));
    }
    if (p->n_filters > POLICY_STEPS_MAX || p->n_scores > POLICY_STEPS_MAX ||
        p->n_curve > POLICY_CURVE_MAX || p->n_gpu_weights > POLICY_GPU_WEIGHTS_MAX)
        r->wrong = "policy";
    if (r->wrong)
        return;
    /* The hash in the record is over the names and numbers that were just read: nothing may be lost. */
    sched_policy_seal(p);
    if (p->hash != hex(r, o, "hash") && !r->wrong)
        r->wrong = "policy.hash";
}

static void features(struct read_record *r, const json_t *o)
{
    struct features *f = &r->record->features;
    const json_t *version = json_object_get(o, "version");

    *f = (struct features){0};
#define READ(field) f->field = (__typeof__(f->field))number(o, #field);
    SCHED_RECORD_FEATURES(READ)
#undef READ
    f->model = text(get(r, o, "model"));
    if (version)
        f->version = json_is_null(version) ? SLICE("?") : text(version);
    f->stream = json_is_true(json_object_get(o, "stream"));
    f->prompt_complete = json_is_true(json_object_get(o, "prompt_complete"));
    const json_t *blocks = json_object_get(o, "blocks");
    f->n_blocks = (uint32_t)number(o, "n_blocks");
    r->record->n_blocks = (uint32_t)MIN(json_array_size(blocks),
                                        (size_t)MIN(f->n_blocks, (uint32_t)SCHED_RECORD_BLOCKS));
    for (uint32_t i = 0; i < r->record->n_blocks; i++)
        r->record->blocks[i] = hex_of(r, json_array_get(blocks, i), "blocks");
    f->has_session = json_object_get(o, "session") != NULL;
    if (json_object_get(o, "prefix_key"))
        f->prefix_key = hex(r, o, "prefix_key");
    if (f->has_session)
        f->session = hex(r, o, "session");
}

static void row(struct read_record *r, const json_t *o, struct sched_record_row *k)
{
    *k = (struct sched_record_row){.hash = hex(r, o, "hash"),
                                   .credit = json_integer_value(json_object_get(o, "credit")),
                                   .serves = json_is_true(json_object_get(o, "serves")),
                                   .id = text(get(r, o, "endpoint"))};
#define READ(field) k->field = (__typeof__(k->field))number(o, #field);
    SCHED_RECORD_CANDIDATE(READ)
#undef READ
#define READ(field) k->row.field = (__typeof__(k->row.field))number(o, #field);
    SCHED_RECORD_ROW(READ)
#undef READ
    const json_t *work = json_object_get(o, "work");
    k->work.backlog_us = (uint32_t)number(work, "backlog_us");
#define READ(field) k->work.field = (__typeof__(k->work.field))number(work, #field);
    SCHED_RECORD_WORK(READ)
#undef READ
}

static void decision(struct read_record *r, const json_t *o)
{
    const json_t *row = get(r, o, "row");
    const json_t *rejection = get(r, o, "rejection");

    r->logged.row =
        json_is_integer(row) ? (uint32_t)json_integer_value(row) : (uint32_t)DECISION_NOBODY;
    r->logged.fit = (uint32_t)number(o, "fit");
    r->logged.rejection = REJECT_NONE;
    for (unsigned i = 1; json_is_string(rejection) && i < REJECT_COUNT; i++)
        if (slice_eq(slice_str(sched_rejection_code((enum rejection)i)), text(rejection)))
            r->logged.rejection = (enum rejection)i;
    if (json_is_string(rejection) && !r->logged.rejection)
        r->wrong = "rejection";
}

/* What a pick of a living pool can rely on. */
static void check(struct read_record *r, const json_t *o)
{
    const struct sched_record *k = r->record;
    const struct policy *p = &r->policy;
    const char *wrong = NULL;

    for (uint32_t i = 0; i < p->n_curve && i < POLICY_CURVE_MAX; i++)
        if (p->curve[i].util_bp > 10000 || (i && p->curve[i].util_bp <= p->curve[i - 1].util_bp))
            wrong = "policy.curve";
    for (uint32_t i = 0; i < k->n; i++) {
        if (k->rows[i].weight == 0)
            wrong = "rows.weight";
        if (k->rows[i].credit > CREDIT_MOST || k->rows[i].credit < -CREDIT_MOST)
            wrong = "rows.credit";
        if (i && k->rows[i].slot <= k->rows[i - 1].slot)
            wrong = "rows.slot";
    }
    if (r->logged.row != DECISION_NOBODY && r->logged.row >= k->n)
        wrong = "decision.row";
    if (k->members != k->n && !json_is_true(json_object_get(o, "truncated")))
        wrong = "members";
    if (k->n > SCHED_ROWS_MAX)
        wrong = "rows";
    if (wrong && !r->wrong)
        r->wrong = wrong;
}

int record_read(const json_t *o, const struct mem *mem, struct read_record *r)
{
    const json_t *rows = json_object_get(o, "rows");
    const json_t *excluded = json_object_get(o, "excluded");
    uint32_t n = (uint32_t)json_array_size(rows);

    *r = (struct read_record){0};
    if (sched_record_new(mem, n, &r->record) != 0)
        return WEIR_E_NOMEM;
    struct sched_record *k = r->record;
    policy(r, get(r, o, "policy"));
    features(r, get(r, o, "features"));
    decision(r, get(r, o, "decision"));
    k->policy = &r->policy;
    k->pool_model = text(get(r, o, "pool_model"));
    k->seed = hex(r, o, "seed");
    k->any_last = json_object_get(o, "last_slot") != NULL;
    k->last_slot = (uint32_t)number(o, "last_slot");
    k->exclude.n = (uint32_t)json_array_size(excluded);
    for (uint32_t i = 0; i < k->exclude.n && i < SCHED_EXCLUDE_MAX; i++) {
        const json_t *pair = json_array_get(excluded, i);
        k->exclude.tried[i].slot = (uint32_t)json_integer_value(json_array_get(pair, 0));
        k->exclude.tried[i].generation = (uint32_t)json_integer_value(json_array_get(pair, 1));
    }
    if (k->exclude.n > SCHED_EXCLUDE_MAX)
        r->wrong = "excluded";
    k->members = (uint32_t)number(o, "members");
    k->n = n;
    for (uint32_t i = 0; i < n; i++)
        row(r, json_array_get(rows, i), &k->rows[i]);
    k->captured = true;
    check(r, o);
    return 0;
}

bool record_same(const struct decision *a, const struct decision *b)
{
    return a->row == b->row && a->rejection == b->rejection && a->fit == b->fit;
}
