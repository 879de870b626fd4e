/* SPDX-License-Identifier: Apache-2.0 */
/** @file Listeners of the configuration, as the data plane opens them. */
#ifndef WEIR_APPS_SERVE_LISTEN_H
#define WEIR_APPS_SERVE_LISTEN_H

#include "conf/conf.h"
#include "net/listener.h"

/**
 * Names become numbers: users and groups of Unix sockets, descriptors of the service manager.
 * @param why what is wrong, one line. @return 0; WEIR_E_NOTFOUND or WEIR_E_INVALID.
 */
int listen_at(const struct conf_listener *l, struct net_listen_at *out, struct buf *why) MUST_CHECK;

/** A literal TCP address. */
int listen_address(const struct conf_address *a, struct net_addr *out) MUST_CHECK;

/**
 * Why an address could not be listened on, in words for whoever has to mend it.
 * @param error errno. @param words room that the answer may use.
 */
const char *listen_reason(const struct net_addr *addr, int error, char *words, size_t n);

#endif /* WEIR_APPS_SERVE_LISTEN_H */
