/* SPDX-License-Identifier: Apache-2.0 */
#include "conf/error.h"

#include <stdbool.h>

#include "base/bug.h"
#include "base/utf8.h"

/* Writes into a fixed text; what does not fit is cut at a whole character. */
struct writer {
    char *text;
    uint32_t n;
    bool full;
};

static void put(struct writer *w, const char *p, size_t n)
{
    if (w->full || n > (size_t)(CONF_ERROR_TEXT - 4) - w->n) {
        w->full = true;
        return;
    }
    memcpy(w->text + w->n, p, n);
    w->n += (uint32_t)n;
}

/* Text from a file or a command line: nothing in it may break the line or move a terminal's cursor. */
static void put_visible(struct writer *w, struct slice s)
{
    static const char hex[] = "0123456789abcdef";

    for (size_t i = 0; i < s.n && !w->full;) {
        unsigned char c = (unsigned char)s.p[i];
        size_t n = utf8_len(s.p + i, s.n - i);
        bool control =
            c < 0x20 || c == 0x7f || (c == 0xc2 && n == 2 && (unsigned char)s.p[i + 1] < 0xa0);
        if (n && !control) {
            put(w, s.p + i, n);
            i += n;
            continue;
        }
        char escape[4] = {'\\', 'x', hex[c >> 4], hex[c & 15]};
        put(w, escape, sizeof(escape));
        i++;
    }
}

static void put_number(struct writer *w, uint32_t v)
{
    char digits[10];
    size_t at = sizeof(digits);

    do {
        digits[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    put(w, digits + at, sizeof(digits) - at);
}

static bool before(uint32_t line, uint32_t column, const struct conf_error *other)
{
    if (line == 0 || other->line == 0)
        return line != 0;
    return line != other->line ? line < other->line : column < other->column;
}

void conf_error_add(struct conf_errors *e,
                    const struct conf_place *at,
                    const struct slice *parts,
                    uint32_t n)
{
    uint32_t place = e->n;

    e->total++;
    if (e->n == CONF_ERRORS_MAX)
        return;
    while (place > 0 && before(at->line, at->column, &e->list[place - 1])) {
        e->list[place] = e->list[place - 1];
        place--;
    }
    e->n++;

    struct conf_error *error = &e->list[place];
    struct writer w = {.text = error->text};
    error->line = at->line;
    error->column = at->column;
    if (at->file.p) {
        put_visible(&w, at->file);
        if (at->line) {
            put(&w, ":", 1);
            put_number(&w, at->line);
            put(&w, ":", 1);
            put_number(&w, at->column);
        }
        put(&w, ": ", 2);
    }
    error->message = w.n;
    for (uint32_t i = 0; i < n; i++)
        put_visible(&w, parts[i]);
    if (w.full) {
        memcpy(error->text + w.n, "...", 3);
        w.n += 3;
    }
    error->text[w.n] = '\0';
}

enum { WORD_MAX = 40, EDITS_MAX = 2 };

/* Levenshtein distance, with a swap of neighbours as one edit. Both at most WORD_MAX long. */
static uint32_t edits(struct slice a, struct slice b)
{
    uint32_t rows[3][WORD_MAX + 1];
    uint32_t *older = rows[0];
    uint32_t *last = rows[1];
    uint32_t *now = rows[2];

    for (uint32_t j = 0; j <= b.n; j++)
        last[j] = j;
    for (uint32_t i = 1; i <= a.n; i++) {
        now[0] = i;
        for (uint32_t j = 1; j <= b.n; j++) {
            char ca = ascii_lower(a.p[i - 1]);
            char cb = ascii_lower(b.p[j - 1]);
            uint32_t best = last[j - 1] + (ca == cb ? 0 : 1);
            best = MIN(best, last[j] + 1);
            best = MIN(best, now[j - 1] + 1);
            if (i > 1 && j > 1 && ca == ascii_lower(b.p[j - 2]) && ascii_lower(a.p[i - 2]) == cb)
                best = MIN(best, older[j - 2] + 1);
            now[j] = best;
        }
        uint32_t *free_row = older;
        older = last;
        last = now;
        now = free_row;
    }
    return last[b.n];
}

struct slice conf_nearest(struct slice got, const char *const *known, uint32_t n)
{
    struct slice best = {NULL, 0};
    uint32_t best_edits = EDITS_MAX + 1;

    if (got.n == 0 || got.n > WORD_MAX)
        return best;
    for (uint32_t i = 0; i < n; i++) {
        struct slice word = slice_str(known[i]);
        if (word.n > WORD_MAX)
            continue;
        uint32_t d = edits(got, word);
        /* Among short words anything is near: half of the letters must stand. */
        if (d < best_edits && (size_t)d * 2 < MAX(word.n, got.n)) {
            best = word;
            best_edits = d;
        }
    }
    return best;
}
