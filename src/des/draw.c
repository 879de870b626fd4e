/* SPDX-License-Identifier: Apache-2.0 */
#include "des/draw.h"

#include "base/bug.h"
#include "base/hash.h"

#define LN2 0.69314718055994530942

struct prng des_stream(uint64_t seed, uint64_t use)
{
    return (struct prng){hash_pair(seed, use)};
}

/* x = m x 2^e with m in [0.7, 1.4); ln m = 2 artanh((m - 1) / (m + 1)) by its series. */
double des_log(double x)
{
    int e = 0;

    BUG_ON(!(x > 0));
    for (; x >= 1.4; e++)
        x *= 0.5;
    for (; x < 0.7; e--)
        x *= 2;
    double t = (x - 1) / (x + 1);
    double square = t * t;
    double power = t;
    double sum = 0;
    for (int k = 1; k < 30; k += 2, power *= square)
        sum += power / k;
    return 2 * sum + e * LN2;
}

double des_sqrt(double x)
{
    BUG_ON(!(x >= 0));
    return x > 0 ? __builtin_sqrt(x) : 0;
}

double des_exponential(struct prng *r, double mean)
{
    return -mean * des_log(1 - prng_unit(r));
}

double des_normal(struct prng *r)
{
    double sum = -6;

    for (int i = 0; i < 12; i++)
        sum += prng_unit(r);
    return sum;
}

double des_interval(double deviation, uint32_t n)
{
    /* Two-sided 95 % quantiles of Student's t by degrees of freedom. */
    static const double t95[] = {0,     12.706, 4.303, 3.182, 2.776, 2.571, 2.447,
                                 2.365, 2.306,  2.262, 2.228, 2.201, 2.179, 2.160,
                                 2.145, 2.131,  2.120, 2.110, 2.101, 2.093, 2.086};

    if (n < 2)
        return 0;
    double t = n - 1 < ARRAY_LEN(t95) ? t95[n - 1] : 1.96 + 2.5 / (n - 1);
    return t * deviation / des_sqrt(n);
}
