/* SPDX-License-Identifier: Apache-2.0 */
/** @file Reading an answer of the DNS (RFC 1035, 2782, 3596). Pure. */
#ifndef WEIR_DISCOVERY_DNS_CODEC_H
#define WEIR_DISCOVERY_DNS_CODEC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

enum { DNS_A = 1, DNS_AAAA = 28, DNS_SRV = 33 };
enum { DNS_NAME_SIZE = 256, DNS_ADDR_TEXT = 46 };

/** One record of type A, AAAA or SRV. */
struct dns_record {
    bool additional; /**< not of the answer itself */
    uint16_t type;
    uint32_t ttl_s;
    char name[DNS_NAME_SIZE];        /**< lower case, without the dot at its end */
    char addr[DNS_ADDR_TEXT];        /**< A and AAAA: as text */
    uint16_t priority, weight, port; /**< SRV */
    char target[DNS_NAME_SIZE];      /**< SRV; "": the service is not offered */
};

struct dns_reader {
    struct slice message;
    size_t at;
    uint16_t left[3]; /**< records of answer, authority and additional section */
};

/** @param message borrowed while it is read. @return 0, WEIR_E_PROTO. */
int dns_read(struct dns_reader *r, struct slice message) MUST_CHECK;
/**
 * The next record that is understood; others are passed over.
 * @return 0; WEIR_E_NOTFOUND: that was all; WEIR_E_PROTO: the message is broken, or a name has bytes that no host has.
 */
int dns_read_next(struct dns_reader *r, struct dns_record *out) MUST_CHECK;

/** SRV weight as ours (thousandths), beside the largest of its priority: 0 is the least above nothing. */
uint32_t dns_weight(uint16_t weight, uint16_t largest);

#endif /* WEIR_DISCOVERY_DNS_CODEC_H */
