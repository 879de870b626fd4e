/* SPDX-License-Identifier: Apache-2.0 */
/* The answer for a terminal: one line of what was decided, then one line per endpoint. */
#include <inttypes.h>
#include <string.h>

#include "apps/explain/explain.h"
#include "base/bug.h"

enum { COLUMNS = 7, CELL = 160 };
#define GIB_BYTES 1073741824.0

struct line {
    char cell[COLUMNS][CELL];
};

static const char *text(const json_t *o, const char *key, const char *none)
{
    const char *v = json_string_value(json_object_get(o, key));

    return v ? v : none;
}

/* Whatever an endpoint is called, a terminal must survive it. */
static void put(char *cell, const char *v)
{
    size_t n = 0;

    for (; v[n] && n + 1 < CELL; n++)
        cell[n] = (unsigned char)v[n] < ' ' || v[n] == 0x7f ? '?' : v[n];
    cell[n] = 0;
}

static void put_number(char *cell, const json_t *o, const char *key, double unit, const char *none)
{
    const json_t *v = json_object_get(o, key);

    if (json_is_number(v))
        (void)snprintf(cell, CELL, "%.6g", json_number_value(v) / unit);
    else
        put(cell, none);
}

static void fill(struct line *l, const json_t *e)
{
    const char *verdict = text(e, "verdict", "dropped");

    put(l->cell[0], text(e, "endpoint", "?"));
    put(l->cell[1], strcmp(verdict, "chosen") == 0 ? "* chosen" : verdict);
    put_number(l->cell[2], e, "cost", 1, "-");
    put_number(l->cell[3], e, "load", 1, "-");
    put_number(l->cell[4], e, "dynamic_weight", 1, "-");
    if (json_object_get(e, "memory_free_bytes"))
        put_number(l->cell[5], e, "memory_free_bytes", GIB_BYTES, "-");
    else if (json_object_get(e, "kv_free_tokens"))
        (void)snprintf(l->cell[5], CELL, "%" JSON_INTEGER_FORMAT " tokens",
                       json_integer_value(json_object_get(e, "kv_free_tokens")));
    else
        put(l->cell[5], "-");
    l->cell[6][0] = 0;
    if (json_object_get(e, "rule")) {
        char reason[CELL];
        (void)snprintf(reason, sizeof(reason), "%s: %s", text(e, "rule", "?"),
                       text(e, "detail", text(e, "why", "")));
        put(l->cell[6], reason);
    }
}

static void summary(const json_t *a, FILE *to)
{
    const json_t *features = json_object_get(a, "features");
    const char *chosen = text(a, "chosen", NULL);
    const char *rejection = text(a, "rejection", NULL);
    struct line l;

    put(l.cell[0], text(features, "model", "-"));
    put(l.cell[1], text(a, "route", "-"));
    put(l.cell[2], text(json_object_get(a, "policy"), "name", "-"));
    (void)fprintf(to, "model %s  route %s  policy %s\n", l.cell[0], l.cell[1], l.cell[2]);
    if (chosen) {
        put(l.cell[3], chosen);
        (void)fprintf(to, "chosen: %s%s\n", l.cell[3],
                      json_is_true(json_object_get(a, "spilled"))
                          ? ", outside of locality: nobody there fits and has room"
                          : "");
    } else if (rejection) {
        put(l.cell[3], text(a, "value", ""));
        (void)fprintf(to, "nobody: %s%s%s\n", rejection, l.cell[3][0] ? " " : "", l.cell[3]);
    } else {
        (void)fprintf(to, "nobody now: the request would wait in its queue\n");
    }
}

void explain_table(const json_t *answer, FILE *to)
{
    static const struct line head = {
        {"ENDPOINT", "VERDICT", "COST", "LOAD", "DYN-WEIGHT", "FREE (GiB)", "WHY"}};
    json_t *endpoints = json_array();
    size_t width[COLUMNS];
    struct line l;

    summary(answer, to);
    if (!endpoints || json_array_extend(endpoints, json_object_get(answer, "endpoints")) != 0 ||
        json_array_extend(endpoints, json_object_get(answer, "elsewhere")) != 0) {
        json_decref(endpoints);
        return;
    }
    size_t n = json_array_size(endpoints);
    for (int c = 0; c < COLUMNS; c++)
        width[c] = strlen(head.cell[c]);
    for (size_t i = 0; i < n; i++) {
        fill(&l, json_array_get(endpoints, i));
        for (int c = 0; c < COLUMNS; c++)
            width[c] = MAX(width[c], strlen(l.cell[c]));
    }
    (void)fprintf(to, n ? "\n" : "");
    for (size_t i = 0; n && i <= n; i++) {
        if (i == 0)
            l = head;
        else
            fill(&l, json_array_get(endpoints, i - 1));
        int last = COLUMNS - 1;
        while (last > 0 && l.cell[last][0] == 0)
            last--;
        for (int c = 0; c < last; c++)
            (void)fprintf(to, "%-*s  ", (int)width[c], l.cell[c]);
        (void)fprintf(to, "%s\n", l.cell[last]);
    }
    json_decref(endpoints);
}
