/* SPDX-License-Identifier: Apache-2.0 */
/** @file Assertions that stay on in production, and small compile-time helpers. */
#ifndef WEIR_BASE_BUG_H
#define WEIR_BASE_BUG_H

#include <stddef.h>
#include <stdint.h>

/** Stop the process at an impossible state: going on would serve wrong answers. Always compiled in. */
#define BUG_ON(cond)                                                                               \
    do {                                                                                           \
        if (__builtin_expect(!!(cond), 0))                                                         \
            __builtin_trap();                                                                      \
    } while (0)

/** The struct that embeds a member. */
#define container_of(ptr, type, member)                                                            \
    ((type *)(void *)((char *)(uintptr_t)(ptr)-offsetof(type, member)))

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)    ((a) < (b) ? (a) : (b))
#define MAX(a, b)    ((a) > (b) ? (a) : (b))

#endif /* WEIR_BASE_BUG_H */
