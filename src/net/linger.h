/* SPDX-License-Identifier: Apache-2.0 */
/** @file The polite end of a connection whose owner has let it go. Inside net only. */
#ifndef WEIR_NET_LINGER_H
#define WEIR_NET_LINGER_H

#include "base/buf.h"
#include "loop/loop.h"

/**
 * Write what is queued, send FIN, then read and drop until the peer's FIN; bounds as net_conn_linger() says. Takes fd and
 * the buffer. Without memory it is closed at once.
 */
void linger_start(struct loop *loop, int fd, struct buf *out);

#endif /* WEIR_NET_LINGER_H */
