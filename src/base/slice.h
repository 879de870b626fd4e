/* SPDX-License-Identifier: Apache-2.0 */
/** @file A borrowed run of bytes: pointer and length, never owned, not necessarily terminated. */
#ifndef WEIR_BASE_SLICE_H
#define WEIR_BASE_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/** Borrowed bytes. An absent value is {NULL, 0}; an empty one has p != NULL. */
struct slice {
    const char *p; /**< first byte; borrowed */
    size_t n;      /**< bytes */
};

/** Slice of a string literal. */
#define SLICE(literal)                                                                             \
    (struct slice)                                                                                 \
    {                                                                                              \
        .p = (literal), .n = sizeof(literal) - 1                                                   \
    }

/** For printf's "%.*s". */
#define SLICE_ARG(s) (int)(s).n, (s).p ? (s).p : ""

static inline struct slice slice_of(const char *p, size_t n)
{
    return (struct slice){p, n};
}

/** Slice of a terminated string; NULL gives the absent slice. */
static inline struct slice slice_str(const char *s)
{
    return (struct slice){s, s ? strlen(s) : 0};
}

static inline bool slice_empty(struct slice s)
{
    return s.n == 0;
}

static inline bool slice_eq(struct slice a, struct slice b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

static inline char ascii_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

/** The n bytes at a and b are equal but for ASCII case. */
bool slice_same_nocase(const char *a, const char *b, size_t n);

/** Equality that ignores ASCII case (header names, enum words). */
static inline bool slice_eq_nocase(struct slice a, struct slice b)
{
    return a.n == b.n && slice_same_nocase(a.p, b.p, a.n);
}

/** Equality whose time depends on the length of `given` alone, not on how much of it is right. */
bool slice_same_secret(struct slice given, struct slice secret);

/** Byte order, shorter first on a common prefix: <0, 0, >0. */
int slice_cmp(struct slice a, struct slice b);

bool slice_starts(struct slice s, struct slice prefix);
bool slice_ends(struct slice s, struct slice suffix);

/** Without leading and trailing spaces and tabs. */
static inline struct slice slice_trim(struct slice s)
{
    while (s.n > 0 && (s.p[0] == ' ' || s.p[0] == '\t')) {
        s.p++;
        s.n--;
    }
    while (s.n > 0 && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
        s.n--;
    return s;
}

/** The part from `at` on; `at` past the end gives an empty slice. */
static inline struct slice slice_from(struct slice s, size_t at)
{
    if (at > s.n)
        at = s.n;
    return (struct slice){s.p ? s.p + at : NULL, s.n - at};
}

/** Index of the first `c`, or s.n. */
size_t slice_find(struct slice s, char c);

/**
 * Cut the next piece up to `sep` off the front of *rest.
 * @param rest the remaining text; moved past the separator. Absent once the last piece was given.
 * @param piece out: the piece, untrimmed, possibly empty.
 * @return false when nothing was left.
 */
bool slice_cut(struct slice *rest, char sep, struct slice *piece);

#endif /* WEIR_BASE_SLICE_H */
