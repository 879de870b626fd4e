/* SPDX-License-Identifier: Apache-2.0 */
/** @file The malloc-backed allocator: the one place that calls malloc and free. */
#ifndef WEIR_LOOP_ALLOC_H
#define WEIR_LOOP_ALLOC_H

#include "base/mem.h"

/** Shared, thread-safe, never NULL. */
const struct mem *loop_mem(void);

#endif /* WEIR_LOOP_ALLOC_H */
