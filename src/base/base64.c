/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base64.h"

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int base64_put(struct buf *out, struct slice bytes)
{
    for (size_t i = 0; i < bytes.n; i += 3) {
        size_t n = bytes.n - i < 3 ? bytes.n - i : 3;
        uint32_t v = 0;
        for (size_t j = 0; j < 3; j++)
            v = v << 8 | (j < n ? (unsigned char)bytes.p[i + j] : 0);
        buf_put_char(out, digits[v >> 18]);
        buf_put_char(out, digits[v >> 12 & 63]);
        buf_put_char(out, n > 1 ? digits[v >> 6 & 63] : '=');
        buf_put_char(out, n > 2 ? digits[v & 63] : '=');
    }
    return out->err;
}

static int digit_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int base64_read(struct slice text, struct buf *out)
{
    if (text.n % 4)
        return WEIR_E_INVALID;
    for (size_t i = 0; i < text.n; i += 4) {
        bool last = i + 4 == text.n;
        size_t pad = last && text.p[i + 3] == '=' ? 1 + (size_t)(text.p[i + 2] == '=') : 0;
        uint32_t v = 0;
        for (size_t j = 0; j < 4; j++) {
            int d = j < 4 - pad ? digit_of(text.p[i + j]) : 0;
            if (d < 0)
                return WEIR_E_INVALID;
            v = v << 6 | (uint32_t)d;
        }
        const char bytes[] = {(char)(v >> 16 & 255), (char)(v >> 8 & 255), (char)(v & 255)};
        if (buf_put(out, bytes, 3 - pad))
            return out->err;
    }
    return out->err;
}
