/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunked transfer coding, read byte by byte where framing stands and in whole runs where payload stands.
 * Extensions and trailers are checked for form and dropped: what a server may read otherwise (blanks in an extension, a
 * framing field among the trailers) is refused, though it is not passed on.
 */
#include "wire/chunked.h"

#include "base/bug.h"

enum state {
    SIZE_FIRST = 0, /* the first digit of a chunk size */
    SIZE,
    EXT_NAME_FIRST, /* behind ";" */
    EXT_NAME,
    EXT_VALUE_FIRST, /* behind "=" */
    EXT_VALUE,
    EXT_QUOTED,
    EXT_ESCAPE,
    EXT_END, /* behind the closing quote */
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER_FIRST, /* a trailer line or the final CRLF */
    TRAILER_NAME,
    TRAILER_VALUE,
    TRAILER_LF,
    FINAL_LF,
};

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = ascii_lower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool name_char(unsigned char c)
{
    static const char other[] = "!#$%&'*+-.^_`|~";
    unsigned char l = (unsigned char)ascii_lower((char)c);

    return (l >= 'a' && l <= 'z') || (c >= '0' && c <= '9') ||
           (c && memchr(other, c, sizeof(other) - 1));
}

static bool text_char(unsigned char c)
{
    return (c >= 0x20 && c != 0x7F) || c == '\t';
}

static bool size_byte(struct chunked *c, char byte)
{
    int digit = hex_digit(byte);

    if (digit >= 0) {
        if (c->line >= 16)
            return false;
        c->left = c->left << 4 | (unsigned)digit;
        c->line++;
        c->state = SIZE;
        return true;
    }
    if (c->state == SIZE_FIRST || (byte != '\r' && byte != ';'))
        return false;
    c->state = byte == '\r' ? SIZE_LF : EXT_NAME_FIRST;
    return true;
}

/* An extension ends, or the next one begins. */
static bool extension_over(struct chunked *c, char byte)
{
    c->state = byte == '\r' ? SIZE_LF : EXT_NAME_FIRST;
    return byte == '\r' || byte == ';';
}

static bool quoted_byte(struct chunked *c, char byte)
{
    c->state = byte == '\\' ? EXT_ESCAPE : byte == '"' ? EXT_END : EXT_QUOTED;
    return text_char((unsigned char)byte);
}

/* ;name, ;name=value or ;name="text" */
static bool extension_byte(struct chunked *c, char byte)
{
    unsigned char b = (unsigned char)byte;

    if (++c->line > CHUNKED_LINE_MAX)
        return false;
    switch (c->state) {
    case EXT_NAME_FIRST:
        c->state = EXT_NAME;
        return name_char(b);
    case EXT_NAME:
        if (byte != '=')
            return name_char(b) || extension_over(c, byte);
        c->state = EXT_VALUE_FIRST;
        return true;
    case EXT_VALUE_FIRST:
        c->state = byte == '"' ? EXT_QUOTED : EXT_VALUE;
        return byte == '"' || name_char(b);
    case EXT_VALUE:
        return name_char(b) || extension_over(c, byte);
    case EXT_QUOTED:
        return quoted_byte(c, byte);
    case EXT_ESCAPE:
        c->state = EXT_QUOTED;
        return text_char(b);
    default:
        return extension_over(c, byte);
    }
}

/*
 * Fields that would change the framing of what was just framed. While a name is read, `left` has a bit for each of them
 * that it may still become, and `line` counts its bytes.
 */
static const char *const framing_fields[] = {"content-length", "transfer-encoding"};

static void trailer_name(struct chunked *c, char byte)
{
    for (unsigned i = 0; i < ARRAY_LEN(framing_fields); i++)
        if ((c->left >> i & 1) && ascii_lower(byte) != framing_fields[i][c->line])
            c->left &= ~(UINT64_C(1) << i);
    c->line++;
}

static bool trailer_is_framing(const struct chunked *c)
{
    for (unsigned i = 0; i < ARRAY_LEN(framing_fields); i++)
        if ((c->left >> i & 1) && framing_fields[i][c->line] == 0)
            return true;
    return false;
}

static bool trailer_byte(struct chunked *c, char byte)
{
    unsigned char b = (unsigned char)byte;

    if (++c->trailer > CHUNKED_TRAILER_MAX)
        return false;
    switch ((enum state)c->state) {
    case TRAILER_FIRST:
        if (byte == '\r') {
            c->state = FINAL_LF;
            return true;
        }
        c->state = TRAILER_NAME;
        c->line = 0;
        c->left = (UINT64_C(1) << ARRAY_LEN(framing_fields)) - 1;
        trailer_name(c, byte);
        return name_char(b);
    case TRAILER_NAME:
        if (byte == ':') {
            c->state = TRAILER_VALUE;
            return !trailer_is_framing(c);
        }
        if (c->left)
            trailer_name(c, byte);
        return name_char(b);
    case TRAILER_VALUE:
        if (byte != '\r')
            return text_char(b);
        c->state = TRAILER_LF;
        return true;
    case TRAILER_LF:
        c->state = TRAILER_FIRST;
        return byte == '\n';
    case SIZE_FIRST:
    case SIZE:
    case EXT_NAME_FIRST:
    case EXT_NAME:
    case EXT_VALUE_FIRST:
    case EXT_VALUE:
    case EXT_QUOTED:
    case EXT_ESCAPE:
    case EXT_END:
    case SIZE_LF:
    case DATA:
    case DATA_CR:
    case DATA_LF:
    case FINAL_LF:
    default:
        BUG_ON(true);
    }
    return false;
}

/* One byte of framing. */
static bool framing_byte(struct chunked *c, char byte)
{
    switch ((enum state)c->state) {
    case SIZE_FIRST:
    case SIZE:
        return size_byte(c, byte);
    case EXT_NAME_FIRST:
    case EXT_NAME:
    case EXT_VALUE_FIRST:
    case EXT_VALUE:
    case EXT_QUOTED:
    case EXT_ESCAPE:
    case EXT_END:
        return extension_byte(c, byte);
    case SIZE_LF:
        c->line = 0;
        c->state = c->left ? DATA : TRAILER_FIRST;
        return byte == '\n';
    case DATA_CR:
        c->state = DATA_LF;
        return byte == '\r';
    case DATA_LF:
        c->state = SIZE_FIRST;
        return byte == '\n';
    case FINAL_LF:
        c->done = true;
        return byte == '\n';
    case TRAILER_FIRST:
    case TRAILER_NAME:
    case TRAILER_VALUE:
    case TRAILER_LF:
        return trailer_byte(c, byte);
    case DATA:
    default:
        BUG_ON(true);
    }
    return false;
}

/* A size line that is here whole, and plain, at once: where payload begins, or p. */
static const char *plain_size(struct chunked *c, const char *p, const char *end)
{
    uint64_t size = 0;
    const char *at = p;

    for (int digit; at < end && at - p < 8 && (digit = hex_digit(*at)) >= 0; at++)
        size = size << 4 | (unsigned)digit;
    if (size == 0 || end - at < 2 || at[0] != '\r' || at[1] != '\n')
        return p;
    c->left = size;
    c->state = DATA;
    return at + 2;
}

int64_t wire_chunked_read(struct chunked *c, const char *p, size_t n, struct slice *payload)
{
    size_t i = 0;

    *payload = slice_of(p, 0);
    while (i < n && !c->done) {
        if (c->state == DATA_CR && n - i >= 2 && p[i] == '\r' && p[i + 1] == '\n') {
            c->state = SIZE_FIRST;
            i += 2;
            continue;
        }
        if (c->state == SIZE_FIRST)
            i = (size_t)(plain_size(c, p + i, p + n) - p);
        if (c->state != DATA) {
            if (!framing_byte(c, p[i]))
                return WEIR_E_PROTO;
            i++;
            continue;
        }
        if (payload->n)
            break;
        *payload = slice_of(p + i, MIN(c->left, n - i));
        i += payload->n;
        c->left -= payload->n;
        if (c->left == 0)
            c->state = DATA_CR;
    }
    return (int64_t)i;
}

size_t wire_chunked_prefix(char out[CHUNKED_PREFIX_MAX], size_t n)
{
    size_t digits = 1;

    BUG_ON(n == 0);
    while (digits < 16 && n >> (4 * digits))
        digits++;
    for (size_t i = 0; i < digits; i++)
        out[i] = "0123456789abcdef"[n >> (4 * (digits - 1 - i)) & 15];
    out[digits] = '\r';
    out[digits + 1] = '\n';
    return digits + 2;
}
