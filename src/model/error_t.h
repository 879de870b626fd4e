/* SPDX-License-Identifier: Apache-2.0 */
/** @file Every error a client can get from Weir itself: code, HTTP status, OpenAI error type. */
#ifndef WEIR_MODEL_ERROR_T_H
#define WEIR_MODEL_ERROR_T_H

/* X(NAME, "code", status, "type") */
#define WEIR_REJECTIONS(X)                                                                         \
    X(MODEL_REQUIRED, "model_required", 400, "invalid_request_error")                              \
    X(INVALID_HEADER, "invalid_header", 400, "invalid_request_error")                              \
    X(INVALID_REQUEST, "invalid_request", 400, "invalid_request_error")                            \
    X(EXCEEDS_FLEET_MEMORY, "exceeds_fleet_memory", 400, "invalid_request_error")                  \
    X(CONTEXT_TOO_LONG, "context_length_exceeded", 400, "invalid_request_error")                   \
    X(INVALID_API_KEY, "invalid_api_key", 401, "authentication_error")                             \
    X(MODEL_NOT_ALLOWED, "model_not_allowed", 403, "permission_error")                             \
    X(MODEL_NOT_FOUND, "model_not_found", 404, "invalid_request_error")                            \
    X(ROUTE_NOT_FOUND, "route_not_found", 404, "invalid_request_error")                            \
    X(REQUEST_TIMEOUT, "request_timeout", 408, "invalid_request_error")                            \
    X(BODY_TOO_LARGE, "body_too_large", 413, "invalid_request_error")                              \
    X(LOOP_DETECTED, "loop_detected", 421, "invalid_request_error")                                \
    X(QUEUE_FULL, "queue_full", 429, "rate_limit_error")                                           \
    X(RATE_LIMITED, "rate_limited", 429, "rate_limit_error")                                       \
    X(SLO_UNREACHABLE, "slo_unreachable", 429, "rate_limit_error")                                 \
    X(HEADERS_TOO_LARGE, "headers_too_large", 431, "invalid_request_error")                        \
    X(UPSTREAM_FAILED, "upstream_failed", 502, "server_error")                                     \
    X(NO_ENDPOINT, "no_endpoint", 503, "service_unavailable_error")                                \
    X(STARTING, "starting", 503, "service_unavailable_error")                                      \
    X(DRAINING, "draining", 503, "service_unavailable_error")                                      \
    X(OVERLOADED, "overloaded", 503, "service_unavailable_error")                                  \
    X(QUEUE_TIMEOUT, "queue_timeout", 504, "server_error")                                         \
    X(FIRST_BYTE_TIMEOUT, "first_byte_timeout", 504, "server_error")                               \
    X(DEADLINE_EXCEEDED, "deadline_exceeded", 504, "server_error")

enum rejection {
    REJECT_NONE = 0,
#define WEIR_REJECTION_ENUM(name, code, status, type) REJECT_##name,
    WEIR_REJECTIONS(WEIR_REJECTION_ENUM)
#undef WEIR_REJECTION_ENUM
        REJECT_COUNT
};

#endif /* WEIR_MODEL_ERROR_T_H */
