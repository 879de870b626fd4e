/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

static bool continues(unsigned char c)
{
    return (c & 0xC0) == 0x80;
}

size_t utf8_len(const char *p, size_t n)
{
    const unsigned char *u = (const unsigned char *)p;

    if (n == 0)
        return 0;
    if (u[0] < 0x80)
        return 1;
    if (u[0] >= 0xC2 && u[0] <= 0xDF)
        return n >= 2 && continues(u[1]) ? 2 : 0;
    if (u[0] >= 0xE0 && u[0] <= 0xEF) {
        if (n < 3 || !continues(u[1]) || !continues(u[2]))
            return 0;
        if ((u[0] == 0xE0 && u[1] < 0xA0) || (u[0] == 0xED && u[1] > 0x9F))
            return 0;
        return 3;
    }
    if (u[0] >= 0xF0 && u[0] <= 0xF4) {
        if (n < 4 || !continues(u[1]) || !continues(u[2]) || !continues(u[3]))
            return 0;
        if ((u[0] == 0xF0 && u[1] < 0x90) || (u[0] == 0xF4 && u[1] > 0x8F))
            return 0;
        return 4;
    }
    return 0;
}

bool utf8_ok(const char *p, size_t n)
{
    while (n) {
        size_t len = utf8_len(p, n);
        if (!len)
            return false;
        p += len;
        n -= len;
    }
    return true;
}

size_t utf8_put(char out[4], uint32_t c)
{
    if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
        c = 0xFFFD;
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | (c >> 6));
        out[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | (c >> 12));
        out[1] = (char)(0x80 | ((c >> 6) & 0x3F));
        out[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | (c >> 18));
    out[1] = (char)(0x80 | ((c >> 12) & 0x3F));
    out[2] = (char)(0x80 | ((c >> 6) & 0x3F));
    out[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}
