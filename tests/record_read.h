/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a decision as docs/decisions.md describes it, so that it can be replayed. For tests and tests/tools/replay.c. */
#ifndef WEIR_TESTS_RECORD_READ_H
#define WEIR_TESTS_RECORD_READ_H

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/bug.h"
#include "sched/record.h"

/** A record that was read. Texts are borrowed from the JSON, which must stay. */
struct read_record {
    struct sched_record *record;
    struct policy policy;
    struct decision logged;
    const char *wrong; /**< what could not be read; NULL = nothing */
};

static inline const json_t *rr_get(struct read_record *r, const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);

    if (!v && !r->wrong)
        r->wrong = key;
    return v;
}

static inline struct slice rr_text(const json_t *v)
{
    return slice_of(json_string_value(v), json_string_length(v));
}

/* Absent is 0. */
static inline uint64_t rr_number(const json_t *o, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(o, key));
}

static inline uint64_t rr_hex(struct read_record *r, const json_t *o, const char *key)
{
    struct slice s = rr_text(rr_get(r, o, key));
    uint64_t v = 0;

    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            r->wrong = key;
        v = v << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    if (s.n != 16 && !r->wrong)
        r->wrong = key;
    return v;
}

static inline uint8_t rr_filter(struct read_record *r, struct slice name)
{
    for (uint32_t i = 0; i < sched_n_filters; i++)
        if (slice_eq(slice_str(sched_filters[i].name), name))
            return (uint8_t)i;
    r->wrong = "filters";
    return 0;
}

static inline uint8_t rr_score(struct read_record *r, struct slice name)
{
    for (uint32_t i = 0; i < sched_n_scores; i++)
        if (slice_eq(slice_str(sched_scores[i].name), name))
            return (uint8_t)i;
    r->wrong = "scores";
    return 0;
}

static inline uint8_t rr_pick(struct read_record *r, struct slice name)
{
    for (uint32_t i = 0; i < sched_n_pickers; i++)
        if (slice_eq(slice_str(sched_pickers[i].name), name))
            return (uint8_t)i;
    r->wrong = "pick";
    return 0;
}

static inline void rr_policy(struct read_record *r, const json_t *o)
{
    struct policy *p = &r->policy;
    const json_t *list = rr_get(r, o, "filters");

    *p = (struct policy){.name = rr_text(rr_get(r, o, "name")),
                         .bound_q16 = (uint32_t)rr_number(o, "bound_q16"),
                         .panic_percent = (uint32_t)rr_number(o, "panic_percent"),
                         .slow_start_ns = rr_number(o, "slow_start_ns")};
    p->n_filters = (uint32_t)json_array_size(list);
    for (uint32_t i = 0; i < p->n_filters && i < POLICY_STEPS_MAX; i++)
        p->filters[i] = rr_filter(r, rr_text(json_array_get(list, i)));
    list = rr_get(r, o, "scores");
    p->n_scores = (uint32_t)json_array_size(list);
    for (uint32_t i = 0; i < p->n_scores && i < POLICY_STEPS_MAX; i++) {
        const json_t *s = json_array_get(list, i);
        p->scores[i].plugin = rr_score(r, rr_text(json_object_get(s, "name")));
        p->scores[i].q16 = (uint32_t)rr_number(s, "weight_q16");
    }
    p->pick = rr_pick(r, rr_text(rr_get(r, o, "pick")));
    list = rr_get(r, o, "curve");
    p->n_curve = (uint32_t)json_array_size(list);
    for (uint32_t i = 0; i < p->n_curve && i < POLICY_CURVE_MAX; i++) {
        const json_t *point = json_array_get(list, i);
        p->curve[i].util_bp = (uint32_t)json_integer_value(json_array_get(point, 0));
        p->curve[i].q16 = (uint32_t)json_integer_value(json_array_get(point, 1));
    }
    list = rr_get(r, o, "gpu_weights");
    p->n_gpu_weights = (uint32_t)json_array_size(list);
    for (uint32_t i = 0; i < p->n_gpu_weights && i < POLICY_GPU_WEIGHTS_MAX; i++) {
        const json_t *pair = json_array_get(list, i);
        p->gpu_weights[i].gpu_type = rr_text(json_array_get(pair, 0));
        p->gpu_weights[i].weight = (uint32_t)json_integer_value(json_array_get(pair, 1));
    }
    if (p->n_filters > POLICY_STEPS_MAX || p->n_scores > POLICY_STEPS_MAX ||
        p->n_curve > POLICY_CURVE_MAX || p->n_gpu_weights > POLICY_GPU_WEIGHTS_MAX)
        r->wrong = "policy";
    if (r->wrong)
        return;
    /* The hash in the record is over the names and numbers that were just read: nothing may be lost. */
    sched_policy_seal(p);
    if (p->hash != rr_hex(r, o, "hash") && !r->wrong)
        r->wrong = "policy.hash";
}

static inline void rr_features(struct read_record *r, const json_t *o)
{
    struct features *f = &r->record->features;
    const json_t *version = json_object_get(o, "version");

    *f = (struct features){0};
#define READ(field) f->field = (__typeof__(f->field))rr_number(o, #field);
    SCHED_RECORD_FEATURES(READ)
#undef READ
    f->model = rr_text(rr_get(r, o, "model"));
    if (version)
        f->version = json_is_null(version) ? SLICE("?") : rr_text(version);
    f->stream = json_is_true(json_object_get(o, "stream"));
    f->prompt_complete = json_is_true(json_object_get(o, "prompt_complete"));
    f->has_session = json_object_get(o, "session") != NULL;
    if (json_object_get(o, "prefix_key"))
        f->prefix_key = rr_hex(r, o, "prefix_key");
    if (f->has_session)
        f->session = rr_hex(r, o, "session");
}

static inline void rr_row(struct read_record *r, const json_t *o, struct sched_record_row *k)
{
    *k = (struct sched_record_row){.hash = rr_hex(r, o, "hash"),
                                   .credit = json_integer_value(json_object_get(o, "credit")),
                                   .serves = json_is_true(json_object_get(o, "serves")),
                                   .id = rr_text(rr_get(r, o, "endpoint"))};
#define READ(field) k->field = (__typeof__(k->field))rr_number(o, #field);
    SCHED_RECORD_CANDIDATE(READ)
#undef READ
#define READ(field) k->row.field = (__typeof__(k->row.field))rr_number(o, #field);
    SCHED_RECORD_ROW(READ)
#undef READ
    const json_t *work = json_object_get(o, "work");
    k->work.backlog_us = (uint32_t)rr_number(work, "backlog_us");
#define READ(field) k->work.field = (__typeof__(k->work.field))rr_number(work, #field);
    SCHED_RECORD_WORK(READ)
#undef READ
}

static inline void rr_decision(struct read_record *r, const json_t *o)
{
    const json_t *row = rr_get(r, o, "row");
    const json_t *rejection = rr_get(r, o, "rejection");

    r->logged.row =
        json_is_integer(row) ? (uint32_t)json_integer_value(row) : (uint32_t)DECISION_NOBODY;
    r->logged.fit = (uint32_t)rr_number(o, "fit");
    r->logged.rejection = REJECT_NONE;
    for (unsigned i = 1; json_is_string(rejection) && i < REJECT_COUNT; i++)
        if (slice_eq(slice_str(sched_rejection_code((enum rejection)i)), rr_text(rejection)))
            r->logged.rejection = (enum rejection)i;
    if (json_is_string(rejection) && !r->logged.rejection)
        r->wrong = "rejection";
}

/* @return 0 or WEIR_E_NOMEM; r->wrong says what could not be read. Free r->record. */
static inline int record_read(const json_t *o, const struct mem *mem, struct read_record *r)
{
    const json_t *rows = json_object_get(o, "rows");
    const json_t *excluded = json_object_get(o, "excluded");
    uint32_t n = (uint32_t)json_array_size(rows);

    *r = (struct read_record){0};
    if (sched_record_new(mem, n, &r->record) != 0)
        return WEIR_E_NOMEM;
    struct sched_record *k = r->record;
    rr_policy(r, rr_get(r, o, "policy"));
    rr_features(r, rr_get(r, o, "features"));
    rr_decision(r, rr_get(r, o, "decision"));
    k->policy = &r->policy;
    k->pool_model = rr_text(rr_get(r, o, "pool_model"));
    k->seed = rr_hex(r, o, "seed");
    k->any_last = json_object_get(o, "last_slot") != NULL;
    k->last_slot = (uint32_t)rr_number(o, "last_slot");
    k->exclude.n = (uint32_t)json_array_size(excluded);
    for (uint32_t i = 0; i < k->exclude.n && i < SCHED_EXCLUDE_MAX; i++) {
        const json_t *pair = json_array_get(excluded, i);
        k->exclude.tried[i].slot = (uint32_t)json_integer_value(json_array_get(pair, 0));
        k->exclude.tried[i].generation = (uint32_t)json_integer_value(json_array_get(pair, 1));
    }
    if (k->exclude.n > SCHED_EXCLUDE_MAX)
        r->wrong = "excluded";
    k->members = (uint32_t)rr_number(o, "members");
    k->n = n;
    for (uint32_t i = 0; i < n; i++)
        rr_row(r, json_array_get(rows, i), &k->rows[i]);
    k->captured = true;
    return 0;
}

static inline bool same_decision(const struct decision *a, const struct decision *b)
{
    return a->row == b->row && a->rejection == b->rejection && a->fit == b->fit;
}

#endif /* WEIR_TESTS_RECORD_READ_H */
