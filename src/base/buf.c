/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <stdint.h>
#ifdef __SSE2__
#    include <emmintrin.h>
#endif

#include "base/bug.h"
#include "base/utf8.h"

void buf_init(struct buf *b, const struct mem *mem, size_t max)
{
    *b = (struct buf){.mem = mem, .max = max};
}

void buf_fini(struct buf *b)
{
    mem_free(b->mem, b->p);
    buf_init(b, b->mem, b->max);
}

void buf_consume(struct buf *b, size_t n)
{
    if (n >= buf_len(b))
        b->from = b->to = 0;
    else
        b->from += n;
}

void buf_clear(struct buf *b)
{
    b->from = b->to = 0;
    b->err = 0;
}

void buf_slim(struct buf *b, size_t keep)
{
    int err = b->err;

    if (buf_len(b) || b->cap <= keep)
        return;
    buf_fini(b);
    b->err = err;
}

char *buf_reserve(struct buf *b, size_t n)
{
    size_t len = buf_len(b);

    if (b->err)
        return NULL;
    if (n > b->max - MIN(len, b->max)) {
        b->err = WEIR_E_FULL;
        return NULL;
    }
    if (b->p && n <= b->cap - b->to)
        return b->p + b->to;
    if (b->from > 0 && len + n <= b->cap && b->from >= b->cap / 2) {
        memmove(b->p, b->p + b->from, len);
    } else {
        size_t want = b->cap < 32 ? 64 : b->cap * 2;
        want = MIN(want, b->max);
        want = MAX(want, len + n);
        if (b->from > 0)
            memmove(b->p, b->p + b->from, len);
        b->from = 0;
        b->to = len;
        char *p = mem_resize(b->mem, b->p, MAX(want, (size_t)1), 1);
        if (!p) {
            b->err = WEIR_E_NOMEM;
            return NULL;
        }
        b->p = p;
        b->cap = MAX(want, (size_t)1);
    }
    b->from = 0;
    b->to = len;
    return b->p + len;
}

void buf_commit(struct buf *b, size_t n)
{
    BUG_ON(n > b->cap - b->to);
    b->to += n;
}

int buf_put_slow(struct buf *b, const void *p, size_t n)
{
    if (n == 0)
        return b->err;
    char *to = buf_reserve(b, n);
    if (!to)
        return b->err;
    memcpy(to, p, n);
    b->to += n;
    return 0;
}

int buf_put_u64(struct buf *b, uint64_t v)
{
    char digits[20];
    size_t at = sizeof(digits);

    do {
        digits[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    return buf_put(b, digits + at, sizeof(digits) - at);
}

int buf_put_i64(struct buf *b, int64_t v)
{
    if (v < 0) {
        buf_put_char(b, '-');
        return buf_put_u64(b, (uint64_t)0 - (uint64_t)v);
    }
    return buf_put_u64(b, (uint64_t)v);
}

/* The 16 digits of v. */
static void hex16(char *to, uint64_t v)
{
#ifdef __SSE2__
    __m128i bytes = _mm_cvtsi64_si128((long long)__builtin_bswap64(v));
    __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), _mm_set1_epi8(0x0F));
    __m128i low = _mm_and_si128(bytes, _mm_set1_epi8(0x0F));
    __m128i nibbles = _mm_unpacklo_epi8(high, low);
    __m128i letters =
        _mm_and_si128(_mm_cmpgt_epi8(nibbles, _mm_set1_epi8(9)), _mm_set1_epi8('a' - '0' - 10));
    __m128i digits = _mm_add_epi8(_mm_add_epi8(nibbles, _mm_set1_epi8('0')), letters);
    _mm_storeu_si128((__m128i *)(void *)to, digits);
#else
    /* Spread the nibbles over the bytes of two words, then turn each byte into its digit. */
    for (unsigned half = 0; half < 2; half++) {
        uint64_t w = half ? v & 0xFFFFFFFFu : v >> 32;
        w = (w | w << 16) & 0x0000FFFF0000FFFFu;
        w = (w | w << 8) & 0x00FF00FF00FF00FFu;
        w = (w | w << 4) & 0x0F0F0F0F0F0F0F0Fu;
        uint64_t letters = ((w + 0x0606060606060606u) >> 4) & 0x0101010101010101u;
        w += 0x3030303030303030u + letters * ('a' - '0' - 10);
#    if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        w = __builtin_bswap64(w);
#    endif
        memcpy(to + half * 8, &w, sizeof(w));
    }
#endif
}

int buf_put_hex(struct buf *b, uint64_t v, unsigned digits)
{
    char text[16];

    BUG_ON(digits > sizeof(text));
    hex16(text, v);
    return buf_put(b, text + sizeof(text) - digits, digits);
}

int buf_put_f64(struct buf *b, double v, unsigned decimals)
{
    static const uint64_t pow10[] = {1,      10,      100,      1000,      10000,
                                     100000, 1000000, 10000000, 100000000, 1000000000};

    BUG_ON(decimals >= ARRAY_LEN(pow10));
    if (v != v)
        return buf_put_str(b, "NaN");
    if (v > 1.7976931348623157e308)
        return buf_put_str(b, "+Inf");
    if (v < -1.7976931348623157e308)
        return buf_put_str(b, "-Inf");
    if (v < 0) {
        buf_put_char(b, '-');
        v = -v;
    }
    if (v >= 9.0e18) {
        /* Beyond 64 bits only the leading digits are meaningful: mantissa and exponent. */
        int exponent = 0;
        while (v >= 10) {
            v /= 10;
            exponent++;
        }
        buf_put_f64(b, v, 9);
        buf_put_char(b, 'e');
        return buf_put_i64(b, exponent);
    }
    uint64_t whole = (uint64_t)v;
    uint64_t part = (uint64_t)((v - (double)whole) * (double)pow10[decimals] + 0.5);
    if (part >= pow10[decimals]) {
        whole++;
        part -= pow10[decimals];
    }
    buf_put_u64(b, whole);
    if (part == 0)
        return b->err;
    while (part % 10 == 0) {
        part /= 10;
        decimals--;
    }
    buf_put_char(b, '.');
    for (unsigned i = decimals; i > 1 && part < pow10[i - 1]; i--)
        buf_put_char(b, '0');
    return buf_put_u64(b, part);
}

/*
 * Characters that are fine in JSON but do harm or are refused elsewhere: C1 controls (terminals obey them, YAML refuses
 * them), line and paragraph separators (JavaScript ends a line there), the byte order mark and non-characters.
 * @return the code point of the n-byte sequence at p when it is one of them, else 0.
 */
static uint32_t troublesome(const char *p, size_t n)
{
    const unsigned char *u = (const unsigned char *)p;
    uint32_t c = 0;

    if (n == 2 && u[0] == 0xC2 && u[1] < 0xA0)
        return u[1];
    if (n == 3)
        c = (u[0] & 0x0Fu) << 12 | (u[1] & 0x3Fu) << 6 | (u[2] & 0x3Fu);
    return c == 0x2028 || c == 0x2029 || c == 0xFEFF || c >= 0xFFFE ? c : 0;
}

int buf_put_json(struct buf *b, struct slice s)
{
    buf_put_char(b, '"');
    for (size_t i = 0; i < s.n;) {
        unsigned char c = (unsigned char)s.p[i];
        if (c >= 0x80) {
            size_t n = utf8_len(s.p + i, s.n - i);
            uint32_t escaped = troublesome(s.p + i, n);
            if (escaped) {
                buf_put_str(b, "\\u");
                buf_put_hex(b, escaped, 4);
            } else if (n)
                buf_put(b, s.p + i, n);
            else
                buf_put_str(b, "\xEF\xBF\xBD");
            i += n ? n : 1;
            continue;
        }
        if (c == '"' || c == '\\') {
            buf_put_char(b, '\\');
            buf_put_char(b, (char)c);
        } else if (c == '\n') {
            buf_put_str(b, "\\n");
        } else if (c == '\r') {
            buf_put_str(b, "\\r");
        } else if (c == '\t') {
            buf_put_str(b, "\\t");
        } else if (c < 0x20 || c == 0x7f) {
            buf_put_str(b, "\\u");
            buf_put_hex(b, c, 4);
        } else {
            buf_put_char(b, (char)c);
        }
        i++;
    }
    return buf_put_char(b, '"');
}
