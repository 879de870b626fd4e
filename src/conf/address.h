/* SPDX-License-Identifier: Apache-2.0 */
/** @file Literal addresses and endpoint URLs in the configuration. Internal to conf. */
#ifndef WEIR_CONF_ADDRESS_H
#define WEIR_CONF_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

/** A host as numbers, to compare two of them. IPv4 is kept as ::ffff:a.b.c.d. */
struct conf_host {
    uint8_t bytes[16];
    bool any;      /**< 0.0.0.0 or :: */
    bool loopback; /**< 127.0.0.0/8 or ::1 */
};

/** A literal (IPv6 without brackets) or "localhost". WEIR_E_INVALID for anything else. */
int conf_host_parse(struct slice text, struct conf_host *out) MUST_CHECK;

/** Can two listeners not have the same port? */
bool conf_host_overlap(const struct conf_host *a, const struct conf_host *b);

/** Does a connection to one surely reach a listener on the other, the ports being equal? */
bool conf_host_reaches(const struct conf_host *to, const struct conf_host *listener);

/**
 * "host:port" or "[v6]:port", borrowed from text.
 * @return 0; WEIR_E_INVALID when it has no such form; WEIR_E_RANGE when the port is no number up to 65535.
 */
int conf_host_port_split(struct slice text, struct slice *host, uint16_t *port) MUST_CHECK;

/**
 * "http://host[:port][/]" or https, borrowed from text; the port is 80 or 443 when it is not given.
 * Or "http+unix:///path": host is the path, port 0.
 * @param why out: on failure, what is wrong, as words that follow the quoted URL.
 */
int conf_url_split(
    struct slice text, bool *tls, struct slice *host, uint16_t *port, const char **why) MUST_CHECK;

#endif /* WEIR_CONF_ADDRESS_H */
