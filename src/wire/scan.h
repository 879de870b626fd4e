/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Find the end of a plain run of text, 16 bytes a step where SSE2 is at hand, 8 otherwise.
 * Most bytes that pass through the gateway are looked at by one of these two loops and by nothing else.
 */
#ifndef WEIR_WIRE_SCAN_H
#define WEIR_WIRE_SCAN_H

#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#    include <emmintrin.h>
#endif

#define SCAN_EACH(byte) (UINT64_C(0x0101010101010101) * (byte))

/** Nonzero when one of the 8 bytes of x is zero. */
static inline uint64_t scan_zero(uint64_t x)
{
    return (x - SCAN_EACH(0x01)) & ~x & SCAN_EACH(0x80);
}

/** Nonzero when one of the 8 bytes of x is below 0x20. */
static inline uint64_t scan_control(uint64_t x)
{
    return (x - SCAN_EACH(0x20)) & ~x & SCAN_EACH(0x80);
}

/** scan_text() in portable words. */
static inline const char *scan_text_words(const char *p, const char *end)
{
    uint64_t x;

    while (end - p >= 8) {
        memcpy(&x, p, 8);
        if (scan_control(x) | scan_zero(x ^ SCAN_EACH(0x7F)))
            break;
        p += 8;
    }
    while (p < end && (unsigned char)*p >= 0x20 && *p != 0x7F)
        p++;
    return p;
}

/** scan_json_text() in portable words. */
static inline const char *scan_json_text_words(const char *p, const char *end)
{
    uint64_t x;

    while (end - p >= 8) {
        memcpy(&x, p, 8);
        if (scan_control(x) | scan_zero(x ^ SCAN_EACH('"')) | scan_zero(x ^ SCAN_EACH('\\')))
            break;
        p += 8;
    }
    while (p < end && (unsigned char)*p >= 0x20 && *p != '"' && *p != '\\')
        p++;
    return p;
}

/** First control character (below 0x20, tab too) or DEL in [p, end), or end. */
static inline const char *scan_text(const char *p, const char *end)
{
#ifdef __SSE2__
    const __m128i low = _mm_set1_epi8(0x1F);
    const __m128i del = _mm_set1_epi8(0x7F);

    for (; end - p >= 16; p += 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i hit = _mm_or_si128(_mm_cmpeq_epi8(_mm_min_epu8(x, low), x), _mm_cmpeq_epi8(x, del));
        unsigned bits = (unsigned)_mm_movemask_epi8(hit);
        if (bits)
            return p + __builtin_ctz(bits);
    }
#endif
    return scan_text_words(p, end);
}

/**
 * Past letters, digits, "-" and "." from p on, 16 bytes a step as long as so many are there: at the first other byte,
 * or somewhere before it.
 */
static inline const char *scan_word(const char *p, const char *end)
{
#ifdef __SSE2__
    /* Signed: bytes of 0x80 and more are below every bound. */
    for (; end - p >= 16; p += 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i lower = _mm_or_si128(x, _mm_set1_epi8(0x20));
        __m128i letter = _mm_and_si128(_mm_cmpgt_epi8(lower, _mm_set1_epi8('a' - 1)),
                                       _mm_cmplt_epi8(lower, _mm_set1_epi8('z' + 1)));
        /* "-", ".", "/" and the digits stand in a row. */
        __m128i digit = _mm_and_si128(_mm_cmpgt_epi8(x, _mm_set1_epi8('-' - 1)),
                                      _mm_cmplt_epi8(x, _mm_set1_epi8('9' + 1)));
        __m128i word =
            _mm_andnot_si128(_mm_cmpeq_epi8(x, _mm_set1_epi8('/')), _mm_or_si128(letter, digit));
        unsigned other = (unsigned)_mm_movemask_epi8(word) ^ 0xFFFFu;
        if (other)
            return p + __builtin_ctz(other);
    }
#else
    (void)end;
#endif
    return p;
}

/** First control character, quote or backslash in [p, end), or end. */
static inline const char *scan_json_text(const char *p, const char *end)
{
#ifdef __SSE2__
    const __m128i low = _mm_set1_epi8(0x1F);
    const __m128i quote = _mm_set1_epi8('"');
    const __m128i backslash = _mm_set1_epi8('\\');

    for (; end - p >= 16; p += 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i hit =
            _mm_or_si128(_mm_cmpeq_epi8(_mm_min_epu8(x, low), x),
                         _mm_or_si128(_mm_cmpeq_epi8(x, quote), _mm_cmpeq_epi8(x, backslash)));
        unsigned bits = (unsigned)_mm_movemask_epi8(hit);
        if (bits)
            return p + __builtin_ctz(bits);
    }
#endif
    return scan_json_text_words(p, end);
}

#endif /* WEIR_WIRE_SCAN_H */
