/* SPDX-License-Identifier: Apache-2.0 */
/* Protocol buffers by hand: three messages, none of them nested deeper than the map of headers. */
#include "registry/nacos_payload_codec.h"

enum {
    WIRE_VARINT = 0,
    WIRE_64 = 1,
    WIRE_BYTES = 2,
    WIRE_32 = 5,
    PAYLOAD_METADATA = 2,
    PAYLOAD_BODY = 3,
    METADATA_TYPE = 3,
    METADATA_HEADERS = 7,
    ENTRY_KEY = 1,
    ENTRY_VALUE = 2,
    ANY_VALUE = 2,
};

/* --- reading --- */

static int read_varint(struct slice *s, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; shift < 64 && s->n; shift += 7) {
        unsigned char byte = (unsigned char)*s->p++;
        s->n--;
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return 0;
    }
    return WEIR_E_PROTO;
}

static int skip(struct slice *s, uint64_t n, struct slice *what)
{
    if (n > s->n)
        return WEIR_E_PROTO;
    *what = slice_of(s->p, (size_t)n);
    *s = slice_from(*s, (size_t)n);
    return 0;
}

/* The next field. @return 1, 0 at the end, WEIR_E_PROTO. bytes is absent where the field is a number. */
static int next_field(struct slice *s, uint64_t *number, struct slice *bytes)
{
    struct slice ignored;
    uint64_t tag;
    uint64_t v;
    int rc;

    *bytes = (struct slice){NULL, 0};
    if (s->n == 0)
        return 0;
    if (read_varint(s, &tag))
        return WEIR_E_PROTO;
    *number = tag >> 3;
    switch (tag & 7) {
    case WIRE_VARINT:
        rc = read_varint(s, &v);
        break;
    case WIRE_64:
        rc = skip(s, 8, &ignored);
        break;
    case WIRE_32:
        rc = skip(s, 4, &ignored);
        break;
    case WIRE_BYTES:
        rc = read_varint(s, &v);
        if (rc == 0)
            rc = skip(s, v, bytes);
        break;
    default:
        rc = WEIR_E_PROTO;
    }
    return *number == 0 || rc ? WEIR_E_PROTO : 1;
}

static int read_header(struct slice entry, struct nacos_payload *out)
{
    struct slice key = {NULL, 0};
    struct slice value = {NULL, 0};
    struct slice bytes;
    uint64_t number;
    int rc;

    while ((rc = next_field(&entry, &number, &bytes)) > 0) {
        if (number == ENTRY_KEY && bytes.p)
            key = bytes;
        else if (number == ENTRY_VALUE && bytes.p)
            value = bytes;
    }
    if (slice_eq(key, SLICE("accessToken")) && value.n)
        out->token = value;
    return rc;
}

static int read_metadata(struct slice metadata, struct nacos_payload *out)
{
    struct slice bytes;
    uint64_t number;
    int rc;

    while ((rc = next_field(&metadata, &number, &bytes)) > 0) {
        if (number == METADATA_TYPE && bytes.p)
            out->type = bytes;
        else if (number == METADATA_HEADERS && bytes.p && read_header(bytes, out))
            return WEIR_E_PROTO;
    }
    return rc;
}

static int read_any(struct slice any, struct nacos_payload *out)
{
    struct slice bytes;
    uint64_t number;
    int rc;

    while ((rc = next_field(&any, &number, &bytes)) > 0)
        if (number == ANY_VALUE && bytes.p)
            out->body = bytes;
    return rc;
}

int nacos_payload_read(struct slice message, struct nacos_payload *out)
{
    struct slice bytes;
    uint64_t number;
    int rc;

    *out = (struct nacos_payload){0};
    while ((rc = next_field(&message, &number, &bytes)) > 0) {
        if (number == PAYLOAD_METADATA && bytes.p && read_metadata(bytes, out))
            return WEIR_E_PROTO;
        if (number == PAYLOAD_BODY && bytes.p && read_any(bytes, out))
            return WEIR_E_PROTO;
    }
    return rc ? rc : out->type.n ? 0 : WEIR_E_PROTO;
}

/* --- writing --- */

static size_t varint_size(uint64_t v)
{
    size_t n = 1;

    while (v >>= 7)
        n++;
    return n;
}

static void put_varint(struct buf *out, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        buf_put_char(out, (char)(v | 0x80));
    buf_put_char(out, (char)v);
}

/* Numbers are below 16, so a tag is one byte. */
static size_t field_size(size_t n)
{
    return 1 + varint_size(n) + n;
}

static void put_head(struct buf *out, unsigned number, size_t n)
{
    buf_put_char(out, (char)(number << 3 | WIRE_BYTES));
    put_varint(out, n);
}

static void put_field(struct buf *out, unsigned number, struct slice s)
{
    put_head(out, number, s.n);
    buf_put_slice(out, s);
}

int nacos_payload_write(struct buf *out, const struct nacos_payload *p)
{
    struct slice key = SLICE("accessToken");
    size_t entry = field_size(key.n) + field_size(p->token.n);

    put_head(out, PAYLOAD_METADATA, field_size(p->type.n) + (p->token.n ? field_size(entry) : 0));
    put_field(out, METADATA_TYPE, p->type);
    if (p->token.n) {
        put_head(out, METADATA_HEADERS, entry);
        put_field(out, ENTRY_KEY, key);
        put_field(out, ENTRY_VALUE, p->token);
    }
    put_head(out, PAYLOAD_BODY, field_size(p->body.n));
    put_field(out, ANY_VALUE, p->body);
    return out->err;
}
