/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors in the OpenAI shape. They name the request's own values (model, header), never a backend.
 */
#include "proxy/exchange.h"

static const struct {
    const char *code;
    uint16_t status;
    const char *type;
} errors[REJECT_COUNT] = {
#define ERROR_ROW(name, code, status, type) [REJECT_##name] = {code, status, type},
    WEIR_REJECTIONS(ERROR_ROW)
#undef ERROR_ROW
};

static const char *const messages[REJECT_COUNT] = {
    [REJECT_MODEL_REQUIRED] =
        "no model named, and there is no default: name one in the body or in X-Model-Id",
    [REJECT_INVALID_HEADER] = "this header's value cannot be read:",
    [REJECT_INVALID_REQUEST] = "this request cannot be read",
    [REJECT_CONTEXT_TOO_LONG] = "prompt and output are longer than the context of any endpoint",
    [REJECT_EXCEEDS_FLEET_MEMORY] = "the request asks for more memory than any endpoint has",
    [REJECT_INVALID_API_KEY] = "missing or invalid API key",
    [REJECT_MODEL_NOT_ALLOWED] = "this key may not use the model",
    [REJECT_MODEL_NOT_FOUND] = "the model does not exist:",
    [REJECT_ROUTE_NOT_FOUND] = "nothing is served at this path",
    [REJECT_REQUEST_TIMEOUT] = "the request did not arrive in time",
    [REJECT_BODY_TOO_LARGE] = "the request body is too large",
    [REJECT_LOOP_DETECTED] = "the request has passed this gateway before",
    [REJECT_QUEUE_FULL] =
        "all endpoints of the model are busy and its queue is full; try again later",
    [REJECT_RATE_LIMITED] = "rate limit reached; try again later",
    [REJECT_SLO_UNREACHABLE] =
        "no endpoint would meet the request's latency targets at present; try again later",
    [REJECT_HEADERS_TOO_LARGE] = "the request's headers are too large or too many",
    [REJECT_UPSTREAM_FAILED] = "the model server failed to answer",
    [REJECT_NO_ENDPOINT] = "no endpoint serves the model at present; try again later",
    [REJECT_STARTING] = "the gateway is starting; try again shortly",
    [REJECT_DRAINING] = "the gateway is shutting down",
    [REJECT_OVERLOADED] = "the gateway is out of connections or buffers; try again later",
    [REJECT_QUEUE_TIMEOUT] = "no endpoint of the model became free in time",
    [REJECT_FIRST_BYTE_TIMEOUT] = "the model server did not begin to answer in time",
    [REJECT_DEADLINE_EXCEEDED] = "the request's deadline has passed or cannot be met any more",
};

unsigned error_status(enum rejection code)
{
    return errors[code].status;
}

const char *error_code(enum rejection code)
{
    return errors[code].code;
}

enum proxy_outcome error_outcome(enum rejection code)
{
    switch (error_status(code)) {
    case 429:
    case 503:
        return OUTCOME_REJECTED;
    case 502:
        return OUTCOME_UPSTREAM_ERROR;
    case 504:
        return OUTCOME_TIMEOUT;
    default:
        return OUTCOME_CLIENT_ERROR;
    }
}

/* The message as a JSON string; the detail is cut, since it is the client's and may be anything. */
static void put_message(struct buf *out, const struct error_answer *e)
{
    char text[512];
    struct buf b = {.p = text, .cap = sizeof(text), .max = sizeof(text)};

    /* Writers on a buffer whose memory suffices never resize it. */
    buf_put_str(&b, e->message ? e->message : messages[e->code]);
    if (e->detail.n) {
        buf_put_str(&b, " `");
        buf_put(&b, e->detail.p, MIN(e->detail.n, (size_t)256));
        buf_put_char(&b, '`');
    }
    buf_put_json(out, buf_slice(&b));
}

void error_write(struct buf *out, const struct error_answer *e)
{
    unsigned status = e->status ? e->status : errors[e->code].status;
    size_t length_at;
    size_t body_at;

    buf_put_str(out, "HTTP/1.1 ");
    buf_put_u64(out, status);
    buf_put_char(out, ' ');
    buf_put_str(out, wire_http1_reason(status));
    buf_put_str(out, "\r\nContent-Type: application/json\r\n");
    if (e->request_id.n) {
        buf_put_str(out, "X-Request-Id: ");
        buf_put_slice(out, e->request_id);
        buf_put_str(out, "\r\n");
    }
    if (status == 429 || status == 503) {
        buf_put_str(out, "Retry-After: ");
        buf_put_u64(out, MAX(e->retry_after_s, 1u));
        buf_put(out, "\r\n", 2);
    }
    if (e->close)
        buf_put_str(out, "Connection: close\r\n");
    buf_put_str(out, "Content-Length: ");
    length_at = buf_len(out);
    buf_put_str(out, "    \r\n\r\n");
    body_at = buf_len(out);
    buf_put_str(out, "{\"error\":{\"message\":");
    put_message(out, e);
    buf_put_str(out, ",\"type\":\"");
    buf_put_str(out, errors[e->code].type);
    buf_put_str(out, "\",\"code\":\"");
    buf_put_str(out, errors[e->code].code);
    buf_put_str(out, "\",\"param\":");
    if (e->param)
        buf_put_json(out, slice_str(e->param));
    else
        buf_put_str(out, "null");
    buf_put_char(out, '}');
    if (e->explain.n) {
        buf_put_str(out, ",\"weir_explain\":");
        buf_put_slice(out, e->explain);
    }
    buf_put_char(out, '}');
    if (out->err)
        return;
    /* The length in four digits, right-aligned over the spaces left for it. */
    size_t n = buf_len(out) - body_at;
    BUG_ON(n > 9999);
    for (char *at = out->p + out->from + length_at + 3; n; at--, n /= 10)
        *at = (char)('0' + n % 10);
    if (e->head_only)
        out->to = out->from + body_at;
}
