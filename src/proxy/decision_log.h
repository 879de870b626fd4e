/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Inside the room: which picks are captured, and where they are kept. One ring for all lanes: it is locked only
 * for decisions that are logged (decisions.sample a second), and then for moving a pointer.
 */
#ifndef WEIR_PROXY_DECISION_LOG_H
#define WEIR_PROXY_DECISION_LOG_H

#include "proxy/exchange.h"

enum { EXPLAIN_HEADER_MAX = 4096 /* bytes of an explanation in an answer */ };

/** @param per_s decisions logged a second at most; 0 = none. */
int decision_log_new(const struct mem *mem, uint32_t per_s, struct decision_log **out) MUST_CHECK;
/** Another rate from now on. Thread: any. */
void decision_log_rate(struct decision_log *g, uint32_t per_s);
/** NULL is allowed. */
void decision_log_free(struct decision_log *g);

/** Before a pick: capture it when the log has room for one more this second, or the client asked why. */
void decision_arm(struct asker *a, bool asked, uint64_t now_ns);
/** The pick counts for nothing. */
void decision_disarm(struct asker *a);
/** The pick was made for x, on its lane, and the pool was left. An earlier decision for x ends here. */
void decision_keep(struct asker *a, struct exchange *x);
/** The same for a waiter, on the thread that grants, before the grant is posted. */
void decision_grant(struct asker *a, struct exchange *x);
/** The grant arrived on x's lane. */
void decision_granted(struct exchange *x);
/** The exchange is over. */
void decision_end(struct exchange *x, enum proxy_outcome outcome);

/* explain.c */
/** May this client see why, and does it want to? */
bool explain_asked(const struct plan *p, const struct request_fields *f);
/** "X-Weir-Explain: ..." CRLF, when it was asked for. */
void explain_put_header(struct buf *out, const struct exchange *x);

#endif /* WEIR_PROXY_DECISION_LOG_H */
