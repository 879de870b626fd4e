/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Draws for simulations, the same on every machine: only additions, multiplications and divisions of doubles,
 * which IEEE 754 fixes to the bit, never libm.
 */
#ifndef WEIR_DES_DRAW_H
#define WEIR_DES_DRAW_H

#include "base/prng.h"

/** A stream of its own for each use, so that one more draw here moves nothing there. */
struct prng des_stream(uint64_t seed, uint64_t use);

/** Natural logarithm of x > 0, to about 1e-15. */
double des_log(double x);

/** Square root of x >= 0. */
double des_sqrt(double x);

/** Exponential with this mean. */
double des_exponential(struct prng *r, double mean);

/** Mean 0, variance 1: the sum of twelve uniform draws less six, so never beyond 6. */
double des_normal(struct prng *r);

/** Half-width of the 95 % confidence interval of the mean of n values with this sample deviation (Student); 0 below 2. */
double des_interval(double deviation, uint32_t n);

#endif /* WEIR_DES_DRAW_H */
