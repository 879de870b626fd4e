/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prometheus text format. The reader takes what real exporters write: any order of families, timestamps,
 * OpenMetrics exemplars, quoted UTF-8 names; a line it cannot take apart costs that line only.
 */
#include "wire/prom.h"

#include "base/num.h"
#include "base/utf8.h"

/* A single byte that is no UTF-8 would make the reader refuse the whole page. */
static void put_escaped(struct buf *out, struct slice text, bool quotes)
{
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if ((unsigned char)c >= 0x80) {
            size_t n = utf8_len(text.p + i, text.n - i);
            buf_put_slice(out, n ? slice_of(text.p + i, n) : SLICE("\xEF\xBF\xBD"));
            i += n ? n - 1 : 0;
            continue;
        }
        if (c == '\n') {
            buf_put_str(out, "\\n");
            continue;
        }
        if (c == '\\' || (quotes && c == '"'))
            buf_put_char(out, '\\');
        buf_put_char(out, c);
    }
}

void wire_prom_family(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_put_str(out, "# HELP ");
    buf_put_str(out, name);
    buf_put_char(out, ' ');
    put_escaped(out, slice_str(help), false);
    buf_put_str(out, "\n# TYPE ");
    buf_put_str(out, name);
    buf_put_char(out, ' ');
    buf_put_str(out, type);
    buf_put_char(out, '\n');
}

static void put_label(struct buf *out, unsigned at, const char *name, struct slice value)
{
    buf_put_char(out, at ? ',' : '{');
    buf_put_str(out, name);
    buf_put_str(out, "=\"");
    put_escaped(out, value, true);
    buf_put_char(out, '"');
}

static void put_labels(struct buf *out, const struct prom_label *labels, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        put_label(out, i, labels[i].name, labels[i].value);
}

static void put_value(struct buf *out, double value)
{
    buf_put_char(out, ' ');
    buf_put_f64(out, value, 9);
    buf_put_char(out, '\n');
}

void wire_prom_sample(struct buf *out,
                      const char *name,
                      const struct prom_label *labels,
                      unsigned n_labels,
                      double value)
{
    buf_put_str(out, name);
    put_labels(out, labels, n_labels);
    if (n_labels)
        buf_put_char(out, '}');
    put_value(out, value);
}

/* One line of a histogram: name, suffix, labels and, when given, the upper bound. */
static void put_part(struct buf *out,
                     const char *name,
                     const char *suffix,
                     const struct prom_label *labels,
                     unsigned n_labels,
                     const double *le)
{
    buf_put_str(out, name);
    buf_put_str(out, suffix);
    put_labels(out, labels, n_labels);
    if (le) {
        buf_put_str(out, n_labels ? ",le=\"" : "{le=\"");
        buf_put_f64(out, *le, 9);
        buf_put_char(out, '"');
    }
    if (n_labels || le)
        buf_put_char(out, '}');
}

void wire_prom_histogram(struct buf *out,
                         const char *name,
                         const struct prom_label *labels,
                         unsigned n_labels,
                         const double *bounds,
                         const uint64_t *counts,
                         unsigned n_bounds,
                         double sum)
{
    static const double infinite = __builtin_inf();
    uint64_t total = 0;

    for (unsigned i = 0; i <= n_bounds; i++) {
        total += counts[i];
        put_part(out, name, "_bucket", labels, n_labels, i < n_bounds ? &bounds[i] : &infinite);
        buf_put_char(out, ' ');
        buf_put_u64(out, total);
        buf_put_char(out, '\n');
    }
    put_part(out, name, "_sum", labels, n_labels, NULL);
    put_value(out, sum);
    put_part(out, name, "_count", labels, n_labels, NULL);
    buf_put_char(out, ' ');
    buf_put_u64(out, total);
    buf_put_char(out, '\n');
}

static bool blank(char c)
{
    return c == ' ' || c == '\t';
}

static void skip_blanks(struct slice *s)
{
    while (s->n && blank(s->p[0]))
        *s = slice_from(*s, 1);
}

static bool name_char(char c, bool first, bool colon)
{
    char l = ascii_lower(c);

    return (l >= 'a' && l <= 'z') || c == '_' || (colon && c == ':') ||
           (!first && c >= '0' && c <= '9');
}

static struct slice take_name(struct slice *s, bool colon)
{
    size_t n = 0;

    while (n < s->n && name_char(s->p[n], n == 0, colon))
        n++;
    struct slice name = slice_of(s->p, n);
    *s = slice_from(*s, n);
    return name;
}

/* A quoted text, raw between its quotes. */
static bool take_quoted(struct slice *s, struct slice *raw)
{
    if (s->n == 0 || s->p[0] != '"')
        return false;
    for (size_t i = 1; i < s->n; i++) {
        if (s->p[i] == '\\') {
            i++;
        } else if (s->p[i] == '"') {
            *raw = slice_of(s->p + 1, i - 1);
            *s = slice_from(*s, i + 1);
            return true;
        }
    }
    return false;
}

/*
 * Next label of a raw label text. 1 = found, 0 = end, -1 = malformed. A quoted name without a value is the
 * metric's own name (UTF-8 names stand inside the braces): then value is absent.
 */
static int next_label(struct slice *s, struct slice *name, struct slice *value)
{
    skip_blanks(s);
    if (s->n == 0)
        return 0;
    *value = (struct slice){NULL, 0};
    bool quoted = s->p[0] == '"';
    if (quoted && !take_quoted(s, name))
        return -1;
    if (!quoted)
        *name = take_name(s, false);
    if (name->n == 0)
        return -1;
    skip_blanks(s);
    if (s->n && s->p[0] == '=') {
        *s = slice_from(*s, 1);
        skip_blanks(s);
        if (!take_quoted(s, value))
            return -1;
        skip_blanks(s);
    } else if (!quoted) {
        return -1;
    }
    if (s->n && s->p[0] != ',')
        return -1;
    *s = slice_from(*s, 1);
    return 1;
}

/* Where the closing brace stands, quotes considered; s starts after the opening one. s.n when there is none. */
static size_t closing_brace(struct slice s)
{
    bool in_quotes = false;

    for (size_t i = 0; i < s.n; i++) {
        if (in_quotes && s.p[i] == '\\')
            i++;
        else if (s.p[i] == '"')
            in_quotes = !in_quotes;
        else if (s.p[i] == '}' && !in_quotes)
            return i;
    }
    return s.n;
}

static bool take_labels(struct slice *s, struct prom_line *line)
{
    struct slice rest;
    struct slice name;
    struct slice value;
    bool first = true;
    int rc;

    *s = slice_from(*s, 1);
    size_t end = closing_brace(*s);
    if (end == s->n)
        return false;
    line->labels = rest = slice_of(s->p, end);
    *s = slice_from(*s, end + 1);
    while ((rc = next_label(&rest, &name, &value)) > 0) {
        if (!value.p) {
            if (!first || line->name.n)
                return false;
            line->name = name;
            line->labels = rest;
        }
        first = false;
    }
    if (line->labels.n == 0)
        line->labels = (struct slice){NULL, 0};
    return rc == 0;
}

static bool value_parse(struct slice text, double *value)
{
    struct slice word = text;
    bool minus = text.n && text.p[0] == '-';

    if (text.n && (text.p[0] == '-' || text.p[0] == '+'))
        word = slice_from(text, 1);
    if (slice_eq_nocase(word, SLICE("inf")) || slice_eq_nocase(word, SLICE("infinity"))) {
        *value = minus ? -__builtin_inf() : __builtin_inf();
        return true;
    }
    if (slice_eq_nocase(word, SLICE("nan"))) {
        *value = __builtin_nan("");
        return true;
    }
    return num_f64(text, value) == 0;
}

static struct slice take_word(struct slice *s)
{
    size_t n = 0;

    skip_blanks(s);
    while (n < s->n && !blank(s->p[n]))
        n++;
    struct slice word = slice_of(s->p, n);
    *s = slice_from(*s, n);
    return word;
}

static bool sample_parse(struct slice s, struct prom_line *line)
{
    double timestamp;

    *line = (struct prom_line){.name = take_name(&s, true)};
    skip_blanks(&s);
    if (s.n && s.p[0] == '{' && !take_labels(&s, line))
        return false;
    if (line->name.n == 0 || !value_parse(take_word(&s), &line->value))
        return false;
    skip_blanks(&s);
    if (s.n == 0 || s.p[0] == '#')
        return true;
    if (!value_parse(take_word(&s), &timestamp))
        return false;
    skip_blanks(&s);
    return s.n == 0 || s.p[0] == '#';
}

bool wire_prom_next(struct slice *rest, struct prom_line *line, uint32_t *bad)
{
    struct slice text;

    while (slice_cut(rest, '\n', &text)) {
        if (text.n && text.p[text.n - 1] == '\r')
            text.n--;
        skip_blanks(&text);
        if (text.n == 0 || text.p[0] == '#')
            continue;
        if (sample_parse(text, line))
            return true;
        ++*bad;
    }
    return false;
}

static bool find_label(struct slice labels, struct slice name, struct slice *value)
{
    struct slice found;

    while (next_label(&labels, &found, value) > 0)
        if (slice_eq(found, name) && value->p)
            return true;
    return false;
}

/* The character at *i, which moves on to its last byte. */
static char unescaped(struct slice value, size_t *i)
{
    char c = value.p[*i];

    if (c != '\\' || *i + 1 >= value.n)
        return c;
    c = value.p[++*i];
    return c == 'n' ? '\n' : c;
}

bool wire_prom_label(struct slice labels, struct slice name, struct buf *out)
{
    struct slice value;

    if (!find_label(labels, name, &value))
        return false;
    for (size_t i = 0; i < value.n; i++)
        buf_put_char(out, unescaped(value, &i));
    return out->err == 0;
}

int wire_prom_label_text(struct slice labels, struct slice name, char *out, size_t max)
{
    struct slice value;
    size_t n = 0;

    if (!find_label(labels, name, &value))
        return -1;
    for (size_t i = 0; i < value.n; i++) {
        char c = unescaped(value, &i);
        if (n == max)
            return -1;
        out[n++] = c;
    }
    return (int)n;
}
