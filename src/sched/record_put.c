/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Records as JSON: exact for the log, in words for people. 64-bit values that are no quantities (hashes, seeds)
 * are written as 16 hex digits, because many readers of JSON keep only 53 bits of a number.
 */
#include "base/bug.h"
#include "sched/plugin.h"
#include "sched/slo.h"

#define PER_MILLION 1e6

static void key(struct buf *out, const char *name)
{
    buf_put_char(out, '"');
    buf_put_str(out, name);
    buf_put_str(out, "\":");
}

static void put_number(struct buf *out, const char *name, uint64_t v)
{
    buf_put_char(out, ',');
    key(out, name);
    buf_put_u64(out, v);
}

static void put_nonzero(struct buf *out, const char *name, uint64_t v)
{
    if (v)
        put_number(out, name, v);
}

static void put_real(struct buf *out, const char *name, double v, unsigned decimals)
{
    buf_put_char(out, ',');
    key(out, name);
    buf_put_f64(out, v, decimals);
}

static void put_hex(struct buf *out, const char *name, uint64_t v)
{
    key(out, name);
    buf_put_char(out, '"');
    buf_put_hex(out, v, 16);
    buf_put_char(out, '"');
}

static void put_text(struct buf *out, const char *name, struct slice v)
{
    key(out, name);
    if (v.p)
        buf_put_json(out, v);
    else
        buf_put_str(out, "null");
}

static void put_said(struct buf *out, const char *name, struct slice v)
{
    if (v.n == 0)
        return;
    buf_put_char(out, ',');
    put_text(out, name, v);
}

static void put_policy(struct buf *out, const struct policy *p)
{
    buf_put_str(out, "\"policy\":{");
    put_text(out, "name", p->name);
    buf_put_char(out, ',');
    put_hex(out, "hash", p->hash);
    buf_put_str(out, ",\"filters\":[");
    for (uint32_t i = 0; i < p->n_filters; i++) {
        buf_put_str(out, i ? "," : "");
        buf_put_json(out, slice_str(sched_filters[p->filters[i]].name));
    }
    buf_put_str(out, "],\"scores\":[");
    for (uint32_t i = 0; i < p->n_scores; i++) {
        buf_put_str(out, i ? ",{" : "{");
        put_text(out, "name", slice_str(sched_scores[p->scores[i].plugin].name));
        put_number(out, "weight_q16", p->scores[i].q16);
        buf_put_char(out, '}');
    }
    buf_put_str(out, "],");
    put_text(out, "pick", slice_str(sched_pickers[p->pick].name));
    buf_put_str(out, ",\"curve\":[");
    for (uint32_t i = 0; i < p->n_curve; i++) {
        buf_put_str(out, i ? ",[" : "[");
        buf_put_u64(out, p->curve[i].util_bp);
        buf_put_char(out, ',');
        buf_put_u64(out, p->curve[i].q16);
        buf_put_char(out, ']');
    }
    buf_put_str(out, "],\"gpu_weights\":[");
    for (uint32_t i = 0; i < p->n_gpu_weights; i++) {
        buf_put_str(out, i ? ",[" : "[");
        buf_put_json(out, p->gpu_weights[i].gpu_type);
        buf_put_char(out, ',');
        buf_put_u64(out, p->gpu_weights[i].weight);
        buf_put_char(out, ']');
    }
    buf_put_char(out, ']');
    put_number(out, "bound_q16", p->bound_q16);
    put_nonzero(out, "panic_percent", p->panic_percent);
    put_nonzero(out, "slow_start_ns", p->slow_start_ns);
    put_said(out, "region", p->place.region);
    put_said(out, "zone", p->place.zone);
    put_said(out, "cluster", p->place.cluster);
    buf_put_char(out, '}');
}

static void put_features(struct buf *out, const struct sched_record *r)
{
    const struct features *f = &r->features;

    buf_put_str(out, ",\"features\":{");
    put_text(out, "model", f->model);
    if (f->version.p) {
        buf_put_char(out, ',');
        put_text(out, "version", r->version_unknown ? slice_of(NULL, 0) : f->version);
    }
#define PUT(field) put_nonzero(out, #field, f->field);
    SCHED_RECORD_FEATURES(PUT)
#undef PUT
    buf_put_str(out, f->stream ? ",\"stream\":true" : "");
    buf_put_str(out, f->prompt_complete ? ",\"prompt_complete\":true" : "");
    if (f->has_session) {
        buf_put_char(out, ',');
        put_hex(out, "session", f->session);
    }
    if (f->prefix_key) {
        buf_put_char(out, ',');
        put_hex(out, "prefix_key", f->prefix_key);
    }
    buf_put_str(out, r->n_blocks ? ",\"blocks\":[" : "");
    for (uint32_t i = 0; i < r->n_blocks; i++) {
        buf_put_str(out, i ? ",\"" : "\"");
        buf_put_hex(out, r->blocks[i], 16);
        buf_put_char(out, '"');
    }
    buf_put_str(out, r->n_blocks ? "]" : "");
    if (r->tenant) {
        buf_put_char(out, ',');
        put_hex(out, "tenant", r->tenant);
    }
    buf_put_char(out, '}');
}

/* The cost in its natural unit: load per weight. */
static double cost_of(const struct policy *p, const struct explain_row *w)
{
    double sum = 0;

    for (uint32_t k = 0; k < p->n_scores; k++)
        sum += (double)w->terms[k] / Q16_ONE;
    return sum;
}

static void put_terms(struct buf *out, const struct policy *p, const struct explain_row *w)
{
    put_real(out, "cost", cost_of(p, w), 6);
    buf_put_str(out, ",\"terms\":{");
    for (uint32_t k = 0; k < p->n_scores; k++) {
        buf_put_str(out, k ? "," : "");
        key(out, sched_scores[p->scores[k].plugin].name);
        buf_put_f64(out, (double)w->terms[k] / Q16_ONE, 6);
    }
    buf_put_char(out, '}');
}

static const char *rule_of(const struct explain_row *w)
{
    return w->dropped_by == EXPLAIN_TRIED ? "tried"
           : w->dropped_by == EXPLAIN_SLO ? "slo"
                                          : sched_filters[w->dropped_by].name;
}

static const char *words_of(const struct explain_row *w)
{
    return w->dropped_by == EXPLAIN_TRIED ? "was tried already for this request"
           : w->dropped_by == EXPLAIN_SLO ? "would miss the request's latency targets"
                                          : sched_filters[w->dropped_by].why;
}

static void put_row(struct buf *out, const struct sched_record *r, uint32_t i)
{
    const struct sched_record_row *k = &r->rows[i];

    buf_put_char(out, '{');
    put_text(out, "endpoint", k->id);
#define PUT(field) put_nonzero(out, #field, k->field);
    SCHED_RECORD_CANDIDATE(PUT)
#undef PUT
#define PUT(field) put_nonzero(out, #field, k->row.field);
    SCHED_RECORD_ROW(PUT)
#undef PUT
    if (r->works) {
        buf_put_str(out, ",\"work\":{\"backlog_us\":");
        buf_put_u64(out, k->work.backlog_us);
#define PUT(field) put_nonzero(out, #field, k->work.field);
        SCHED_RECORD_WORK(PUT)
#undef PUT
        buf_put_char(out, '}');
    }
    buf_put_char(out, ',');
    put_hex(out, "hash", k->hash);
    if (k->credit) {
        buf_put_str(out, ",\"credit\":");
        buf_put_i64(out, k->credit);
    }
    buf_put_str(out, k->serves ? ",\"serves\":true" : "");
    if (r->explained && r->why[i].dropped_by != EXPLAIN_KEPT) {
        buf_put_char(out, ',');
        put_text(out, "dropped_by", slice_str(rule_of(&r->why[i])));
    } else if (r->explained && r->decision.row != DECISION_NOBODY) {
        put_terms(out, r->policy, &r->why[i]);
    }
    buf_put_char(out, '}');
}

const char *sched_rejection_code(enum rejection r)
{
    static const char *const codes[REJECT_COUNT] = {
#define CODE(name, code, status, type) [REJECT_##name] = code,
        WEIR_REJECTIONS(CODE)
#undef CODE
    };

    return codes[r];
}

static void put_rejection(struct buf *out, const struct sched_record *r)
{
    buf_put_char(out, ',');
    put_text(out, "rejection", slice_str(sched_rejection_code(r->decision.rejection)));
}

static struct slice chosen_id(const struct sched_record *r)
{
    return r->decision.row == DECISION_NOBODY ? slice_of(NULL, 0) : r->rows[r->decision.row].id;
}

/* Nobody in the gateway's own place fitted, or all of them were full. */
static void put_spilled(struct buf *out, const struct sched_record *r)
{
    if (r->decision.row != DECISION_NOBODY && sched_placed(&r->policy->place) &&
        !(r->rows[r->decision.row].row.flags & SCHED_NEAR))
        buf_put_str(out, ",\"spilled\":true");
}

int sched_record_put(struct buf *out, const struct sched_record *r)
{
    put_policy(out, r->policy);
    put_features(out, r);
    buf_put_char(out, ',');
    put_text(out, "pool_model", r->pool_model);
    buf_put_char(out, ',');
    put_hex(out, "seed", r->seed);
    if (r->any_last)
        put_number(out, "last_slot", r->last_slot);
    buf_put_str(out, r->exclude.n ? ",\"excluded\":[" : "");
    for (uint32_t i = 0; i < r->exclude.n; i++) {
        buf_put_str(out, i ? ",[" : "[");
        buf_put_u64(out, r->exclude.tried[i].slot);
        buf_put_char(out, ',');
        buf_put_u64(out, r->exclude.tried[i].generation);
        buf_put_char(out, ']');
    }
    buf_put_str(out, r->exclude.n ? "]" : "");
    put_number(out, "members", r->members);
    buf_put_str(out, sched_record_whole(r) ? "" : ",\"truncated\":true");
    buf_put_str(out, ",\"rows\":[");
    for (uint32_t i = 0; i < r->n; i++) {
        buf_put_str(out, i ? "," : "");
        put_row(out, r, i);
    }
    buf_put_str(out, "],\"decision\":{\"row\":");
    if (r->decision.row == DECISION_NOBODY)
        buf_put_str(out, "null");
    else
        buf_put_u64(out, r->decision.row);
    buf_put_char(out, ',');
    put_text(out, "endpoint", chosen_id(r));
    put_rejection(out, r);
    put_number(out, "fit", r->decision.fit);
    put_spilled(out, r);
    return buf_put_char(out, '}');
}

/* ---- for people ---- */

static const char *health_name(uint8_t h)
{
    return h == HEALTH_UP ? "up" : h == HEALTH_DOWN ? "down" : "unknown";
}

static const char *state_name(uint8_t s)
{
    static const char *const names[] = {"healthy", "busy", "loading", "unhealthy", "draining"};

    return s < ARRAY_LEN(names) ? names[s] : "unknown";
}

/* In seconds, as a person would ask: how long until its turn, for its prompt, for its answer. */
static void put_work(struct buf *out, const struct sched_record *r, uint32_t i)
{
    const struct sched_record_row *k = &r->rows[i];
    const struct sched_work *w = &k->work;
    struct sched_question q = sched_work_question(&r->features);
    struct sched_forecast s = sched_work_forecast(&q, w);
    bool home = (w->flags & WORK_SESSION) != 0;

    put_real(out, "wait_seconds", (double)s.wait_us / 1e6, 6);
    put_real(out, "prefill_seconds", (double)s.prefill_us / 1e6, 6);
    put_real(out, "decode_seconds", (double)s.decode_us / 1e6, 6);
    if (sched_slo_asked(&r->features)) {
        put_real(out, "first_byte_seconds", (double)sched_slo_first_us(&r->features, &s) / 1e6, 6);
        put_real(out, "step_seconds", (double)sched_slo_step_us(&q, w) / 1e6, 6);
        buf_put_str(out, ",\"measured\":");
        buf_put_str(out, w->flags & WORK_PREFILL_KNOWN ? "true" : "false");
    }
    put_number(out, "prefix_hit_tokens", w->hit_tokens);
    put_number(out, "uncached_tokens", sched_work_uncached(&r->features, w));
    if (!home || r->decision.row == DECISION_NOBODY)
        return;
    buf_put_char(out, ',');
    put_text(out, "session",
             slice_str(i == r->decision.row                   ? "stays"
                       : r->why[i].dropped_by != EXPLAIN_KEPT ? "moved: its endpoint does not fit"
                                                              : "moved: clearly worse here"));
}

static void
put_facts(struct buf *out, const struct sched_record_row *k, const struct explain_row *w)
{
    const struct sched_row *row = &k->row;
    double weight = (double)k->weight;

    put_number(out, "load", row->load);
    put_number(out, "inflight", row->inflight);
    put_nonzero(out, "max_concurrency", k->limit);
    put_real(out, "weight", weight / PER_MILLION, 6);
    put_real(out, "dynamic_weight", (double)w->share / Q16_ONE / PER_MILLION, 6);
    if (row->flags & SCHED_HAS_UTIL)
        put_real(out, "gpu_util_percent", row->util_bp / 100.0, 2);
    if (row->flags & SCHED_HAS_BYTES)
        put_number(out, "memory_free_bytes", row->free_bytes);
    put_nonzero(out, "memory_total_bytes", row->total_bytes);
    if (row->flags & SCHED_HAS_KV) {
        put_number(out, "kv_free_tokens", row->free_tokens);
        put_number(out, "kv_capacity_tokens", row->total_tokens);
    }
    put_nonzero(out, "max_model_len", k->context);
    buf_put_char(out, ',');
    put_text(out, "health", slice_str(health_name(row->health)));
    buf_put_char(out, ',');
    put_text(out, "state", slice_str(state_name(row->state)));
    buf_put_str(out, ",\"fresh\":");
    buf_put_str(out, row->flags & SCHED_FRESH ? "true" : "false");
}

/* Which of the reasons of filter `usable` it was; NULL for other filters. */
static const char *detail_of(const struct sched_record_row *k, const struct explain_row *w)
{
    const struct sched_row *row = &k->row;

    if (w->dropped_by < 0 || sched_filters[w->dropped_by].keep != sched_filter_usable)
        return NULL;
    if (!(row->flags & SCHED_ENABLED))
        return "disabled, weight 0, draining, or unhealthy in its registry";
    if (!(row->flags & SCHED_WILLING))
        return row->state == REPORTED_LOADING    ? "reports that it is loading"
               : row->state == REPORTED_DRAINING ? "reports that it is draining"
                                                 : "reports that it is unhealthy";
    if (row->health == HEALTH_DOWN)
        return "down: checks or connections fail";
    if (row->flags & SCHED_LAST_RESORT)
        return "its breaker is open";
    if (row->health == HEALTH_UNKNOWN)
        return "not checked yet";
    return NULL;
}

static const char *verdict(const struct sched_record *r, uint32_t i)
{
    if (i == r->decision.row)
        return "chosen";
    return r->why[i].dropped_by == EXPLAIN_KEPT ? "kept" : "dropped";
}

int sched_record_explain(struct buf *out, const struct sched_record *r)
{
    put_policy(out, r->policy);
    put_features(out, r);
    buf_put_char(out, ',');
    put_text(out, "chosen", chosen_id(r));
    put_rejection(out, r);
    buf_put_str(out, ",\"waits\":");
    buf_put_str(out,
                r->decision.row == DECISION_NOBODY && !r->decision.rejection ? "true" : "false");
    put_number(out, "fit", r->decision.fit);
    put_spilled(out, r);
    buf_put_char(out, ',');
    put_hex(out, "seed", r->seed);
    buf_put_str(out, ",\"endpoints\":[");
    for (uint32_t i = 0; i < r->n && r->explained; i++) {
        const struct explain_row *w = &r->why[i];
        buf_put_str(out, i ? ",{" : "{");
        put_text(out, "endpoint", r->rows[i].id);
        put_number(out, "slot", r->rows[i].slot);
        put_number(out, "generation", r->rows[i].generation);
        buf_put_char(out, ',');
        put_text(out, "verdict", slice_str(verdict(r, i)));
        if (w->dropped_by != EXPLAIN_KEPT) {
            buf_put_char(out, ',');
            put_text(out, "rule", slice_str(rule_of(w)));
            buf_put_char(out, ',');
            put_text(out, "why", slice_str(words_of(w)));
            const char *detail = detail_of(&r->rows[i], w);
            if (detail) {
                buf_put_char(out, ',');
                put_text(out, "detail", slice_str(detail));
            }
        } else if (r->decision.row != DECISION_NOBODY) {
            put_terms(out, r->policy, w);
        }
        put_facts(out, &r->rows[i], w);
        if (sched_placed(&r->policy->place))
            buf_put_str(out,
                        r->rows[i].row.flags & SCHED_NEAR ? ",\"near\":true" : ",\"near\":false");
        if (r->works)
            put_work(out, r, i);
        buf_put_char(out, '}');
    }
    return buf_put_char(out, ']');
}

static void put_brief_row(struct buf *out, const struct sched_record *r, uint32_t i)
{
    const struct explain_row *w = &r->why[i];

    buf_put_char(out, '{');
    put_text(out, "endpoint", r->rows[i].id);
    if (w->dropped_by != EXPLAIN_KEPT) {
        buf_put_char(out, ',');
        put_text(out, "rule", slice_str(rule_of(w)));
        buf_put_char(out, ',');
        put_text(out, "why", slice_str(words_of(w)));
    } else if (r->decision.row != DECISION_NOBODY) {
        put_real(out, "cost", cost_of(r->policy, w), 6);
        put_number(out, "load", w->load);
    }
    buf_put_char(out, '}');
}

int sched_record_brief(struct buf *out, const struct sched_record *r, size_t max)
{
    enum { CLOSING = 32 }; /* ],"left_out":4294967295} */
    size_t from = buf_len(out);
    uint32_t first = r->decision.row;
    uint32_t put = 0;

    buf_put_char(out, '{');
    put_text(out, "chosen", chosen_id(r));
    put_rejection(out, r);
    buf_put_char(out, ',');
    put_text(out, "policy", slice_of(r->policy->name.p, MIN(r->policy->name.n, (size_t)32)));
    put_number(out, "fit", r->decision.fit);
    put_number(out, "members", r->members);
    put_spilled(out, r);
    buf_put_str(out, ",\"endpoints\":[");
    for (uint32_t k = 0; k <= r->n && r->explained && !out->err; k++) {
        /* The one chosen, then the others in their order. */
        uint32_t i = k == 0 ? first : k - 1;
        if (i == DECISION_NOBODY || (k > 0 && i == first))
            continue;
        size_t before = buf_len(out);
        buf_put_str(out, put ? "," : "");
        put_brief_row(out, r, i);
        if (buf_len(out) - from + CLOSING > max) {
            out->to = out->from + before;
            break;
        }
        put++;
    }
    buf_put_char(out, ']');
    if (put < r->members)
        put_number(out, "left_out", r->members - put);
    return buf_put_char(out, '}');
}
