/* SPDX-License-Identifier: Apache-2.0 */
#include "base/num.h"

#include <stdbool.h>

#include "base/bug.h"

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

int num_u64(struct slice s, uint64_t *out)
{
    uint64_t v = 0;
    bool range = false;

    if (s.n == 0)
        return WEIR_E_INVALID;
    for (size_t i = 0; i < s.n; i++) {
        if (!digit(s.p[i]))
            return WEIR_E_INVALID;
        uint64_t d = (uint64_t)(s.p[i] - '0');
        /* Nineteen digits always fit. */
        range = range || (i >= 19 && v > (UINT64_MAX - d) / 10);
        v = v * 10 + d;
    }
    if (range)
        return WEIR_E_RANGE;
    *out = v;
    return 0;
}

int num_i64(struct slice s, int64_t *out)
{
    bool minus = s.n > 0 && s.p[0] == '-';
    uint64_t v;

    if (s.n > 0 && (s.p[0] == '-' || s.p[0] == '+'))
        s = slice_from(s, 1);
    int rc = num_u64(s, &v);
    if (rc)
        return rc;
    if (v > (uint64_t)INT64_MAX + (minus ? 1 : 0))
        return WEIR_E_RANGE;
    *out = minus ? (int64_t)((uint64_t)0 - v) : (int64_t)v;
    return 0;
}

static double pow10_of(int n)
{
    double v = 1;

    for (int i = 0; i < (n < 0 ? -n : n); i++)
        v *= 10;
    return n < 0 ? 1 / v : v;
}

int num_f64(struct slice s, double *out)
{
    size_t i = 0;
    bool minus = false;
    double v = 0;
    int shift = 0;
    bool any = false;

    if (i < s.n && (s.p[i] == '-' || s.p[i] == '+'))
        minus = s.p[i++] == '-';
    for (; i < s.n && digit(s.p[i]); i++, any = true)
        v = v * 10 + (s.p[i] - '0');
    if (i < s.n && s.p[i] == '.')
        for (i++; i < s.n && digit(s.p[i]); i++, any = true) {
            if (shift > -17) {
                v = v * 10 + (s.p[i] - '0');
                shift--;
            }
        }
    if (!any)
        return WEIR_E_INVALID;
    if (i < s.n && (s.p[i] == 'e' || s.p[i] == 'E')) {
        int64_t e;
        int rc = num_i64(slice_from(s, i + 1), &e);
        if (rc)
            return WEIR_E_INVALID;
        if (e > 330 || e < -330)
            return WEIR_E_RANGE;
        shift += (int)e;
        i = s.n;
    }
    if (i != s.n)
        return WEIR_E_INVALID;
    if (v == 0)
        shift = 0; /* 0e330 is 0, not 0 times infinity */
    v = shift < 0 ? v / pow10_of(-shift) : v * pow10_of(shift);
    if (v > 1.7976931348623157e308)
        return WEIR_E_RANGE;
    *out = minus ? -v : v;
    return 0;
}

int num_scaled(struct slice s, uint64_t unit, uint64_t *out)
{
    size_t dot = slice_find(s, '.');
    uint64_t whole = 0;
    uint64_t part = 0;
    uint64_t scale = 1;

    int rc = num_u64(slice_of(s.p, dot), &whole);
    if (rc)
        return rc;
    if (dot < s.n) {
        if (dot + 1 == s.n)
            return WEIR_E_INVALID;
        for (size_t i = dot + 1; i < s.n; i++) {
            if (!digit(s.p[i]))
                return WEIR_E_INVALID;
            if (scale < 1000000000) {
                part = part * 10 + (uint64_t)(s.p[i] - '0');
                scale *= 10;
            }
        }
    }
    unsigned __int128 v = (unsigned __int128)whole * unit;
    /* part < scale <= 1e9 and unit < 2^64, so the product fits in 128 bits. */
    unsigned __int128 fraction = (unsigned __int128)part * unit + scale / 2;
    v += fraction / scale;
    if (v > UINT64_MAX)
        return WEIR_E_RANGE;
    *out = (uint64_t)v;
    return 0;
}

struct unit {
    const char *name;
    uint64_t factor;
};

static int with_unit(struct slice s, const struct unit *units, size_t n, uint64_t *out)
{
    size_t at = 0;

    while (at < s.n && (digit(s.p[at]) || s.p[at] == '.'))
        at++;
    struct slice name = slice_from(s, at);
    for (size_t i = 0; i < n; i++)
        if (slice_eq(name, slice_str(units[i].name)))
            return num_scaled(slice_of(s.p, at), units[i].factor, out);
    return WEIR_E_INVALID;
}

int num_duration(struct slice s, uint64_t *ns)
{
    static const struct unit units[] = {
        {"ns", 1},       {"us", NS_PER_US},    {"ms", NS_PER_MS},
        {"s", NS_PER_S}, {"m", 60 * NS_PER_S}, {"h", 3600 * NS_PER_S}};

    if (slice_eq(s, SLICE("0"))) {
        *ns = 0;
        return 0;
    }
    return with_unit(s, units, ARRAY_LEN(units), ns);
}

int num_size(struct slice s, uint64_t *bytes)
{
    static const struct unit units[] = {{"", 1},
                                        {"B", 1},
                                        {"KiB", UINT64_C(1) << 10},
                                        {"MiB", UINT64_C(1) << 20},
                                        {"GiB", UINT64_C(1) << 30},
                                        {"TiB", UINT64_C(1) << 40},
                                        {"KB", 1000},
                                        {"MB", 1000000},
                                        {"GB", 1000000000}};

    return with_unit(s, units, ARRAY_LEN(units), bytes);
}
