/* SPDX-License-Identifier: Apache-2.0 */
/** @file Numbers from text: the whole slice must be the number, no locale, no silent wrap. */
#ifndef WEIR_BASE_NUM_H
#define WEIR_BASE_NUM_H

#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

/** Digits only. WEIR_E_INVALID for anything else, WEIR_E_RANGE beyond 64 bits. */
int num_u64(struct slice s, uint64_t *out) MUST_CHECK;

/** Optional sign, then digits. */
int num_i64(struct slice s, int64_t *out) MUST_CHECK;

/** Decimal with optional sign, fraction and exponent, as JSON and Prometheus write them (nan and inf refused). */
int num_f64(struct slice s, double *out) MUST_CHECK;

/**
 * A non-negative decimal ("8", "7.5") times `unit`, rounded to the nearest integer, without floating point.
 * At most 9 decimals count. WEIR_E_RANGE when it does not fit.
 */
int num_scaled(struct slice s, uint64_t unit, uint64_t *out) MUST_CHECK;

/** "250us 10ms 5s 2m 1h" to nanoseconds; the unit is required, except for plain 0. */
int num_duration(struct slice s, uint64_t *ns) MUST_CHECK;

/** "64KiB 1GiB 10MB 512" to bytes; decimals allowed with a unit. */
int num_size(struct slice s, uint64_t *bytes) MUST_CHECK;

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)
#define GIB       (UINT64_C(1) << 30)

#endif /* WEIR_BASE_NUM_H */
