/* SPDX-License-Identifier: Apache-2.0 */
#include "discovery/json_cut.h"

#include "base/hash.h"
#include "registry/native_json.h"

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static struct slice skip_space(struct slice s)
{
    while (s.n && is_space(s.p[0]))
        s = slice_from(s, 1);
    return s;
}

/* Behind the text that begins at i; s.n: it has no end. */
static size_t text_end(struct slice s, size_t i)
{
    while (++i < s.n && s.p[i] != '"')
        i += s.p[i] == '\\';
    return i < s.n ? i + 1 : s.n;
}

/* Where a value ends: at the comma or bracket of what it is in. 0: nowhere, or there is none. */
static size_t value_length(struct slice s)
{
    unsigned depth = 0;

    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (c == '"') {
            i = text_end(s, i) - 1;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']' || (c == ',' && depth == 0)) {
            if (depth == 0)
                return i;
            depth--;
        }
    }
    return 0;
}

/* An equal text is one element too, if it ends here: a number may go on. */
static bool is_here(struct slice rest, uint64_t seed, const struct json_seen *guess)
{
    if (!guess || guess->n == 0 || guess->n >= rest.n ||
        hash_slice(slice_of(rest.p, guess->n), seed) != guess->hash)
        return false;
    rest = skip_space(slice_from(rest, guess->n));
    return rest.n && (rest.p[0] == ',' || rest.p[0] == ']');
}

bool json_list_open(struct slice text, uint64_t seed, struct json_list *out)
{
    text = skip_space(text);
    *out = (struct json_list){.seed = seed, .rest = slice_from(text, 1)};
    return text.n && text.p[0] == '[';
}

bool json_list_alone(const struct json_list *l)
{
    return skip_space(l->rest).n == 0;
}

int json_list_next(struct json_list *l, const struct json_seen *guess, struct json_element *out)
{
    l->rest = skip_space(l->rest);
    if (l->rest.n && l->rest.p[0] == ']') {
        l->rest = slice_from(l->rest, 1);
        return 0;
    }
    if (l->begun) {
        if (!l->rest.n || l->rest.p[0] != ',')
            return WEIR_E_INVALID;
        l->rest = skip_space(slice_from(l->rest, 1));
    }
    l->begun = true;
    if (is_here(l->rest, l->seed, guess)) {
        *out = (struct json_element){slice_of(l->rest.p, guess->n), *guess};
        l->rest = slice_from(l->rest, guess->n);
        return 1;
    }
    size_t n = value_length(l->rest);
    if (n == 0 || n > UINT32_MAX)
        return WEIR_E_INVALID;
    out->text = slice_of(l->rest.p, n);
    while (is_space(out->text.p[out->text.n - 1]))
        out->text.n--;
    out->seen = (struct json_seen){hash_slice(out->text, l->seed), (uint32_t)out->text.n};
    l->rest = slice_from(l->rest, n);
    return 1;
}

json_t *json_element_load(const struct json_element *e)
{
    struct native_error error;

    /* Who wants objects alone may be told anything. */
    return e->text.p[0] == '{' ? native_load_json(e->text, &error)
                               : json_loadb(e->text.p, e->text.n, JSON_DECODE_ANY, NULL);
}

/* The text from the value of that key on. */
static bool enter(struct slice *s, struct slice key)
{
    *s = skip_space(*s);
    if (!s->n || s->p[0] != '{')
        return false;
    do {
        *s = skip_space(slice_from(*s, 1));
        if (!s->n || s->p[0] != '"')
            return false;
        size_t end = text_end(*s, 0);
        bool same = end >= 2 && slice_eq(slice_of(s->p + 1, end - 2), key);
        *s = skip_space(slice_from(*s, end));
        if (!s->n || s->p[0] != ':')
            return false;
        *s = skip_space(slice_from(*s, 1));
        if (same)
            return s->n > 0;
        *s = slice_from(*s, value_length(*s));
    } while (s->n && s->p[0] == ',');
    return false;
}

bool json_find(struct slice text, const struct slice *path, unsigned n, struct slice *out)
{
    for (unsigned i = 0; i < n; i++)
        if (!enter(&text, path[i]))
            return false;
    *out = text;
    return true;
}
