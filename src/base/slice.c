/* SPDX-License-Identifier: Apache-2.0 */
#include "base/slice.h"

#include <stdint.h>

#define EACH(byte) (UINT64_C(0x0101010101010101) * (byte))

/* Eight bytes with A to Z in lower case. A byte of 0x80 and more is no letter, and carries nothing into its neighbour. */
static uint64_t lower8(uint64_t x)
{
    uint64_t low7 = x & EACH(0x7F);
    uint64_t from_a = low7 + EACH(0x80 - 'A');
    uint64_t past_z = low7 + EACH(0x7F - 'Z');

    return x | ((from_a ^ past_z) & ~x & EACH(0x80)) >> 2;
}

static bool same8(uint64_t x, uint64_t y)
{
    uint64_t differ = x ^ y;

    return differ == 0 || ((differ & ~EACH(0x20)) == 0 && lower8(x) == lower8(y));
}

static uint64_t word(const char *p, size_t n)
{
    uint64_t x = 0;

    memcpy(&x, p, n);
    return x;
}

bool slice_same_nocase(const char *a, const char *b, size_t n)
{
    if (n >= 8) {
        /* The last word may overlap the one before it. */
        for (size_t i = 0; i + 8 < n; i += 8)
            if (!same8(word(a + i, 8), word(b + i, 8)))
                return false;
        return same8(word(a + n - 8, 8), word(b + n - 8, 8));
    }
    if (n >= 4) {
        uint64_t x = word(a, 4) | word(a + n - 4, 4) << 32;
        uint64_t y = word(b, 4) | word(b + n - 4, 4) << 32;
        return same8(x, y);
    }
    for (size_t i = 0; i < n; i++)
        if (ascii_lower(a[i]) != ascii_lower(b[i]))
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
