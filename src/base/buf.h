/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file A growable byte buffer with a cap, and text writers on it that need no stdio.
 * Writers never fail in the middle of a chain: the first failure sticks in `err`, later ones do nothing,
 * and the caller looks once at the end.
 */
#ifndef WEIR_BASE_BUF_H
#define WEIR_BASE_BUF_H

#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"

/** Bytes [from, to) of `p` are the content. Not thread-safe. */
struct buf {
    const struct mem *mem; /**< borrowed */
    char *p;               /**< owned; NULL until the first byte */
    size_t from;           /**< first byte of the content */
    size_t to;             /**< one past its last byte */
    size_t cap;            /**< bytes allocated */
    size_t max;            /**< most bytes of content; above it the writers set WEIR_E_FULL */
    int err;               /**< 0, or the first failure */
};

void buf_init(struct buf *b, const struct mem *mem, size_t max);
void buf_fini(struct buf *b);

static inline size_t buf_len(const struct buf *b)
{
    return b->to - b->from;
}

/** The content, borrowed until the next call that writes, consumes or frees. */
static inline struct slice buf_slice(const struct buf *b)
{
    return slice_of(b->p ? b->p + b->from : "", b->to - b->from);
}

/** Drop n bytes (at most all) from the front. Keeps the memory. */
void buf_consume(struct buf *b, size_t n);

/** Forget content and error; keeps the memory. */
void buf_clear(struct buf *b);
/** Give the memory of an empty buffer back, when it is more than `keep` bytes: a burst is over. An error stays. */
void buf_slim(struct buf *b, size_t keep);

/**
 * Room for n more bytes at the end: write there, then buf_commit().
 * @return NULL and err set when the cap or memory does not allow it.
 */
char *buf_reserve(struct buf *b, size_t n);
void buf_commit(struct buf *b, size_t n);

/** What buf_put() does when the bytes do not fit behind the content as it is. */
int buf_put_slow(struct buf *b, const void *p, size_t n);

/** @return 0, or the sticky error. Inline: heads are put together from a hundred small pieces. */
static inline int buf_put(struct buf *b, const void *p, size_t n)
{
    if (b->err || n > b->cap - b->to || n == 0)
        return buf_put_slow(b, p, n);
    memcpy(b->p + b->to, p, n);
    b->to += n;
    return 0;
}

static inline int buf_put_slice(struct buf *b, struct slice s)
{
    return buf_put(b, s.p, s.n);
}

static inline int buf_put_str(struct buf *b, const char *s)
{
    return buf_put(b, s, strlen(s));
}

static inline int buf_put_char(struct buf *b, char c)
{
    return buf_put(b, &c, 1);
}

int buf_put_u64(struct buf *b, uint64_t v);
int buf_put_i64(struct buf *b, int64_t v);

/** Lower-case hex, exactly `digits` wide. */
int buf_put_hex(struct buf *b, uint64_t v, unsigned digits);

/** Decimal with at most `decimals` (0..9) places, trailing zeros dropped; nan, +inf and -inf as "NaN", "+Inf", "-Inf". */
int buf_put_f64(struct buf *b, double v, unsigned decimals);

/** A JSON string with its quotes, also valid in YAML; invalid UTF-8 becomes U+FFFD, control and separator characters are escaped. */
int buf_put_json(struct buf *b, struct slice s);

#endif /* WEIR_BASE_BUF_H */
