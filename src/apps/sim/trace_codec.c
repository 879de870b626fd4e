/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Four formats of traces. Two are JSON lines, two are CSV:
 *   Mooncake  {"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [id of each 512 tokens]}
 *   Azure     TIMESTAMP,ContextTokens,GeneratedTokens        with "2023-11-16 18:17:03.9799600"
 *   BurstGPT  Timestamp,...,Request tokens,Response tokens,...   seconds
 *   Weir      the decision log, docs/decisions.md
 * A Mooncake id stands for a block of deterministic text, so that its prefix names are those which a gateway computes
 * from the prompt that bench/fidelity.py sends.
 */
#include "apps/sim/trace_codec.h"
#include "base/bug.h"
#include "base/hash.h"
#include "base/num.h"
#include "model/endpoint_t.h"
#include "model/features_t.h"
#include "wire/json_scan.h"

enum {
    LINE_BLOCKS_MAX = 65536,
    PATH_MAX_DEPTH = 8,
    WORD_MAX = 64,
    GUESSED_OUTPUT = 200, /* tokens, where neither usage nor a limit is known */
};
#define TOKENS_MAX UINT32_C(100000000)

/* ------------------------------------------------------------------------------------------- JSON lines */

/* Members are looked at by path: "features.prompt_tokens" is depth 2. */
struct line {
    struct sim_trace *trace;
    enum sim_format format;
    uint64_t root;
    char key[PATH_MAX_DEPTH][WORD_MAX]; /* names of the open objects, and of the current member */
    uint32_t key_n[PATH_MAX_DEPTH];
    uint32_t depth; /* open objects and arrays */
    uint32_t arrays;
    char text[WORD_MAX]; /* a string under way */
    uint32_t text_n;

    uint64_t names[LINE_BLOCKS_MAX];
    uint32_t n_names;
    uint64_t last; /* name of the block before */
    struct sim_request r;
    uint32_t used_prompt; /* what the answer said of the prompt; 0 = nothing */
    double time, first_byte_ms, total_ms, queue_ms;
    bool has_time, has_first, has_total, has_output, again;
};

static bool at(const struct line *l, const char *object, const char *member)
{
    uint32_t leaf = object ? 2 : 1;

    if (l->depth != leaf || l->arrays)
        return false;
    if (object && !slice_eq(slice_of(l->key[0], l->key_n[0]), slice_str(object)))
        return false;
    return slice_eq(slice_of(l->key[leaf - 1], l->key_n[leaf - 1]), slice_str(member));
}

/* In the array that is this member. */
static bool inside(const struct line *l, const char *object, const char *member)
{
    uint32_t leaf = object ? 2 : 1;

    if (l->depth != leaf + 1 || l->arrays != 1)
        return false;
    if (object && !slice_eq(slice_of(l->key[0], l->key_n[0]), slice_str(object)))
        return false;
    return slice_eq(slice_of(l->key[leaf - 1], l->key_n[leaf - 1]), slice_str(member));
}

static int tokens(struct slice text, uint32_t *out)
{
    double v;

    if (num_f64(text, &v) != 0 || v < 0 || v > TOKENS_MAX)
        return WEIR_E_PROTO;
    *out = (uint32_t)v;
    return 0;
}

static int real(struct slice text, double *out, bool *has)
{
    if (num_f64(text, out) != 0 || *out < 0 || *out > 1e13)
        return WEIR_E_PROTO;
    *has = true;
    return 0;
}

static int mooncake_number(struct line *l, struct slice text)
{
    char block[PREFIX_BLOCK_BYTES];
    uint64_t id;

    if (at(l, NULL, "timestamp"))
        return real(text, &l->time, &l->has_time);
    if (at(l, NULL, "input_length"))
        return tokens(text, &l->r.prompt_tokens);
    if (at(l, NULL, "output_length")) {
        l->has_output = true;
        return tokens(text, &l->r.output_tokens);
    }
    if (!inside(l, NULL, "hash_ids"))
        return 0;
    if (num_u64(text, &id) != 0 || l->n_names == LINE_BLOCKS_MAX)
        return WEIR_E_PROTO;
    sim_block_text(id, block);
    l->last = model_prefix_next(l->last, block);
    l->names[l->n_names++] = l->last;
    return 0;
}

static int decision_number(struct line *l, struct slice text)
{
    uint32_t v;
    bool unused;

    if (at(l, NULL, "time_ms"))
        return real(text, &l->time, &l->has_time);
    if (at(l, "features", "prompt_tokens"))
        return tokens(text, &l->r.prompt_tokens);
    if (at(l, "features", "output_tokens"))
        return tokens(text, &l->r.limit);
    if (at(l, "features", "task"))
        return tokens(text, &l->r.task);
    if (at(l, "features", "priority") || at(l, "features", "n_images")) {
        if (tokens(text, &v) != 0)
            return WEIR_E_PROTO;
        if (at(l, "features", "priority"))
            l->r.priority = (uint8_t)MIN(v, (uint32_t)PRIORITY_LOWEST);
        else
            l->r.n_images = (uint8_t)MIN(v, UINT32_C(255));
        return 0;
    }
    if (at(l, "outcome", "prompt_tokens"))
        return tokens(text, &l->used_prompt);
    if (at(l, "outcome", "completion_tokens")) {
        l->has_output = true;
        return tokens(text, &l->r.output_tokens);
    }
    if (at(l, "outcome", "first_byte_ms"))
        return real(text, &l->first_byte_ms, &l->has_first);
    if (at(l, "outcome", "total_ms"))
        return real(text, &l->total_ms, &l->has_total);
    if (at(l, "outcome", "queue_ms"))
        return real(text, &l->queue_ms, &unused);
    return 0;
}

static bool hex(struct slice text, uint64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < text.n; i++) {
        char c = ascii_lower(text.p[i]);
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')) || i == 16)
            return false;
        *out = *out << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return text.n > 0;
}

static int decision_string(struct line *l, struct slice text)
{
    uint64_t v;

    if (at(l, "outcome", "outcome")) {
        l->again = slice_eq(text, SLICE("decided_again"));
        return 0;
    }
    if (at(l, "features", "session"))
        return hex(text, &l->r.session) ? 0 : WEIR_E_PROTO;
    if (at(l, "features", "tenant")) {
        int rc = sim_trace_tenant(l->trace, text, &l->r.tenant);
        return rc == WEIR_E_FULL ? 0 : rc;
    }
    if (inside(l, "features", "blocks")) {
        if (!hex(text, &v) || l->n_names == LINE_BLOCKS_MAX)
            return WEIR_E_PROTO;
        l->names[l->n_names++] = v;
    }
    return 0;
}

static void append(char *to, uint32_t *n, struct slice text)
{
    size_t more = MIN(text.n, (size_t)(WORD_MAX - *n));

    memcpy(to + *n, text.p, more);
    *n += (uint32_t)more;
}

static int on_event(void *ctx, enum json_event event, struct slice text, bool last)
{
    struct line *l = ctx;
    uint32_t level = l->depth ? l->depth - 1 : 0;

    switch (event) {
    case JSON_SCAN_OBJECT_BEGIN:
    case JSON_SCAN_ARRAY_BEGIN:
        l->depth++;
        l->arrays += event == JSON_SCAN_ARRAY_BEGIN;
        if (l->depth <= PATH_MAX_DEPTH)
            l->key_n[l->depth - 1] = 0;
        return l->depth == 1 && event == JSON_SCAN_ARRAY_BEGIN ? WEIR_E_PROTO : 0;
    case JSON_SCAN_OBJECT_END:
    case JSON_SCAN_ARRAY_END:
        l->depth--;
        l->arrays -= event == JSON_SCAN_ARRAY_END;
        if (l->depth && l->depth <= PATH_MAX_DEPTH)
            l->text_n = 0;
        return 0;
    case JSON_SCAN_KEY:
        if (level >= PATH_MAX_DEPTH)
            return 0;
        if (l->text_n == 0)
            l->key_n[level] = 0;
        append(l->key[level], &l->key_n[level], text);
        l->text_n = last ? 0 : 1;
        return 0;
    case JSON_SCAN_NUMBER:
        return l->format == SIM_MOONCAKE ? mooncake_number(l, text) : decision_number(l, text);
    case JSON_SCAN_STRING:
        append(l->text, &l->text_n, text);
        if (!last)
            return 0;
        text = slice_of(l->text, l->text_n);
        l->text_n = 0;
        return l->format == SIM_MOONCAKE ? 0 : decision_string(l, text);
    case JSON_SCAN_TRUE:
    case JSON_SCAN_FALSE:
    case JSON_SCAN_NULL:
        return 0;
    }
    return 0;
}

static int add_decision(struct line *l)
{
    struct sim_request *r = &l->r;

    /* The record of a request that was decided again is of the same request. */
    if (l->again)
        return 0;
    double wait = l->queue_ms < l->time ? l->queue_ms : 0;
    r->at_ns = (uint64_t)((l->time - wait) * 1e6);
    if (!l->has_output && !(r->task & (TASK_EMBEDDING | TASK_RERANK))) {
        r->output_tokens = r->limit && r->limit < GUESSED_OUTPUT ? r->limit : GUESSED_OUTPUT;
        l->trace->guessed++;
    }
    if (l->used_prompt)
        r->prompt_tokens = l->used_prompt;
    r->prompt_tokens = MAX(r->prompt_tokens, 1);
    return sim_trace_add(l->trace, r, l->names, l->n_names);
}

static int json_line(struct line *l, struct slice text)
{
    struct json_scan scan;

    l->depth = l->arrays = l->text_n = l->n_names = 0;
    l->last = l->root;
    l->r = (struct sim_request){
        .task = TASK_CHAT, .priority = PRIORITY_DEFAULT, .tenant = SIM_NO_TENANT};
    l->has_time = l->has_first = l->has_total = l->has_output = l->again = false;
    l->queue_ms = 0;
    l->used_prompt = 0;
    wire_json_init(&scan, on_event, l);
    if (wire_json_scan(&scan, text.p, text.n) != 0 || wire_json_end(&scan) != 0 || !l->has_time)
        return WEIR_E_PROTO;
    if (l->format == SIM_DECISIONS)
        return add_decision(l);
    if (!l->has_output || l->r.prompt_tokens == 0)
        return WEIR_E_PROTO;
    l->r.at_ns = (uint64_t)(l->time * 1e6);
    return sim_trace_add(l->trace, &l->r, l->names, l->n_names);
}

/* -------------------------------------------------------------------------------------------------- CSV */

enum { FIELDS_MAX = 16 };

static uint32_t cut_fields(struct slice line, struct slice out[FIELDS_MAX])
{
    uint32_t n = 0;
    struct slice piece;

    while (n < FIELDS_MAX && slice_cut(&line, ',', &piece))
        out[n++] = slice_trim(piece);
    return n;
}

/* Which columns matter, by their names in the head line. */
struct columns {
    uint32_t time, prompt, output, session, count;
};

static bool column(const struct slice *f, uint32_t n, const char *name, uint32_t *out)
{
    for (uint32_t i = 0; i < n; i++)
        if (slice_eq_nocase(f[i], slice_str(name))) {
            *out = i;
            return true;
        }
    return false;
}

static bool columns_of(enum sim_format format, struct slice head, struct columns *c)
{
    struct slice f[FIELDS_MAX];
    uint32_t n = cut_fields(head, f);

    *c = (struct columns){.session = FIELDS_MAX, .count = n};
    if (format == SIM_AZURE)
        return column(f, n, "TIMESTAMP", &c->time) && column(f, n, "ContextTokens", &c->prompt) &&
               column(f, n, "GeneratedTokens", &c->output);
    (void)column(f, n, "Session ID", &c->session);
    return column(f, n, "Timestamp", &c->time) && column(f, n, "Request tokens", &c->prompt) &&
           column(f, n, "Response tokens", &c->output);
}

static bool digits(struct slice s, size_t from, size_t n, uint64_t *out)
{
    return s.n >= from + n && num_u64(slice_of(s.p + from, n), out) == 0;
}

/* Days since 1970-03-01 of a Gregorian date (Howard Hinnant's days_from_civil, shifted). */
static uint64_t days_of(uint64_t year, uint64_t month, uint64_t day)
{
    uint64_t y = month <= 2 ? year - 1 : year;
    uint64_t m = month <= 2 ? month + 9 : month - 3;

    return y * 365 + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1;
}

/* "2023-11-16 18:17:03.9799600", T between the parts, fraction and zone optional. */
static bool date_time(struct slice s, uint64_t *out)
{
    uint64_t year;
    uint64_t month;
    uint64_t day;
    uint64_t hour;
    uint64_t minute;
    uint64_t second;
    uint64_t fraction = 0;

    if (!digits(s, 0, 4, &year) || !digits(s, 5, 2, &month) || !digits(s, 8, 2, &day) ||
        !digits(s, 11, 2, &hour) || !digits(s, 14, 2, &minute) || !digits(s, 17, 2, &second))
        return false;
    if (year < 1970 || year > 2200 || month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 ||
        minute > 59 || second > 60)
        return false;
    struct slice rest = slice_from(s, 19);
    if (rest.n && rest.p[0] == '.') {
        uint64_t unit = NS_PER_S;
        for (size_t i = 1; i < rest.n && rest.p[i] >= '0' && rest.p[i] <= '9' && unit > 1; i++) {
            unit /= 10;
            fraction += unit * (uint64_t)(rest.p[i] - '0');
        }
    }
    uint64_t seconds = (days_of(year, month, day) - days_of(1970, 1, 1)) * 86400 + hour * 3600 +
                       minute * 60 + second;
    *out = seconds * NS_PER_S + fraction;
    return true;
}

static int
csv_line(struct sim_trace *t, enum sim_format format, const struct columns *c, struct slice line)
{
    struct slice f[FIELDS_MAX];
    struct sim_request r = {
        .task = TASK_CHAT, .priority = PRIORITY_DEFAULT, .tenant = SIM_NO_TENANT};
    double seconds;

    if (cut_fields(line, f) != c->count)
        return WEIR_E_PROTO;
    if (format == SIM_AZURE) {
        if (!date_time(f[c->time], &r.at_ns))
            return WEIR_E_PROTO;
    } else {
        if (num_f64(f[c->time], &seconds) != 0 || seconds < 0 || seconds > 1e9)
            return WEIR_E_PROTO;
        r.at_ns = (uint64_t)(seconds * 1e9);
    }
    if (tokens(f[c->prompt], &r.prompt_tokens) != 0 || tokens(f[c->output], &r.output_tokens) != 0)
        return WEIR_E_PROTO;
    if (c->session < FIELDS_MAX && f[c->session].n)
        r.session = hash_slice(f[c->session], 0) | 1;
    /* BurstGPT counts failed requests as answers of 0 tokens. */
    if (r.prompt_tokens == 0 || r.output_tokens == 0)
        return 0;
    return sim_trace_add(t, &r, NULL, 0);
}

/* ------------------------------------------------------------------------------------------------- lines */

static struct slice first_line(struct slice text)
{
    struct slice line = {"", 0};

    (void)slice_cut(&text, '\n', &line);
    return slice_trim(line);
}

static struct slice without_cr(struct slice line)
{
    if (line.n && line.p[line.n - 1] == '\r')
        line.n--;
    return slice_trim(line);
}

int sim_format_of(struct slice text, enum sim_format *out)
{
    struct slice head = without_cr(first_line(text));
    struct columns c;

    *out = SIM_MOONCAKE;
    if (head.n && head.p[0] == '{') {
        for (size_t i = 0; i + 8 <= head.n; i++)
            if (slice_starts(slice_from(head, i), SLICE("\"format\"")))
                *out = SIM_DECISIONS;
        return 0;
    }
    for (unsigned f = SIM_AZURE; f <= SIM_BURSTGPT; f++)
        if (columns_of((enum sim_format)f, head, &c)) {
            *out = (enum sim_format)f;
            return 0;
        }
    return WEIR_E_UNSUPPORTED;
}

int sim_trace_read(
    struct sim_trace *t, enum sim_format format, uint64_t root, struct slice text, uint64_t *line)
{
    bool json = format == SIM_MOONCAKE || format == SIM_DECISIONS;
    struct line *l = json ? mem_zalloc(t->mem, sizeof(*l)) : NULL;
    struct columns c = {0};
    struct slice piece;
    int rc = 0;

    *line = 0;
    if (json && !l)
        return WEIR_E_NOMEM;
    if (json) {
        l->trace = t;
        l->format = format;
        l->root = root;
    }
    while (rc == 0 && slice_cut(&text, '\n', &piece)) {
        ++*line;
        piece = without_cr(piece);
        if (piece.n == 0)
            continue;
        if (json)
            rc = json_line(l, piece);
        else if (*line == 1)
            rc = columns_of(format, piece, &c) ? 0 : WEIR_E_PROTO;
        else
            rc = csv_line(t, format, &c, piece);
    }
    mem_free(t->mem, l);
    return rc ? rc : sim_trace_finish(t);
}
