/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each policy would have done with the very rows that the gateway saw. One decision at a time: what another choice
 * would have changed for those that came after it only a simulation can tell.
 */
#include "apps/sim/replay.h"

#include <stdio.h>

#include "apps/sim/record_read.h"
#include "base/bug.h"
#include "confio/file.h"
#include "loop/alloc.h"

enum { REPORT_MAX = 16 << 20, NAME_WIDTH = 24, CELL_WIDTH = 12, FILTERS_MAX = 64 };
#define LOG_MAX ((size_t)2 << 30)

/* Why another endpoint; the first that holds. */
enum reason { R_DROPPED, R_EQUAL, R_SESSION, R_PREFIX, R_WAIT, R_LOAD, R_ELSE, REASONS };

static const struct {
    const char *name, *words;
} reason_words[REASONS] = {
    [R_DROPPED] = {"dropped", "its filters drop the endpoint that was chosen"},
    [R_EQUAL] = {"equal", "both cost the same, by turns or by lot"},
    [R_SESSION] = {"session", "the session is there, or is not kept where it was"},
    [R_PREFIX] = {"prefix", "more of the prompt is cached there"},
    [R_WAIT] = {"wait", "less work waits there"},
    [R_LOAD] = {"load", "fewer requests are there"},
    [R_ELSE] = {"else", "none of these"},
};

/* Of one policy. */
struct tally {
    const struct policy *policy;
    uint64_t decided; /* decisions that it made again */
    uint64_t blind;   /* left out: it asks for work that the record does not have */
    uint64_t same, other, nobody;
    uint64_t timed; /* of these the seconds are known */
    double seconds, logged_seconds, least_seconds;
    uint64_t reasons[REASONS];
};

struct what_if {
    struct tally *tallies;
    uint32_t n;
    uint64_t records, truncated, unreadable, different;
    uint64_t dropped[FILTERS_MAX]; /* endpoints, by the filter that dropped them in the log */
    uint64_t tried;
    uint64_t refused;
    uint64_t first_line; /* that could not be read; 0 = none */
    char first_wrong[64];
};

/* Predicted seconds from now to the end of the answer. */
static double seconds(const struct sched_record *r, uint32_t row)
{
    struct sched_question q = sched_work_question(&r->features);
    struct sched_forecast s = sched_work_forecast(&q, &r->rows[row].work);

    return (double)(s.wait_us + s.prefill_us + s.decode_us) / 1e6;
}

static bool equal_cost(const struct explain_row *a, const struct explain_row *b)
{
    return (unsigned __int128)a->cost_num * b->cost_den ==
           (unsigned __int128)b->cost_num * a->cost_den;
}

static enum reason
reason_of(const struct sched_record *r, const struct explain_row *why, uint32_t was, uint32_t is)
{
    const struct sched_record_row *a = &r->rows[was];
    const struct sched_record_row *b = &r->rows[is];

    if (why[was].dropped_by != EXPLAIN_KEPT)
        return R_DROPPED;
    if (equal_cost(&why[was], &why[is]))
        return R_EQUAL;
    if (r->works && ((a->work.flags ^ b->work.flags) & WORK_SESSION))
        return R_SESSION;
    if (r->works && b->work.hit_tokens > a->work.hit_tokens)
        return R_PREFIX;
    if (r->works && b->work.backlog_us < a->work.backlog_us)
        return R_WAIT;
    if (b->row.load < a->row.load)
        return R_LOAD;
    return R_ELSE;
}

static void count_seconds(struct tally *t,
                          const struct sched_record *r,
                          const struct explain_row *why,
                          uint32_t was,
                          uint32_t is)
{
    double least = seconds(r, is);

    for (uint32_t i = 0; i < r->n; i++)
        if (why[i].dropped_by == EXPLAIN_KEPT)
            least = MIN(least, seconds(r, i));
    t->timed++;
    t->seconds += seconds(r, is);
    t->logged_seconds += seconds(r, was);
    t->least_seconds += least;
}

/* A gateway that stays in its own place does so by any policy but those with filters of their own, which list it or not. */
static bool follows(const struct policy *p)
{
    struct policy usual;

    return sched_policy_stays(p) ||
           (sched_policy_named(SLICE("chain"), &usual) == 0 && p->n_filters == usual.n_filters &&
            memcmp(p->filters, usual.filters, p->n_filters) == 0);
}

static int decide(struct tally *t,
                  struct sched_record *r,
                  const struct place *place,
                  const struct decision *logged)
{
    struct policy there = *t->policy;
    struct decision d;
    bool asks = sched_policy_reads_work(t->policy);

    if (asks && !r->works) {
        t->blind++;
        return 0;
    }
    if (sched_placed(place) && follows(t->policy))
        sched_policy_stay(&there, place);
    r->policy = &there;
    int rc = sched_replay(r, loop_mem(), &d, r->why);
    r->policy = t->policy;
    if (rc)
        return rc;
    t->decided++;
    if (d.row == DECISION_NOBODY || logged->row == DECISION_NOBODY) {
        *(d.row == logged->row ? &t->same : &t->other) += 1;
        t->nobody += d.row == DECISION_NOBODY;
        return 0;
    }
    if (d.row == logged->row) {
        t->same++;
    } else {
        t->other++;
        t->reasons[reason_of(r, r->why, logged->row, d.row)]++;
    }
    if (r->works)
        count_seconds(t, r, r->why, logged->row, d.row);
    return 0;
}

/* By its own policy: the same comes out, or this is another build; and who was dropped by what. */
static int
decide_as_logged(struct what_if *w, struct sched_record *r, const struct decision *logged)
{
    struct decision d;
    int rc = sched_replay(r, loop_mem(), &d, r->why);

    if (rc)
        return rc;
    w->different += !record_same(&d, logged);
    w->refused += logged->row == DECISION_NOBODY;
    for (uint32_t i = 0; i < r->n; i++) {
        int16_t by = r->why[i].dropped_by;
        w->tried += by == EXPLAIN_TRIED;
        if (by >= 0 && by < FILTERS_MAX)
            w->dropped[by]++;
    }
    return 0;
}

static void unreadable(struct what_if *w, uint64_t line, const char *wrong)
{
    w->unreadable++;
    if (w->first_line)
        return;
    w->first_line = line;
    (void)snprintf(w->first_wrong, sizeof(w->first_wrong), "%.63s", wrong);
}

static bool works(const json_t *o)
{
    return json_object_get(json_array_get(json_object_get(o, "rows"), 0), "work") != NULL;
}

static int take_line(struct what_if *w, struct slice text, uint64_t line)
{
    json_error_t error;
    json_t *o = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES, &error);
    struct read_record r = {.record = NULL};
    int rc = 0;

    if (!json_is_object(o)) {
        unreadable(w, line, o ? "no object" : error.text);
    } else if (json_is_true(json_object_get(o, "truncated"))) {
        w->truncated++;
    } else if (json_integer_value(json_object_get(o, "format")) != SCHED_RECORD_FORMAT) {
        unreadable(w, line, "format");
    } else {
        rc = record_read(o, loop_mem(), &r);
        if (rc == 0 && r.wrong) {
            unreadable(w, line, r.wrong);
        } else if (rc == 0) {
            r.record->works = works(o);
            /* Where nobody asked for the first characters: who shares the first block shares them. */
            if (!r.record->features.prefix_key && r.record->n_blocks)
                r.record->features.prefix_key = r.record->blocks[0];
            w->records++;
            rc = decide_as_logged(w, r.record, &r.logged);
            for (uint32_t i = 0; rc == 0 && i < w->n; i++)
                rc = decide(&w->tallies[i], r.record, &r.policy.place, &r.logged);
        }
    }
    sched_record_free(r.record);
    json_decref(o);
    return rc;
}

/* ------------------------------------------------------------------------------------------------ report */

static void cell(struct buf *out, const char *text, uint32_t width)
{
    for (size_t n = strlen(text); n < width; n++)
        buf_put_char(out, ' ');
    buf_put_str(out, text);
}

static void number(struct buf *out, uint64_t v)
{
    char text[32];

    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)v);
    cell(out, text, CELL_WIDTH);
}

static void real(struct buf *out, double v, uint64_t n)
{
    char text[32];

    (void)snprintf(text, sizeof(text), "%.3f", n ? v / (double)n : 0);
    cell(out, n ? text : "-", CELL_WIDTH);
}

static void name(struct buf *out, struct slice s)
{
    buf_put_slice(out, s);
    for (size_t n = s.n; n < NAME_WIDTH; n++)
        buf_put_char(out, ' ');
}

static void put_dropped(const struct what_if *w, struct buf *out)
{
    bool any = w->tried > 0;

    for (uint32_t i = 0; i < sched_n_filters && i < FILTERS_MAX; i++)
        any = any || w->dropped[i];
    if (!any)
        return;
    buf_put_str(out, "\ndropped in the log, endpoints\n");
    for (uint32_t i = 0; i < sched_n_filters && i < FILTERS_MAX; i++)
        if (w->dropped[i]) {
            name(out, slice_str(sched_filters[i].name));
            number(out, w->dropped[i]);
            buf_put_char(out, '\n');
        }
    if (w->tried) {
        name(out, SLICE("tried"));
        number(out, w->tried);
        buf_put_char(out, '\n');
    }
}

static void put_reasons(const struct what_if *w, struct buf *out)
{
    buf_put_str(out, "\nwhy another endpoint\n");
    name(out, SLICE(""));
    for (int k = 0; k < REASONS; k++)
        cell(out, reason_words[k].name, CELL_WIDTH);
    buf_put_char(out, '\n');
    for (uint32_t i = 0; i < w->n; i++) {
        name(out, w->tallies[i].policy->name);
        for (int k = 0; k < REASONS; k++)
            number(out, w->tallies[i].reasons[k]);
        buf_put_char(out, '\n');
    }
    for (int k = 0; k < REASONS; k++) {
        buf_put_str(out, "  ");
        buf_put_str(out, reason_words[k].name);
        buf_put_str(out, ": ");
        buf_put_str(out, reason_words[k].words);
        buf_put_char(out, '\n');
    }
}

static void put_table(const struct what_if *w, const char *path, struct buf *out)
{
    static const char *const heads[] = {"decided", "other", "other %", "nobody",
                                        "seconds", "saved", "regret"};

    buf_put_str(out, path);
    buf_put_str(out, ": ");
    buf_put_u64(out, w->records);
    buf_put_str(out, " decisions");
    if (w->refused) {
        buf_put_str(out, ", ");
        buf_put_u64(out, w->refused);
        buf_put_str(out, " chose nobody");
    }
    if (w->truncated) {
        buf_put_str(out, "; left out, of large pools: ");
        buf_put_u64(out, w->truncated);
    }
    if (w->different) {
        buf_put_str(out, "; by their own policy come out otherwise: ");
        buf_put_u64(out, w->different);
    }
    buf_put_str(out, "\n\n");
    name(out, SLICE(""));
    for (size_t i = 0; i < ARRAY_LEN(heads); i++)
        cell(out, heads[i], CELL_WIDTH);
    buf_put_char(out, '\n');
    for (uint32_t i = 0; i < w->n; i++) {
        const struct tally *t = &w->tallies[i];
        name(out, t->policy->name);
        number(out, t->decided);
        number(out, t->other);
        real(out, (double)t->other * 100, t->decided);
        number(out, t->nobody);
        real(out, t->seconds, t->timed);
        real(out, t->logged_seconds - t->seconds, t->timed);
        real(out, t->seconds - t->least_seconds, t->timed);
        if (t->blind) {
            buf_put_str(out, "  without ");
            buf_put_u64(out, t->blind);
            buf_put_str(out, " that have no work: the policy of then did not count it");
        }
        buf_put_char(out, '\n');
    }
    buf_put_str(out, "  seconds: predicted until the answer ends, mean; saved: of those that the "
                     "choice of then took; regret: above the least of all that fit\n");
    put_reasons(w, out);
    put_dropped(w, out);
}

static void member(struct buf *out, const char *key, uint64_t v)
{
    buf_put_str(out, ", \"");
    buf_put_str(out, key);
    buf_put_str(out, "\": ");
    buf_put_u64(out, v);
}

static void member_real(struct buf *out, const char *key, double v, uint64_t n)
{
    buf_put_str(out, ", \"");
    buf_put_str(out, key);
    buf_put_str(out, "\": ");
    if (n)
        buf_put_f64(out, v / (double)n, 6);
    else
        buf_put_str(out, "null");
}

static void put_json(const struct what_if *w, struct buf *out)
{
    buf_put_str(out, "{\"decisions\": ");
    buf_put_u64(out, w->records);
    member(out, "chose_nobody", w->refused);
    member(out, "truncated", w->truncated);
    member(out, "different", w->different);
    buf_put_str(out, ", \"dropped\": {\"tried\": ");
    buf_put_u64(out, w->tried);
    for (uint32_t i = 0; i < sched_n_filters && i < FILTERS_MAX; i++)
        member(out, sched_filters[i].name, w->dropped[i]);
    buf_put_str(out, "},\n \"policies\": [");
    for (uint32_t i = 0; i < w->n; i++) {
        const struct tally *t = &w->tallies[i];
        buf_put_str(out, i ? ",\n  {\"policy\": " : "\n  {\"policy\": ");
        buf_put_json(out, t->policy->name);
        member(out, "decided", t->decided);
        member(out, "without_work", t->blind);
        member(out, "same", t->same);
        member(out, "other", t->other);
        member(out, "nobody", t->nobody);
        member_real(out, "seconds", t->seconds, t->timed);
        member_real(out, "logged_seconds", t->logged_seconds, t->timed);
        member_real(out, "saved", t->logged_seconds - t->seconds, t->timed);
        member_real(out, "regret", t->seconds - t->least_seconds, t->timed);
        buf_put_str(out, ", \"reasons\": {");
        for (int k = 0; k < REASONS; k++) {
            buf_put_str(out, k ? ", \"" : "\"");
            buf_put_str(out, reason_words[k].name);
            buf_put_str(out, "\": ");
            buf_put_u64(out, t->reasons[k]);
        }
        buf_put_str(out, "}}");
    }
    buf_put_str(out, "]}\n");
}

/* @return the exit status. */
static int print(const struct what_if *w, const char *path, bool json)
{
    struct buf out;
    int status = 0;

    buf_init(&out, loop_mem(), REPORT_MAX);
    if (json)
        put_json(w, &out);
    else
        put_table(w, path, &out);
    struct slice text = buf_slice(&out);
    if (out.err || fwrite(text.p, 1, text.n, stdout) != text.n || fflush(stdout)) {
        (void)fprintf(stderr, "weir sim: report: cannot be written\n");
        status = 1;
    }
    buf_fini(&out);
    return status;
}

static int take_all(struct what_if *w, struct slice text)
{
    struct slice line;
    uint64_t at = 0;
    int rc = 0;

    while (rc == 0 && slice_cut(&text, '\n', &line)) {
        at++;
        line = slice_trim(line);
        if (line.n)
            rc = take_line(w, line, at);
    }
    return rc;
}

/* @return the exit status. */
static int read_and_print(struct what_if *w, const char *path, bool json)
{
    struct conf_place at = {.file = slice_str(path)};
    struct conf_errors errors = {.n = 0};
    struct buf text;

    buf_init(&text, loop_mem(), LOG_MAX);
    int rc = confio_read_file(path, &text, &at, &errors);
    if (rc == 0)
        rc = take_all(w, buf_slice(&text));
    buf_fini(&text);
    if (rc == WEIR_E_IO && errors.n) {
        (void)fprintf(stderr, "weir sim: %s\n", errors.list[0].text);
        return 2;
    }
    if (rc) {
        (void)fprintf(stderr, "weir sim: %s: %s\n", path, err_text(rc));
        return 1;
    }
    if (w->unreadable)
        (void)fprintf(stderr,
                      "weir sim: %s:%llu: not a decision of this build (%s)%s; write the log with "
                      "/api/v1/decisions?format=jsonl\n",
                      path, (unsigned long long)w->first_line, w->first_wrong,
                      w->unreadable > 1 ? ", and others too" : "");
    if (w->records == 0) {
        (void)fprintf(stderr, "weir sim: %s: no decision that can be made again\n", path);
        return 2;
    }
    rc = print(w, path, json);
    return rc == 0 && w->unreadable ? 2 : rc;
}

int sim_replay(const char *path, const struct policy *policies, uint32_t n, bool json)
{
    struct what_if *w = mem_zalloc(loop_mem(), sizeof(*w));
    struct tally *tallies = mem_array(loop_mem(), n, sizeof(*tallies));
    int status = 1;

    if (w && tallies) {
        w->tallies = tallies;
        w->n = n;
        for (uint32_t i = 0; i < n; i++)
            tallies[i].policy = &policies[i];
        status = read_and_print(w, path, json);
    } else {
        (void)fprintf(stderr, "weir sim: out of memory\n");
    }
    mem_free(loop_mem(), tallies);
    mem_free(loop_mem(), w);
    return status;
}
