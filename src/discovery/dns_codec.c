/* SPDX-License-Identifier: Apache-2.0 */
#include "discovery/dns_codec.h"

#include "model/endpoint_t.h"

enum { HEAD = 12, CLASS_IN = 1 };

static uint32_t u8(const struct dns_reader *r, size_t at)
{
    return (unsigned char)r->message.p[at];
}

static uint32_t u16(const struct dns_reader *r, size_t at)
{
    return u8(r, at) << 8 | u8(r, at + 1);
}

/* One label to the end of the name. Letters and digits, and what else stands in names of hosts and services. */
static int put_label(struct slice label, char *name, size_t *n)
{
    if (*n + (*n > 0) + label.n >= DNS_NAME_SIZE)
        return WEIR_E_PROTO;
    if (*n > 0)
        name[(*n)++] = '.';
    for (size_t i = 0; i < label.n; i++) {
        char c = ascii_lower(label.p[i]);
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-' && c != '_')
            return WEIR_E_PROTO;
        name[(*n)++] = c;
    }
    return 0;
}

/* *at moves past the name where it stands. Pointers only lead backwards, so they end. */
static int read_name(const struct dns_reader *r, size_t *at, char name[DNS_NAME_SIZE])
{
    size_t here = *at;
    size_t least = *at;
    bool jumped = false;
    size_t n = 0;

    while (here < r->message.n) {
        uint32_t len = u8(r, here);
        if (len == 0) {
            name[n] = '\0';
            if (!jumped)
                *at = here + 1;
            return 0;
        }
        if (len >= 0xc0) {
            if (here + 2 > r->message.n)
                return WEIR_E_PROTO;
            size_t to = u16(r, here) & 0x3fff;
            if (to >= least)
                return WEIR_E_PROTO;
            if (!jumped)
                *at = here + 2;
            jumped = true;
            here = least = to;
            continue;
        }
        if (len > 63 || here + 1 + len > r->message.n ||
            put_label(slice_of(r->message.p + here + 1, len), name, &n))
            return WEIR_E_PROTO;
        here += 1 + len;
    }
    return WEIR_E_PROTO;
}

int dns_read(struct dns_reader *r, struct slice message)
{
    char name[DNS_NAME_SIZE];

    *r = (struct dns_reader){.message = message, .at = HEAD};
    if (message.n < HEAD)
        return WEIR_E_PROTO;
    for (unsigned i = 0; i < 3; i++)
        r->left[i] = (uint16_t)u16(r, 6 + 2 * i);
    for (uint32_t n = u16(r, 4); n > 0; n--)
        if (read_name(r, &r->at, name) || (r->at += 4) > message.n)
            return WEIR_E_PROTO;
    return 0;
}

static char *put_number(char *to, uint32_t v, unsigned base)
{
    static const char digits[] = "0123456789abcdef";
    char room[8];
    unsigned n = 0;

    do {
        room[n++] = digits[v % base];
        v /= base;
    } while (v);
    while (n)
        *to++ = room[--n];
    return to;
}

static void put_v4(const struct dns_reader *r, size_t at, char *to)
{
    for (unsigned i = 0; i < 4; i++) {
        to = put_number(to, u8(r, at + i), 10);
        *to++ = i < 3 ? '.' : '\0';
    }
}

/* As RFC 5952: the longest run of two zero groups or more is "::". */
static void put_v6(const struct dns_reader *r, size_t at, char *to)
{
    unsigned from = 8;
    unsigned longest = 1;

    for (unsigned i = 0; i < 8; i++) {
        unsigned n = 0;
        while (i + n < 8 && u16(r, at + 2 * (i + n)) == 0)
            n++;
        if (n > longest) {
            from = i;
            longest = n;
        }
    }
    for (unsigned i = 0; i < 8; i++) {
        if (i == from) {
            *to++ = ':';
            if (i == 0)
                *to++ = ':';
            i += longest - 1;
            continue;
        }
        to = put_number(to, u16(r, at + 2 * i), 16);
        if (i < 7)
            *to++ = ':';
    }
    *to = '\0';
}

static int read_data(struct dns_reader *r, size_t n, struct dns_record *out)
{
    size_t at = r->at;

    if (out->type == DNS_A || out->type == DNS_AAAA) {
        if (n != (out->type == DNS_A ? 4 : 16))
            return WEIR_E_PROTO;
        (out->type == DNS_A ? put_v4 : put_v6)(r, at, out->addr);
        return 0;
    }
    if (n < 7)
        return WEIR_E_PROTO;
    out->priority = (uint16_t)u16(r, at);
    out->weight = (uint16_t)u16(r, at + 2);
    out->port = (uint16_t)u16(r, at + 4);
    at += 6;
    return read_name(r, &at, out->target) || at != r->at + n ? WEIR_E_PROTO : 0;
}

/* A record of a kind that we do not read may have a name that we would not take. */
static int skip_name(const struct dns_reader *r, size_t *at)
{
    while (*at < r->message.n) {
        uint32_t len = u8(r, *at);
        if (len == 0 || len >= 0xc0) {
            *at += len ? 2 : 1;
            return *at <= r->message.n ? 0 : WEIR_E_PROTO;
        }
        if (len > 63)
            return WEIR_E_PROTO;
        *at += 1 + len;
    }
    return WEIR_E_PROTO;
}

int dns_read_next(struct dns_reader *r, struct dns_record *out)
{
    for (unsigned section = 0; section < 3; section++) {
        while (r->left[section]) {
            size_t name = r->at;
            r->left[section]--;
            if (skip_name(r, &r->at) || r->at + 10 > r->message.n)
                return WEIR_E_PROTO;
            uint32_t type = u16(r, r->at);
            bool in = u16(r, r->at + 2) == CLASS_IN;
            uint32_t ttl = u16(r, r->at + 4) << 16 | u16(r, r->at + 6);
            size_t n = u16(r, r->at + 8);
            r->at += 10;
            if (r->at + n > r->message.n)
                return WEIR_E_PROTO;
            if (section == 1 || !in || (type != DNS_A && type != DNS_AAAA && type != DNS_SRV)) {
                r->at += n;
                continue;
            }
            *out = (struct dns_record){
                .additional = section == 2,
                .type = (uint16_t)type,
                .ttl_s = ttl > INT32_MAX ? 0 : ttl,
            };
            if (read_name(r, &name, out->name) || read_data(r, n, out))
                return WEIR_E_PROTO;
            r->at += n;
            return 0;
        }
    }
    return WEIR_E_NOTFOUND;
}

uint32_t dns_weight(uint16_t weight, uint16_t largest)
{
    if (!largest)
        return WEIGHT_ONE;
    uint32_t w = (uint32_t)weight * WEIGHT_ONE / largest;
    return w ? w : 1;
}
