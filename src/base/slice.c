/* SPDX-License-Identifier: Apache-2.0 */
#include "base/slice.h"

bool slice_eq_nocase(struct slice a, struct slice b)
{
    if (a.n != b.n)
        return false;
    for (size_t i = 0; i < a.n; i++)
        if (ascii_lower(a.p[i]) != ascii_lower(b.p[i]))
            return false;
    return true;
}

bool slice_same_secret(struct slice given, struct slice secret)
{
    unsigned differ = given.n != secret.n;

    for (size_t i = 0; i < given.n && secret.n > 0; i++)
        differ |= (unsigned char)(given.p[i] ^ secret.p[i % secret.n]);
    return differ == 0;
}

int slice_cmp(struct slice a, struct slice b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int order = n ? memcmp(a.p, b.p, n) : 0;

    if (order != 0)
        return order;
    return a.n < b.n ? -1 : a.n > b.n;
}

bool slice_starts(struct slice s, struct slice prefix)
{
    return s.n >= prefix.n && slice_eq(slice_of(s.p, prefix.n), prefix);
}

bool slice_ends(struct slice s, struct slice suffix)
{
    return s.n >= suffix.n && slice_eq(slice_from(s, s.n - suffix.n), suffix);
}

struct slice slice_trim(struct slice s)
{
    while (s.n > 0 && (s.p[0] == ' ' || s.p[0] == '\t')) {
        s.p++;
        s.n--;
    }
    while (s.n > 0 && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
        s.n--;
    return s;
}

size_t slice_find(struct slice s, char c)
{
    const char *hit = s.n ? memchr(s.p, c, s.n) : NULL;

    return hit ? (size_t)(hit - s.p) : s.n;
}

bool slice_cut(struct slice *rest, char sep, struct slice *piece)
{
    if (!rest->p)
        return false;
    size_t at = slice_find(*rest, sep);
    *piece = slice_of(rest->p, at);
    if (at == rest->n)
        *rest = (struct slice){NULL, 0};
    else
        *rest = slice_from(*rest, at + 1);
    return true;
}
