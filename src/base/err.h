/* SPDX-License-Identifier: Apache-2.0 */
/** @file The one closed set of return codes: 0 is success, every failure is a negative WEIR_E_*. */
#ifndef WEIR_BASE_ERR_H
#define WEIR_BASE_ERR_H

#define WEIR_ERRORS(X)                                                                             \
    X(NOMEM, 1, "out of memory")                                                                   \
    X(INVALID, 2, "invalid input")                                                                 \
    X(RANGE, 3, "value out of range")                                                              \
    X(FULL, 4, "limit reached")                                                                    \
    X(NOTFOUND, 5, "not found")                                                                    \
    X(EXISTS, 6, "already exists")                                                                 \
    X(AGAIN, 7, "not possible now")                                                                \
    X(CLOSED, 8, "closed by peer")                                                                 \
    X(TIMEOUT, 9, "timed out")                                                                     \
    X(IO, 10, "input/output error")                                                                \
    X(PROTO, 11, "protocol violation")                                                             \
    X(STALE, 12, "older than what is known")                                                       \
    X(DENIED, 13, "not permitted")                                                                 \
    X(REFUSED, 14, "connection refused")                                                           \
    X(UNSUPPORTED, 15, "not supported")

enum weir_error {
#define WEIR_ERROR_ENUM(name, number, text) WEIR_E_##name = -(number), /**< text */
    WEIR_ERRORS(WEIR_ERROR_ENUM)
#undef WEIR_ERROR_ENUM
};

/**
 * Short lower-case words for a code, for logs.
 * @param code 0 or a WEIR_E_* value; anything else gives "unknown error".
 * @return static text, never NULL.
 * Thread: any. Cost: constant.
 */
const char *err_text(int code);

/** A result that must be looked at. */
#define MUST_CHECK __attribute__((warn_unused_result))

#endif /* WEIR_BASE_ERR_H */
